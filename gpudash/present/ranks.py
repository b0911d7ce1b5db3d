"""The table of ranks: a row for each of several training processes, on one scale."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TypeAlias

from gpudash import format as fmt
from gpudash.metrics import METRICS
from gpudash.present.cells import Parts, level_of
from gpudash.protocol.readings import Reading
from gpudash.ranks import hangs
from gpudash.snapshot import RankRow, Snapshot, Values

GAP = 2
LEAST_GRAPH, MOST_SPARK, MOST_BAR = 8, 60, 40
"""Fewest columns of a sparkline or a bar, and most of each."""
GRAPH_SHARE = 6
"""Sparkline and bar each get 1/6 of the width before less important numbers do."""
SPARK_TOP = 1.6
"""A sparkline's top, in medians of the slowest rank; slow first steps are cut off."""
SPARK, BAR = "step ms, last minute", "ready for the all-reduce"
SHORT = {SPARK: "step ms", BAR: "ready"}
"""Short titles."""
OF_GPU = {
    "GPU %": ("gpu_util_pct", 1.0),
    "W": ("power_w", 1.0),
    "MHz": ("sm_clock_mhz", 1.0),
    "GiB": ("mem_used_mib", 1024.0),
    "°C": ("temperature_c", 1.0),
}
OF_HOST = {
    "core wait %": ("core_wait_pct", 1.0),
    "cores": ("cpu_pct", 100.0),
    "RAM GiB": ("worker_rss_mib", 1024.0),
}
MINOR = ("pid", "loss", "RAM GiB", "cores", "steps", "steps/s", "core wait %")
NOT_LAST = ("data ms", "°C", "GiB", "MHz", "node", "state", "W", "GPU %", "waits")
"""Columns that a narrow table leaves out: `MINOR`, then phases, then `NOT_LAST`, in order."""
CellTexts: TypeAlias = dict[str, Callable[[RankRow], str]]


def marked(job: Snapshot) -> int | None:
    """Return the index of the rank that the others wait for; None if none is named."""
    rank = job.straggler.rank if job.straggler else None
    return next((i for i, row in enumerate(job.ranks) if row.rank == rank), None)


def spread(job: Snapshot) -> str:
    waits = fmt.measured(row.waits_ms for row in job.ranks)
    times = fmt.measured(row.step_ms_p50 for row in job.ranks)
    if not times:
        return ""
    low, high = fmt.milliseconds(min(times)), fmt.milliseconds(max(times))
    steps = f"step {high} ms" if low == high else f"step {low} to {high} ms"
    if not waits:
        return steps
    least, most = fmt.milliseconds(min(waits)), fmt.milliseconds(max(waits))
    return f"{steps}, {least if least == most else f'{least} to {most}'} ms of it waiting"


def verdict(job: Snapshot) -> str:
    """Return a sentence about a hang or the slow rank; empty if there is neither."""
    if job.hang is not None and job.hang.stacks:
        return "; ".join((hangs.title(job.hang), *hangs.clauses(job.hang)))
    slow = job.straggler
    if slow is None:
        return ""
    label = next((one.label for one in job.phases if one.name == slow.phase), slow.phase)
    where = f" in {label}" if label else ""
    text = f"rank {slow.rank} is {slow.slower_pct:.0f} % slow{where}"
    if slow.kind == "wandering":
        text = f"now rank {slow.rank}, another one every now and then, is slow{where}"
    elif slow.kind == "imbalance":
        text = f"rank {slow.rank} has more to work on: {slow.slower_pct:.0f} % longer{where}"
    if slow.others_wait_ms is not None:
        text += f"; the others wait {fmt.milliseconds(slow.others_wait_ms)} ms a step"
    return fmt.plain(f"{text}; {slow.why}" if slow.why else text)


def in_sight(job: Snapshot, scrolled: range) -> list[int]:
    shown, slow = list(scrolled), marked(job)
    if slow is not None and slow not in shown and len(shown) > 1:
        shown[0 if slow < shown[0] else -1] = slow
    return shown


def rank_rows(
    job: Snapshot, shown: Sequence[int], width: int, *, cursor: int | None = None
) -> Iterator[Parts]:
    """`▸` is the cursor, and `!` the rank that the others wait for."""
    slow, layout = marked(job), _RankColumns(job, [job.ranks[index] for index in shown], width - 2)
    yield ((f"  {layout.head()}", "head"),)
    for index in shown:
        is_marked = index == slow
        mark = ("▸" if index == cursor else " ") + ("!" if is_marked else " ")
        ink = "busy" if is_marked else "text"
        line: Parts = ((mark, ink), *layout.row(job.ranks[index], ink))
        yield tuple((text, "cursor") for text, _ in line) if index == cursor else line


