"""What a step's time goes into, by its trace. Times are means for one step, in milliseconds.

The records load no numpy: every screen knows them, also without a trace.
"""

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from gpudash.protocol import Profiled
from gpudash.trace.names import Direction

if TYPE_CHECKING:
    from gpudash.trace.model import Trace

IdleCause: TypeAlias = Literal["host", "stream", "communication", "other"]
"""Why the device had nothing to do: the host had launched nothing, a stream waited for another,
a collective was waited for, or neither can be told."""
CAUSES: tuple[IdleCause, ...] = get_args(IdleCause)


class StreamUse(msgspec.Struct, frozen=True):
    """One stream."""

    label: str
    busy_ms: float
    kernels: float


class KernelUse(msgspec.Struct, frozen=True):
    """One kernel, by name: all of its launches in a step together."""

    name: str
    operator: str
    """That launched most of them; empty where unknown."""
    module: str
    """As torch names it; empty where unknown."""
    count: float
    ms: float
    uses_tensor_cores: bool


class OperatorUse(msgspec.Struct, frozen=True):
    """One operator on the host, without what it calls."""

    name: str
    count: float
    self_ms: float


class CopyUse(msgspec.Struct, frozen=True):
    """All copies in one direction."""

    direction: Direction
    is_pinned: bool | None
    """Of the host's memory; None where there is none, or it is not known."""
    count: float
    mib: float
    ms: float
    gb_s: float | None


class SyncUse(msgspec.Struct, frozen=True):
    """One line that made the host wait for the device."""

    file: str
    """Empty where only the operator is known, which is in `what`."""
    line: int
    function: str
    what: str
    count: float
    blocked_ms: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What was traced."""

    steps: int
    step_ms: float
    """Wall time of a step while it was traced."""
    on_device: bool
    """Whether the trace holds device events; without any, the device's values are None or empty."""
    loader_ms: float | None = None
    """Inside `next` of a DataLoader, on the host; None where the trace has none."""
    busy_ms: float | None = None
    """At least one stream at work."""
    idle_ms: dict[IdleCause, float] = {}
    """With `busy_ms` it adds up to `step_ms`."""
    streams: tuple[StreamUse, ...] = ()
    overlap_ms: float | None = None
    """Two or more streams at work; None with a single stream."""
    kernels: tuple[KernelUse, ...] = ()
    """The longest first."""
    operators: tuple[OperatorUse, ...] = ()
    launches: float | None = None
    """Calls that put kernels or graphs into a stream; those that copy are not counted."""
    launch_ms: float | None = None
    """The host spent in these calls."""
    copy_call_ms: float | None = None
    """The host spent in calls that copy: one from pageable memory holds it up."""
    copies: tuple[CopyUse, ...] = ()
    gaps: tuple[tuple[float, float, float], ...] = ()
    """(least µs, gaps a step, ms a step) by class: from 0, 10, 100 µs, 1, 10 ms on."""
    tensor_core_pct: float | None = None
    """Of kernel time, in kernels that use tensor cores by their names."""
    syncs: tuple[SyncUse, ...] = ()
    """The longest first; calls that waited at least a moment, and those that torch warned of. With
    them copies from or to memory that is not pinned, which hold the host up as well."""
    blocked_ms: float | None = None
    """The host waited for the device, all syncs together; what copies took it is `copy_call_ms`."""
    communication_ms: float | None = None
    exposed_ms: float | None = None
    """Of communication: nothing else ran on the device meanwhile."""
    mfu_pct: float | None = None
    """Model flops against the measured peak, in a step as long as `profiled.untraced_step_ms`, or
    as a traced one where that is None; None where flops or peak are unknown."""
    dropped: int = 0
    profiled: Profiled | None = None
    device: str = ""
    """The GPU's name; empty where no device was traced."""
    is_cut: bool = False
    """The trace's file ends early."""


def summarise(trace: "Trace") -> Summary:
    """Return where the time of the traced steps went, between the first's begin and the last's end.

    Without annotated steps that is the whole trace.
    """
    from gpudash.trace import accounting  # noqa: PLC0415  # numpy, not before there is a trace

    return accounting.account(trace)
