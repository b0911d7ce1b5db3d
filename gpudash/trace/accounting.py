"""Compute a summary from a trace's columns."""

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpudash.trace.mfu import mfu_pct
from gpudash.trace.model import ON_DEVICE, Trace, TraceEvents
from gpudash.trace.names import (
    ALLOCATES,
    MODULE,
    OF_MEMORY,
    STEP,
    Direction,
    copied,
    uses_tensor_cores,
)
from gpudash.trace.nesting import innermost, modules_around
from gpudash.trace.own_code import own_code_us
from gpudash.trace.phases import LOADER, phases
from gpudash.trace.spans import Spans, ends_last, overlap, union
from gpudash.trace.summary import CAUSES, CopyUse, KernelUse, OperatorUse, StreamUse, Summary
from gpudash.trace.syncs import syncs

GAP_CLASSES_US = (0.0, 10.0, 100.0, 1_000.0, 10_000.0)


def summarise(trace: Trace) -> Summary:
    """Cover the time from the first traced step to the last one's end, or the whole trace."""
    events = trace.events
    begin_us, end_us, steps = _window(trace)
    inside = (events.begin_us >= begin_us) & (events.begin_us <= end_us)
    per_step, own_us = _PerStep(trace, inside, steps), own_code_us(trace)
    summary = Summary(
        steps=steps,
        step_ms=per_step.ms(end_us - begin_us),
        on_device=bool(events.are(*ON_DEVICE).any()),
        phases_ms={
            phase: per_step.ms(spans.within(begin_us, end_us).total_us)
            for phase, spans in phases(trace).items()
        },
        host_ms=per_step.annotated_ms(STEP.fullmatch),
        loader_ms=per_step.annotated_ms(lambda name: name.startswith(LOADER)),
        own_code_ms=None if own_us is None else per_step.ms(own_us),
        operators=per_step.operators(),
        syncs=syncs(trace),
        dropped=trace.dropped,
        profiled=trace.profiled,
        device=trace.device,
        is_cut=trace.is_cut,
        mfu_pct=mfu_pct(trace.profiled),
    )
    if not summary.on_device:
        return summary
    device = events.are(*ON_DEVICE)
    busy = union(events.begin_us[device], events.end_us[device]).within(begin_us, end_us)
    gap_us, cause_of = _gaps_of(events, busy, begin_us, end_us)
    streams = per_step.streams(begin_us, end_us)
    copies = events.are("copy")
    launches, copy_calls = (
        np.unique(events.launch[which & inside & (events.launch >= 0)])
        for which in (device & ~copies, copies)
    )
    collective, rest = (
        union(events.begin_us[which], events.end_us[which]).within(begin_us, end_us)
        for which in (events.are("collective"), events.are("kernel", "copy", "set"))
    )
    of_memory = trace.named(OF_MEMORY.fullmatch) & inside
    return msgspec.structs.replace(
        summary,
        busy_ms=per_step.ms(busy.total_us),
        idle_ms={cause: per_step.ms(gap_us[cause_of == i].sum()) for i, cause in enumerate(CAUSES)},
        streams=tuple(use for use, _ in streams),
        overlap_ms=per_step.ms(overlap([spans for _, spans in streams]).total_us)
        if len(streams) > 1
        else None,
        kernels=per_step.kernels(),
        launches=len(launches) / steps,
        launch_ms=per_step.ms(events.duration_us[launches].sum()),
        copy_call_ms=per_step.ms(events.duration_us[copy_calls].sum()),
        copies=per_step.copies(),
        gaps=_histogram(gap_us, steps),
        tensor_core_pct=per_step.tensor_core_pct(),
        blocked_ms=per_step.ms(_blocked_us(events, inside & ~of_memory)),
        allocations=int((trace.named(ALLOCATES.fullmatch) & inside).sum()) / steps,
        allocation_ms=per_step.ms(events.duration_us[of_memory].sum()),
        collectives=int((events.are("collective") & inside).sum()) / steps,
        communication_ms=per_step.ms(collective.total_us),
        exposed_ms=per_step.ms(busy.total_us - rest.total_us),
    )