class _RankColumns:
    """The widths of the columns; sparkline and bar share what the numbers leave."""

    def __init__(self, job: Snapshot, rows: Sequence[RankRow], width: int) -> None:
        has_waits = any(row.waits_ms is not None for row in job.ranks)
        has_past = any(row.history for row in job.ranks)
        graphs = has_past + has_waits
        graph = max(min(width // GRAPH_SHARE, MOST_BAR), LEAST_GRAPH)
        self._numbers = _fitting(columns_of(job), rows, width - graphs * (graph + GAP))
        left = width - sum(wide for _, wide in self._numbers.values()) - graphs * GAP
        self._spark = self._bar = 0
        if has_past and left >= LEAST_GRAPH * graphs:
            self._spark = min(left // graphs, MOST_SPARK)
        if has_waits and left - self._spark >= LEAST_GRAPH:
            self._bar = min(left - self._spark, MOST_BAR)
        # of the slowest rank; 0 if none was measured
        self._step_ms = max(fmt.measured(row.step_ms_p50 for row in job.ranks), default=0.0)

    def head(self) -> str:
        cells = [f"{title:>{wide}}" for title, (_, wide) in self._numbers.items()]
        spark, bar = _titled(SPARK, self._spark), _titled(BAR, self._bar)
        return "".join((cells[0], spark, *cells[1:2], bar, *cells[2:]))

    def row(self, row: RankRow, ink: str) -> Parts:
        cells = [f"{of(row):>{wide}}" for of, wide in self._numbers.values()]
        parts: list[tuple[str, str]] = [(cells[0], ink)]
        if self._spark:
            past = _sparkline(row.history, SPARK_TOP * self._step_ms, self._spark)
            parts += [(" " * GAP, ink), (past, "rate" if ink == "text" else ink)]
        parts += [(cell, ink) for cell in cells[1:2]]
        if self._bar:
            parts += [(" " * GAP, ink), *_ready(row, self._step_ms, self._bar)]
        return (*parts, ("".join(cells[2:]), ink))


def columns_of(job: Snapshot) -> CellTexts:
    """Return the columns with a value for any rank: title → function from a row to its text."""
    ranks = job.ranks
    waits: CellTexts = {"waits": lambda row: fmt.milliseconds(row.waits_ms)}
    times = {metric.rank: name for name, metric in METRICS.items() if metric.rank}
    times |= {f"{fmt.plain(one.label)} ms": f"{one.name}_ms" for one in job.phases}
    node: CellTexts = {"node": lambda row: fmt.plain(row.node) or fmt.ABSENT}
    state: CellTexts = {"state": _state}
    return {
        "rank": lambda row: f"{row.rank:>{len(str(len(ranks)))}}",
        "p50 ms": lambda row: fmt.milliseconds(row.step_ms_p50),
        **(waits if any(row.waits_ms is not None for row in ranks) else {}),
        **{
            title: _read(of, name, unit)
            for of, titles in ((attrgetter("gpu"), OF_GPU), (attrgetter("host"), OF_HOST))
            for title, (name, unit) in titles.items()
            if any((reading := of(row)) and name in reading.values for row in ranks)
        },
        **(state if len({_state(row) for row in ranks}) > 1 else {}),
        "steps/s": lambda row: fmt.significant(row.steps_per_s),
        **{
            title: _time(name)
            for title, name in times.items()
            if any(name in row.values for row in ranks)
        },
        "steps": lambda row: fmt.count(row.steps),
        "loss": lambda row: fmt.ABSENT if row.loss is None else f"{row.loss:.4g}",
        "pid": lambda row: str(row.pid or fmt.ABSENT),
        **(node if len({row.node for row in ranks}) > 1 else {}),
    }


def _state(row: RankRow) -> str:
    return f"{row.state}, restart {row.restarts}" if row.restarts else row.state


def _read(
    of: Callable[[RankRow], Reading | None], name: str, unit: float
) -> Callable[[RankRow], str]:
    def text(row: RankRow) -> str:
        reading = of(row)
        value = reading.number(name) if reading else None
        decimals = 1 if unit > 1 else 0
        return fmt.ABSENT if value is None else f"{value / unit:,.{decimals}f}"

    return text


def _time(name: str) -> Callable[[RankRow], str]:
    return lambda row: fmt.milliseconds(row.values.get(name))


def _fitting(
    columns: CellTexts, ranks: Sequence[RankRow], width: int
) -> dict[str, tuple[Callable[[RankRow], str], int]]:
    wide = {
        title: (of, GAP * (title != "rank") + max(map(len, (title, *map(of, ranks)))))
        for title, of in columns.items()
    }
    phases = [title for title in columns if title not in ("rank", "p50 ms", *MINOR, *NOT_LAST)]
    for title in (*MINOR, *phases[::-1], *NOT_LAST):
        if sum(taken for _, taken in wide.values()) <= width:
            break
        wide.pop(title, None)
    return wide


def _titled(title: str, width: int) -> str:
    if not width:
        return ""
    return " " * GAP + f"{title if len(title) <= width else SHORT[title]:<{width}}"


def _sparkline(past: Values, top_ms: float, width: int) -> str:
    """Return a sparkline that ends on the right with the newest second; columns are means."""
    each = -(-len(past) // width) or 1
    cells = ""
    for end in range(len(past), 0, -each):
        known = fmt.measured(past[max(end - each, 0) : end])
        level = level_of(sum(known) / len(known) / top_ms) if known and top_ms else " "
        cells = level + cells
    return f"{cells:>{width}}"


def _ready(row: RankRow, step_ms: float, width: int) -> Iterator[tuple[str, str]]:
    if not (fmt.is_measured(row.waits_ms) and fmt.is_measured(row.step_ms_p50) and step_ms):
        yield f"{row.state if row.state != 'training' else fmt.ABSENT:<{width}}", "dim"
        return
    waits = min(max(round(width * row.waits_ms / step_ms), 0), width)
    full = min(round(width * row.step_ms_p50 / step_ms), width)
    computes = max(full - waits, 0)
    yield "■" * computes, "rate"
    yield "·" * (full - computes), "dim"
    yield " " * (width - full), "dim"
