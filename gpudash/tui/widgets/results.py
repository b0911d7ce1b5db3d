"""The results table: a row for each setting tried, with the first row pinned as the baseline.

No number is coloured as better or worse: rows are measured one after the other, and differ by
several percent even between equal settings. Only a verdict is marked as proven.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec
from rich.cells import cell_len

from gpudash import format as fmt
from gpudash.snapshot import Result
from gpudash.tui.cells import Parts, bar_of, fitted
from gpudash.tui.charts.axes import nice_ceiling
from gpudash.tui.lever_values import rate_unit
from gpudash.tui.scroll import Scroll

PINNED = 1
"""Number of rows at the top that do not scroll."""
NAME_WIDTH = 26
"""Columns kept for the configuration before number columns are left out."""
LEAST_NAME = 10
LEAST_BAR = 8
GAP = 2
PROVEN = "✓ proven"
OF_ROW = ", mean of the row"
BAR = "bar"
GIVING_WAY = ("p95 ms", "steps", "host ms", BAR, "p50 ms", "GPU %", "CPU cores", "× row 1")
"""Columns that a narrow table leaves out, in this order."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """All rows, and the properties that they share."""

    results: tuple[Result, ...] = ()
    on_gpu: bool = False
    unit: str = "samples/s"
    """Unit of the rate; `steps/s` if no row has samples."""
    full: float = 1.0
    """Rate of a full bar: a round number, so that bars do not move while a rate varies."""
    settings: int = 0
    """Number of rows that are not verdicts."""

    def rate(self, result: Result) -> float | None:
        """Return the row's throughput."""
        return result.samples_per_s if self.unit == "samples/s" else result.steps_per_s

    @property
    def numbers(self) -> dict[str, Callable[[Result], str]]:
        """The columns right of the rate: title → function from a row to its text."""
        return {
            "× row 1": ratio_text,
            "p50 ms": lambda row: fmt.significant(row.step_ms_p50),
            "p95 ms": lambda row: fmt.significant(row.step_ms_p95),
            "host ms": lambda row: fmt.significant(row.values.get("host_ms")),
            "GPU %" if self.on_gpu else "CPU cores": lambda row: (
                fmt.percent(row.values.get("gpu_util_pct")).removesuffix(" %")
                if self.on_gpu
                else fmt.cores(row.values.get("cpu_pct")).removesuffix(" cores")
            ),
            "steps": lambda row: fmt.count(row.steps),
        }


def table_of(results: tuple[Result, ...], *, on_gpu: bool) -> Table:
    """Return the table of these results; `on_gpu` is also set if an earlier row had a GPU."""
    on_gpu = on_gpu or any("gpu_util_pct" in row.values for row in results)
    table = Table(results=results, on_gpu=on_gpu, unit=rate_unit(results))
    highest = max(fmt.measured(map(table.rate, results)), default=0.0)
    settings = sum(not row.verdict for row in results)
    return msgspec.structs.replace(table, full=nice_ceiling(highest), settings=settings)


def ratio_text(row: Result) -> str:
    """Return `1.17×`, or `~1.17×` if the rows vary too much for the ratio to be clear."""
    about = "" if row.ratio_is_clear or not fmt.is_measured(row.ratio) else "~"
    return f"{about}{fmt.ratio(row.ratio)}"


def in_sight(table: Table, scroll: Scroll, height: int) -> list[int]:
    """Return the visible rows: consecutive ones, below the pinned first row."""
    results = table.results
    shown = list(scroll.in_sight(len(results), height))
    if len(shown) > PINNED and shown[0] > 0:
        shown[0] = 0
        newest = len(results) - 1
        while results[newest].verdict and newest:
            newest -= 1
        if scroll.row is None and newest < shown[PINNED]:
            shown[PINNED] = newest  # kept visible above its verdicts
    return shown


