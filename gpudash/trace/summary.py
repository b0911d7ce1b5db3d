"""Define the summary of a trace, and what changed between two, without numpy.

Times are means for one step, in milliseconds.
"""

from typing import Literal, TypeAlias, get_args

import msgspec

from gpudash.protocol.inspections import Profiled
from gpudash.trace.names import Direction

IdleCause: TypeAlias = Literal["host", "stream", "communication", "other"]
"""Why the device idled: the host had launched nothing, a stream waited for another stream, or for a
collective, or the cause is unknown."""
CAUSES: tuple[IdleCause, ...] = get_args(IdleCause)

Phase: TypeAlias = Literal[
    "data",
    "copy",
    "frozen",
    "forward",
    "backward",
    "communication",
    "optimizer",
    "graph",
    "other",
]
"""What a moment of a step belongs to: the next batch is awaited, it is copied, frozen modules work,
others do, …, a CUDA graph is replayed, or work was launched in none of these."""
PHASES: tuple[Phase, ...] = get_args(Phase)


class StreamUse(msgspec.Struct, frozen=True):
    """The use of one stream."""

    label: str
    busy_ms: float
    kernels: float


class KernelUse(msgspec.Struct, frozen=True):
    """One kernel by name, with all its launches in a step."""

    name: str
    operator: str
    """The operator of most launches; empty if unknown."""
    module: str
    """Torch's name of the module; empty if unknown."""
    count: float
    ms: float
    uses_tensor_cores: bool


class OperatorUse(msgspec.Struct, frozen=True):
    """One operator on the host, without nested calls."""

    name: str
    count: float
    self_ms: float


class CopyUse(msgspec.Struct, frozen=True):
    """All copies in one direction."""

    direction: Direction
    is_pinned: bool | None
    """Whether the host's memory is pinned; None if there is none, or it is unknown."""
    count: float
    mib: float
    ms: float
    gb_s: float | None


class SyncUse(msgspec.Struct, frozen=True):
    """One line that made the host wait for the device."""

    file: str
    """Empty if only the operator is known, which is in `what`."""
    line: int
    function: str
    what: str
    count: float
    blocked_ms: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a trace."""

    steps: int
    step_ms: float
    """Wall time of a step while it was traced."""
    on_device: bool
    """Whether the trace holds device events; without any, the device's values are None or empty."""
    phases_ms: dict[Phase, float] = {}
    """On the device, or else on the host; at each moment one, and the rest of the step is none."""
    host_ms: float | None = None
    """The host's time within a step, waits among it. The device's work on the last steps may go on
    after it, which `step_ms` has. None without annotated steps, and in older files."""
    loader_ms: float | None = None
    """The host's time inside `next` of a DataLoader; None if the trace has none."""
    busy_ms: float | None = None
    """Time with at least one stream at work."""
    idle_ms: dict[IdleCause, float] = {}
    """By cause; together with `busy_ms` it adds up to `step_ms`."""
    streams: tuple[StreamUse, ...] = ()
    overlap_ms: float | None = None
    """Time with two or more streams at work; None with a single stream."""
    kernels: tuple[KernelUse, ...] = ()
    """The longest first."""
    operators: tuple[OperatorUse, ...] = ()
    launches: float | None = None
    """Calls that launch kernels or graphs, without calls that copy."""
    launch_ms: float | None = None
    """The host's time in these calls."""
    copy_call_ms: float | None = None
    """The host's time in calls that copy; a copy from pageable memory makes it wait."""
    copies: tuple[CopyUse, ...] = ()
    gaps: tuple[tuple[float, float, float], ...] = ()
    """(least µs, gaps a step, ms a step) by class: from 0, 10, 100 µs, 1, 10 ms on."""
    tensor_core_pct: float | None = None
    """Share of kernel time in kernels that use tensor cores, by their names."""
    syncs: tuple[SyncUse, ...] = ()
    """The longest first: calls that waited, and calls that torch warned of. With copies from
    or to memory that is not pinned, which make the host wait as well."""
    blocked_ms: float | None = None
    """The host's waits for the device in all syncs; `copy_call_ms` has its time in copies, and
    `allocation_ms` that in calls for memory."""
    allocations: float | None = None
    """Calls that ask the driver for device memory."""
    allocation_ms: float | None = None
    """The host's time in these calls, and in those that give memory back."""
    collectives: float | None = None
    communication_ms: float | None = None
    exposed_ms: float | None = None
    """Communication while nothing else ran on the device."""
    mfu_pct: float | None = None
    """Model flops against the measured peak, in a step of `profiled.untraced_step_ms`, or of a
    traced one if that is None; None if flops or peak are unknown."""
    dropped: int = 0
    profiled: Profiled | None = None
    device: str = ""
    """The GPU's name; empty if no device was traced."""
    is_cut: bool = False
    """Whether the trace's file ends early."""
    own_code_ms: float | None = None
    """The host's time in other code than torch's, waits among it. None without annotated steps, and
    in older files."""

    @property
    def counts(self) -> dict[str, float]:
        """What a step has so often, where there is a device."""
        waits = sum(one.count for one in self.syncs) if self.on_device else None
        found = {
            "launches": self.launches,
            "waits": waits,
            "collectives": self.collectives,
        }
        return {name: count for name, count in found.items() if count is not None}


