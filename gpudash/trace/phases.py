"""Divide the time of a trace by the phases of the training.

A device event belongs to the phase in which the host launched it. Of events that run at once, the
one of the stream with most kernel time counts, so that the phases add up to a step.
"""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpudash.trace.model import ON_DEVICE, Trace
from gpudash.trace.names import BACKWARD, MODULE
from gpudash.trace.nesting import innermost
from gpudash.trace.spans import Spans, overlap, union
from gpudash.trace.summary import PHASES, Phase

LOADER = "enumerate(DataLoader)"
"""Prefix of torch's annotation of a call of a loader's `next`."""
OPTIMIZER = "Optimizer."
"""The same of an optimizer's `step` and `zero_grad`."""
COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph")
"""The same of compiled code, in which no module is marked."""
GRAPH = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
Mask: TypeAlias = NDArray[np.bool_]
Found: TypeAlias = tuple[Phase, Spans]


def phases(trace: Trace) -> dict[Phase, Spans]:
    events, length_us = trace.events, float(trace.events.end_us.max(initial=0.0))
    loads = events.are("annotation") & trace.named(lambda name: name.startswith(LOADER))
    waits = union(events.begin_us[loads], events.end_us[loads])
    parts = dict[Phase, list[Spans]]()
    taken = union(events.begin_us[:0], events.end_us[:0])
    on_device = bool(events.are(*ON_DEVICE).any())
    for phase, spans in _on_device(trace) if on_device else _on_host(trace, waits):
        free = taken.between(0.0, length_us)
        parts.setdefault(phase, []).append(overlap([spans, free]).within(0.0, length_us))
        taken = _together([taken, spans])
    if on_device and loads.any():  # the device waits for data only where it has nothing to do
        idle = taken.between(0.0, length_us)
        parts["data"] = [overlap([waits, idle]).within(0.0, length_us)]
    found = {phase: _together(parts[phase]) for phase in PHASES if phase in parts}
    return {phase: spans for phase, spans in found.items() if spans.total_us > 0}


def _on_device(trace: Trace) -> Iterator[Found]:
    events = trace.events
    copies, collectives = events.are("copy", "set"), events.are("collective")
    of_launch = _of_calls(trace)
    phase = np.where(events.launch >= 0, of_launch[events.launch], PHASES.index("other"))
    kernels = events.are("kernel")
    busy_us = np.bincount(events.lane[kernels], events.duration_us[kernels], len(trace.lanes))
    for lane in np.argsort(-busy_us, kind="stable"):
        for index in np.unique(phase):
            yield _of(trace, PHASES[index], kernels & (events.lane == lane) & (phase == index))
    yield _of(trace, "communication", collectives)
    yield _of(trace, "copy", copies)


def _of_calls(trace: Trace) -> NDArray[np.intp]:
    events = trace.events
    calls = np.zeros(len(events), np.bool_)
    calls[events.launch[events.launch >= 0]] = True
    found = np.full(len(events), PHASES.index("other"))
    found[trace.named(lambda name: name.startswith(GRAPH))] = PHASES.index("graph")
    for phase, containers in _containers(trace):
        inside = np.zeros(len(events), np.bool_)
        inside[calls] = innermost(events, containers, calls) >= 0
        found[inside] = PHASES.index(phase)
    return found


def _on_host(trace: Trace, waits: Spans) -> Iterator[Found]:
    yield "data", waits
    for phase, containers in reversed(list(_containers(trace))):
        yield _of(trace, phase, containers)


def _containers(trace: Trace) -> Iterator[tuple[Phase, Mask]]:
    """Of two around a call the later one counts. A module in no backward pass is frozen."""
    events = trace.events

    def named(*prefixes: str) -> Mask:
        return trace.named(lambda name: name.startswith(prefixes))

    learns = np.zeros(len(events), np.bool_)
    modules = events.are("annotation", "python") & named(MODULE)
    if trace.links is not None:
        operators = events.are("operator")
        learns = operators & np.isin(
            _key(events.lane, events.begin_us),
            _key(trace.links.forward_lane, trace.links.forward_us),
        )
        outermost = modules.copy()
        outermost[modules] = innermost(events, modules, modules) < 0
        with_gradient = innermost(events, outermost, learns)
        outermost[with_gradient[with_gradient >= 0]] = False
        yield "frozen", outermost
        modules[outermost] = False
        inner = innermost(events, outermost, modules) >= 0
        modules[np.flatnonzero(modules)[inner]] = False
    yield "forward", modules | learns | named(*COMPILED)
    yield "backward", events.are("operator") & trace.named(BACKWARD.match)
    yield "optimizer", events.are("annotation") & named(OPTIMIZER)


def _key(lane: NDArray[np.int16], at_us: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(at_us * 100).astype(np.int64) << 15 | lane


def _of(trace: Trace, phase: Phase, chosen: Mask) -> Found:
    return phase, union(trace.events.begin_us[chosen], trace.events.end_us[chosen])


def _together(spans: list[Spans]) -> Spans:
    return union(
        np.concatenate([one.begin_us for one in spans]),
        np.concatenate([one.end_us for one in spans]),
    )
