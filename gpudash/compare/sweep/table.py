"""Format a sweep's table as text and as Markdown. Pure functions."""

from collections.abc import Sequence

import msgspec

from gpudash import format as fmt
from gpudash.compare.paired_t import Estimate
from gpudash.compare.sweep.grid import CellResult, Grid
from gpudash.compare.unpaired_t import Ratio
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol import Settings

OF_ALL = "steps/s and samples/s of all processes"
"""The unit if rows set numbers of processes."""


class SettingResult(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the table as data. None = not measured."""

    settings: Settings
    """The levers that make this setting."""
    steps_per_s: float | None
    samples_per_s: float | None
    change: float | None
    """Throughput against the first setting of its row, as a share: 0.1 is 10 % faster."""
    low: float | None
    high: float | None
    """The change's 95 % interval."""
    gpu_util_pct: float | None
    cpu_pct: float | None
    """Percent of one core."""
    host_ms: float | None
    """Host time of a step."""
    core_wait_pct: float | None
    failure: str | None
    """Why it could not be measured."""
    out_of_memory: bool
    efficiency: float | None = None
    """Samples/s over those of one process times the number of processes."""
    efficiency_low: float | None = None
    efficiency_high: float | None = None
    """Its 95 % interval."""


def data(grid: Grid, results: Sequence[Sequence[CellResult]]) -> tuple[SettingResult, ...]:
    """Return the table as data, row by row."""
    return tuple(
        _measured(grid.rows[row] | grid.columns[column], result)
        for row, line in enumerate(results)
        for column, result in enumerate(line)
    )


def _measured(settings: Settings, result: CellResult) -> SettingResult:
    found, scaled = result.change, result.efficiency
    return SettingResult(
        settings=settings,
        steps_per_s=result.steps_per_s,
        samples_per_s=result.samples_per_s,
        change=None if found is None else found.change,
        low=None if found is None else found.low,
        high=None if found is None else found.high,
        gpu_util_pct=result.util_pct,
        cpu_pct=result.cpu_pct,
        host_ms=result.host_ms,
        core_wait_pct=result.core_wait_pct,
        failure=result.failure,
        out_of_memory=result.out_of_memory,
        efficiency=None if scaled is None else scaled.ratio,
        efficiency_low=None if scaled is None else scaled.low,
        efficiency_high=None if scaled is None else scaled.high,
    )


def legend(grid: Grid) -> str:
    """Return the explanation of a cell."""
    efficiency = (
        "efficiency: samples/s over those of one process times the number [95 % interval], "
        if grid.counts
        else ""
    )
    return (
        f"{unit(grid)}, {efficiency}"
        "change of the throughput against the first variant [95 % interval] "
        "(utilisation, time the host was busy with a step, "
        f"and the time waited for a core if that is {CORE_WAIT_WARNS_PCT:.0f} % or more)"
    )


def unit(grid: Grid) -> str:
    """Return the rate's unit: steps of different batch sizes are not worth the same."""
    if grid.counts:
        return OF_ALL
    sizes = {column.get("batch_size") for column in grid.columns}
    return "samples/s" if len(sizes) > 1 else "steps/s"


def cells(grid: Grid, results: Sequence[Sequence[CellResult]]) -> list[list[str]]:
    """Return the table as strings with its head: rows down, variants across.

    With a single row the variants go down instead, because a screen is taller than wide.
    """
    head = [label(column, grid.columns) for column in grid.columns]
    body = [[cell(result, unit(grid)) for result in row] for row in results]
    if len(grid.rows) == 1:
        lines = [list(pair) for pair in zip(head, body[0], strict=True)]
        return [["", pairs(grid.rows[0]) or unit(grid)], *lines]
    names = ", ".join(grid.rows[0])
    firsts = [" ".join(row.values()) for row in grid.rows]
    return [[names, *head], *([first, *row] for first, row in zip(firsts, body, strict=True))]


def label(settings: Settings, among: Sequence[Settings]) -> str:
    """Return the levers in which a variant differs from the first, or the first from any other."""
    others = among if settings in among[:1] else among[:1]
    differing = {
        name: value
        for name, value in settings.items()
        if any(one.get(name) != value for one in others)
    }
    return pairs(differing or settings)


def pairs(settings: Settings) -> str:
    """Return settings in the form of the command line."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def cell(result: CellResult, unit: str = "steps/s") -> str:
    """Return one setting's result, or why there is none."""
    if result.failure is not None:
        return why_not(result)
    rate = result.steps_per_s if unit == "steps/s" else result.samples_per_s
    if rate is None:
        return fmt.ABSENT
    text = fmt.figure(rate)
    if unit == OF_ALL:
        text = f"{fmt.figure(result.steps_per_s)} steps/s, {fmt.figure(rate)} samples/s"
    if result.efficiency is not None:
        text += f", efficiency {efficiency(result.efficiency)}"
    if result.change is not None:
        text += f", {change(result.change)}"
    beside = []
    if result.util_pct is not None:
        beside.append(f"GPU {result.util_pct:.0f} %")
    elif result.cpu_pct is not None:
        beside.append(f"CPU {fmt.cores(result.cpu_pct)}")
    if result.host_ms is not None:
        beside.append(f"host {result.host_ms:.4g} ms")
    if result.core_wait_pct is not None and result.core_wait_pct >= CORE_WAIT_WARNS_PCT:
        beside.append(f"waited for a core {fmt.percent(result.core_wait_pct)}")
    return f"{text} ({', '.join(beside)})" if beside else text


def why_not(result: CellResult) -> str:
    """Return why a setting could not be measured."""
    return "out of memory" if result.out_of_memory else result.failure or ""


def change(found: Estimate) -> str:
    """Return a change with its interval, in percent."""
    return fmt.change(found.change, found.low, found.high)


def efficiency(found: Ratio) -> str:
    """Return an efficiency with its interval, in percent."""
    text = f"{100 * found.ratio:.1f} %"
    if found.low is None or found.high is None:
        return text
    return f"{text} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def as_text(table: Sequence[Sequence[str]], columns: int = 1000, unit: str = "steps/s") -> str:
    """Return the table with its columns aligned; a line per cell if it is wider than `columns`.

    `unit` is the cells' unit, and their title in such lines.
    """
    wider = sum(max(map(len, column)) + 2 for column in zip(*table, strict=True)) > columns
    if wider and len(table[0]) > 2:
        table = listed(table, unit)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join([lines[0], "  ".join("─" * width for width in widths), *lines[1:]])


def listed(table: Sequence[Sequence[str]], unit: str) -> list[list[str]]:
    """Return the table with one cell a line."""
    (corner, *variants), *rows = table
    lines = [
        [first if variant is variants[0] else "", variant, text]
        for first, *texts in rows
        for variant, text in zip(variants, texts, strict=True)
    ]
    return [[corner, "variant", unit], *lines]


def as_markdown(table: Sequence[Sequence[str]]) -> str:
    """Return the table in Markdown."""
    lines = ["| " + " | ".join(text.replace("|", r"\|") for text in row) + " |" for row in table]
    return "\n".join([lines[0], "|---" * len(table[0]) + "|", *lines[1:]])
