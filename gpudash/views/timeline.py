"""Lay out a trace as rows of events, and find what the cells of a row show.

Events of a host thread nest, so each depth is a row. A cell shows the event that fills most of it,
and how much of it all events fill.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpudash.trace.model import (
    KINDS,
    ON_DEVICE,
    ON_HOST,
    EventKind,
    LaneKind,
    Trace,
    TraceEvents,
    TraceLane,
)
from gpudash.trace.names import STEP
from gpudash.trace.phases import phases
from gpudash.trace.spans import Spans, overlap
from gpudash.trace.summary import PHASES, Phase
from gpudash.trace.text import PHASE

Indices: TypeAlias = NDArray[np.int32]
Times: TypeAlias = NDArray[np.float64]
RowKind: TypeAlias = LaneKind | Literal["phase", "waits", "overlap"]

OF_LANE: dict[LaneKind, tuple[EventKind, ...]] = {
    "host": ON_HOST,
    "stream": ON_DEVICE,
    "copies": ("copy", "set"),
    "communication": ("collective",),
}
"""Kinds of events drawn in a lane; others would hide them."""
LEAST_US = 0.001
"""Drawn length of an event without duration: a trace has nanoseconds."""
SEVERAL = "two streams or more at work"
BRIDGED_US = 10.0
"""Shortest pause between two stretches of a phase; shorter ones lie between kernels."""


class Row(msgspec.Struct, frozen=True):
    """Events that do not overlap, in order of time."""

    kind: RowKind
    label: str
    lane: int
    """Index into `Trace.lanes`; -1 for none."""
    depth: int
    """How many events of the host thread enclose those of this row."""
    events: Indices
    """Indices into the trace's events; -1 for a stretch that is no event."""
    begin_us: Times
    """As drawn: not before the previous event's end."""
    busy_us: Times
    """Drawn time of the first n events together, for n from 0 to all."""
    length_us: NDArray[np.float32]
    """As drawn; searched where many events share a cell."""
    phases: NDArray[np.uint8] | None = None
    """Of a row of phases: the index of each stretch in `PHASES`."""

    def phase(self, position: int) -> Phase | None:
        return None if self.phases is None else PHASES[self.phases[position]]

    def end_us(self, position: int) -> float:
        return float(self.begin_us[position] + self.busy_us[position + 1] - self.busy_us[position])


class Timeline(msgspec.Struct, frozen=True):
    """A trace and its rows, top to bottom."""

    trace: Trace
    rows: tuple[Row, ...]
    length_us: float


class Cells(NamedTuple):
    """The contents of a row, cell by cell."""

    position: NDArray[np.int64]
    """Position in the row of the event that fills most of the cell; -1 for none."""
    share: Times
    """Part of the cell that events fill, 0 to 1."""


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """The known details of an event."""

    name: str
    kind: EventKind | None
    """None for a stretch of a phase or of overlapping streams, which is no event."""
    lane: str
    begin_us: float
    duration_us: float
    delay_us: float | None = None
    """From the launching call's begin to the event's begin; None if unknown."""
    stack: tuple[str, ...] = ()
    """Events that enclose it, or its launch, outermost first."""
    copied_bytes: int = 0


# ── making the rows ─────────────────────────────────────────────────────────────────────


def timeline_of(trace: Trace) -> Timeline:
    """Lay out a trace; this takes seconds for millions of events."""
    events = trace.events
    ends = [float(events.end_us.max())] if len(events) else []
    length_us = max([*ends, *(step.end_us for step in trace.steps)], default=0.0)
    device = [
        row for kind in ("stream", "copies", "communication") for row in _device_rows(trace, kind)
    ]
    streams = [row for row in device if row.kind == "stream"]
    both = [_overlap(streams)] if len(streams) > 1 else []
    host = [row for index in _lanes(trace, "host") for row in _host_rows(trace, index)]
    return Timeline(trace, (*_phases(trace), *device, *both, *host), max(length_us, LEAST_US))


def _lanes(trace: Trace, kind: LaneKind) -> list[int]:
    return [index for index, lane in enumerate(trace.lanes) if lane.kind == kind]


def _device_rows(trace: Trace, kind: LaneKind) -> Iterator[Row]:
    drawn = trace.events.are(*OF_LANE[kind])
    for index in _lanes(trace, kind):
        there = drawn & (trace.events.lane == index) if kind == "stream" else drawn
        chosen = np.flatnonzero(there).astype(np.int32)
        if len(chosen):
            yield _row(trace.events, chosen, trace.lanes[index], index)


