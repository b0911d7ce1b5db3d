"""The workloads, their levers and the recipes of these, as text and as documents."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpudash.cli.plan import entry_of
from gpudash.format import plain
from gpudash.workload_levers import levers_of
from workloads import CATALOGUE, DEFAULT, Entry
from workloads.levers import Effect, Lever, find
from workloads.standard_levers import PROCESSES
from workloads.take_home import Recipe, recipe, recipes

WIDTH = 96
WIDTH_OF_RECIPE = 80


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


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpudash show --json` prints."""

    schema_version: int = 1
    lever: str
    summary: str
    source: str
    recipes: dict[str, Recipe]
    """By value; `N` stands for any number."""


def as_text(entries: Sequence[Entry], others: Mapping[str, str]) -> str:
    told: set[str] = set()
    parts = [_workload(entry, told) for entry in entries]
    parts.append(
        "\n".join(["with --nproc N besides:", *(_lever(lever, {}, told) for lever in PROCESSES)])
    )
    parts += [plain(f"{name}: installed, from {value}") for name, value in others.items()]
    return "\n\n".join(parts)


def catalogue(entries: Sequence[Entry], others: Mapping[str, str]) -> Catalogue:
    return Catalogue(
        tuple(map(_described, entries)),
        installed=dict(others),
        of_processes=tuple(map(_described_lever, PROCESSES)),
    )


def _workload(entry: Entry, told: set[str]) -> str:
    default = " (default)" if entry.name == DEFAULT else ""
    head = [f"{entry.name}{default}: {entry.summary}", f"  source: {entry.source}"]
    return "\n".join(head + [_lever(lever, entry.on_cpu, told) for lever in levers_of(entry)])


def _lever(lever: Lever, on_cpu: Mapping[str, str], told: set[str]) -> str:
    """Explain a lever where it stands first: `told` are the summaries so far."""
    own = f", on a CPU {on_cpu[lever.name]}" if lever.name in on_cpu else ""
    value = f"{lever.name} = {lever.default_text}{own}"
    head = f"  {value}   [{lever.valid}]   takes effect: {lever.effect}"
    indent = " " * 6
    about = [] if lever.summary in told else [lever.summary, f"Source: {lever.source}"]
    told.add(lever.summary)
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
        levers=tuple(map(_described_lever, levers_of(entry))),
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


# ── recipes ─────────────────────────────────────────────────────────────────────────────


def look_up(what: str, workload: str | None) -> Shown:
    """Return recipes of LEVER=VALUE or of LEVER, in this workload or any. Raises LeverError."""
    name, has_value, text = what.partition("=")
    lever = find(_all_levers(workload), name)
    found = recipes(name, lever.values)
    if has_value:
        value = lever.canonical(text)
        found = {value: recipe(name, value)}
    return Shown(lever=lever.name, summary=lever.summary, source=lever.source, recipes=found)


def _all_levers(workload: str | None) -> tuple[Lever, ...]:
    """None stands for all workloads."""
    if workload is not None:
        return levers_of(entry_of(workload).of_processes())
    named: dict[str, Lever] = {}
    for entry in CATALOGUE.values():
        for lever in levers_of(entry.of_processes()):
            named.setdefault(lever.name, lever)
    return tuple(named.values())


def recipe_lines(shown: Shown) -> Iterator[str]:
    yield from textwrap.wrap(f"{shown.lever}: {shown.summary}", WIDTH_OF_RECIPE)
    yield from textwrap.wrap(f"Source: {shown.source}", WIDTH_OF_RECIPE)
    for value, one in shown.recipes.items():
        yield ""
        yield from textwrap.wrap(f"{shown.lever}={value}: {one.note}", WIDTH_OF_RECIPE)
        if one.marked:
            yield ""
            yield from one.marked
    written = [one for one in shown.recipes.values() if one.marked]
    if written:
        yield ""
        yield from textwrap.wrap(written[0].legend, WIDTH_OF_RECIPE)
