"""The step time chart: stacked columns of the phases over time."""

from collections.abc import Iterable, Iterator
from itertools import groupby, repeat
from operator import itemgetter

from gpudash import format as fmt
from gpudash.present.axes import bins_of, cut, means, value_at
from gpudash.present.cells import Cell, Parts, cell
from gpudash.present.curves import LEAST_ROWS, curves, line_of
from gpudash.present.readings import step_value
from gpudash.present.step_time import (
    BLANK,
    IDLE,
    ColumnCell,
    StepPart,
    columns_of,
    legend,
    metrics_of,
    parts_of,
    spent,
    top_ms,
)
from gpudash.present.throughput import nothing
from gpudash.snapshot import Snapshot
from gpudash.tui.widgets.panel import (
    GUTTER,
    PanelFrame,
    TimePanel,
    gutter_of,
    moment_cell,
)

CHARACTER, INK = itemgetter(0), itemgetter(1)
MARKER: ColumnCell = ("┊", "faint")


class StepTime(TimePanel):
    """The chart of step time by phase, with a legend below."""

    def shown_of(self, snapshot: Snapshot) -> tuple[object, ...]:
        return (
            snapshot.series,
            snapshot.markers,
            snapshot.phases,
            snapshot.device,
            snapshot.state,
            snapshot.step_ms_p50,
            snapshot.step_ms_p95,
            bool(snapshot.ranks),
        )

    def frame(self) -> PanelFrame:
        snapshot, view = self._snapshot, self.view
        if view.moment_s is None:
            named = {"p50": snapshot.step_ms_p50, "p95": snapshot.step_ms_p95}
        else:
            named = {"mean": value_at(snapshot.series, "step_ms", view.moment_s)}
        values = (
            moment_cell(view, snapshot.steps_per_s),
            *(
                Cell(parts=((f"{name} ", "dim"), (fmt.milliseconds(ms), "strong")), rank=rank)
                for rank, (name, ms) in enumerate(named.items(), start=1)
            ),
        )
        whose = [cell("rank 0", "dim", rank=3)] * bool(snapshot.ranks)
        return PanelFrame(top=(cell("⁴step, ms", "strong"), *whose), top_right=values)

    def body(self, width: int, height: int) -> Iterator[Parts]:
        snapshot = self._snapshot
        if not any(map(fmt.is_measured, snapshot.series.of("step_ms"))):
            text = fmt.clip(nothing(snapshot), width).center(width)
            yield from repeat((), (height - 1) // 2)
            yield ((text, "faint"),)
            return
        parts = parts_of(snapshot)
        rows = height - 1 if height >= 3 else height
        yield from (self._lines if rows >= LEAST_ROWS else self._plot)(parts, width, rows)
        if rows < height:
            yield tuple(self._legend(parts, width))

    # ── lines ───────────────────────────────────────────────────────────────────────────

    def _lines(self, parts: tuple[StepPart, ...], width: int, rows: int) -> Iterable[Parts]:
        snapshot, series, view = self._snapshot, self._snapshot.series, self.view
        time_range = self.range_in(width)
        bins = bins_of(series.at_s, time_range)
        inks = {part.metric: part.ink for part in parts[:-2]} | {"step_ms": "strong"}
        lines = tuple(
            line_of(ink, cut(series.of(name), bins, time_range, series.at_s))
            for name, ink in inks.items()
        )
        now_ms = snapshot.step_ms_p50 if view.end_s is None else None
        top = top_ms(series, [stretch for _, stretch in bins], snapshot.markers, now_ms)
        return curves(lines, top, time_range, rows, gutter_of(width), self.marks_in(time_range))

    # ── columns ─────────────────────────────────────────────────────────────────────────

    def _plot(self, parts: tuple[StepPart, ...], width: int, rows: int) -> Iterator[Parts]:
        snapshot, series, view = self._snapshot, self._snapshot.series, self.view
        time_range, gutter = self.range_in(width), gutter_of(width)
        bins = bins_of(series.at_s, time_range)
        stretches = [stretch for _, stretch in bins]
        now_ms = snapshot.step_ms_p50 if view.end_s is None else None
        top = top_ms(series, stretches, snapshot.markers, now_ms)
        drawn = columns_of(series, parts, stretches, top, rows)
        columns = [(BLANK,) * rows] * (width - gutter)
        for (x, _), column in zip(bins, drawn, strict=True):
            columns[x] = column
        for marker in filter(lambda one: time_range.holds(one.at_s), snapshot.markers):
            x = time_range.column_of(marker.at_s)
            columns[x] = tuple(MARKER if one == BLANK else one for one in columns[x])
        if view.cursor_s is not None and time_range.holds(view.cursor_s):
            x = time_range.column_of(view.cursor_s)
            columns[x] = tuple(_crossed(one) for one in columns[x])
        is_cut = any(
            ms is not None and ms > top
            for ms in means(series.of("step_ms"), series.at_s, stretches)
        )
        for y, row in enumerate(zip(*columns, strict=True)):
            axis = [self._axis(y, rows, top, is_cut=is_cut)] if gutter else []
            blocks = groupby(row, key=INK)
            yield (*axis, *(("".join(map(CHARACTER, same)), ink) for ink, same in blocks))

    def _axis(self, y: int, rows: int, top: float, *, is_cut: bool) -> tuple[str, str]:
        at = {rows // 2: top / 2} if rows >= 5 else {}
        at |= {rows - 1: 0.0, 0: top}
        text = fmt.compact(at[y]) + ("↑" if is_cut and y == 0 else "") if y in at else ""
        if len(text) >= GUTTER:  # numbers are not cut
            text = ""
        return f"{text:>5}{'┤' if text else ' '}", "faint"

    def _legend(self, parts: tuple[StepPart, ...], width: int) -> Iterator[tuple[str, str]]:
        snapshot, view = self._snapshot, self.view
        step = spent(parts, *(step_value(snapshot, name, view) for name in metrics_of(parts)))
        for entry in legend(parts, step, width - 2) if step else ():
            yield from (("  ", ""), *entry.parts)


def _crossed(block: ColumnCell) -> ColumnCell:
    """Return a block with the cursor over it; its hue stays visible."""
    hue = block[1].partition("/")[0]
    return "│", "strong" if hue in ("", IDLE, "faint") else f"strong/{hue}"
