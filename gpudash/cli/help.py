"""What `gpudash help VERB` prints: the same as `gpudash VERB --help`."""

import argparse

from gpudash.cli.parser import not_valid
from gpudash.cli.verbs import VERBS, load
from gpudash.errors import Exit


def main(arguments: argparse.Namespace) -> int:
    """Print a verb's help. Raises UsageError for a verb that there is not."""
    verb = arguments.verb
    if verb and verb not in VERBS:
        raise not_valid("verb", verb, VERBS)
    load(verb).parser().print_help()
    return Exit.DONE