def _host_rows(trace: Trace, index: int) -> Iterator[Row]:
    events, lane = trace.events, trace.lanes[index]
    # a step is drawn as a border
    drawn = events.are(*ON_HOST) & (events.lane == index) & ~trace.named(STEP.fullmatch)
    chosen = np.flatnonzero(drawn).astype(np.int32)
    waits = chosen[events.are("sync")[chosen]]
    if len(waits):
        yield _row(events, waits, lane, index, kind="waits")
    depths = _depths(events, chosen)
    by_depth = chosen[np.argsort(depths, kind="stable")]
    for depth, at_depth in enumerate(np.split(by_depth, np.cumsum(np.bincount(depths))[:-1])):
        if len(at_depth):
            yield _row(events, at_depth, lane, index, depth=depth)


def _depths(events: TraceEvents, chosen: Indices) -> NDArray[np.int64]:
    begin = events.begin_us[chosen]
    duration = np.maximum(events.duration_us[chosen], LEAST_US)
    order = np.lexsort((-duration, begin))  # of two that begin together the longer encloses
    ended = np.searchsorted(np.sort(begin + duration), begin[order] + LEAST_US / 2, side="right")
    depths = np.empty(len(chosen), dtype=np.int64)
    depths[order] = np.maximum(np.arange(len(chosen)) - ended, 0)
    return depths


def _row(
    events: TraceEvents,
    chosen: Indices,
    lane: TraceLane,
    index: int,
    *,
    kind: RowKind | None = None,
    depth: int = 0,
) -> Row:
    begin = events.begin_us[chosen]
    end = np.maximum.accumulate(begin + np.maximum(events.duration_us[chosen], LEAST_US))
    begin[1:] = np.maximum(begin[1:], end[:-1])
    return _drawn(kind or lane.kind, lane.label, index, depth, chosen, begin, end)


def _drawn(
    kind: RowKind, label: str, lane: int, depth: int, chosen: Indices, begin: Times, end: Times
) -> Row:
    length = end - begin
    busy = np.concatenate(([0.0], np.cumsum(length)))
    return Row(kind, label, lane, depth, chosen, begin, busy, length.astype(np.float32))


def _phases(trace: Trace) -> Iterator[Row]:
    found = phases(trace)
    if not found.keys() - {"copy", "communication", "other"}:
        return
    begin = np.concatenate([spans.begin_us for spans in found.values()])
    end = np.concatenate([spans.end_us for spans in found.values()])
    counts = [len(spans.begin_us) for spans in found.values()]
    phase = np.repeat(np.array([PHASES.index(one) for one in found], np.uint8), counts)
    order = np.argsort(begin, kind="stable")
    begin, end, phase = begin[order], end[order], phase[order]
    goes_on = (phase[1:] == phase[:-1]) & (begin[1:] - end[:-1] < BRIDGED_US)
    is_first = np.concatenate(([True], ~goes_on))
    begin, end, phase = begin[is_first], end[np.append(~goes_on, True)], phase[is_first]
    none = np.full(len(begin), -1, np.int32)
    yield msgspec.structs.replace(_drawn("phase", "phase", -1, 0, none, begin, end), phases=phase)


def _overlap(streams: list[Row]) -> Row:
    both = overlap([Spans(row.begin_us, row.begin_us + np.diff(row.busy_us)) for row in streams])
    real = both.end_us - both.begin_us > LEAST_US
    none = np.full(int(real.sum()), -1, dtype=np.int32)
    return _drawn("overlap", "overlap", -1, 0, none, both.begin_us[real], both.end_us[real])


# ── what a row shows ────────────────────────────────────────────────────────────────────


def cells_of(row: Row, begin_us: float, end_us: float, columns: int) -> Cells:
    edges = np.linspace(begin_us, end_us, columns + 1)
    begin, busy, count = row.begin_us, row.busy_us, len(row.begin_us)
    if not count:
        return Cells(np.full(columns, -1), np.zeros(columns))
    begun = np.searchsorted(begin, edges, side="right")
    newest = np.maximum(begun - 1, 0)
    ends = begin[newest] + busy[newest + 1] - busy[newest]
    there = (begun > 0) & (ends > edges)  # an event reaches over the edge
    until = busy[begun] - np.where(there, ends - edges, 0.0)
    width_us = (end_us - begin_us) / columns
    first = np.where(there, newest, begun)[:-1]
    stop = np.searchsorted(begin, edges[1:], side="left")
    position = _fullest(row, first, np.maximum(stop, first), edges)
    return Cells(position, np.clip(np.diff(until) / width_us, 0.0, 1.0))


