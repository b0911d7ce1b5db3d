"""`gpudash [WORKLOAD]`: trains a workload, on the dashboard or headless."""

import argparse

from gpudash.cli.options import (
    add_number,
    add_quiet,
    add_record,
    add_recording_options,
    add_screen_options,
    add_switch,
    add_training_options,
    add_whole,
)
from gpudash.cli.parser import Parser, Verb
from gpudash.cli.verbs import summaries
from gpudash.commands.stdout import say
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    """Add the arguments of the dashboard."""
    add_training_options(parser)
    length = parser.add_argument_group("length").add_mutually_exclusive_group()
    add_whole(length, "--steps", 1, 10**12, "stop after N steps")
    add_number(length, "--duration", 0.1, 10**9, "S", "stop after S seconds of training")
    output = parser.add_argument_group("without the screen")
    where = output.add_mutually_exclusive_group()
    add_record(where, "; -: the CSV alone, to standard output")
    what = "each row to standard output as it comes, as one JSON object a line"
    add_switch(where, "--jsonl", what)
    add_switch(where, "--once", "print the dashboard as text at its end, or after 5 s of training")
    add_quiet(output)
    add_recording_options(parser)
    add_screen_options(parser)
    parser.add_argument(
        "-V", "--version", action=Versions, nargs=0, help="versions of what matters here"
    )


class Versions(argparse.Action):
    """Prints the versions of gpudash, Python and the libraries of training and screen."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the versions and exit, without importing the libraries."""
        from gpudash.commands.versions import versions  # noqa: PLC0415  # slow

        gpudash, *others = [f"{name} {version or '–'}" for name, version in versions().items()]
        say(f"{gpudash}\n{', '.join(others)}")
        parser.exit()


VERB = Verb(
    name="",
    also="gpudash VERB …",
    summary="Watch a training workload's throughput and change it while it runs.",
    details=summaries,
    add_arguments=add_arguments,
    examples=(
        ("gpudash", "the dashboard over the default workload"),
        ("gpudash encdec --record run.csv --steps 200", "record 200 steps without a screen"),
        ("gpudash --jsonl -q | jq .steps_per_s", "rows for a program, as they come"),
    ),
    exits=(Exit.DONE, Exit.FAILED, Exit.REFUSED),
    configuration="obeyed",
)
