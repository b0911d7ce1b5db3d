"""The device panel: every value of the GPU and of the training processes, or why none."""

import textwrap
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from rich.segment import Segment

from gpudash import format as fmt
from gpudash.metrics import METRICS, Kind
from gpudash.snapshot import Snapshot
from gpudash.tui.widgets.painted import Painted, Row, width_of

WIDTH = 44
NOT_ITS_ROWS = 5
"""Header, status, footer and the panel's frame."""


def device_lines(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return (name, value with unit) of everything read; a lone name is a heading or text."""
    gpu, host = snapshot.gpu, snapshot.host.values if snapshot.host else {}
    lines = [(f"trains on {snapshot.device.name if snapshot.device else fmt.ABSENT}", "")]
    if gpu is None:
        reason = snapshot.gpu_missing or "the first reading has not come yet"
        lines += [
            (line, "") for line in textwrap.wrap(f"No GPU is read: {fmt.plain(reason)}", WIDTH - 4)
        ]
    else:
        lines += [(f"GPU {gpu.index} {gpu.name}", ""), *_values("gpu", gpu.values)]
    lines += [
        ("training processes", ""),
        *_values("host", host),
        ("worker process", str(snapshot.worker_pid or fmt.ABSENT)),
        ("gpudash itself", ""),
        *_values("own", host),
        ("instruments in a step", fmt.with_unit(_microseconds(snapshot.instruments_ms), "µs")),
        ("time unattributed", fmt.percent(snapshot.unattributed_pct)),
    ]
    if snapshot.transform_ms:
        lines.append(("a sample in a loader worker", ""))
        lines += [(name, f"{ms:.2g} ms") for name, ms in snapshot.transform_ms.items()]
    if snapshot.skipped_samples:
        lines.append(("unreadable samples skipped", f"{snapshot.skipped_samples:,}"))
    return lines


def _values(kind: Kind, values: Mapping[str, float | str]) -> Iterator[tuple[str, str]]:
    """Yield every value of this kind that has a label, measured or not."""
    for name, metric in METRICS.items():
        if metric.kind == kind and metric.label:
            yield metric.label, fmt.quantity(values.get(name), metric.unit)


def _microseconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else 1000 * milliseconds


class DevicePanel(Painted):
    """A panel over the right edge, hidden until asked for."""

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self._lines: list[tuple[str, str]] = []
        self._in_two = False

    def show(self, snapshot: Snapshot) -> None:
        """Take new values; only rows that changed are painted."""
        lines = device_lines(snapshot)
        if lines != self._lines:
            self._lines = lines
            self.fit()
            self.repaint()

    def fit(self) -> None:
        """Take the room there is: two columns where one is too long for the screen."""
        columns, rows = self.screen.size
        self._in_two = len(self._lines) > rows - NOT_ITS_ROWS
        self.styles.width = min(2 * WIDTH, columns - 1) if self._in_two else WIDTH
        self.styles.height = (-(-len(self._lines) // 2) if self._in_two else len(self._lines)) + 2

    def rows(self, width: int, height: int) -> Iterator[Row]:
        """Yield one row per value, or per two of them."""
        if not self._in_two:
            yield from (self._row(line, width) for line in self._lines)
            return
        half = (width - 2) // 2
        for left, right in zip_longest(self._lines[:height], self._lines[height:]):
            row = self._row(left, half)
            gap = Segment(" " * (half + 2 - width_of(row)))
            yield [*row, gap, *(self._row(right, half) if right else [])]

    def _row(self, line: tuple[str, str], width: int) -> Row:
        name, value = (fmt.plain(text) for text in line)
        if not value:
            return [Segment(fmt.clip(name, width), self.ink("strong"))]
        room = max(width - len(name) - 3, 1)
        return [
            Segment(f" {name} ", self.ink("dim")),
            Segment(f"{fmt.clip(value, room):>{room}}", self.ink("text")),
        ]
