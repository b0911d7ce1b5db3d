"""`gpudash [WORKLOAD]`: train a workload, on the dashboard or without a screen."""

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from gpudash.cli.options import once_each
from gpudash.cli.plan import make_plan
from gpudash.cli.stdout import complain, on_terminal, say
from gpudash.errors import Exit, UsageError
from gpudash.protocol.commands import Plan
from gpudash.snapshot import Snapshot
from workloads.needs import missing

if TYPE_CHECKING:
    from gpudash.run.replay import Player
    from gpudash.run.session import Session

IN_A_PIPE = (120, 40)
"""Columns and rows of a frame that goes to no terminal."""


def main(arguments: argparse.Namespace) -> int:
    if arguments.command == ["gpudash"] and missing(("torch",)):
        from gpudash.cli.info import welcome

        say(welcome())
        return Exit.REFUSED
    plan = replace(make_plan(arguments), steps=arguments.steps, duration_s=arguments.duration)
    record, rows = _outputs(arguments)
    headless = rows is not None or (record is not None and not arguments.live)
    if arguments.quiet and not headless:
        raise UsageError("--quiet goes with --record FILE.csv or --jsonl")
    if not (headless or arguments.once or on_terminal()):
        raise UsageError("the dashboard needs a terminal; --record FILE.csv runs without one")

    with opening(plan, arguments, record) as open_session:
        if headless:
            from gpudash.cli.headless import run_headless

            return run_headless(open_session(), record, rows, quiet=arguments.quiet)
        if arguments.once:
            return _print_once(
                open_session, plan, ascii_only=arguments.ascii, color=arguments.color
            )
        left = show(open_session, plan, arguments)
        left.print_receipt()
        if left.code != Exit.DONE:
            return left.code
        from gpudash.cli.headless import complain_of_failures

        return complain_of_failures(open_session())


@contextmanager
def opening(
    plan: Plan, arguments: argparse.Namespace, record: Path | None = None, **source: Any
) -> Iterator[Callable[[], "Session"]]:
    """Yield a function that opens the session, once; close it at the end."""
    with ExitStack() as at_end:

        @cache
        def open_session() -> "Session":
            from gpudash.cli.headless import session_of

            return at_end.enter_context(closing(session_of(plan, arguments, **source)))

        if record is not None:  # errors of the file are reported before a screen opens
            open_session().begin_sink(
                "recording", record, force=arguments.force, every_step=arguments.every_step
            )
        destinations = getattr(arguments, "to", ())
        once_each(destinations)
        for name, target in destinations:
            open_session().begin_sink(name, target, force=arguments.force)
        yield open_session


def show(
    open_session: Callable[[], "Session"],
    plan: Plan,
    arguments: argparse.Namespace,
    player: "Player | None" = None,
    first: Snapshot | None = None,
) -> "ScreenResult":
    """`first` is shown until the session sends a snapshot."""
    from gpudash.imports import without_collecting

    with without_collecting():
        from gpudash.tui.app import Dashboard
        from gpudash.tui.preferences import Appearance
        from gpudash.tui.running import run_dashboard

    look = Appearance(theme=arguments.theme, pane=arguments.pane)
    app = Dashboard(
        open_session,
        plan,
        rate_hz=arguments.rate,
        player=player,
        first=first,
        ascii_only=arguments.ascii,
        look=look,
    )
    code = run_dashboard(app)
    return ScreenResult(code, app.control.snapshot, app.control.recorded, app.control.plan.command)


class ScreenResult(NamedTuple):
    """How a dashboard was left; `command` is the user's own, if there is one."""

    code: int
    snapshot: Snapshot
    recorded: str = ""
    command: tuple[str, ...] = ()

    def print_receipt(self, again: str = "") -> None:
        """`again` shows the run again; without it, the recording does."""
        from functools import partial

        from gpudash.present.own_line import own_line
        from gpudash.present.receipt import receipt

        replay = f"gpudash replay {shlex.quote(self.recorded)}" if self.recorded else ""
        code = partial(own_line, self.command, self.snapshot.found)
        for line in receipt(self.snapshot, again or replay, code):
            complain(line)


def check_record_options(arguments: argparse.Namespace, record: Path | None) -> None:
    """Raise UsageError for an option about a recording if nothing is recorded to a file."""
    for option in ("live", "every_step"):
        if getattr(arguments, option) and record is None:
            raise UsageError(f"--{option.replace('_', '-')} goes with --record FILE.csv")


def _outputs(arguments: argparse.Namespace) -> tuple[Path | None, str | None]:
    """Return the file to record to, and the sink of rows on standard output."""
    record: Path | None = arguments.record
    rows: str | None = "jsonl" if arguments.jsonl else None
    if str(record) == "-":
        record, rows = None, "csv"
    check_record_options(arguments, record)
    if rows in (name for name, _ in arguments.to):
        raise UsageError(f"--to {rows} does not go with the same rows on standard output")
    return record, rows


def _print_once(
    open_session: Callable[[], "Session"], plan: Plan, *, ascii_only: bool, color: str
) -> int:

    from gpudash.cli.headless import complain_of_failure
    from gpudash.tui.running import one_frame

    in_color = color == "always" or (sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    width, height = shutil.get_terminal_size(IN_A_PIPE) if sys.stdout.isatty() else IN_A_PIPE
    frame, snapshot = one_frame(
        open_session, plan, size=(width, height), in_color=in_color, ascii_only=ascii_only
    )
    if snapshot.state != "failed":
        say(frame)
        return Exit.DONE
    failure = open_session().failure
    if failure is not None:
        return complain_of_failure(failure)
    complain(f"gpudash: {snapshot.status_line}")
    return Exit.FAILED
