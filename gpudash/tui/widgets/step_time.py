"""The step time chart: stacked columns of the phases over time."""

from collections.abc import Iterable, Iterator
from itertools import repeat

from gpudash import format as fmt
from gpudash.present.axes import bins_of, cut, means, value_at
from gpudash.present.cells import Cell, Parts, cell
from gpudash.present.columns import column_rows
from gpudash.present.curves import LEAST_ROWS, curves, line_of
from gpudash.present.readings import step_ms_at, step_value
from gpudash.present.step_time import (
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
    Frame,
    TimePanel,
    gutter_of,
    moment_cell,
)


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

    def frame(self) -> Frame:
        snapshot, view = self._snapshot, self.view
        if view.moment_s is None:
            named = {"p50": snapshot.step_ms_p50, "p95": snapshot.step_ms_p95}
        else:
            named = {"mean": value_at(snapshot.series, "step_ms", view.moment_s)}
        values = (
            moment_cell(view, snapshot),
            *(
                Cell(parts=((f"{name} ", "dim"), (fmt.milliseconds(ms), "strong")), rank=rank)
                for rank, (name, ms) in enumerate(named.items(), start=1)
            ),
        )
        whose = [cell("rank 0", "dim", rank=3)] * bool(snapshot.ranks)
        return (cell("⁴step, ms", "strong"), *whose), values

    def body(self, width: int, height: int) -> Iterator[Parts]:
        snapshot = self._snapshot
        if not any(map(fmt.is_measured, snapshot.series.of("step_ms"))):
            text = fmt.clip(nothing(snapshot), width).center(width)
            yield from repeat((), (height - 1) // 2)
            yield ((text, "faint"),)
            return
        parts = parts_of(snapshot)
        rows = height - 1 if height >= 3 else height
        yield from self._chart(parts, width, rows)
        if rows < height:
            yield tuple(self._legend(parts, width))

    def _chart(self, parts: tuple[StepPart, ...], width: int, rows: int) -> Iterable[Parts]:
        """Return lines; in few rows columns."""
        snapshot, series, time_range = self._snapshot, self._snapshot.series, self.range_in(width)
        bins = bins_of(series.at_s, time_range)
        stretches = [stretch for _, stretch in bins]
        now_ms = snapshot.step_ms_p50 if self.view.end_s is None else None
        top = top_ms(series, stretches, snapshot.markers, now_ms)
        gutter, marks = gutter_of(width), self.marks_in(time_range)
        if rows >= LEAST_ROWS:
            inks = {part.metric: part.ink for part in parts[:-2]} | {"step_ms": "strong"}
            lines = tuple(
                line_of(ink, cut(series.of(name), bins, time_range, series.at_s))
                for name, ink in inks.items()
            )
            return curves(lines, top, time_range, rows, gutter, marks)
        drawn = columns_of(series, parts, stretches, top, rows)
        columns = {x: column for (x, _), column in zip(bins, drawn, strict=True)}
        steps_ms = fmt.measured(means(series.of("step_ms"), series.at_s, stretches))
        is_cut = max(steps_ms, default=0.0) > top
        return column_rows(columns, top, time_range, rows, gutter, marks, is_cut=is_cut)

    def _legend(self, parts: tuple[StepPart, ...], width: int) -> Iterator[tuple[str, str]]:
        snapshot, view = self._snapshot, self.view
        times_ms = [step_value(snapshot, name, view) for name in metrics_of(parts)]
        now_ms = step_ms_at(snapshot.steps_per_s) if view.moment_s is None else None
        longer = now_ms / times_ms[0] if now_ms and times_ms[0] else 1.0
        step = spent(parts, *(ms and ms * longer for ms in times_ms))
        for entry in legend(parts, step, width - 2) if step else ():
            yield from (("  ", ""), *entry.parts)
