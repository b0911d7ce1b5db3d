"""The entry point: finds the verb, checks what is asked for before anything starts, and exits.

The screen, the session and everything else are imported by the command that needs them, so
`gpudash --help` and `gpudash list` cost next to nothing.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module

from gpudash.cli.parser import Verb
from gpudash.cli.verbs import VERBS, load
from gpudash.commands.stdout import complain, make_do
from gpudash.errors import Exit, GpudashError, UsageError
from workloads import CATALOGUE
from workloads.levers import LeverError
from workloads.nearest import did_you_mean


def main(argv: Sequence[str] | None = None) -> int:
    """Run gpudash. Returns the exit code."""
    make_do()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        verb, arguments = parse(words)
        return int(import_module(verb.module).main(arguments))
    except LeverError as error:
        complain(f"gpudash: {error}")
        return Exit.REFUSED
    except GpudashError as error:
        complain(f"gpudash: {error}")
        return error.exit
    except KeyboardInterrupt:
        complain("gpudash: interrupted")
        return Exit.INTERRUPTED


def parse(words: Sequence[str]) -> tuple[Verb, Namespace]:
    """Return the verb that is named, the dashboard where none is, and what is asked of it.

    Raises UsageError.
    """
    first, *others = words or [""]
    named = first in VERBS
    if not named and first and not first.startswith("-") and first not in CATALOGUE:
        raise UsageError(
            f"unknown workload {first!r}; valid: {', '.join(CATALOGUE)}, or a verb: "
            f"{', '.join(VERBS)}{did_you_mean(first, (*CATALOGUE, *VERBS))}"
        )
    verb = load(first if named else "")
    arguments = verb.parser().parse_args(others if named else words)
    arguments.command = ["gpudash", *words]
    return verb, arguments
