"""The charts of a page as SVG: curves, stacked columns and bars over one time axis. No I/O."""

import math
from collections.abc import Iterable, Iterator, Sequence
from xml.etree.ElementTree import Element

import msgspec
from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.present.axes import (
    LABEL_WIDTH,
    Point,
    Runs,
    TimeRange,
    bins_of,
    cut,
    means,
    nice_ceiling,
    time_ticks,
)
from gpudash.present.change_axis import interval_of
from gpudash.present.markup import element, number, svg
from gpudash.present.readings import ShownReading
from gpudash.present.step_time import StepPart, metrics_of, parts_of, spent, top_ms
from gpudash.present.throughput import scale_of, throughput
from gpudash.present.wording import change_of
from gpudash.protocol.session import ComparisonShown
from gpudash.snapshot import BlockShown, Marker, Series, Snapshot

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
HEIGHT = 190.0
LABELS = 14.0
"""Height of a row of marker labels above a plot."""
LABEL_ROWS = 3
LONGEST_LABEL = 60
LETTER = 6.6
"""Approximate width of a letter of a label."""


# ── the time axis, and the frame around a plot ──────────────────────────────────────────


class Bins(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks of a recording, in at most `MOST_BINS` columns."""

    time_range: TimeRange
    bins: list[tuple[int, slice]]

    def x(self, at_s: float) -> float:
        return LEFT + PLOT * min(max(at_s / self.time_range.end_s, 0.0), 1.0)

    def runs(self, series: Series, values: Sequence[float | None]) -> Runs:
        return cut(values, self.bins, self.time_range, series.at_s)

    @property
    def stretches(self) -> list[slice]:
        return [stretch for _, stretch in self.bins]


def bins_of_all(series: Series, elapsed_s: float) -> Bins:
    end_s = max(elapsed_s, *series.at_s[-1:], 1.0)
    columns = min(math.ceil(end_s / series.tick_s), MOST_BINS)
    time_range = TimeRange(begin_s=0.0, end_s=end_s, columns=columns)
    return Bins(time_range=time_range, bins=bins_of(series.at_s, time_range))


class _ChartFrame(msgspec.Struct, frozen=True, kw_only=True):
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
        for at_s in time_ticks(replace(self.bins.time_range, columns=ROOM * LABEL_WIDTH)):
            x, text = self.bins.x(at_s), fmt.minutes(at_s)
            yield element("text", text, x=x, y=self.bottom + 19, class_="tick middle")


def _curve(runs: Runs, frame: _ChartFrame, ink: str) -> Iterator[Element]:
    for kind, path in (("area", _area), ("line", _line)):
        yield from (element("path", d=path(run, frame), class_=f"{kind} {ink}") for run in runs)


def _line(run: Sequence[Point], frame: _ChartFrame) -> str:
    """Draw a single point as a visible dash."""
    points = [(frame.bins.x(at_s), frame.y(value)) for at_s, value in run]
    if len(points) == 1:
        (x, y) = points[0]
        points = [(x - 1, y), (x + 1, y)]
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _area(run: Sequence[Point], frame: _ChartFrame) -> str:
    first, last = (frame.bins.x(at_s) for at_s in (run[0][0], run[-1][0]))
    bottom = number(frame.bottom)
    return f"{_line(run, frame)}L{number(last)} {bottom}L{number(first)} {bottom}z"


# ── throughput ──────────────────────────────────────────────────────────────────────────


def throughput_chart(snapshot: Snapshot, bins: Bins) -> Element | None:
    """None if no rate was measured."""
    data = throughput(snapshot)
    runs = bins.runs(snapshot.series, data.values)
    if not runs:
        return None
    top = scale_of(runs, snapshot.markers)
    labels = list(_labels(snapshot.markers, bins))
    above = LABELS * max((row + 1 for _, _, row in labels), default=0) + 6
    frame = _ChartFrame(bins=bins, top=top, above=above, height=HEIGHT)
    inside = [
        *_blocks(snapshot.blocks, frame),
        *_curve(runs, frame, "rate"),
        *_marker_lines(snapshot.markers, frame),
        *(
            element("text", text, x=begin, y=LABELS * (row + 1) - 3, class_="label")
            for text, begin, row in labels
        ),
    ]
    peak = max(value for run in runs for _, value in run)
    about = f"{data.unit} over time; the highest of {len(bins.bins)} means is {fmt.figure(peak)}"
    return frame.chart(f"Throughput, {data.unit}", about, inside)


# ── a step's time ───────────────────────────────────────────────────────────────────────


def step_chart(snapshot: Snapshot, bins: Bins) -> tuple[Element | None, list[StepPart]]:
    series, parts = snapshot.series, parts_of(snapshot)
    columns = [means(series.of(name), series.at_s, bins.stretches) for name in metrics_of(parts)]
    steps = [spent(parts, *of_one) for of_one in zip(*columns, strict=True)]
    if not any(steps):
        return None, []
    top = top_ms(series, bins.stretches, snapshot.markers, None)
    frame = _ChartFrame(bins=bins, top=top, above=6.0, height=HEIGHT)
    paths: dict[str, list[str]] = {}
    bin_s = bins.time_range.bin_s
    for (at, _), step in zip(bins.bins, steps, strict=True):
        reached = 0.0
        for part, ms in zip(parts, step.shown if step else (), strict=False):
            if ms > 0 and reached < top:
                below, reached = reached, min(reached + ms, top)
                column = _column(frame, at * bin_s, (at + 1) * bin_s, below, reached)
                paths.setdefault(part.metric, []).append(column)
    shown = [part for part in parts if part.metric in paths]
    inside = [
        element("path", element("title", part.label), d="".join(paths[part.metric]),
                class_=f"fill {part.ink}")
        for part in shown
    ]  # fmt: skip
    about = f"milliseconds a step, stacked: {', '.join(part.label for part in shown)}"
    drawn = [*inside, *_marker_lines(snapshot.markers, frame)]
    return frame.chart("A step's time, ms", about, drawn), shown


def _column(frame: _ChartFrame, begin_s: float, end_s: float, below: float, above: float) -> str:
    """Absolute coordinates give neighbours exactly the same edge."""
    x, end = number(frame.bins.x(begin_s)), number(frame.bins.x(end_s))
    return f"M{x} {number(frame.y(above))}H{end}V{number(frame.y(below))}H{x}z"


# ── readings ────────────────────────────────────────────────────────────────────────────


def reading_chart(snapshot: Snapshot, one: ShownReading, bins: Bins) -> Element | None:
    """None if the reading has no values."""
    runs = bins.runs(snapshot.series, one.past)
    if not runs:
        return None
    frame = _ChartFrame(bins=bins, top=one.top, above=3.0, height=34.0)
    inside = [
        *_curve(runs, frame, "rate" if one.of_device else "host"),
        *_marker_lines(snapshot.markers, frame),
    ]
    return frame.spark(f"{one.label} over time, up to {one.scale or '100 %'}", inside)


# ── bars ────────────────────────────────────────────────────────────────────────────────


def share_bar(title: str, shares: Sequence[tuple[str, str, float]]) -> Element:
    """Each of `shares` is (label, class, share)."""
    x, inside = 0.0, []
    for label, ink, share in shares:
        wide = WIDTH * share
        tip = element("title", f"{label} {fmt.percent(100 * share)}")
        inside.append(element("rect", tip, x=x, y=0, width=wide, height=22, class_=f"fill {ink}"))
        x += wide
    return svg(title, "", inside, WIDTH, 22.0, class_="bar", preserveAspectRatio="none")


def interval_chart(shown: ComparisonShown, reach: float) -> Element | None:
    """None without an interval; the axis goes from -reach to +reach."""
    if (interval := interval_of(shown)) is None:
        return None
    low, change, high = interval
    wide, tall = 180.0, 22.0

    def x(change: float) -> float:
        return wide / 2 * (1 + min(max(change / reach, -1.0), 1.0))

    title = f"{change_of(shown)}, on an axis of ±{100 * reach:.3g} %"
    inside = [
        element("line", x1=wide / 2, x2=wide / 2, y1=0, y2=tall, class_="zero"),
        element("line", x1=x(low), x2=x(high), y1=11, y2=11, class_="whisker"),
        element("circle", cx=x(change), cy=11, r=4, class_="dot"),
    ]
    return svg(title, "", inside, wide, tall, class_="interval")


def reach_of(verdicts: Iterable[ComparisonShown]) -> float:
    """Return a round change that includes the ends of all these intervals."""
    ends = [abs(end) for one in verdicts for end in (one.low, one.high) if end is not None]
    return nice_ceiling(max(ends, default=0.01))


# ── markers and blocks ──────────────────────────────────────────────────────────────────


def _blocks(blocks: Iterable[BlockShown], frame: _ChartFrame) -> Iterator[Element]:
    for side, y in (("a", frame.bottom - 10), ("b", frame.bottom - 5)):
        path = "".join(
            f"M{number(x)} {number(y)}h{number(max(end - x, 0.5))}v5H{number(x)}z"
            for one in blocks
            if one.side == side
            for x in (frame.bins.x(one.begin_s),)
            for end in (
                frame.bins.x(frame.bins.time_range.end_s if one.end_s is None else one.end_s),
            )
        )
        if path:
            yield element("path", element("title", f"blocks of {side.upper()}"), d=path,
                          class_=f"fill {side}")  # fmt: skip


def _marker_lines(markers: Iterable[Marker], frame: _ChartFrame) -> Iterator[Element]:
    for one in markers:
        x = frame.bins.x(one.at_s)
        tip = element("title", f"{fmt.minutes(one.at_s)} {one.label}")
        yield element("line", tip, x1=x, x2=x, y1=frame.above - 3, y2=frame.bottom, class_="marker")


def _labels(markers: Iterable[Marker], bins: Bins) -> Iterator[tuple[str, float, int]]:
    """Yield label, begin and row above the plot; labels without room are left out."""
    ends = [0.0] * LABEL_ROWS
    for one in markers:
        text = fmt.clip(fmt.plain(one.label), LONGEST_LABEL)
        begin = max(min(bins.x(one.at_s), WIDTH - LETTER * len(text)), 0.0)
        row = next((row for row, end in enumerate(ends) if end <= begin), None)
        if row is not None:
            ends[row] = begin + LETTER * (len(text) + 2)
            yield text, begin, row
