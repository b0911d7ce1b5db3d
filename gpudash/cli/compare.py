"""`gpudash compare`: compare two recorded runs, setting by setting."""

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from gpudash.cli.options import add_file, add_json, add_number, add_switch
from gpudash.cli.parser import Parser, Verb
from gpudash.cli.stdout import complain
from gpudash.errors import Exit, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from gpudash.compare.runs.comparison import Matched, RunComparison
    from gpudash.compare.runs.run import RecordedRun

MOST_NAMED = 4
"""Most settings named in an error."""


def add_arguments(parser: Parser) -> None:
    for name in ("base", "new"):
        add_file(parser, name, name.upper(), "a recording's log or CSV")
    what = f"exit {Exit.SLOWER:d} if a throughput is shown to lie below RATIO times that of BASE"
    add_number(parser, "--fail-below", 0.001, 1000, "RATIO", what)
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    add_switch(form, "--markdown", "print a table in Markdown")


VERB = Verb(
    name="compare",
    add_arguments=add_arguments,
    examples=(
        ("gpudash compare base.csv new.csv", "the ratio of each setting, with an interval"),
        ("gpudash compare base.csv new.csv --fail-below 0.97", "a check for CI"),
    ),
    exits=(Exit.DONE, Exit.REFUSED, Exit.SLOWER),
    meanings={Exit.SLOWER: "a throughput is shown to lie below what --fail-below says"},
)


def main(arguments: argparse.Namespace) -> int:
    """Decide nothing where an interval contains the limit; a setting without one is an error."""
    from gpudash.cli.stdout import say, say_json
    from gpudash.compare.rate_bars import rate_bars
    from gpudash.compare.runs import table
    from gpudash.compare.runs.comparison import compared

    base, new = _read(arguments.base), _read(arguments.new)
    found = compared(base, new, arguments.fail_below)
    if not found.matched:
        alone = "; ".join(table.alone(found)[:MOST_NAMED])
        instead = "gpudash ab compares two values of a lever"
        raise UsageError(f"no setting is in both runs; {alone}; {instead}")
    if arguments.json:
        say_json(found)
    elif arguments.markdown:
        say(table.markdown(found))
    else:
        columns = shutil.get_terminal_size().columns
        picture = rate_bars(table.rates(found), "steps/s", columns) if sys.stdout.isatty() else ""
        say("\n\n".join(filter(None, (table.text(found), picture))))
    return _judged(found)


def _read(path: "Path") -> "RecordedRun":
    from gpudash.cli.stdout import complain_of_left_out
    from gpudash.compare.runs.run import read_run
    from gpudash.recording.files import shown

    run = read_run(path)
    if not any(one.parts for one in run.measured):
        raise UsageError(f"{shown(path)} has no step after the warm-up")
    complain_of_left_out(run.refused, path)
    return run


def _judged(found: "RunComparison") -> int:
    if found.fail_below is None:
        return Exit.DONE
    limit = f"{found.fail_below:g}"
    below, unclear, unknown = (
        [one for one in found.matched if one.judgement == judgement]
        for judgement in ("below", "unclear", "no interval")
    )
    if below:
        complain(f"gpudash: slower than {limit}: {_named(below, found)}")
        return Exit.SLOWER
    if unknown:
        raise UsageError(
            f"--fail-below {limit} cannot be decided without an interval: {_named(unknown, found)}"
        )
    if unclear:
        complain(f"neither shown to be below {limit} nor above it: {_named(unclear, found)}")
    return Exit.DONE


def _named(some: "list[Matched]", found: "RunComparison") -> str:
    from gpudash.compare.runs import table

    return "; ".join(table.label(one, found) for one in some)
