"""`gpudash [WORKLOAD]`: trains a workload, on the dashboard or headless."""

import argparse
import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from gpudash.commands.plan import make_plan
from gpudash.errors import UsageError

if TYPE_CHECKING:
    from gpudash.run.session import Session


def main(arguments: argparse.Namespace) -> int:
    """Train. Returns the exit code."""
    plan = msgspec.structs.replace(
        make_plan(arguments), steps=arguments.steps, duration_s=arguments.duration
    )
    record = arguments.record
    for option in ("live", "every_step"):
        if getattr(arguments, option) and record is None:
            raise UsageError(f"--{option.replace('_', '-')} goes with --record FILE.csv")
    headless = record is not None and not arguments.live
    if not headless and not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("the dashboard needs a terminal; --record FILE.csv runs without one")

    with ExitStack() as at_end:

        @cache
        def open_session() -> "Session":
            from gpudash.run.session import Session  # noqa: PLC0415  # after the first frame

            session = Session(
                plan,
                interval_s=arguments.interval,
                rate_hz=arguments.rate,
                command=arguments.command,
            )
            at_end.callback(session.close)
            return session

        if record is not None:  # what is wrong with the file is told before a screen opens
            open_session().record(record, force=arguments.force, every_step=arguments.every_step)
        if record is not None and headless:
            from gpudash.commands.headless import run_headless  # noqa: PLC0415  # not for the dashboard

            return run_headless(open_session(), record)
        with _without_collecting():
            from gpudash.tui.app import run_dashboard  # noqa: PLC0415  # Textual only where shown

        return run_dashboard(open_session, plan, rate_hz=arguments.rate, ascii_only=arguments.ascii)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Leave imports alone: they make no garbage, and looking for it takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
