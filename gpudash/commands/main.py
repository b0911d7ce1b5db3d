"""The command line: what is asked for, checked before anything starts.

Every verb is a module beside this one. The screen, the session and everything else are
imported by the verb that needs them, so `gpudash --help` and `gpudash list` cost next to nothing.
"""

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from gpudash import __version__
from gpudash.commands.options import (
    Parser,
    add_screen_options,
    add_training_options,
    make_plan,
    named,
    number,
    whole,
)
from gpudash.commands.stdout import complain, make_do
from gpudash.errors import GpudashError, OutputError, UsageError
from workloads.levers import LeverError

if TYPE_CHECKING:
    from gpudash.run.session import Session

VERBS = ("list", "doctor", "ab", "sweep", "replay", "export")
"""Modules, whose `main` takes the arguments that follow and returns an exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run gpudash. Returns the exit code; 2 for anything wrong with what was asked."""
    make_do()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in VERBS:
            verb = import_module(f"gpudash.commands.{arguments[0]}")
            return int(verb.main(arguments[1:]))
        return run(arguments)
    except (GpudashError, LeverError) as error:
        complain(f"gpudash: {error}")
        return 1 if isinstance(error, OutputError) else 2
    except KeyboardInterrupt:
        complain("gpudash: interrupted")
        return 130


def run(argv: Sequence[str]) -> int:
    """Train a workload, on the dashboard or headless."""
    parser = Parser(
        prog="gpudash",
        description="Watch a training workload's throughput and change it while it runs.",
        epilog=f"also: gpudash {', '.join(VERBS)}. In the dashboard, ? lists the keys.",
    )
    add_training_options(parser)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", metavar="N", help="stop after N steps")
    length.add_argument("--duration", metavar="S", help="stop after S seconds of training")
    parser.add_argument(
        "--record", metavar="FILE.csv", help="write a CSV, FILE.json and FILE.jsonl; no screen"
    )
    parser.add_argument("--live", action="store_true", help="with --record: the dashboard too")
    parser.add_argument(
        "--interval", metavar="S", help="seconds between rows of the CSV (default 0.5)"
    )
    parser.add_argument(
        "--every-step", action="store_true", help="with --record: FILE.jsonl tells of each step"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing record file")
    add_screen_options(parser)
    parser.add_argument("--version", action="version", version=f"gpudash {__version__}")
    arguments = parser.parse_args(argv)

    steps = whole("--steps", arguments.steps, default=0, minimum=1, maximum=10**12)
    duration_s = number("--duration", arguments.duration, default=0, minimum=0.1, maximum=10**9)
    plan = msgspec.structs.replace(
        make_plan(arguments), steps=steps or None, duration_s=duration_s or None
    )
    interval_s = number("--interval", arguments.interval, default=0.5, minimum=0.05, maximum=3600)
    rate_hz = number("--rate", arguments.rate, default=4.0, minimum=0.2, maximum=30)
    record = named("--record", arguments.record)
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
                plan, interval_s=interval_s, rate_hz=rate_hz, command=["gpudash", *argv]
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

        return run_dashboard(open_session, plan, rate_hz=rate_hz, ascii_only=arguments.ascii)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Leave imports alone: they make no garbage, and looking for it takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
