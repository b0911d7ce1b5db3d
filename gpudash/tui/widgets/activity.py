"""The activity panel: a row with label, sparkline and value for each reading of GPU and host."""

import textwrap
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from gpudash import format as fmt
from gpudash.snapshot import Series, Snapshot
from gpudash.tui.bars import button
from gpudash.tui.cells import Parts, cell, cut
from gpudash.tui.charts.axes import TimeView, range_of
from gpudash.tui.charts.sparklines import Reading, readings, sparklines
from gpudash.tui.widgets.panel import Frame
from gpudash.tui.widgets.time_panel import TimePanel, begin_cells, moment_cell

LEAST_LINE = 4
"""Fewest columns of a sparkline."""
ROOMY = 48
"""Columns from which the title is `GPU and host`."""


class Activity(TimePanel):
    """The most important readings that fit; the device panel has them all."""

    _readings: Sequence[Reading] = ()

    def shown_of(self, snapshot: Snapshot) -> tuple[object, ...]:
        """Return the readings, their times, why there are none of a GPU, and if there are ranks."""
        self._readings = readings(snapshot, self.view)
        return self._readings, snapshot.series.at_s, no_gpu(snapshot), bool(snapshot.ranks)

    def time_at(self, x: int) -> float | None:
        """Return the moment in the middle of this column of the body."""
        width, height = self.inside
        label_width, columns = _layout(self._fitting(width, height), width)
        time_range = range_of(self._snapshot.series, columns, self.view)
        return time_range.moment_in(x - label_width - 2) if columns else None

    def frame(self) -> Frame:
        """Return the title, and the scales of the sparklines."""
        width, height = self.inside
        shown, view = self._fitting(width, height), self.view
        kinds = {one.kind for one in shown}
        title = "GPU" if "gpu" in kinds else "host"
        if width >= ROOMY and {"gpu", "host"} <= kinds:
            title = "GPU and host"
        at = () if view.moment_s is None else (moment_cell(view, None),)
        columns = _layout(shown, width)[1]
        begin = begin_cells(range_of(self._snapshot.series, columns, view)) if columns else ()
        scales = ", ".join([one.scale for one in shown if one.scale and any(one.past)][:2])
        whose = [cell("rank 0", "dim", rank=2)] * bool(self._snapshot.ranks)
        return Frame(
            top=(cell(f"²{title}", "strong"), *whose),
            top_right=(*at, button("all", "screen.device", rank=1)),
            bottom=begin if self._snapshot.series.at_s else (),
            bottom_right=(cell(f"█ = {scales}", "dim", rank=1),) if columns and scales else (),
        )

    def body(self, width: int, height: int) -> Iterator[Parts]:
        """Yield why no GPU is read, if that is so, and the readings."""
        for line in self._why(width, height):
            yield ((f" {line}", "dim"),)
        shown = self._fitting(width, height)
        yield from reading_rows(shown, self._snapshot.series, self.view, width)

    def _why(self, width: int, height: int) -> list[str]:
        """Return the reason in at most two lines; the device panel has all of it."""
        room = min(max(height - 2, 0), 2)
        reason = no_gpu(self._snapshot)
        if not (reason and room):
            return []
        return textwrap.wrap(reason, max(width - 2, 2), max_lines=room, placeholder=" …")

    def _fitting(self, width: int, height: int) -> Sequence[Reading]:
        return self._readings[: max(height - len(self._why(width, height)), 0)]


def no_gpu(snapshot: Snapshot) -> str:
    """Return why no GPU is read; empty if that is not known yet, or no training has run."""
    if snapshot.gpu_missing is None or snapshot.state == "starting":
        return ""
    if snapshot.state == "failed" and not snapshot.worker_pid:
        return ""
    return f"no GPU is read: {fmt.plain(snapshot.gpu_missing)}"


def reading_rows(
    shown: Sequence[Reading], series: Series, view: TimeView, width: int
) -> Iterator[Parts]:
    """Yield label, sparkline and value of each reading, in columns."""
    label_width, columns = _layout(shown, width)
    lines = sparklines(series, shown, columns, view)
    for one, line in zip(shown, lines, strict=True):
        value = one.value if cell_len(one.value) <= width - 2 else "…"
        label = cut(one.label, max(width - 3 - cell_len(value), 0))
        past = f"{' ' * (label_width - cell_len(label))} {line}" if one.past else " "
        gap = " " * (width - 2 - cell_len(label + past + value))
        yield (
            (f" {label}", "dim"),
            (past + gap, "rate" if one.of_device else "host"),
            (value, "busy" if one.is_alarming else "text"),
        )


def _layout(shown: Sequence[Reading], width: int) -> tuple[int, int]:
    """Return the columns of labels and of sparklines; (0, 0) without room for sparklines."""
    drawn = [one for one in shown if one.past]
    label_width = max((cell_len(one.label) for one in drawn), default=0)
    value_width = max((cell_len(one.value) for one in drawn), default=0)
    columns = width - label_width - value_width - len("    ")
    return (label_width, columns) if columns >= LEAST_LINE else (0, 0)