def _fullest(
    row: Row, first: NDArray[np.int64], stop: NDArray[np.int64], edges: Times
) -> NDArray[np.int64]:
    last = np.maximum(stop - 1, 0)
    heads, tails = (_inside(row, at, edges) for at in (np.minimum(first, last), last))
    best = np.where(tails > heads, last, first)
    most = np.maximum(heads, tails)
    for cell in np.flatnonzero(stop - first > 2):  # those between lie fully inside
        inner = first[cell] + 1 + int(row.length_us[first[cell] + 1 : stop[cell] - 1].argmax())
        if row.length_us[inner] > most[cell]:
            best[cell] = inner
    return np.where(stop > first, best, -1)


def _inside(row: Row, position: NDArray[np.int64], edges: Times) -> Times:
    begin = row.begin_us[position]
    end = begin + row.busy_us[position + 1] - row.busy_us[position]
    return np.asarray(np.minimum(end, edges[1:]) - np.maximum(begin, edges[:-1]))


# ── finding events ──────────────────────────────────────────────────────────────────────


def beside(row: Row, at_us: float, direction: int) -> int | None:
    """`direction` is +1 for the first event that begins later, −1 for the last one before."""
    side: Literal["left", "right"] = "right" if direction > 0 else "left"
    position = int(np.searchsorted(row.begin_us, at_us, side=side)) - (direction < 0)
    return position if 0 <= position < len(row.begin_us) else None


def longest(trace: Trace, row: Row, begin_us: float, end_us: float) -> int | None:
    first, stop = np.searchsorted(row.begin_us, (begin_us, end_us))
    events = row.events[first:stop]
    works = trace.events.are("operator", "kernel", "copy", "set")[events]
    if not works.any():
        return None
    return int(first) + int(np.where(works, row.length_us[first:stop], -1.0).argmax())


def matches(timeline: Timeline, text: str) -> Indices:
    """Search the device's events, or all if the device has none."""
    trace, sought = timeline.trace, text.casefold()
    found = trace.named(lambda name: sought in name.casefold())
    on_device = found & trace.events.are(*ON_DEVICE)
    return np.flatnonzero(on_device if on_device.any() else found).astype(np.int32)


def place_of(timeline: Timeline, event: int) -> tuple[int, int] | None:
    """None if the event is not drawn."""
    lane = timeline.trace.events.lane[event]
    for number, row in enumerate(timeline.rows):
        if row.lane == lane and row.kind != "waits":
            position = int(np.searchsorted(row.events, event))
            if position < len(row.events) and row.events[position] == event:
                return number, position
    return None


def details_of(timeline: Timeline, row: Row, position: int) -> Details:
    event = int(row.events[position])
    begin_us = float(row.begin_us[position])
    if event < 0:
        return Details(
            name=SEVERAL if (phase := row.phase(position)) is None else PHASE[phase],
            kind=None,
            lane=row.label,
            begin_us=begin_us,
            duration_us=row.end_us(position) - begin_us,
        )
    trace, events = timeline.trace, timeline.trace.events
    kind = KINDS[events.kind[event]]
    launch = int(events.launch[event]) if kind in ON_DEVICE else -1
    caller = launch if kind in ON_DEVICE else event
    around = _around(timeline, caller) if caller >= 0 else []
    if launch >= 0:
        around.append(launch)
    return Details(
        name=trace.names[events.name[event]],
        kind=kind,
        lane=trace.lanes[events.lane[event]].label,
        begin_us=float(events.begin_us[event]),
        duration_us=float(events.duration_us[event]),
        delay_us=float(events.begin_us[event] - events.begin_us[launch]) if launch >= 0 else None,
        stack=tuple(trace.names[events.name[one]] for one in around),
        copied_bytes=int(events.bytes[event]),
    )


def _around(timeline: Timeline, event: int) -> list[int]:
    found = place_of(timeline, event)
    if found is None:
        return []
    own, begin_us = timeline.rows[found[0]], float(timeline.trace.events.begin_us[event])
    around = []
    for row in timeline.rows:
        if row.lane == own.lane and row.kind == "host" and row.depth < own.depth:
            position = int(np.searchsorted(row.begin_us, begin_us, side="right")) - 1
            if position >= 0 and row.end_us(position) > begin_us:
                around.append(int(row.events[position]))
    return around
