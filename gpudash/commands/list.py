"""`gpudash list`: print the workloads and their levers, as text or JSON."""

import argparse
import textwrap
from collections.abc import Mapping, Sequence

import msgspec

from gpudash.commands.plan import entry_of
from gpudash.commands.stdout import say, say_json
from gpudash.errors import Exit
from gpudash.format import plain
from workloads import CATALOGUE, DEFAULT, Entry
from workloads.levers import Effect, Lever
from workloads.own.names import installed
from workloads.standard_levers import PROCESSES

WIDTH = 96


class DescribedLever(msgspec.Struct, frozen=True, kw_only=True):
    """A lever of a workload."""

    name: str
    default: str
    valid: str
    """The valid values, in words."""
    choices: tuple[str, ...] | None
    """The valid values one by one; None for numbers."""
    effect: Effect
    """When a change takes effect."""
    summary: str
    source: str


class DescribedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload of the catalogue."""

    name: str
    summary: str
    source: str
    default: bool
    """Whether it is trained if none is named."""
    levers: tuple[DescribedLever, ...]


class Catalogue(msgspec.Struct, frozen=True):
    """What `gpudash list --json` prints."""

    workloads: tuple[DescribedWorkload, ...]
    schema_version: int = 1
    installed: dict[str, str] = {}
    """Workloads of installed packages: name → `package.module:attribute`."""
    of_processes: tuple[DescribedLever, ...] = ()
    """Further levers of each workload with several processes."""


def main(arguments: argparse.Namespace) -> int:
    """Print the workloads and their levers. Raises LeverError."""
    if arguments.workload is None:
        entries, others = list(CATALOGUE.values()), installed()
    else:
        entries, others = [entry_of(arguments.workload)], {}
    if arguments.json:
        say_json(catalogue(entries, others))
    else:
        say(as_text(entries, others))
    return Exit.DONE


def as_text(entries: Sequence[Entry], others: Mapping[str, str]) -> str:
    """Return workloads as text, a paragraph a lever, and the origin of installed ones."""
    parts = [_workload(entry) for entry in entries]
    parts.append(
        "\n".join(["with --nproc N besides:", *(_lever(lever, {}) for lever in PROCESSES)])
    )
    parts += [plain(f"{name}: installed, from {value}") for name, value in others.items()]
    return "\n\n".join(parts)


def catalogue(entries: Sequence[Entry], others: Mapping[str, str]) -> Catalogue:
    """Return workloads as data."""
    return Catalogue(
        tuple(map(_described, entries)),
        installed=dict(others),
        of_processes=tuple(map(_described_lever, PROCESSES)),
    )


def _workload(entry: Entry) -> str:
    default = " (default)" if entry.name == DEFAULT else ""
    head = [f"{entry.name}{default}: {entry.summary}", f"  source: {entry.source}"]
    return "\n".join(head + [_lever(lever, entry.on_cpu) for lever in entry.levers])


def _lever(lever: Lever, on_cpu: Mapping[str, str]) -> str:
    own = f", on a CPU {on_cpu[lever.name]}" if lever.name in on_cpu else ""
    value = f"{lever.name} = {lever.default_text}{own}"
    head = f"  {value}   [{lever.valid}]   takes effect: {lever.effect}"
    indent = " " * 6
    about = [lever.summary, f"Source: {lever.source}"]
    lines = [
        textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
        for text in about
    ]
    return "\n".join([head, *lines])


def _described(entry: Entry) -> DescribedWorkload:
    return DescribedWorkload(
        name=entry.name,
        summary=entry.summary,
        source=entry.source,
        default=entry.name == DEFAULT,
        levers=tuple(map(_described_lever, entry.levers)),
    )


def _described_lever(lever: Lever) -> DescribedLever:
    return DescribedLever(
        name=lever.name,
        default=lever.default_text,
        valid=lever.valid,
        choices=lever.values or None,
        effect=lever.effect,
        summary=lever.summary,
        source=lever.source,
    )
