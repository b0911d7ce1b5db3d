"""The time axis shared by a page's charts, the frame around a plot, and its curves. No I/O."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import floor
from xml.etree.ElementTree import Element

import msgspec

from gpudash import format as fmt
from gpudash.markup import element, number, svg
from gpudash.present.axes import Point, Runs, means
from gpudash.snapshot import Series

WIDTH = 960.0
"""Width of a chart in its own units; the page scales it."""
LEFT, RIGHT = 56.0, 12.0
PLOT = WIDTH - LEFT - RIGHT
AXIS = 24.0
"""Height of the time axis below a plot."""
MOST_BINS = 320
"""Most points of a curve: a long recording must not make a large page."""
ROOM = 8
"""Most times on an axis."""
APART_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)


class Bins(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks of a recording, grouped into at most `MOST_BINS` stretches."""

    end_s: float
    """End of the time axis, which begins at 0."""
    stretches: tuple[slice, ...] = ()
    times: tuple[tuple[float, float], ...] = ()
    """Begin and end of each stretch, in seconds."""

    def x(self, at_s: float) -> float:
        return LEFT + PLOT * min(max(at_s / self.end_s, 0.0), 1.0)

    def runs(self, series: Series, values: Sequence[float | None]) -> Runs:
        """Split the runs where nothing was measured."""
        found = means(values, series.at_s, self.stretches)
        points = zip(self.times, found, strict=True)
        return [
            [((begin + end) / 2, value) for (begin, end), value in some if value is not None]
            for measured, some in groupby(points, key=lambda one: one[1] is not None)
            if measured
        ]


def bins_of(series: Series, elapsed_s: float) -> Bins:
    """Group the ticks by which of `MOST_BINS` equal intervals they end in."""
    at_s = series.at_s
    end_s = max(elapsed_s, at_s[-1] if at_s else 0.0, 1.0)
    stretches, times, begin = [], [], 0
    for index in range(1, MOST_BINS + 1):
        end = bisect_right(at_s, end_s * index / MOST_BINS + 1e-6, begin)
        if end > begin:
            before_s = at_s[begin - 1] if begin else max(at_s[0] - series.tick_s, 0.0)
            stretches.append(slice(begin, end))
            times.append((before_s, at_s[end - 1]))
        begin = end
    return Bins(end_s=end_s, stretches=tuple(stretches), times=tuple(times))


class ChartFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The plot of one chart: from 0 to `top` over the time of all bins."""

    bins: Bins
    top: float
    above: float
    """Height of the room above the plot."""
    height: float

    @property
    def bottom(self) -> float:
        return self.above + self.height

    def y(self, value: float) -> float:
        return self.bottom - self.height * min(max(value / self.top, 0.0), 1.0)

    def chart(self, title: str, about: str, inside: Sequence[Element]) -> Element:
        axes = (*self._levels(), *self._times())
        return svg(title, about, [*axes, *inside], WIDTH, self.bottom + AXIS, class_="chart")

    def spark(self, title: str, inside: Sequence[Element]) -> Element:
        base = element(
            "line", x1=LEFT, x2=LEFT + PLOT, y1=self.bottom, y2=self.bottom, class_="grid"
        )
        return svg(title, "", [base, *inside], PLOT, self.bottom + 3, begin=LEFT, class_="chart")

    def _levels(self) -> Iterator[Element]:
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            y = self.bottom - share * self.height
            yield element("line", x1=LEFT, x2=LEFT + PLOT, y1=y, y2=y, class_="grid")
            if share in (0.0, 0.5, 1.0):  # quarters have too many digits
                text = fmt.compact(share * self.top)
                yield element("text", text, x=LEFT - 8, y=y + 4, class_="tick end")

    def _times(self) -> Iterator[Element]:
        end_s = self.bins.end_s
        apart = next((s for s in APART_S if end_s / s <= ROOM), APART_S[-1])
        apart *= 1 + floor(end_s / apart / ROOM) if end_s / apart > ROOM else 1
        for index in range(floor(end_s / apart) + 1):
            x = self.bins.x(index * apart)
            text = fmt.minutes(index * apart)
            yield element("text", text, x=x, y=self.bottom + 19, class_="tick middle")


def curve(runs: Runs, frame: ChartFrame, ink: str) -> Iterator[Element]:
    for kind, path in (("area", _area), ("line", _line)):
        yield from (element("path", d=path(run, frame), class_=f"{kind} {ink}") for run in runs)


def _line(run: Sequence[Point], frame: ChartFrame) -> str:
    """Draw a single point as a visible dash."""
    points = [(frame.bins.x(at_s), frame.y(value)) for at_s, value in run]
    if len(points) == 1:
        (x, y) = points[0]
        points = [(x - 1, y), (x + 1, y)]
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _area(run: Sequence[Point], frame: ChartFrame) -> str:
    first, last = (frame.bins.x(at_s) for at_s in (run[0][0], run[-1][0]))
    bottom = number(frame.bottom)
    return f"{_line(run, frame)}L{number(last)} {bottom}L{number(first)} {bottom}z"
