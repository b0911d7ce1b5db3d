"""What can be configured: every key and its valid values."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from gpudash.cli.options import OPTIONS
from gpudash.cli.verbs import load
from gpudash.errors import UsageError
from gpudash.format import plain
from gpudash.workload_levers import levers_of
from workloads import CATALOGUE, find_workload
from workloads.levers import find, text_of
from workloads.nearest import not_valid

SCREEN = ("theme", "pane")
SHORTHANDS = ("batch_size", "pipelined", "seed")
"""Levers that have their own option and their own key."""
SWITCH = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
"""Texts of an option without a value."""
Tree = dict[str, Any]


class ConfigurationError(UsageError):
    """A setting in a file, or a variable of the environment, is not valid."""

    def __init__(self, place: str, why: object) -> None:
        super().__init__(plain(f"{place}: {why}"))


@cache
def shape() -> Tree:
    """Return every valid key as a tree; its leaves are None."""
    levers = {
        name: dict.fromkeys(one.name for one in levers_of(e)) for name, e in CATALOGUE.items()
    }
    every = {name: None for names in levers.values() for name in names}
    tables = {verb: dict.fromkeys(names) for verb, names in OPTIONS.items() if verb}
    top = dict.fromkeys((*OPTIONS[""], *SHORTHANDS, *SCREEN))
    return {**top, **tables, "levers": {**every, **levers}}


def checked(key: str, value: Any, by: str) -> Any:
    """Check and convert a value as its option would. Raises ConfigurationError."""
    table, _, name = key.rpartition(".")
    try:
        if table.startswith("levers"):
            return _lever(table.partition(".")[2], name, value)
        return _option(table, name, str(value).lower() if isinstance(value, bool) else str(value))
    except (UsageError, ValueError) as error:  # a LeverError is one
        raise ConfigurationError(by, error) from error


def _lever(workload: str, name: str, value: Any) -> str:
    text = text_of(value)
    if workload:
        return find(levers_of(CATALOGUE[workload]), name).canonical(text)
    (canonical, *_) = [
        lever.canonical(text)
        for entry in CATALOGUE.values()
        for lever in levers_of(entry)
        if lever.name == name
    ]
    return canonical


def _option(table: str, name: str, text: str) -> Any:
    if name in SCREEN:
        from gpudash.tui.preferences import choices  # imports Textual

        return _choice(name, text, choices(name))
    if name == "workload":
        return find_workload(text).name
    action = load(table).parser().options[name]
    if action.nargs == 0:
        if text not in SWITCH:
            raise UsageError(f"{name} {text!r} is not valid; valid: true, false")
        return SWITCH[text]
    if action.choices is not None:
        return _choice(name, text, [str(one) for one in action.choices])
    assert callable(action.type), name
    return action.type(text)


def _choice(name: str, text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise UsageError(not_valid(name, text, choices))
    return text
