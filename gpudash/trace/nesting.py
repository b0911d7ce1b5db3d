"""Find the events of a thread that enclose others, and the module in which a call was made."""

import numpy as np
from numpy.typing import NDArray

from gpudash.trace.model import Links, Trace, TraceEvents
from gpudash.trace.names import BACKWARD, MODULE

ROUNDING_US = 0.01


def innermost(
    events: TraceEvents, containers: NDArray[np.bool_], inner: NDArray[np.bool_]
) -> NDArray[np.intp]:
    chosen = np.flatnonzero(containers | inner)
    order = np.lexsort((-events.duration_us[chosen], events.begin_us[chosen], events.lane[chosen]))
    chosen = chosen[order]
    lane, end_us = events.lane[chosen], events.begin_us[chosen] + events.duration_us[chosen]
    contains_until_us = np.where(containers[chosen], end_us + ROUNDING_US, -np.inf)
    around = np.arange(-1, len(chosen) - 1)
    # Pointer jumping: each event first points at the one that begins before it. If that one ends
    # too early, so do all events that it has passed over itself, and its pointer is taken over.
    # All events jump at once, so there are few rounds.
    looking = np.arange(len(chosen))
    while len(looking):
        there = around[looking]
        around[looking[(there < 0) | (lane[there] != lane[looking])]] = -1
        is_short = contains_until_us[there] < end_us[looking]
        looking = looking[(around[looking] >= 0) & is_short]
        around[looking] = around[around[looking]]
    found = np.full(len(events), -1, np.intp)
    found[chosen] = np.where(around >= 0, chosen[around], -1)
    return found[inner]


def modules_around(trace: Trace, calls: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Give a call in a backward pass to the module of its operator in the forward pass."""
    events = trace.events
    is_module = trace.named(lambda name: name.startswith(MODULE))
    modules = events.are("python", "annotation") & is_module
    found = innermost(events, modules, calls)
    if trace.links is None or not modules.any():
        return found
    passes = events.are("operator") & trace.named(BACKWARD.match)
    went_back = innermost(events, passes, calls)
    link = _links_in(events, trace.links, went_back)
    forward = _at(events, modules, trace.links.forward_us, trace.links.forward_lane)
    return np.where((found < 0) & (link >= 0), forward[link], found)


def _links_in(events: TraceEvents, links: Links, around: NDArray[np.intp]) -> NDArray[np.intp]:
    found = np.full(len(around), -1, np.intp)
    end_us = events.end_us
    for lane in np.unique(links.backward_lane):
        there = np.flatnonzero(links.backward_lane == lane)
        there = there[np.argsort(links.backward_us[there], kind="stable")]
        mine = np.flatnonzero((around >= 0) & (events.lane[around] == lane))
        begin_us = events.begin_us[around[mine]] - ROUNDING_US
        at = np.searchsorted(links.backward_us[there], begin_us)
        link = there[np.minimum(at, len(there) - 1)]
        is_in = (at < len(there)) & (links.backward_us[link] <= end_us[around[mine]] + ROUNDING_US)
        found[mine] = np.where(is_in, link, -1)
    return found


def _at(
    events: TraceEvents,
    containers: NDArray[np.bool_],
    at_us: NDArray[np.float64],
    lane: NDArray[np.int16],
) -> NDArray[np.intp]:
    chosen = np.flatnonzero(containers)
    none = np.zeros(len(chosen) + len(at_us), np.int64)
    both = TraceEvents(
        begin_us=np.concatenate([events.begin_us[chosen], at_us]),
        duration_us=np.concatenate([events.duration_us[chosen], np.zeros(len(at_us))]),
        kind=none.astype(np.uint8),
        name=none.astype(np.int32),
        lane=np.concatenate([events.lane[chosen], lane]),
        launch=none.astype(np.int32),
        bytes=none,
    )
    is_point = np.arange(len(both)) >= len(chosen)
    around = innermost(both, ~is_point, is_point)
    return np.where(around >= 0, chosen[around], -1)
