"""`gpudash list`: the workloads and their levers, for people and for programs."""

import argparse
import textwrap

import msgspec

from gpudash.commands.stdout import say
from gpudash.errors import Exit
from workloads import CATALOGUE, DEFAULT, Entry
from workloads.levers import Choice, Lever, Switch

WIDTH = 96


def main(arguments: argparse.Namespace) -> int:
    """Print the workloads and their levers."""
    say(as_json() if arguments.json else as_text())
    return Exit.DONE


def as_text() -> str:
    """Return the catalogue as text, one paragraph a lever."""
    return "\n\n".join(_workload(entry) for entry in CATALOGUE.values())


def as_json() -> str:
    """Return the catalogue as one JSON document."""
    return msgspec.json.encode([_as_dict(entry) for entry in CATALOGUE.values()]).decode()


def _workload(entry: Entry) -> str:
    default = " (default)" if entry.name == DEFAULT else ""
    head = [f"{entry.name}{default}: {entry.summary}", f"  source: {entry.source}"]
    return "\n".join(head + [_lever(lever) for lever in entry.levers])


def _lever(lever: Lever) -> str:
    head = f"  {lever.name} = {lever.default_text}   [{lever.valid}]   takes effect: {lever.effect}"
    indent = " " * 6
    about = [lever.summary, f"Source: {lever.source}"]
    lines = [
        textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
        for text in about
    ]
    return "\n".join([head, *lines])


def _as_dict(entry: Entry) -> dict[str, object]:
    return {
        "name": entry.name,
        "summary": entry.summary,
        "source": entry.source,
        "default": entry.name == DEFAULT,
        "levers": [
            {
                "name": lever.name,
                "default": lever.default_text,
                "valid": lever.valid,
                "choices": _choices(lever),
                "effect": lever.effect,
                "summary": lever.summary,
                "source": lever.source,
            }
            for lever in entry.levers
        ],
    }


def _choices(lever: Lever) -> list[str] | None:
    """Return the values one by one where there are few."""
    if isinstance(lever, Switch):
        return ["off", "on"]
    return list(lever.choices) if isinstance(lever, Choice) else None
