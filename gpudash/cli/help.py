"""`gpudash help VERB`: prints the same as `gpudash VERB --help`."""

import argparse

from gpudash.cli.verbs import VERBS, load
from gpudash.errors import UsageError
from workloads.nearest import unknown


def main(arguments: argparse.Namespace) -> None:
    verb = arguments.verb
    if verb and verb not in VERBS:
        raise UsageError(unknown("verb", verb, VERBS))
    load(verb).parser().print_help()
