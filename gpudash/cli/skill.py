"""`gpudash skill`: print how a program works with gpudash."""

import argparse
from pathlib import Path

from gpudash.cli.stdout import say

TEXT = Path(__file__).with_suffix(".md")


def main(_arguments: argparse.Namespace) -> None:
    say(TEXT.read_text(encoding="utf-8"), end="")
