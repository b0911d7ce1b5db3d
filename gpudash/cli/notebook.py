"""`gpudash notebook`: print the line for the first cell of a notebook without gpudash."""

import argparse
import sys

from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit


def add_arguments(_parser: Parser) -> None:
    """Add no arguments."""


VERB = Verb(
    name="notebook",
    add_arguments=add_arguments,
    details=lambda: (
        "Where gpudash is installed in the kernel's environment, %load_ext gpudash is enough.\n"
        "Elsewhere on this machine the printed line does the same: the kernel needs nothing of "
        "gpudash's.\ngpudash attach then shows the dashboard over the kernel, in any terminal.\n"
        "docs/guide/notebooks.md says more."
    ),
    examples=(
        ("gpudash notebook", "a line to paste into the first cell"),
        ("gpudash notebook | xclip", "… into the clipboard"),
    ),
)


def main(_arguments: argparse.Namespace) -> int:
    from gpudash.cli.stdout import complain, say
    from gpudash.run.user_command import INJECTED

    complain("for the notebook's first cell:")
    say(f'%run "{INJECTED / "first_cell.py"}" "{sys.executable}"')
    return Exit.DONE
