"""Turn the events of a file into the columns of a trace, without impossible ones.

Profilers are known to report these: some versions of torch.profiler give the first kernels of a
later profile times of an earlier one (pytorch #192021, #175790).
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import compress
from math import inf
from operator import itemgetter
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpudash.errors import UNDECODABLE
from gpudash.format import plain
from gpudash.protocol.inspections import Profiled
from gpudash.trace.model import (
    KINDS,
    ON_DEVICE,
    ON_HOST,
    EventKind,
    LaneKind,
    Links,
    Trace,
    TraceEvents,
    TraceLane,
    TraceStep,
    are,
)
from gpudash.trace.names import MODULE, STEP
from gpudash.trace.spans import ends_last

BETWEEN_PASSES = "fwdbwd"
"""The category of an arrow from an operator to its operator in the backward pass."""
BESIDES = frozenset({"", BETWEEN_PASSES})
"""Categories of metadata and arrows, which are no events."""
MOST_LANES = 2**15 - 1
CATEGORIES: dict[str, EventKind] = {
    "cpu_op": "operator",
    "python_function": "python",
    "user_annotation": "annotation",
    "cuda_runtime": "runtime",
    "cuda_driver": "runtime",
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "set",
}
SYNC = re.compile(
    r"(cuda|hip)((Stream|Device|Event)Synchronize|Memcpy(2D|3D)?|Free(Host)?)(_v\d+|_ptds|_ptsz)*$"
    r"|cu(Stream|Event|Ctx)Synchronize"
)
CALL_OF_MODULE = re.compile(re.escape(MODULE))
COLLECTIVE = re.compile(r"(nccl|rccl)(Dev)?(Kernel|Symk)", re.IGNORECASE)
BY_NAME: dict[EventKind, tuple[EventKind, re.Pattern[str]]] = {
    "runtime": ("sync", SYNC),
    "kernel": ("collective", COLLECTIVE),
    "operator": ("annotation", CALL_OF_MODULE),
}
"""Kinds of events that depend on the name, besides the category."""
ALIGNED_WITHIN_US = 1.0
"""Accuracy of the alignment of host and device clocks; times have ns resolution."""


class NoTraceError(Exception):
    """The file is no trace; the text says why."""


Micros: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
"""A time of a trace, within bounds."""
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Place: TypeAlias = tuple[int | str, int | str]
"""A process and its thread, or a device and its stream."""
_What: TypeAlias = tuple[str, str, int | str, int | str]
"""Category, name and place: one look-up per event for all three."""


class _Args(msgspec.Struct, frozen=True, gc=False):
    correlation: Int64 = 0
    bytes: Int64 = 0
    name: Any = None


class _FileEvent(msgspec.Struct, frozen=True, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Micros = 0.0
    dur: Micros = 0.0
    id: Any = 0
    args: _Args = _Args()


class _TracedDevice(msgspec.Struct, frozen=True):
    id: int = 0
    name: str = ""


class TraceDocument(msgspec.Struct, frozen=True):
    """The file, or a piece of it that was completed to a document."""

    traceEvents: list[_FileEvent] | None = None  # noqa: N815 – torch's names
    baseTimeNanoseconds: int | None = None  # noqa: N815
    deviceProperties: tuple[_TracedDevice, ...] = ()  # noqa: N815
    gpudash: msgspec.Raw = msgspec.Raw()


class EventColumns:
    """Collects events in the order of the file; `trace` sorts them."""

    def __init__(self) -> None:
        self._whats: defaultdict[_What, int] = defaultdict()
        self._whats.default_factory = self._whats.__len__
        self._columns: dict[str, list[NDArray[Any]]] = defaultdict(list)
        self._passes: dict[str, dict[Any, tuple[float, Place]]] = {"s": {}, "f": {}}
        self._labels: dict[Place, str] = {}
        self._devices: tuple[_TracedDevice, ...] = ()
        self._base_ns: int | None = None
        self._until_us = inf
        self._profiled: Profiled | None = None
        self._is_trace = self._is_cut = False

    def add(self, document: TraceDocument | None) -> None:
        """None marks a file that ends early."""
        if document is None:
            self._is_cut = True
            return
        if document.traceEvents is not None:
            self._is_trace = True
            self._add_events(document.traceEvents)
        if document.baseTimeNanoseconds is not None:
            self._base_ns = document.baseTimeNanoseconds
        self._devices += document.deviceProperties
        with suppress(*UNDECODABLE):  # of another version
            self._profiled = msgspec.json.decode(document.gpudash, type=Profiled)

    def _add_events(self, events: list[_FileEvent]) -> None:
        for one in [one for one in events if one.cat in BESIDES]:
            if one.cat:
                self._passes.setdefault(one.ph, {})[str(one.id)] = one.ts, (one.pid, one.tid)
            elif one.name == "thread_name":
                self._labels[one.pid, one.tid] = str(one.args.name).strip()
            elif one.name == "Record Window End":
                self._until_us = one.ts
        kept = [one for one in events if one.ph == "X" and one.cat in CATEGORIES]
        args = [one.args for one in kept]
        whats = self._whats
        for column, values, dtype in (
            ("begin_us", [one.ts for one in kept], np.float64),
            ("duration_us", [one.dur for one in kept], np.float64),
            ("what", [whats[one.cat, one.name, one.pid, one.tid] for one in kept], np.int32),
            ("correlation", [one.correlation for one in args], np.int64),
            ("bytes", [one.bytes for one in args], np.int64),
        ):
            self._columns[column].append(np.fromiter(values, dtype, len(kept)))

    def trace(self, name: str) -> Trace:
        """May raise NoTraceError."""
        if not self._is_trace:
            raise NoTraceError("it has no traceEvents")
        if not self._whats:
            raise NoTraceError("none of its events is an operator, a CUDA call or a kernel")
        raw_names = dict.fromkeys(name for _, name, *_ in self._whats)
        names, index_of = tuple(map(plain, raw_names)), {one: i for i, one in enumerate(raw_names)}
        kind = np.array([_kind(one, plain(name)) for one, name, *_ in self._whats], np.uint8)
        places = [(pid, tid) for *_, pid, tid in self._whats]
        streams = set(compress(places, are(kind, *ON_DEVICE)))
        lanes = self._lanes(dict.fromkeys(places), streams)
        lane_of = {place: i for i, place in enumerate(lanes)}
        if len(lanes) > MOST_LANES:
            raise NoTraceError("it has more threads than can be shown")
        order = np.argsort(np.concatenate(self._columns["begin_us"]), kind="stable")
        column = {key: np.concatenate(self._columns.pop(key))[order] for key in [*self._columns]}
        first_us, what = column["begin_us"][0], column["what"]
        kind = kind[what]
        events = TraceEvents(
            begin_us=column["begin_us"] - first_us,
            duration_us=column["duration_us"],
            kind=kind,
            name=np.array([index_of[name] for _, name, *_ in self._whats], np.int32)[what],
            lane=np.array([lane_of[place] for place in places], np.int16)[what],
            launch=_launches(kind, column["correlation"]),
            bytes=column["bytes"],
        )
        kept = consistent(events, self._until_us - first_us)
        if len(kept) and (stray_us := kept.begin_us[0]):  # the first event had an impossible time
            kept = msgspec.structs.replace(kept, begin_us=kept.begin_us - stray_us)
            first_us += stray_us
        return Trace(
            name=plain(name),
            names=names,
            lanes=(*lanes.values(), *_drawn_besides(kept)),
            events=kept,
            links=self._links(lane_of, first_us),
            steps=_steps(kept, names),
            began_ns=None if self._base_ns is None else self._base_ns + round(first_us * 1000),
            dropped=len(events) - len(kept),
            profiled=self._profiled,
            device=plain(self._devices[0].name) if self._devices and streams else "",
            is_cut=self._is_cut,
        )

    def _lanes(self, places: Iterable[Place], streams: Collection[Place]) -> dict[Place, TraceLane]:
        found = []
        devices = {pid for pid, _ in streams}
        for pid, tid in places:
            kind: LaneKind = "stream" if (pid, tid) in streams else "host"
            label = self._labels.get((pid, tid)) or f"{'thread' if kind == 'host' else kind} {tid}"
            if kind == "stream" and len(devices) > 1:
                label = f"GPU {pid} {label}"
            number = tid if isinstance(tid, int) else 0
            rank = (0, pid != tid, 0) if kind == "host" else (1, pid != 0, number)
            found.append((rank, (pid, tid), TraceLane(kind, plain(label), number)))
        found.sort(key=itemgetter(0))
        return {place: lane for _, place, lane in found}

    def _links(self, lane_of: dict[Place, int], first_us: float) -> Links | None:
        begun, went_on = self._passes["s"], self._passes["f"]
        pairs = [
            (*begun[number], *went_on[number])
            for number in begun.keys() & went_on.keys()
            if begun[number][1] in lane_of and went_on[number][1] in lane_of
        ]
        if not pairs:
            return None
        forward_us, forward_at, backward_us, backward_at = zip(*pairs, strict=True)
        return Links(
            forward_us=np.array(forward_us) - first_us,
            forward_lane=np.array([lane_of[one] for one in forward_at], np.int16),
            backward_us=np.array(backward_us) - first_us,
            backward_lane=np.array([lane_of[one] for one in backward_at], np.int16),
        )


def _kind(category: str, name: str) -> int:
    kind = CATEGORIES[category]
    other, names = BY_NAME.get(kind, (kind, None))
    return KINDS.index(other if names is not None and names.match(name) else kind)


def _launches(kind: NDArray[np.uint8], correlation: NDArray[np.int64]) -> NDArray[np.int32]:
    found = np.full(len(kind), -1, np.int32)
    calls = np.flatnonzero(are(kind, "runtime", "sync") & (correlation > 0))
    launched = np.flatnonzero(are(kind, *ON_DEVICE) & (correlation > 0))
    if len(calls):
        calls = calls[np.argsort(correlation[calls], kind="stable")]
        at = np.searchsorted(correlation[calls], correlation[launched])
        nearest = calls[np.minimum(at, len(calls) - 1)]
        found[launched] = np.where(correlation[nearest] == correlation[launched], nearest, -1)
    return found


def _drawn_besides(events: TraceEvents) -> Iterator[TraceLane]:
    if events.are("copy").any():
        yield TraceLane("copies", "copies")
    if events.are("collective").any():
        yield TraceLane("communication", "communication")


def _steps(events: TraceEvents, names: tuple[str, ...]) -> tuple[TraceStep, ...]:
    number_of = {i: int(found[1]) for i, one in enumerate(names) if (found := STEP.fullmatch(one))}
    annotated = events.are("annotation") & np.isin(events.name, list(number_of))
    end_us = events.end_us
    steps = [
        TraceStep(
            number=number_of[int(events.name[i])],
            begin_us=float(events.begin_us[i]),
            end_us=float(end_us[i]),
        )
        for i in np.flatnonzero(annotated)
    ]
    if steps:
        finished_us = end_us[events.are(*ON_DEVICE)].max(initial=0.0)
        steps[-1] = msgspec.structs.replace(
            steps[-1], end_us=max(steps[-1].end_us, float(finished_us))
        )
    return tuple(steps)


def consistent(events: TraceEvents, until_us: float) -> TraceEvents:
    """Leave out events that contradict themselves or others.

    No device event begins before its launch or the host's first event, or ends after the recording.
    No event of a stream ends before one that was launched into it earlier. Kernels of a stream may
    overlap: a kernel may begin while the one before it drains (programmatic dependent launch), and
    branches of a replayed graph run side by side.
    """
    keep = events.duration_us >= 0
    device = np.flatnonzero(events.are(*ON_DEVICE))
    first_us = events.begin_us[events.are(*ON_HOST)].min(initial=np.inf)
    begin_us, launch = events.begin_us[device], events.launch[device]
    from_us = np.where(
        launch >= 0, events.begin_us[launch], first_us if np.isfinite(first_us) else -np.inf
    )
    end_us = begin_us + events.duration_us[device]
    keep[device] &= (begin_us >= from_us - ALIGNED_WITHIN_US) & (
        end_us <= until_us + ALIGNED_WITHIN_US
    )
    keep[_overtaking(events, device[keep[device]])] = False
    return events if keep.all() else events.only(keep)


def _overtaking(events: TraceEvents, device: NDArray[np.intp]) -> NDArray[np.intp]:
    found = []
    for lane in np.flatnonzero(np.bincount(events.lane[device])):
        here = device[events.lane[device] == lane]
        end_us = events.end_us[here]
        before = np.concatenate(([0], ends_last(end_us)[:-1]))  # the latest end before each event
        overtakes = end_us < end_us[before] - ALIGNED_WITHIN_US
        launch = events.launch[here]
        found.append(here[overtakes & ((launch != launch[before]) | (launch < 0))])
    return np.concatenate(found) if found else device[:0]
