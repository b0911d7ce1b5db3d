"""The command line: what is asked for, checked before anything starts.

Every verb is a function of the parsed arguments that returns an exit code. The screen, the
session and everything else are imported by the verb that needs them, so `gpudash --help`
and `gpudash list` cost next to nothing.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gpudash import __version__
from gpudash.errors import GpudashError, UsageError
from gpudash.records import Plan
from workloads import CATALOGUE, DEFAULT, find_workload
from workloads.levers import LeverError, resolve

VERBS = ("list", "doctor")


def main(argv: Sequence[str] | None = None) -> int:
    """Run gpudash. Returns the exit code; 2 for anything wrong with what was asked."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        verb = arguments[0] if arguments and arguments[0] in VERBS else "run"
        if verb == "list":
            return list_workloads(arguments[1:])
        if verb == "doctor":
            return doctor(arguments[1:])
        return run(arguments)
    except (GpudashError, LeverError) as error:
        print(f"gpudash: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gpudash: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # gpudash list | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of printing the usage."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def run(argv: Sequence[str]) -> int:
    """Train a workload, on the dashboard or headless."""
    parser = Parser(
        prog="gpudash",
        description="Watch a training workload's throughput and change it while it runs.",
        epilog="also: gpudash list, gpudash doctor. Keys of the dashboard: press ? in it.",
    )
    parser.add_argument("workload", nargs="?", default=DEFAULT, help=", ".join(CATALOGUE))
    parser.add_argument(
        "--set", action="append", default=[], metavar="LEVER=VALUE", help="see gpudash list"
    )
    parser.add_argument("--batch-size", metavar="N", help="short for --set batch_size=N")
    pipelined = parser.add_mutually_exclusive_group()
    pipelined.add_argument("--pipelined", action="store_true", help="--set pipelined=on")
    pipelined.add_argument("--serial", action="store_true", help="--set pipelined=off")
    parser.add_argument("--seed", metavar="N", help="short for --set seed=N")
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda or cuda:N")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", metavar="N", help="stop after N steps")
    length.add_argument("--duration", metavar="S", help="stop after S seconds of training")
    parser.add_argument(
        "--record", metavar="FILE.csv", help="write a CSV, and FILE.json; without a screen"
    )
    parser.add_argument("--live", action="store_true", help="with --record: the dashboard too")
    parser.add_argument(
        "--interval", metavar="S", help="seconds between rows of the CSV (default 0.5)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing record file")
    parser.add_argument(
        "--rate", metavar="HZ", help="redraws a second (default 4; less for slow links)"
    )
    parser.add_argument("--version", action="version", version=f"gpudash {__version__}")
    arguments = parser.parse_args(argv)

    plan = make_plan(arguments)
    interval_s = _number("--interval", arguments.interval, default=0.5, minimum=0.05, maximum=3600)
    rate_hz = _number("--rate", arguments.rate, default=4.0, minimum=0.2, maximum=30)
    record = Path(arguments.record) if arguments.record is not None else None
    command = ["gpudash", *argv]
    if arguments.live and record is None:
        raise UsageError("--live goes with --record FILE.csv")
    headless = record is not None and not arguments.live
    if not headless and not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("the dashboard needs a terminal; --record FILE.csv runs without one")

    from gpudash.session import Session  # noqa: PLC0415  # not for list and --help

    session = Session(plan, interval_s=interval_s, rate_hz=rate_hz, command=command)
    try:
        if record is not None:
            session.record(record, force=arguments.force)
        if record is not None and headless:
            from gpudash.headless import run_headless  # noqa: PLC0415  # not for the dashboard

            return run_headless(session, record)
        from gpudash.ui.app import run_dashboard  # noqa: PLC0415  # Textual only where shown

        return run_dashboard(session, rate_hz=rate_hz)
    finally:
        session.close()


def make_plan(arguments: argparse.Namespace) -> Plan:
    """Return the plan the arguments describe. Raises LeverError or UsageError."""
    entry = find_workload(arguments.workload)
    settings = dict(_pair(text) for text in arguments.set)
    shorthands = {
        "batch_size": arguments.batch_size,
        "seed": arguments.seed,
        "pipelined": "on" if arguments.pipelined else "off" if arguments.serial else None,
    }
    settings |= {name: value for name, value in shorthands.items() if value is not None}
    resolve(entry.levers, settings)
    _check_device(arguments.device)
    steps = _number("--steps", arguments.steps, default=0, minimum=1, maximum=10**12)
    if steps != int(steps):
        raise UsageError(f"--steps {arguments.steps} is not valid; valid: a whole number from 1")
    duration_s = _number("--duration", arguments.duration, default=0, minimum=0.1, maximum=10**9)
    return Plan(
        workload=entry.name,
        settings=settings,
        device=arguments.device,
        steps=int(steps) or None,
        duration_s=duration_s or None,
    )


def list_workloads(argv: Sequence[str]) -> int:
    """Print the workloads and their levers."""
    parser = Parser(prog="gpudash list", description="Workloads, levers, defaults, choices.")
    parser.add_argument("--json", action="store_true")
    from gpudash import listing  # noqa: PLC0415  # only here

    print(listing.as_json() if parser.parse_args(argv).json else listing.as_text())
    return 0


def doctor(argv: Sequence[str]) -> int:
    """Print what this machine can measure, and what it cannot and why."""
    parser = Parser(prog="gpudash doctor", description="What this machine can measure.")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    from gpudash import doctor as examination  # noqa: PLC0415  # only here

    return examination.main(json=arguments.json)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"--set {text!r} is not valid; valid: LEVER=VALUE")
    return name, value


def _check_device(name: str) -> None:
    """Refuse what cannot name a device; whether it exists, the worker finds out."""
    kind, colon, index = name.partition(":")
    if name in ("auto", "cpu") or (kind == "cuda" and (not colon or index.isdecimal())):
        return
    raise UsageError(f"device {name!r} is not valid; valid: auto, cpu, cuda, cuda:N")


def _number(
    option: str, text: str | None, *, default: float, minimum: float, maximum: float
) -> float:
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not minimum <= number <= maximum:  # also refuses nan
        raise UsageError(
            f"{option} {text} is not valid; valid: a number from {minimum:g} to {maximum:g}"
        )
    return number