def _window(trace: Trace) -> tuple[float, float, int]:
    if trace.steps:
        return trace.steps[0].begin_us, trace.steps[-1].end_us, len(trace.steps)
    steps = trace.profiled.steps if trace.profiled else 1
    return 0.0, float(trace.events.end_us.max(initial=0.0)), max(steps, 1)


def _blocked_us(events: TraceEvents, inside: NDArray[np.bool_]) -> float:
    """Count no waits after the last launch, which cost nothing."""
    launches = events.launch[events.launch >= 0]
    last_us = events.begin_us[launches].max(initial=-np.inf)
    waits = events.are("sync") & inside & (events.begin_us < last_us)
    waits &= np.isin(events.lane, events.lane[launches])
    return float(events.duration_us[waits].sum())


def _histogram(gap_us: NDArray[np.float64], steps: int) -> tuple[tuple[float, float, float], ...]:
    found = np.digitize(gap_us, GAP_CLASSES_US) - 1
    return tuple(
        (
            least_us,
            int(np.count_nonzero(found == i)) / steps,
            float(gap_us[found == i].sum()) / steps / 1000,
        )
        for i, least_us in enumerate(GAP_CLASSES_US)
    )


class _PerStep:
    """Events in the window, as means for one step."""

    def __init__(self, trace: Trace, inside: NDArray[np.bool_], steps: int) -> None:
        self._trace, self._inside, self._steps = trace, inside, steps
        self._kernels = np.flatnonzero(inside & trace.events.are("kernel", "collective"))

    def ms(self, us: float) -> float:
        return float(us) / 1000 / self._steps

    def operators(self) -> tuple[OperatorUse, ...]:
        events, names = self._trace.events, self._trace.names
        calls = self._inside & events.are("operator", "runtime", "sync")
        around = innermost(events, calls, calls)
        self_us = events.duration_us - np.bincount(
            around[around >= 0], events.duration_us[calls][around >= 0], len(events)
        )
        chosen = np.flatnonzero(self._inside & events.are("operator"))
        found = [
            OperatorUse(
                name=names[name],
                count=len(of) / self._steps,
                self_ms=self.ms(max(self_us[of].sum(), 0.0)),
            )
            for name, of in _groups(chosen, events.name)
        ]
        return tuple(sorted(found, key=lambda one: -one.self_ms))

    def annotated_ms(self, matches: Callable[[str], object]) -> float | None:
        events = self._trace.events
        found = events.are("annotation") & self._trace.named(matches)
        return self.ms(events.duration_us[found & self._inside].sum()) if found.any() else None

    def streams(self, begin_us: float, end_us: float) -> list[tuple[StreamUse, Spans]]:
        events, found = self._trace.events, []
        device = np.flatnonzero(events.are(*ON_DEVICE))
        for lane, of in _groups(device, events.lane):
            spans = union(events.begin_us[of], events.end_us[of])
            spans = spans.within(begin_us, end_us)
            use = StreamUse(
                label=self._trace.lanes[lane].label,
                busy_ms=self.ms(spans.total_us),
                kernels=int(np.count_nonzero(events.lane[self._kernels] == lane)) / self._steps,
            )
            found.append((use, spans))
        return found

    def kernels(self) -> tuple[KernelUse, ...]:
        events, names = self._trace.events, self._trace.names
        operators = events.are("operator")
        operator = self._most(lambda calls: innermost(events, operators, calls))
        module = self._most(lambda calls: modules_around(self._trace, calls))
        found = [
            KernelUse(
                name=names[name],
                operator=operator[name],
                module=module[name].removeprefix(MODULE),
                count=len(of) / self._steps,
                ms=self.ms(events.duration_us[of].sum()),
                uses_tensor_cores=uses_tensor_cores(names[name]),
            )
            for name, of in _groups(self._kernels, events.name)
        ]
        return tuple(sorted(found, key=lambda one: -one.ms))

    def _most(
        self, around_calls: Callable[[NDArray[np.bool_]], NDArray[np.intp]]
    ) -> dict[int, str]:
        events = self._trace.events
        launch = events.launch[self._kernels]
        are_calls = np.zeros(len(events), np.bool_)
        are_calls[launch[launch >= 0]] = True
        around = np.full(len(events), -1)
        around[are_calls] = around_calls(are_calls)
        around = np.where(launch >= 0, around[launch], -1)
        name_around = np.where(around >= 0, events.name[around] + 1, 0)  # 0: none
        pairs = events.name[self._kernels].astype(np.int64) << 32 | name_around
        pairs, counts = np.unique(pairs, return_counts=True)
        pairs = pairs[np.argsort(counts, kind="stable")]  # dict keeps the last, most frequent one
        most = dict(zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), strict=True))
        return {name: self._trace.names[one - 1] if one else "" for name, one in most.items()}

    def copies(self) -> tuple[CopyUse, ...]:
        events, names = self._trace.events, self._trace.names
        found: dict[tuple[Direction, bool | None], list[NDArray[np.intp]]] = {}
        copies = np.flatnonzero(self._inside & events.are("copy"))
        for name, of in _groups(copies, events.name):
            found.setdefault(copied(names[name]), []).append(of)
        uses = []
        for (direction, is_pinned), parts in found.items():
            of = np.concatenate(parts)
            us, size = float(events.duration_us[of].sum()), int(events.bytes[of].sum())
            uses.append(
                CopyUse(
                    direction=direction,
                    is_pinned=is_pinned,
                    count=len(of) / self._steps,
                    mib=size / 2**20 / self._steps,
                    ms=self.ms(us),
                    gb_s=size / us / 1000 if us and size else None,
                )
            )
        return tuple(sorted(uses, key=lambda one: -one.ms))

    def tensor_core_pct(self) -> float | None:
        events, names = self._trace.events, self._trace.names
        kernels = np.flatnonzero(self._inside & events.are("kernel"))
        total_us = float(events.duration_us[kernels].sum())
        by_name = np.bincount(events.name[kernels], events.duration_us[kernels])
        with_us = sum(
            float(us) for i, us in enumerate(by_name) if us and uses_tensor_cores(names[i])
        )
        return 100 * with_us / total_us if total_us else None


