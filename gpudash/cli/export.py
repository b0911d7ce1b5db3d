"""`gpudash export`: convert a recording to files for other programs."""

import argparse

from gpudash.cli.options import OF_A_RECORDING, add_destinations, add_file, add_output, once_each
from gpudash.cli.parser import Parser, Verb
from gpudash.cli.stdout import complain_of_left_out
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    add_file(parser, "recording", "LOG", "FILE.jsonl, or the CSV beside it")
    one_of = parser.add_mutually_exclusive_group(required=True)
    what = "ends in .csv (FILE.json is written too) or .jsonl"
    add_output(parser, "FILE", what, one_of)
    add_destinations(one_of, OF_A_RECORDING, "to other programs")


VERB = Verb(
    name="export",
    add_arguments=add_arguments,
    examples=(
        ("gpudash export run.jsonl -o again.csv", "the CSV and its JSON, from the log"),
        ("gpudash export run.jsonl --to trace:run.trace.json", "for ui.perfetto.dev"),
    ),
)


def main(arguments: argparse.Namespace) -> int:
    from gpudash.sinks.export import export, export_to

    recording, force = arguments.recording, arguments.force
    if arguments.to:
        once_each(arguments.to)
        refused = export_to(recording, arguments.to, force=force)
    else:
        refused = export(recording, arguments.output, force=force)
    complain_of_left_out(refused, recording)
    return Exit.DONE
