"""What a page draws: curves, stacked columns and bars as SVG, all over one time axis. No I/O."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import floor
from xml.etree.ElementTree import Element

import msgspec

from gpudash import format as fmt
from gpudash.protocol import ComparisonShown
from gpudash.report.markup import element, number
from gpudash.snapshot import BlockShown, Marker, Series, Snapshot
from gpudash.tui.axes import Point, Runs, means, nice_ceiling
from gpudash.tui.sparks import Reading
from gpudash.tui.stacks import Part, metrics_of, parts_of, spent, top_ms
from gpudash.tui.throughput import scale_of, throughput

WIDTH = 960.0
"""Of a chart in its own units; a page scales it to the room there is."""
LEFT, RIGHT = 56.0, 12.0
PLOT = WIDTH - LEFT - RIGHT
HEIGHT = 190.0
LABELS = 14.0
"""A row of marker labels above a plot."""
LABEL_ROWS = 3
AXIS = 24.0
"""Below a plot, for its times."""
LONGEST_LABEL = 60
LETTER = 6.6
"""Width of a letter of a label, about."""
MOST_BINS = 320
"""Points of a curve: a page stays small whatever a recording's length."""
ROOM = 8
"""Times on an axis, at most."""
APART_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)


class Bins(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks of a recording in a limited number of stretches, each with its time."""

    end_s: float
    """Of the time axis, which begins at 0."""
    stretches: tuple[slice, ...] = ()
    times: tuple[tuple[float, float], ...] = ()
    """Begin and end of each stretch."""

    def x(self, at_s: float) -> float:
        """Return where a moment is drawn."""
        return LEFT + PLOT * min(max(at_s / self.end_s, 0.0), 1.0)

    def runs(self, series: Series, values: Sequence[float | None]) -> Runs:
        """Return stretches of points in seconds, broken where nothing was measured."""
        found = means(values, series.at_s, self.stretches)
        points = zip(self.times, found, strict=True)
        return [
            [((begin + end) / 2, value) for (begin, end), value in some if value is not None]
            for measured, some in groupby(points, key=lambda one: one[1] is not None)
            if measured
        ]


def bins_of(series: Series, elapsed_s: float) -> Bins:
    """Return the stretches of ticks that end in the same of `MOST_BINS` equal times."""
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


# ── throughput ──────────────────────────────────────────────────────────────────────────


def throughput_chart(snapshot: Snapshot, bins: Bins) -> Element | None:
    """Return the rate over time, with the lever changes named; None where none was measured."""
    data = throughput(snapshot)
    runs = bins.runs(snapshot.series, data.values)
    if not runs:
        return None
    top = scale_of(runs, snapshot.markers)
    rows = _label_rows(snapshot.markers, bins)
    above = LABELS * (1 + max(rows.values(), default=-1)) + 6
    frame = _Frame(bins=bins, top=top, above=above, height=HEIGHT)
    inside = [
        *_blocks(snapshot.blocks, frame),
        *_curve(runs, frame, "rate"),
        *_marker_lines(snapshot.markers, frame),
        *_marker_labels(rows, snapshot.markers, bins),
    ]
    peak = max(value for run in runs for _, value in run)
    about = f"{data.unit} over time; the highest of {len(bins.times)} means is {fmt.figure(peak)}"
    return frame.chart(f"Throughput, {data.unit}", about, inside)


# ── a step's time ───────────────────────────────────────────────────────────────────────


def step_chart(snapshot: Snapshot, bins: Bins) -> tuple[Element | None, list[Part]]:
    """Return the mean step as stacked columns over time, and the parts that are in it."""
    series, parts = snapshot.series, parts_of(snapshot)
    columns = [means(series.of(name), series.at_s, bins.stretches) for name in metrics_of(parts)]
    steps = [spent(parts, *of_one) for of_one in zip(*columns, strict=True)]
    if not any(steps):
        return None, []
    top = top_ms(series, bins.stretches, snapshot.markers, None)
    frame = _Frame(bins=bins, top=top, above=6.0, height=HEIGHT)
    paths: dict[str, list[str]] = {}
    for (begin_s, end_s), step in zip(bins.times, steps, strict=True):
        reached = 0.0
        for part, ms in zip(parts, step.shown if step else (), strict=False):
            if ms > 0 and reached < top:
                below, reached = reached, min(reached + ms, top)
                column = _column(frame, begin_s, end_s, below, reached)
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


def _column(frame: "_Frame", begin_s: float, end_s: float, below: float, above: float) -> str:
    """Return the path of a column: neighbours have the same edge, to the digit."""
    x, end = number(frame.bins.x(begin_s)), number(frame.bins.x(end_s))
    return f"M{x} {number(frame.y(above))}H{end}V{number(frame.y(below))}H{x}z"


# ── readings ────────────────────────────────────────────────────────────────────────────


def reading_chart(snapshot: Snapshot, one: Reading, bins: Bins) -> Element | None:
    """Return a reading's past as a small curve; None where it has none."""
    runs = bins.runs(snapshot.series, one.past)
    if not runs:
        return None
    frame = _Frame(bins=bins, top=one.top, above=3.0, height=34.0)
    inside = [
        *_curve(runs, frame, "rate" if one.of_device else "host"),
        *_marker_lines(snapshot.markers, frame),
    ]
    return frame.spark(f"{one.label} over time, up to {one.scale or '100 %'}", inside)


# ── bars ────────────────────────────────────────────────────────────────────────────────


def share_bar(title: str, shares: Sequence[tuple[str, str, float]]) -> Element:
    """Return (label, class, share) as one bar from edge to edge."""
    x, inside = 0.0, []
    for label, ink, share in shares:
        wide = WIDTH * share
        tip = element("title", f"{label} {fmt.percent(100 * share)}")
        inside.append(element("rect", tip, x=x, y=0, width=wide, height=22, class_=f"fill {ink}"))
        x += wide
    return _svg(title, "", inside, WIDTH, 22.0, class_="bar", preserveAspectRatio="none")


def interval_chart(shown: ComparisonShown, reach: float) -> Element | None:
    """Return a comparison's interval on an axis from -reach to +reach; None without one."""
    if shown.change is None or shown.low is None or shown.high is None:
        return None
    wide, high = 180.0, 22.0

    def x(change: float) -> float:
        return wide / 2 * (1 + min(max(change / reach, -1.0), 1.0))

    title = f"{fmt.change(shown.change, shown.low, shown.high)}, on an axis of ±{100 * reach:.3g} %"
    inside = [
        element("line", x1=wide / 2, x2=wide / 2, y1=0, y2=high, class_="zero"),
        element("line", x1=x(shown.low), x2=x(shown.high), y1=11, y2=11, class_="whisker"),
        element("circle", cx=x(shown.change), cy=11, r=4, class_="dot"),
    ]
    return _svg(title, "", inside, wide, high, class_="interval")


def reach_of(verdicts: Iterable[ComparisonShown]) -> float:
    """Return a round change that no end of these intervals lies beyond."""
    ends = [abs(end) for one in verdicts for end in (one.low, one.high) if end is not None]
    return nice_ceiling(max(ends, default=0.01))


# ── the frame around a plot ─────────────────────────────────────────────────────────────


class _Frame(msgspec.Struct, frozen=True, kw_only=True):
    """The plot of one chart: from 0 to `top` over the time of all bins."""

    bins: Bins
    top: float
    above: float
    """Room above the plot."""
    height: float

    @property
    def bottom(self) -> float:
        return self.above + self.height

    def y(self, value: float) -> float:
        return self.bottom - self.height * min(max(value / self.top, 0.0), 1.0)

    def chart(self, title: str, about: str, inside: Sequence[Element]) -> Element:
        """Return the whole chart with its axes, the grid below what is drawn."""
        axes = (*self._levels(), *self._times())
        return _svg(title, about, [*axes, *inside], WIDTH, self.bottom + AXIS, class_="chart")

    def spark(self, title: str, inside: Sequence[Element]) -> Element:
        """Return it without numbers, as a small one of several."""
        base = element(
            "line", x1=LEFT, x2=LEFT + PLOT, y1=self.bottom, y2=self.bottom, class_="grid"
        )
        return _svg(title, "", [base, *inside], PLOT, self.bottom + 3, begin=LEFT, class_="chart")

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


def _svg(
    title: str,
    about: str,
    inside: Iterable[Element],
    width: float,
    height: float,
    *,
    begin: float = 0.0,
    **more: str,
) -> Element:
    return element(
        "svg",
        element("title", title),
        element("desc", about) if about else None,
        *inside,
        viewBox=f"{number(begin)} 0 {number(width)} {number(height)}",
        role="img",
        aria_label=title,
        **more,
    )


def _curve(runs: Runs, frame: _Frame, ink: str) -> Iterator[Element]:
    for kind, path in (("area", _area), ("line", _line)):
        yield from (element("path", d=path(run, frame), class_=f"{kind} {ink}") for run in runs)


def _line(run: Sequence[Point], frame: _Frame) -> str:
    """Return the path of a curve; a single point becomes a dash that can be seen."""
    points = [(frame.bins.x(at_s), frame.y(value)) for at_s, value in run]
    if len(points) == 1:
        (x, y) = points[0]
        points = [(x - 1, y), (x + 1, y)]
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _area(run: Sequence[Point], frame: _Frame) -> str:
    first, last = (frame.bins.x(at_s) for at_s in (run[0][0], run[-1][0]))
    bottom = number(frame.bottom)
    return f"{_line(run, frame)}L{number(last)} {bottom}L{number(first)} {bottom}z"


def _blocks(blocks: Iterable[BlockShown], frame: _Frame) -> Iterator[Element]:
    """Yield the blocks of comparisons as two bands, one for each side."""
    for side, y in (("a", frame.bottom - 10), ("b", frame.bottom - 5)):
        path = "".join(
            f"M{number(x)} {number(y)}h{number(max(end - x, 0.5))}v5H{number(x)}z"
            for one in blocks
            if one.side == side
            for x in (frame.bins.x(one.begin_s),)
            for end in (frame.bins.x(frame.bins.end_s if one.end_s is None else one.end_s),)
        )
        if path:
            yield element("path", element("title", f"blocks of {side.upper()}"), d=path,
                          class_=f"fill {side}")  # fmt: skip


def _marker_lines(markers: Iterable[Marker], frame: _Frame) -> Iterator[Element]:
    for one in markers:
        x = frame.bins.x(one.at_s)
        tip = element("title", f"{fmt.minutes(one.at_s)} {one.label}")
        yield element("line", tip, x1=x, x2=x, y1=frame.above - 3, y2=frame.bottom, class_="marker")


def _label_rows(markers: Sequence[Marker], bins: Bins) -> dict[int, int]:
    """Return in which row above the plot each label has room; those without are left out."""
    ends, rows = [0.0] * LABEL_ROWS, {}
    for index, one in enumerate(markers):
        begin = _label_begin(one, bins)
        row = next((row for row, end in enumerate(ends) if end <= begin), None)
        if row is not None:
            rows[index] = row
            ends[row] = begin + LETTER * (len(_label(one)) + 2)
    return rows


def _label(one: Marker) -> str:
    return fmt.clip(fmt.plain(one.label), LONGEST_LABEL)


def _label_begin(one: Marker, bins: Bins) -> float:
    return max(min(bins.x(one.at_s), WIDTH - LETTER * len(_label(one))), 0.0)


def _marker_labels(
    rows: dict[int, int], markers: Sequence[Marker], bins: Bins
) -> Iterator[Element]:
    for index, row in rows.items():
        one, y = markers[index], LABELS * (row + 1) - 3
        yield element("text", _label(one), x=_label_begin(one, bins), y=y, class_="label")
