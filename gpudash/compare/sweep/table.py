"""Format a sweep's table as text and as Markdown. Pure functions."""

from collections.abc import Sequence

from gpudash import format as fmt
from gpudash.compare.sweep.grid import Grid, SettingResult
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.records import Settings

OF_ALL = "steps/s and samples/s of all processes"
"""The unit if rows set numbers of processes."""


def legend(grid: Grid) -> str:
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
    """Prefer samples, as steps of different batch sizes are not worth the same."""
    if grid.counts:
        return OF_ALL
    sizes = {grid.changes(cell).get("batch_size") for cell in range(grid.cells)}
    return "samples/s" if len(sizes) > 1 else "steps/s"


def cells(grid: Grid, results: Sequence[Sequence[SettingResult]]) -> list[list[str]]:
    """With a single row, have the variants go down: a screen is taller than wide."""
    head = [label(column, grid.columns) for column in grid.columns]
    body = [[cell(result, unit(grid)) for result in row] for row in results]
    if len(grid.rows) == 1:
        lines = [list(pair) for pair in zip(head, body[0], strict=True)]
        return [["", pairs(grid.rows[0]) or unit(grid)], *lines]
    names = ", ".join(grid.rows[0])
    firsts = [" ".join(row.values()) for row in grid.rows]
    return [[names, *head], *([first, *row] for first, row in zip(firsts, body, strict=True))]


def label(settings: Settings, among: Sequence[Settings]) -> str:
    """Name what differs from the first variant; of the first, what differs from any other."""
    others = among if settings in among[:1] else among[:1]
    differing = {
        name: value
        for name, value in settings.items()
        if any(one.get(name) != value for one in others)
    }
    return pairs(differing or settings)


def pairs(settings: Settings) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def cell(result: SettingResult, unit: str = "steps/s") -> str:
    if result.failure is not None:
        return why_not(result)
    rate = result.steps_per_s if unit == "steps/s" else result.samples_per_s
    if rate is None:
        return fmt.ABSENT
    text = fmt.figure(rate)
    if unit == OF_ALL:
        text = f"{fmt.figure(result.steps_per_s)} steps/s, {fmt.figure(rate)} samples/s"
    if result.efficiency is not None:
        low, high = result.efficiency_low, result.efficiency_high
        text += f", efficiency {_share(result.efficiency, low, high)}"
    if result.change is not None:
        text += f", {fmt.change(result.change, result.low, result.high)}"
    beside = []
    if result.gpu_util_pct is not None:
        beside.append(f"GPU {result.gpu_util_pct:.0f} %")
    elif result.cpu_pct is not None:
        beside.append(f"CPU {fmt.cores(result.cpu_pct)}")
    if result.host_ms is not None:
        beside.append(f"host {result.host_ms:.4g} ms")
    if result.core_wait_pct is not None and result.core_wait_pct >= CORE_WAIT_WARNS_PCT:
        beside.append(f"waited for a core {fmt.percent(result.core_wait_pct)}")
    return f"{text} ({', '.join(beside)})" if beside else text


def _share(share: float, low: float | None, high: float | None) -> str:
    text = f"{100 * share:.1f} %"
    if low is None or high is None:
        return text
    return f"{text} [{100 * low:.1f}, {100 * high:.1f}]"


def why_not(result: SettingResult) -> str:
    return "out of memory" if result.out_of_memory else result.failure or ""


def as_text(table: Sequence[Sequence[str]], columns: int = 1000, unit: str = "steps/s") -> str:
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
    (corner, *variants), *rows = table
    lines = [
        [first if variant is variants[0] else "", variant, text]
        for first, *texts in rows
        for variant, text in zip(variants, texts, strict=True)
    ]
    return [[corner, "variant", unit], *lines]


def as_markdown(table: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(text.replace("|", r"\|") for text in row) + " |" for row in table]
    return "\n".join([lines[0], "|---" * len(table[0]) + "|", *lines[1:]])
