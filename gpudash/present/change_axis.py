"""An axis of relative change in throughput, on which 0 is the present, and what is drawn on it."""

import math
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import msgspec
from rich.cells import cell_len

from gpudash.present.axes import nice_ceiling
from gpudash.protocol.session import ComparisonShown

ChangeInterval: TypeAlias = tuple[float, float, float]
"""Low end, change and high end, relative: 0.05 is 5 % faster."""

MOST = 10.0
"""Longest reach of an axis on either side."""
LEAST = 0.1
"""Nearest end of an axis for estimates and proofs together."""
LEFT_OF_0 = 0.1
"""Of such an axis, as a part of what is right of 0: slower levers need room."""


def interval_of(shown: ComparisonShown) -> ChangeInterval | None:
    if shown.low is None or shown.change is None or shown.high is None:
        return None
    return shown.low, shown.change, shown.high


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis of relative change, which includes 0."""

    left: float
    right: float
    step: float
    """Distance between two labels."""

    def column(self, change: float, width: int) -> int:
        """Return the outermost column for a change beyond the axis."""
        share = (change - self.left) / (self.right - self.left)
        return int(min(max(share, 0.0), 1.0) * (width - 1) + 0.5)

    def labels(self, width: int, zero: str = "0") -> str:
        """Return the labels in percent, as many as fit; always the one at 0."""
        row = [" "] * width
        free = [True] * width
        first = math.ceil(round(self.left / self.step, 6))
        steps = range(first, round(self.right / self.step) + 1)
        for number in dict.fromkeys((0, steps[0], steps[-1], *steps)):  # most important first
            unit = " %" * (number in (steps[0], steps[-1]))
            text = f"{100 * number * self.step:+g}{unit}" if number else zero
            begin = self.column(number * self.step, width) - cell_len(text) // 2
            begin = min(max(begin, 0), width - cell_len(text))
            place = slice(max(begin - 1, 0), begin + cell_len(text) + 1)
            if begin >= 0 and all(free[place]):
                free[place] = [False] * len(free[place])
                row[begin : begin + cell_len(text)] = [text] + [""] * (cell_len(text) - 1)
        return "".join(row)

    def bar(self, interval: ChangeInterval, width: int) -> str:
        """Return an interval as text, with `│` at 0, and `◂` or `▸` for an end beyond the axis."""
        low, change, high = interval
        cells = [" "] * width
        cells[self.column(0, width)] = "│"
        first, last = self.column(low, width), self.column(high, width)
        cells[first : last + 1] = "─" * (last + 1 - first)
        if low <= self.right:
            cells[first] = "├" if low >= self.left else "◂"
        if high >= self.left:
            cells[last] = "┤" if high <= self.right else "▸"
        if low > self.right:
            cells[-1] = "▸"
        if high < self.left:
            cells[0] = "◂"
        if self.left <= change <= self.right:
            cells[self.column(change, width)] = "●"
        return "".join(cells)

    def estimate(self, low: float, high: float, width: int) -> str:
        """Return an estimate as text: `▓` up to its low end, and `░` on to its high end."""
        cells = [" "] * width
        zero, first, last = (self.column(one, width) for one in (0.0, low, high))
        cells[min(zero, first) : last + 1] = "░" * (last + 1 - min(zero, first))
        cells[zero : first + 1] = "▓" * (first + 1 - zero)
        cells[zero] = "┊"
        if high > self.right:
            cells[-1] = "▸"
        return "".join(cells)


class PlacedAxis(NamedTuple):
    """An axis in columns of the screen: what stands below each other has the same."""

    axis: Axis
    begin: int
    width: int


def shared_axis(ends: Iterable[float]) -> Axis:
    known = [*ends]
    right = nice_ceiling(min(max([LEAST, *known]), MOST))
    lowest = -min([0.0, *known])
    slower = min(nice_ceiling(lowest), 1.0) if lowest > LEFT_OF_0 * right else 0.0
    left = max(LEFT_OF_0 * right, slower)  # a rate cannot fall by more than 100 %
    return Axis(left=-left, right=right, step=right / 2 if left < right else nice_ceiling(left / 2))
