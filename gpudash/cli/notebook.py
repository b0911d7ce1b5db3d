"""`gpudash notebook`: print the line for the first cell of a notebook without gpudash."""

import argparse
import sys

from gpudash.cli.stdout import complain, say
from gpudash.run.user_command import INJECTED


def main(_arguments: argparse.Namespace) -> None:
    complain("for the notebook's first cell:")
    say(f'%run "{INJECTED / "first_cell.py"}" "{sys.executable}"')