def result_rows(
    table: Table,
    shown: Sequence[int],
    width: int,
    *,
    cursor: int | None = None,
    proven: Collection[str] = (),
) -> Iterator[Parts]:
    """Yield the head and the rows `shown`; `>` marks the cursor.

    `proven` are the verdicts that show a difference.
    """
    rows = [table.results[index] for index in shown]
    measured = [row for row in rows if not row.verdict]
    digits = max((len(str(row.number)) for row in rows), default=1)
    room = width - digits - 5  # without marks, number, and a blank at either end
    layout = _layout(table, measured, room)
    yield ((f"{'#':>{digits + 3}} {layout.head}", "head"),)
    if not rows:
        yield (("   a row appears here for each setting tried", "faint"),)
    for index, row in zip(shown, rows, strict=True):
        mark = ">" if index == cursor else " "
        if row.verdict:
            parts = _verdict(row.configuration, room, proven=row.configuration in proven)
            line: Parts = ((f"{mark}{' ' * (digits + 3)}", "strong"), *parts)
        else:
            ink = "strong" if row.live else "text"
            number = f"{mark}{'▸' if row.live else ' '} {row.number:>{digits}} "
            line = ((number, ink), *layout.row(row, ink))
        yield tuple((text, "cursor") for text, _ in line) if index == cursor else line


class _ResultColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The widths of a table's columns; a column of width 0 is left out."""

    table: Table
    name: int
    rate: int
    bar: int
    numbers: dict[str, int]

    @property
    def head(self) -> str:
        unit = f"{self.table.unit:>{self.rate}}"
        if self.bar:
            room, full = self.rate + self.bar, f"{self.table.unit}{OF_ROW}"
            unit = f"{full if len(full) <= room else self.table.unit:<{room}}"
        rate = f"{' ' * GAP}{unit}" if self.rate else ""
        titles = "".join(f"{title:>{width}}" for title, width in self.numbers.items())
        return fitted("configuration", self.name) + rate + titles

    def row(self, result: Result, ink: str) -> Parts:
        text = fitted(fmt.plain(result.configuration), self.name)
        rate = self.table.rate(result)
        if self.rate:
            text += f"{' ' * GAP}{fmt.significant(rate):>{self.rate}}"
        numbers = self.table.numbers
        cells = "".join(
            f"{numbers[title](result):>{width}}" for title, width in self.numbers.items()
        )
        share = rate / self.table.full if fmt.is_measured(rate) else 0.0
        bar = f" {bar_of(share, self.bar - 1):<{self.bar - 1}}" if self.bar else ""
        return ((text, ink), (bar, "rate"), (cells, ink))


def _layout(table: Table, rows: Sequence[Result], width: int) -> _ResultColumns:
    """Return the widths: numbers get what they need, bar and configuration share the rest."""
    names = max((cell_len(fmt.plain(row.configuration)) for row in rows), default=NAME_WIDTH)
    rate = max((len(fmt.significant(table.rate(row))) for row in rows), default=len(table.unit))
    numbers = {
        title: GAP + max(len(title), *(len(text_of(row)) for row in rows), 0)
        for title, text_of in table.numbers.items()
    }
    wanted = {BAR: LEAST_BAR} | numbers
    room = width - min(max(names, LEAST_NAME), NAME_WIDTH) - GAP - rate
    for title in GIVING_WAY:
        # without a bar, the rate's column must also fit its unit
        unit = 0 if BAR in wanted else max(len(table.unit) - rate, 0)
        if sum(wanted.values()) + unit <= room:
            break
        wanted.pop(title, None)
    bar = wanted.pop(BAR, 0)
    rate = rate if bar else max(rate, len(table.unit))
    left = width - GAP - rate - sum(wanted.values())
    if left < LEAST_NAME and not wanted:
        return _ResultColumns(table=table, name=max(width, 0), rate=0, bar=0, numbers={})
    longest = min(left - bar, max(NAME_WIDTH, 2 * left // 3))
    name = max(min(max(names, LEAST_NAME), longest), 0) if bar else left
    return _ResultColumns(table=table, name=name, rate=rate, bar=left - name, numbers=wanted)


def _verdict(text: str, width: int, *, proven: bool) -> Parts:
    """Return the verdict, with a mark at the right end if it shows a difference."""
    mark = f"  {PROVEN}" if proven and width > 2 * len(PROVEN) else ""
    return ((fitted(f"A/B {fmt.plain(text)}", width - len(mark)), "strong"), (mark, "better"))
