"""The settings tried, one after another; equal ones differ by several percent, so none is proof."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from rich.cells import cell_len

from gpudash import format as fmt
from gpudash.compare.energy import money, of_a_million, with_error
from gpudash.present.axes import nice_ceiling
from gpudash.present.cells import Parts, bar_of, fitted
from gpudash.present.readings import step_ms_at
from gpudash.snapshot import Result, Snapshot

MOST_BAR, LEAST_BAR = 32, 6
GAP = 3
STEP, BUSY, CORES, JOULES = "step, ms", "GPU busy", "CPU cores", "J a sample"
COST = "cost of 1M"
"""Head of what a million samples cost."""
LEAST_NAME = 24
"""Columns of a setting before other columns are left out."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """All settings tried, and what they share."""

    results: tuple[Result, ...] = ()
    on_gpu: bool = False
    unit: str = "samples/s"
    """Unit of the rate; `steps/s` if no row has samples."""
    full: float = 1.0
    """Rate of a full bar: a round number, so that bars do not move while a rate varies."""

    price: float | None = None
    """Of a GPU for an hour."""
    gpus: int = 0

    def cost(self, result: Result) -> str:
        """Return what a million samples cost with this setting."""
        assert self.price is not None
        return money(of_a_million(self.price, self.gpus, result.samples_per_s))

    def rate(self, result: Result) -> float | None:
        return result.samples_per_s if self.unit == "samples/s" else result.steps_per_s

    def busy(self, result: Result) -> str:
        if self.on_gpu:
            return fmt.percent(result.values.get("gpu_util_pct"))
        return fmt.cores(result.values.get("cpu_pct")).removesuffix(" cores")


def rate_unit(results: Iterable[Result]) -> str:
    measured = [row for row in results if row.steps]
    counted = not measured or any(row.samples_per_s is not None for row in measured)
    return "samples/s" if counted else "steps/s"


def table_of(snapshot: Snapshot, *, on_gpu: bool) -> Table:
    """`Table.on_gpu` is also set if an earlier setting had a GPU."""
    results = snapshot.results
    on_gpu = on_gpu or any("gpu_util_pct" in row.values for row in results)
    unit, price, gpus = rate_unit(results), snapshot.price, len(snapshot.ranks)
    table = Table(results=results, on_gpu=on_gpu, unit=unit, price=price, gpus=gpus)
    highest = max(fmt.measured(map(table.rate, results)), default=0.0)
    return msgspec.structs.replace(table, full=nice_ceiling(highest))


def energy_text(result: Result) -> str:
    """Return the energy of a sample, with what the counter's ticks leave open."""
    found = result.energy
    return fmt.ABSENT if found is None else with_error(found.joules, found.within_j)


def history_rows(
    table: Table, shown: Sequence[int], width: int, *, cursor: int | None = None, head: bool = True
) -> Iterator[Parts]:
    """`▸` is the cursor, bold the present setting; without `head` some columns are absent."""
    rows = [table.results[index] for index in shown]
    if not rows:
        yield (("   each setting that you try has a row here", "faint"),)
        return
    unit = "" if head else f" {table.unit}"
    rates = [f"{fmt.significant(table.rate(row))}{unit}" for row in rows]
    digits = max(map(len, [table.unit, *rates]))
    numbers = len(str(rows[-1].number))
    room = width - numbers - 4 - digits
    columns = {
        STEP: [fmt.milliseconds(step_ms_at(row.steps_per_s)) for row in rows],
        BUSY if table.on_gpu else CORES: [*map(table.busy, rows)],
        JOULES: [*map(energy_text, rows)] if any(row.energy for row in rows) else [],
        COST: [*map(table.cost, rows)] if table.price is not None else [],
    }
    beside = [""] * (len(rows) + 1)  # the numbers beside the bar, with their heads
    for title, texts in columns.items():
        wide = max(map(len, [title, *texts]))
        if head and texts and room >= LEAST_NAME + GAP + wide:
            room -= GAP + wide
            beside = [
                f"{b}{'':{GAP}}{text:>{wide}}"
                for b, text in zip(beside, [title, *texts], strict=True)
            ]
    longest = max(cell_len(fmt.plain(row.configuration)) for row in rows)
    bar = min(MOST_BAR, room - GAP - max(LEAST_NAME, min(longest, room * 2 // 3)) - 1)
    bar = bar if bar >= LEAST_BAR else 0
    name = max(room - GAP - (bar + 1 if bar else 0), 1)
    if head:
        titles = f"{'':{numbers + 4}}{table.unit:>{digits}}{'':{bar + 1 if bar else 0}}{beside[0]}"
        yield ((f"{titles}{'':{GAP}}{fitted('setting', name)}", "head"),)
    for index, row, rate, cells in zip(shown, rows, rates, beside[1:], strict=True):
        ink = "strong" if row.live else "text"
        value = table.rate(row)
        share = value / table.full if fmt.is_measured(value) else 0.0
        drawn = f" {bar_of(share, bar):<{bar}}" if bar else ""
        mark = "▸" if index == cursor else " "
        yield (
            (f" {mark} {row.number:>{numbers}} ", "focus" if index == cursor else "dim"),
            (f"{rate:>{digits}}", ink),
            (drawn, "rate"),
            (cells, ink),
            (f"{'':{GAP}}{fitted(fmt.plain(row.configuration), name)}", ink),
        )
