"""`gpudash compare`: compare two recorded runs, setting by setting."""

import argparse
import shutil
import sys
from pathlib import Path

from gpudash.cli.stdout import complain, complain_of_left_out, say_found
from gpudash.compare.rate_bars import rate_bars
from gpudash.compare.runs import table
from gpudash.compare.runs.comparison import Matched, RunComparison, compared
from gpudash.compare.runs.run import RecordedRun, read_run
from gpudash.errors import Exit, UsageError
from gpudash.recording.files import shown

MOST_NAMED = 4
"""Most settings named in an error."""


def main(arguments: argparse.Namespace) -> int:
    """Decide nothing where an interval contains the limit; a setting without one is an error."""
    base, new = _read(arguments.base), _read(arguments.new)
    found = compared(base, new, arguments.fail_below)
    if not found.matched:
        alone = "; ".join(table.alone(found)[:MOST_NAMED])
        instead = "gpudash ab compares two values of a lever"
        raise UsageError(f"no setting is in both runs; {alone}; {instead}")
    text = table.markdown(found) if arguments.markdown else _pictured(found)
    say_found(found, text, as_json=arguments.json)
    return _judged(found)


def _read(path: Path) -> RecordedRun:
    run = read_run(path)
    if not any(one.parts for one in run.measured):
        raise UsageError(f"{shown(path)} has no step after the warm-up")
    complain_of_left_out(run.refused, path)
    return run


def _pictured(found: RunComparison) -> str:
    """Give a pipe the table alone."""
    columns = shutil.get_terminal_size().columns
    picture = rate_bars(table.rates(found), "steps/s", columns) if sys.stdout.isatty() else ""
    return "\n\n".join(filter(None, (table.text(found), picture)))


def _judged(found: RunComparison) -> int:
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


def _named(some: list[Matched], found: RunComparison) -> str:
    return "; ".join(table.label(one, found) for one in some)
