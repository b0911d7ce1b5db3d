"""`gpudash help VERB`: prints the same as `gpudash VERB --help`."""

import argparse

from gpudash.cli.verbs import VERBS, load
from gpudash.errors import Exit, UsageError
from workloads.nearest import unknown


def main(arguments: argparse.Namespace) -> int:
    verb = arguments.verb
    if verb and verb not in VERBS:
        raise UsageError(unknown("verb", verb, VERBS))
    load(verb).parser().print_help()
    return Exit.DONE