class TotalChange(msgspec.Struct, frozen=True):
    """One value before and after; None if it was not measured."""

    what: str
    unit: str
    before: float | None
    after: float | None


class KernelChange(msgspec.Struct, frozen=True):
    """One kernel by name; None if it did not run."""

    name: str
    before: KernelUse | None
    after: KernelUse | None

    @property
    def change_ms(self) -> float:
        return (self.after.ms if self.after else 0.0) - (self.before.ms if self.before else 0.0)


class ProfileComparison(msgspec.Struct, frozen=True):
    """What changed from one profile to another."""

    totals: tuple[TotalChange, ...]
    kernels: tuple[KernelChange, ...]
    """The largest change first, without unchanged kernels."""


def compare(before: Summary, after: Summary) -> ProfileComparison:
    olds, news = ({one.name: one for one in summary.kernels} for summary in (before, after))
    changes = [
        KernelChange(name, olds.get(name), news.get(name)) for name in dict.fromkeys([*olds, *news])
    ]
    changed = [one for one in changes if one.change_ms]
    totals = zip(_totals(before), _totals(after), strict=True)
    return ProfileComparison(
        totals=tuple(TotalChange(*old, new) for old, (*_, new) in totals),
        kernels=tuple(sorted(changed, key=lambda one: -abs(one.change_ms))),
    )


def _totals(summary: Summary) -> list[tuple[str, str, float | None]]:
    on_device = summary.on_device
    return [
        ("step", "ms", summary.step_ms),
        ("waits for the next batch", "ms", summary.loader_ms),
        ("device busy", "ms", summary.busy_ms),
        *((f"device idle: {cause}", "ms", summary.idle_ms.get(cause)) for cause in CAUSES),
        ("two streams at once", "ms", summary.overlap_ms),
        ("kernels", "", sum(one.count for one in summary.kernels) if on_device else None),
        ("launch calls", "", summary.launches),
        ("launch calls", "ms", summary.launch_ms),
        ("copies", "ms", sum(one.ms for one in summary.copies) if on_device else None),
        ("host waits for the device", "ms", summary.blocked_ms),
        ("calls for device memory", "", summary.allocations),
        ("calls for device memory", "ms", summary.allocation_ms),
        ("communication", "ms", summary.communication_ms),
        ("communication, exposed", "ms", summary.exposed_ms),
        ("kernel time in tensor cores", "%", summary.tensor_core_pct),
        ("model flops of measured peak", "%", summary.mfu_pct),
    ]
