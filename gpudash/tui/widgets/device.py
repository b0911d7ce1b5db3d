"""The device panel: all readings of GPU and training processes, and gpudash's own cost."""

import textwrap
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

import msgspec
from rich.cells import cell_len

from gpudash import format as fmt
from gpudash.metrics import METRICS
from gpudash.protocol.readings import HostReading
from gpudash.snapshot import Snapshot
from gpudash.tui.bars import button
from gpudash.tui.cells import Parts, beside, cell
from gpudash.tui.charts.axes import TimeView
from gpudash.tui.charts.sparklines import Reading, reading
from gpudash.tui.widgets.activity import no_gpu, reading_rows
from gpudash.tui.widgets.painted import Scrolled
from gpudash.tui.widgets.panel import Frame, Panel

TEXT_WIDTH = 30
"""Columns at which sentences are wrapped: the panel's least width."""
TWO_COLUMNS = 68
"""Width from which lines that do not fit are in two columns."""
NOW = TimeView()
SHOWN_TOGETHER = {
    "mem_used_mib": (" of ", "mem_total_mib"),
    "pcie_rx_mib_s": (" in, ", "pcie_tx_mib_s"),
    "nvlink_rx_mib_s": (" in, ", "nvlink_tx_mib_s"),
}
"""Metric → text and metric that are added to its row."""
IF_THERE = {"nvlink_rx_mib_s"}
"""Metrics that have no row if they were not measured, as most machines have none."""


class Text(msgspec.Struct, frozen=True):
    """A line of text, perhaps a heading."""

    text: str
    heads: bool = False


Line: TypeAlias = Reading | Text


def device_lines(snapshot: Snapshot, cores: int | None = None) -> list[Line]:
    """Return all readings under headings, with `–` for values that were not measured.

    `cores` is the number of cores that the training may use, if it is known.
    """
    return [
        *_gpu(snapshot),
        *_training(snapshot, cores),
        *_own(snapshot),
        *_loader(snapshot),
    ]


def _gpu(snapshot: Snapshot) -> Iterator[Line]:
    gpu = snapshot.gpu
    name = snapshot.device.name if snapshot.device else fmt.ABSENT
    yield Text(f"GPU {gpu.index}, {gpu.name}" if gpu else f"trains on {name}", heads=True)
    if gpu is None:
        sentence = no_gpu(snapshot) or "the first reading has not come yet"
        yield from map(Text, textwrap.wrap(sentence, TEXT_WIDTH))
        return
    for metric, known in METRICS.items():
        if known.kind == "gpu" and known.label and (metric in gpu.values or metric not in IF_THERE):
            one = reading(snapshot, metric, known.spark or known.label, NOW)
            beside = SHOWN_TOGETHER.get(metric)
            if beside is not None and metric in gpu.values:
                value = fmt.quantity(gpu.number(beside[1]), METRICS[beside[1]].unit)
                one = msgspec.structs.replace(one, value=_joined(one.value, beside[0], value))
            yield one


def _joined(value: str, between: str, other: str) -> str:
    """Return both values, with a common unit only once: `2.8 of 140.4 GiB`."""
    unit = other.rpartition(" ")[2]
    return f"{value.removesuffix(f' {unit}')}{between}{other}"


def _training(snapshot: Snapshot, cores: int | None) -> Iterator[Line]:
    pid = f", pid {snapshot.worker_pid}" if snapshot.worker_pid else ""
    yield Text(f"training{pid}", heads=True)
    for metric, known in METRICS.items():
        if metric == "cpu_pct":
            used = snapshot.host.number(metric) if snapshot.host else None
            yield Reading(label=known.label, value=fmt.cores(used, cores))
        elif metric.startswith("mem_") and snapshot.device and snapshot.device.kind == "cpu":
            continue
        elif known.kind == "host" and known.label:
            yield reading(snapshot, metric, known.spark or known.label, NOW)


def _own(snapshot: Snapshot) -> Iterator[Line]:
    host, costs_ms = snapshot.host or HostReading(at_s=0.0), snapshot.instruments_ms
    costs = fmt.ABSENT if costs_ms is None else f"{fmt.significant(costs_ms)} ms a step"
    takes = fmt.cores(host.number("own_cpu_pct")), fmt.memory(host.number("own_rss_mib"))
    yield Reading(label="gpudash", value=", ".join(takes))
    yield Reading(label="measuring", value=costs)
    unattributed = fmt.with_unit(snapshot.unattributed_pct, "%", 1)
    yield Reading(label="unattributed time", value=unattributed)


def _loader(snapshot: Snapshot) -> Iterator[Line]:
    if snapshot.transform_ms or snapshot.skipped_samples:
        yield Text("loader, a sample", heads=True)
    for name, ms in snapshot.transform_ms.items():
        yield Reading(label=fmt.plain(name), value=f"{fmt.milliseconds(ms)} ms")
    if snapshot.skipped_samples:
        yield Reading(label="unreadable, skipped", value=f"{snapshot.skipped_samples:,}")


class DevicePanel(Panel, Scrolled):
    """All readings, in the levers' place; hidden until the user opens it."""

    _snapshot = Snapshot()
    _cores: int | None = None
    _first = 0

    def show(self, snapshot: Snapshot, cores: int | None = None) -> None:
        """Update the values; repaint the rows that changed."""
        self._snapshot, self._cores = snapshot, cores
        vars(self).pop("_lines", None)
        self.repaint()

    @cached_property
    def _lines(self) -> list[Line]:
        """All lines; made only if the panel is visible."""
        return device_lines(self._snapshot, self._cores)

    def frame(self) -> Frame:
        """Return the title, the number of hidden lines, and the button that closes it."""
        below = len(self._lines) - self._top(*self.inside) - self._room(*self.inside)
        return Frame(
            top=(cell("⁶device", "strong"),),
            bottom=(cell(f"↓ {below} more", "dim"),) if below > 0 else (),
            bottom_right=(button("close", "screen.device", rank=1),),
        )

    def scroll_rows(self, direction: int) -> None:
        """Show earlier rows (-1) or later ones (+1)."""
        self._first = self._top(*self.inside, direction)
        self.repaint()

    def body(self, width: int, height: int) -> Iterator[Parts]:
        """Yield the lines, in two columns if they do not fit in one."""
        first, room = self._top(width, height), self._room(width, height)
        shown = self._lines[first : first + room]
        if room == height:
            yield from self._column(shown, width)
            return
        half = width // 2
        left, right = shown[:height], shown[height:]
        yield from beside(self._column(left, half), self._column(right, width - half), half)

    def _room(self, width: int, height: int) -> int:
        """Return the number of visible lines."""
        return 2 * height if width >= TWO_COLUMNS and len(self._lines) > height else height

    def _top(self, width: int, height: int, direction: int = 0) -> int:
        """Return the topmost visible line, moved by `direction`."""
        last = max(len(self._lines) - self._room(width, height), 0)
        return min(max(self._first + direction, 0), last)

    def _column(self, lines: Sequence[Line], width: int) -> Iterator[Parts]:
        shown = [line for line in lines if isinstance(line, Reading)]
        rows = reading_rows(shown, self._snapshot.series, NOW, width)
        for line in lines:
            if isinstance(line, Reading):
                yield next(rows)
            else:
                text = fmt.clip(fmt.plain(line.text), width - 2)
                rule = "─" * (width - cell_len(text) - 3)
                yield (
                    ((f" {text} ", "head"), (rule, "border"))
                    if line.heads
                    else ((f" {text}", "dim"),)
                )