def _groups(
    chosen: NDArray[np.intp], column: NDArray[np.signedinteger]
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    chosen = chosen[np.argsort(column[chosen], kind="stable")]
    values, begins = np.unique(column[chosen], return_index=True)
    if len(chosen):
        yield from zip(values.tolist(), np.split(chosen, begins[1:]), strict=True)


def _gaps_of(
    events: TraceEvents, busy: Spans, begin_us: float, end_us: float
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the lengths in µs of gaps in which no stream was busy, and indices of `CAUSES`.

    This follows the idle time breakdown of Holistic Trace Analysis
    (https://hta.readthedocs.io/en/latest/source/features/idle_time_breakdown.html): a gap has the
    cause that delays the device's next event. There each stream has its gaps; here the device as a
    whole has them.

    `host`: the call that launched the next event ended after the gap began, or nothing follows.
    `communication`: that event, or the one that ended at the gap's begin, is a collective.
    `stream`: the two are in different streams. `other`: anything else, such as a kernel's start.
    """
    free = busy.between(begin_us, end_us)
    device = np.flatnonzero(events.are(*ON_DEVICE))
    at = np.searchsorted(events.begin_us[device], free.end_us)
    after = device[np.minimum(at, len(device) - 1)]
    before = device[ends_last(events.end_us[device])[np.maximum(at - 1, 0)]]
    launch = events.launch[after]
    launched_us = events.begin_us[launch] + events.duration_us[launch]
    is_first, is_last = at == 0, at == len(device)
    is_replayed = ~is_first & (launch == events.launch[before])  # by the graph's one launch
    is_late = (launch >= 0) & (launched_us > free.begin_us) & ~is_replayed
    is_collective = events.are("collective")
    cause = np.select(
        [
            is_last | is_late,
            is_collective[after] | (~is_first & is_collective[before]),
            ~is_first & (events.lane[after] != events.lane[before]),
        ],
        [CAUSES.index(one) for one in ("host", "communication", "stream")],
        CAUSES.index("other"),
    )
    return free.end_us - free.begin_us, cause
