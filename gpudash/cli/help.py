"""`gpudash help VERB`: prints the same as `gpudash VERB --help`."""

import argparse

from gpudash.cli.parser import Parser, Verb
from gpudash.cli.verbs import VERBS, load
from gpudash.errors import Exit, UsageError
from workloads.nearest import unknown


def add_arguments(parser: Parser) -> None:
    parser.add_argument("verb", nargs="?", default="", metavar="VERB", help="a verb; none: all")


VERB = Verb(
    name="help",
    add_arguments=add_arguments,
    examples=(
        ("gpudash help", "all verbs, and the dashboard's options"),
        ("gpudash help sweep", "the options, examples and exit codes of sweep"),
    ),
)


def main(arguments: argparse.Namespace) -> int:
    verb = arguments.verb
    if verb and verb not in VERBS:
        raise UsageError(unknown("verb", verb, VERBS))
    load(verb).parser().print_help()
    return Exit.DONE
