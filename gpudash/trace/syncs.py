"""Find the lines that made the host wait for the device, and for how long.

The training process noted a call just after its operator had returned. So its wait lies in the last
operator that began before, on the same thread. A backward pass may run on another thread, and torch
reports its waits at the end: they lie in the remaining operators of autograd.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpudash.protocol.inspections import SyncCall
from gpudash.trace.model import Trace
from gpudash.trace.names import BACKWARD, STEP
from gpudash.trace.summary import SyncUse

Indices: TypeAlias = NDArray[np.int64]
"""Indices of events."""
Noted: TypeAlias = Sequence[tuple[float, SyncCall]]
"""Calls with their µs on the trace's time axis, −∞ if unknown; in order of time."""

OPERATOR = re.compile(r"(?!autograd::)\w+::\w+")
"""Matches operator names of torch's dispatcher."""
STAGED = re.compile(r"Memcpy .*Pageable.*")
"""Matches a copy from or to memory that is not pinned: its launching call waits."""
NOTED_WITHIN_US = 10_000.0
"""A call may be noted this late, since it needs the GIL, which another thread may hold."""


def syncs(trace: Trace) -> tuple[SyncUse, ...]:
    """Return the longest wait first; every waiting event and every noted call is in exactly one."""
    waits = _waits(trace)
    operators = _outermost(trace, OPERATOR, waits)
    groups, group_of = np.unique(np.where(operators >= 0, operators, waits), return_inverse=True)
    blocked_us = np.bincount(group_of, trace.events.duration_us[waits], len(groups))
    calls = noted(trace)
    claims = _claims(trace, groups, calls)

    counts = Counter(_place(call) for _, call in calls)
    total_us: dict[tuple[str, int, str, str], float] = dict.fromkeys(counts, 0.0)
    for group, us in zip(groups.tolist(), blocked_us.tolist(), strict=True):
        call = claims.get(group)
        if call is None:
            place = ("", 0, "", trace.names[trace.events.name[group]])
            counts[place] += 1
        else:
            place = _place(call)
        total_us[place] = total_us.get(place, 0.0) + us
    steps = len(trace.steps) or (trace.profiled.steps if trace.profiled else 0) or 1
    uses = [
        SyncUse(*place, count=counts[place] / steps, blocked_ms=us / 1e3 / steps)
        for place, us in total_us.items()
    ]
    return tuple(sorted(uses, key=lambda use: (-use.blocked_ms, -use.count)))


def _place(call: SyncCall) -> tuple[str, int, str, str]:
    return call.file, call.line, call.function, call.what


def _waits(trace: Trace) -> Indices:
    events = trace.events
    is_wait = events.are("sync")
    is_staged = events.are("copy") & trace.named(STAGED.fullmatch) & (events.launch >= 0)
    is_wait[events.launch[is_staged]] = True
    annotated = events.are("annotation") & trace.named(STEP.fullmatch)
    if annotated.any():  # after the steps gpudash's profiler waits, and then torch's
        is_wait &= events.begin_us < events.end_us[annotated].max()
    return np.flatnonzero(is_wait & (step_of(trace, events.begin_us) >= 0))


def noted(trace: Trace) -> Noted:
    calls = trace.profiled.syncs if trace.profiled else ()
    timed = sorted(((_at_us(trace, call), call) for call in calls), key=lambda one: one[0])
    inside = step_of(trace, np.array([at_us for at_us, _ in timed])) >= 0
    return [one for one, is_in in zip(timed, inside, strict=True) if is_in or one[0] == -math.inf]


def _at_us(trace: Trace, call: SyncCall) -> float:
    if trace.began_ns is None:
        return -math.inf
    return (call.at_ns - trace.began_ns) / 1e3


def _claims(trace: Trace, groups: Indices, noted: Noted) -> dict[int, SyncCall]:
    events = trace.events
    begins_us, ends_us = events.begin_us, events.end_us
    of_thread = {
        lane.id: groups[events.lane[groups] == index]
        for index, lane in enumerate(trace.lanes)
        if lane.kind == "host"
    }
    claims: dict[int, SyncCall] = {}
    idle: list[tuple[float, SyncCall]] = []
    for at_us, call in noted:
        mine = of_thread.get(call.thread, groups[:0])
        before = mine[: np.searchsorted(begins_us[mine], at_us)]
        within = before[_first_within(begins_us[before], at_us, call) :].tolist()
        waited = [
            one for one in within if one not in claims and at_us <= ends_us[one] + NOTED_WITHIN_US
        ]
        claims |= dict.fromkeys(waited, call)
        if not waited:
            idle.append((at_us, call))

    idle_us = np.array([at_us for at_us, _ in idle])
    idle_step = step_of(trace, idle_us)
    in_backward = groups[_outermost(trace, BACKWARD, groups) >= 0]
    for group, step in zip(in_backward, step_of(trace, begins_us[in_backward]), strict=True):
        after = int(np.searchsorted(idle_us, begins_us[group]))
        if group not in claims and after < len(idle) and idle_step[after] == step:
            claims[int(group)] = idle[after][1]
    return claims


def _first_within(begins_us: NDArray[np.float64], at_us: float, call: SyncCall) -> int:
    """Return the place of the call's first wait; it has one alone if its begin is not known."""
    last = max(len(begins_us) - 1, 0)
    if not call.began_ns:
        return last
    return min(int(np.searchsorted(begins_us, at_us - (call.at_ns - call.began_ns) / 1e3)), last)


def step_of(trace: Trace, at_us: NDArray[np.float64]) -> Indices:
    if not trace.steps:
        return np.zeros(len(at_us), np.int64)
    begins = np.array([step.begin_us for step in trace.steps])
    ends = np.array([step.end_us for step in trace.steps])
    step = np.searchsorted(begins, at_us, side="right") - 1
    return np.where((step >= 0) & (at_us <= ends[step]), step, -1)


def _outermost(trace: Trace, name: re.Pattern[str], inner: Indices) -> Indices:
    events = trace.events
    ends_us = events.end_us
    is_operator = events.are("operator") & trace.named(name.fullmatch)
    found = np.full(len(inner), -1, np.int64)
    for lane in np.unique(events.lane[inner]):
        operators = np.flatnonzero(is_operator & (events.lane == lane))
        ended_us = np.maximum.accumulate(ends_us[operators])
        is_top = np.ones(len(operators), np.bool_)
        is_top[1:] = events.begin_us[operators[1:]] >= ended_us[:-1]
        tops = operators[is_top]
        here = np.flatnonzero(events.lane[inner] == lane)
        begins_us = events.begin_us[inner[here]]
        place = np.searchsorted(events.begin_us[tops], begins_us, side="right") - 1
        is_inside = place >= 0
        is_inside[is_inside] = begins_us[is_inside] <= ends_us[tops[place[is_inside]]]
        found[here[is_inside]] = tops[place[is_inside]]
    return found
