"""`gpudash export`: convert a recording to files for other programs."""

import argparse

from gpudash.cli.options import add_file, add_output
from gpudash.cli.parser import Parser, Verb
from gpudash.cli.stdout import complain_of_left_out
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `export`."""
    add_file(parser, "recording", "LOG", "FILE.jsonl, or the CSV beside it")
    add_output(parser, "FILE", "ends in .csv (FILE.json is written too), .jsonl or .parquet")


VERB = Verb(
    name="export",
    add_arguments=add_arguments,
    examples=(
        ("gpudash export run.jsonl -o again.csv", "the CSV and its JSON, from the log"),
        ("gpudash export run.jsonl -o rows.parquet", "the rows as Parquet"),
    ),
)


def main(arguments: argparse.Namespace) -> int:
    """Write the recording in the requested format; return the exit code.

    Raises UsageError if it cannot be read, and RecordingError if it cannot be written.
    """
    from gpudash.sinks.export import export

    recording = arguments.recording
    refused = export(recording, arguments.output, force=arguments.force)
    complain_of_left_out(refused, recording)
    return Exit.DONE
