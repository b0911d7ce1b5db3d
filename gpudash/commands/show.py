"""`gpudash show`: print the lines of PyTorch that do the same as a lever."""

import argparse
import textwrap
from collections.abc import Iterator

import msgspec

from gpudash.commands.plan import entry_of
from gpudash.commands.stdout import say, say_json
from gpudash.errors import Exit
from workloads import CATALOGUE
from workloads.levers import Lever, find
from workloads.take_home import Recipe, recipe, recipes

WIDTH = 80


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpudash show --json` prints."""

    schema_version: int = 1
    lever: str
    summary: str
    source: str
    recipes: dict[str, Recipe]
    """By value; `N` stands for any number."""


def main(arguments: argparse.Namespace) -> int:
    """Print the lines for LEVER or LEVER=VALUE. Raises LeverError."""
    shown = look_up(arguments.what, arguments.workload)
    if arguments.json:
        say_json(shown)
    else:
        say("\n".join(_lines(shown)))
    return Exit.DONE


def look_up(what: str, workload: str | None) -> Shown:
    """Return the recipe of LEVER=VALUE, or all recipes of LEVER, in this workload or any.

    Raises LeverError for an unknown lever or value.
    """
    name, has_value, text = what.partition("=")
    lever = find(_levers(workload), name)
    found = recipes(lever)
    if has_value:
        value = lever.canonical(text)
        found = {value: recipe(lever, value)}
    return Shown(lever=lever.name, summary=lever.summary, source=lever.source, recipes=found)


def _levers(workload: str | None) -> tuple[Lever, ...]:
    """Return the levers of one workload, or of all workloads."""
    if workload is not None:
        return entry_of(workload).of_processes().levers
    named: dict[str, Lever] = {}
    for entry in CATALOGUE.values():
        for lever in entry.of_processes().levers:
            named.setdefault(lever.name, lever)
    return tuple(named.values())


def _lines(shown: Shown) -> Iterator[str]:
    """Yield the recipes as text."""
    yield from textwrap.wrap(f"{shown.lever}: {shown.summary}", WIDTH)
    yield from textwrap.wrap(f"Source: {shown.source}", WIDTH)
    for value, one in shown.recipes.items():
        yield ""
        yield from textwrap.wrap(f"{shown.lever}={value}: {one.note}", WIDTH)
        if one.marked:
            yield ""
            yield from one.marked
    written = [one for one in shown.recipes.values() if one.marked]
    if written:
        yield ""
        yield from textwrap.wrap(written[0].legend, WIDTH)
