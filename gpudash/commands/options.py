"""What the verbs' command lines share: options, and the plan they describe."""

import argparse
import locale
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from gpudash.commands.stdout import say
from gpudash.errors import UsageError
from gpudash.protocol import Plan, Settings
from workloads import CATALOGUE, DEFAULT, Entry, find_workload
from workloads.levers import AUTO, Lever, find


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of printing the usage."""
        raise UsageError(f"{message} (see {self.prog} --help)")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit after --help or --version, once that is written. Raises OutputError."""
        say("", end="")
        super().exit(status, message)


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Add what says which training is meant."""
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


def add_screen_options(parser: argparse.ArgumentParser) -> None:
    """Add how the screen is drawn."""
    parser.add_argument(
        "--rate", metavar="HZ", help="redraws a second (default 4; less for slow links)"
    )
    parser.add_argument(
        "--ascii",
        action="store_true",
        default="utf" not in locale.getencoding().lower(),
        help="no Unicode on the screen; goes without saying where the locale has none",
    )


def make_plan(arguments: argparse.Namespace) -> Plan:
    """Return an endless plan of the training that is meant. Raises LeverError or UsageError."""
    entry = find_workload(arguments.workload)
    shorthands = {
        "batch_size": arguments.batch_size,
        "seed": arguments.seed,
        "pipelined": "on" if arguments.pipelined else "off" if arguments.serial else None,
    }
    asked = [_pair(text) for text in arguments.set]
    asked += [(name, value) for name, value in shorthands.items() if value is not None]
    settings = _settings(entry, asked)
    _check_device(arguments.device)
    return Plan(workload=entry.name, settings=settings, device=arguments.device)


def compared_values(option: str, text: str, lever: Lever, values: str) -> list[str]:
    """Return the canonical values of `A,B,…` that are measured against each other.

    `option` and `text` are what was given, for the refusal. Raises LeverError, and UsageError for
    `auto`, which might be one of the other values under another name.
    """
    found = [lever.canonical(value) for value in values.split(",")]
    if AUTO in found:
        raise UsageError(
            f"{option} {text} is not valid: {AUTO} stands for another value, name that"
        )
    return found


def _settings(entry: Entry, asked: Iterable[tuple[str, str]]) -> Settings:
    """Return the levers' canonical values. Raises UsageError where two contradict each other."""
    settings: Settings = {}
    for name, text in asked:
        value = find(entry.levers, name).canonical(text)
        known = settings.setdefault(name, value)
        if known != value:
            raise UsageError(
                f"lever {name} is set to {known} and to {value}; valid: one of the two"
            )
    return settings


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


def named(option: str, text: str | None) -> Path | None:
    """Return the path an option was given, if it was. Raises UsageError for an empty one."""
    if text == "":
        raise UsageError(f"{option} '' is not valid; valid: a file's name")
    return None if text is None else Path(text)


def whole(option: str, text: str | None, *, default: int, minimum: int, maximum: int) -> int:
    """Return the whole number an option was given, or the default. Raises UsageError."""
    found = number(option, text, default=default, minimum=minimum, maximum=maximum)
    if found != int(found):
        raise UsageError(
            f"{option} {text} is not valid; valid: a whole number from {minimum} to {maximum}"
        )
    return int(found)


def number(
    option: str, text: str | None, *, default: float, minimum: float, maximum: float, unit: str = ""
) -> float:
    """Return the number an option was given, or the default. Raises UsageError."""
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not minimum <= number <= maximum:  # also refuses nan
        valid = f"a number from {minimum:g}{unit} to {maximum:g}{unit}"
        raise UsageError(f"{option} {text}{unit} is not valid; valid: {valid}")
    return number


def percent(option: str, text: str | None) -> float | None:
    """Return the share that `1%` or `1` (percent) names; None if not given. Raises UsageError."""
    if text is None:
        return None
    share = text.removesuffix("%")
    return number(option, share, default=0, minimum=0.01, maximum=50, unit="%") / 100
