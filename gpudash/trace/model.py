"""Define a trace in columns, the form that all analyses use."""

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpudash.protocol.inspections import Profiled

LaneKind: TypeAlias = Literal["host", "stream", "copies", "communication"]
EventKind: TypeAlias = Literal[
    "operator",  # on a host thread: a torch operator
    "runtime",  # … a call of the CUDA runtime or driver
    "sync",  # … one that waits for the device
    "annotation",  # … record_function, or gpudash's
    "kernel",  # on a stream
    "copy",
    "set",  # memset
    "collective",  # on a stream: NCCL's
    "python",  # on a host thread: a Python function, if the trace has stacks
]
KINDS: tuple[EventKind, ...] = get_args(EventKind)
"""`Events.kind` is an index into this."""
ON_HOST: tuple[EventKind, ...] = ("operator", "runtime", "sync", "annotation", "python")
ON_DEVICE: tuple[EventKind, ...] = ("kernel", "copy", "set", "collective")


def are(kind: NDArray[np.uint8], *kinds: EventKind) -> NDArray[np.bool_]:
    chosen = np.zeros(len(kind), np.bool_)
    for one in kinds:  # comparing bytes is an order of magnitude faster than looking them up
        chosen |= kind == KINDS.index(one)
    return chosen


class TraceLane(msgspec.Struct, frozen=True):
    """A row of the timeline: a host thread, a stream, all copies, all communication."""

    kind: LaneKind
    label: str
    id: int = 0
    """A thread's native id, a stream's number; 0 for the others."""


class TraceEvents(msgspec.Struct, frozen=True):
    """All complete events, ordered by begin; each column has shape (n,)."""

    begin_us: NDArray[np.float64]
    """Since the trace's first event."""
    duration_us: NDArray[np.float64]
    kind: NDArray[np.uint8]
    name: NDArray[np.int32]
    """Index into `Trace.names`."""
    lane: NDArray[np.int16]
    """Index into `Trace.lanes`: a host event's thread, or a device event's stream. Copies and
    collectives are also drawn in lanes of their own."""
    launch: NDArray[np.int32]
    """Index of the runtime call that launched a device event; -1 if unknown."""
    bytes: NDArray[np.int64]
    """Size of a copy; else 0."""

    def __len__(self) -> int:
        return len(self.begin_us)

    @property
    def end_us(self) -> NDArray[np.float64]:
        return self.begin_us + self.duration_us

    def are(self, *kinds: EventKind) -> NDArray[np.bool_]:
        return are(self.kind, *kinds)

    def only(self, keep: NDArray[np.bool_]) -> "TraceEvents":
        place = np.where(keep, np.cumsum(keep, dtype=np.int32) - 1, -1).astype(np.int32)
        launch = self.launch[keep]
        return TraceEvents(
            begin_us=self.begin_us[keep],
            duration_us=self.duration_us[keep],
            kind=self.kind[keep],
            name=self.name[keep],
            lane=self.lane[keep],
            launch=np.where(launch >= 0, place[launch], np.int32(-1)),
            bytes=self.bytes[keep],
        )


class Links(msgspec.Struct, frozen=True):
    """Links from operators of a forward pass to their operators in the backward pass.

    Each column has shape (n,).
    """

    forward_us: NDArray[np.float64]
    """Begin of the forward operator, since the trace's first event."""
    forward_lane: NDArray[np.int16]
    backward_us: NDArray[np.float64]
    backward_lane: NDArray[np.int16]


class TraceStep(msgspec.Struct, frozen=True):
    """A profiled step on the trace's time axis."""

    number: int
    begin_us: float
    end_us: float


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A Chrome trace of torch.profiler."""

    name: str
    """The file's name."""
    names: tuple[str, ...]
    lanes: tuple[TraceLane, ...]
    events: TraceEvents
    links: Links | None = None
    """None without a backward pass."""
    steps: tuple[TraceStep, ...] = ()
    """From torch's `ProfilerStep#N` annotations; empty without them."""
    began_ns: int | None = None
    """Unix time of its first event; None if the trace does not have it."""
    dropped: int = 0
    """Number of impossible events, such as kernels before their launch or negative durations."""
    profiled: Profiled | None = None
    """Gpudash's own notes in the file."""
    device: str = ""
    """The GPU's name; empty if no device was traced."""
    is_cut: bool = False
    """Whether the file ends early; its events up to there are here."""

    def named(self, matches: Callable[[str], object]) -> NDArray[np.bool_]:
        return np.array([bool(matches(name)) for name in self.names] or [False])[self.events.name]
