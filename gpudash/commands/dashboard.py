"""`gpudash [WORKLOAD]`: train a workload, on the dashboard or headless."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpudash.commands.plan import make_plan
from gpudash.commands.stdout import on_terminal
from gpudash.errors import UsageError
from gpudash.imports import without_collecting
from gpudash.protocol import Plan

if TYPE_CHECKING:
    from gpudash.run.replay import Player
    from gpudash.run.session import Session


def main(arguments: argparse.Namespace) -> int:
    """Train a workload; return the exit code."""
    plan = msgspec.structs.replace(
        make_plan(arguments), steps=arguments.steps, duration_s=arguments.duration
    )
    record, rows = _outputs(arguments)
    headless = rows is not None or (record is not None and not arguments.live)
    if arguments.quiet and not headless:
        raise UsageError("--quiet goes with --record FILE.csv or --jsonl")
    if not (headless or arguments.once or on_terminal()):
        raise UsageError("the dashboard needs a terminal; --record FILE.csv runs without one")

    with opening(plan, arguments, record) as open_session:
        if headless:
            from gpudash.commands.headless import run_headless, run_streaming  # noqa: PLC0415  # not for the dashboard

            if record is not None:
                return run_headless(open_session(), record, quiet=arguments.quiet)
            if rows is not None:
                return run_streaming(open_session(), rows, quiet=arguments.quiet)
        if arguments.once:
            from gpudash.commands.once import print_once  # noqa: PLC0415  # …

            return print_once(open_session, plan, ascii_only=arguments.ascii, color=arguments.color)
        return show(open_session, plan, arguments)


@contextmanager
def opening(
    plan: Plan, arguments: argparse.Namespace, record: Path | None, **source: Any
) -> Iterator[Callable[[], "Session"]]:
    """Yield a function that opens the session, once; close it at the end.

    `source` are further arguments of the session.
    """
    with ExitStack() as at_end:

        @cache
        def open_session() -> "Session":
            from gpudash.run.session import Session  # noqa: PLC0415  # after the first frame

            session = Session(
                plan,
                interval_s=arguments.interval,
                rate_hz=arguments.rate,
                command=arguments.command,
                set_by=arguments.set_by,
                **source,
            )
            at_end.callback(session.close)
            return session

        if record is not None:  # errors of the file are reported before a screen opens
            open_session().begin_sink(
                "recording", record, force=arguments.force, every_step=arguments.every_step
            )
        yield open_session


def show(
    open_session: Callable[[], "Session"],
    plan: Plan,
    arguments: argparse.Namespace,
    player: "Player | None" = None,
) -> int:
    """Open the dashboard, with a `player` for a recording; return the exit code."""
    with without_collecting():
        from gpudash.tui.app import Dashboard, run_dashboard  # noqa: PLC0415  # Textual is slow
        from gpudash.tui.look import Look  # noqa: PLC0415  # … too

    look = Look(theme=arguments.theme, pane=arguments.pane, keys=arguments.keys)
    app = Dashboard(
        open_session,
        plan,
        rate_hz=arguments.rate,
        player=player,
        ascii_only=arguments.ascii,
        look=look,
    )
    return run_dashboard(app)


def check_record_options(arguments: argparse.Namespace, record: Path | None) -> None:
    """Raise UsageError for an option about a recording if nothing is recorded to a file."""
    for option in ("live", "every_step"):
        if getattr(arguments, option) and record is None:
            raise UsageError(f"--{option.replace('_', '-')} goes with --record FILE.csv")


def _outputs(arguments: argparse.Namespace) -> tuple[Path | None, str | None]:
    """Return the file to record to, and the sink of rows on standard output."""
    record: Path | None = arguments.record
    rows = "jsonl" if arguments.jsonl else None
    if record == Path("-"):
        record, rows = None, "csv"
    check_record_options(arguments, record)
    return record, rows
