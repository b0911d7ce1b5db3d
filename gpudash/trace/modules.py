"""Which module of the training the calls of a trace were made in."""

import numpy as np
from numpy.typing import NDArray

from gpudash.trace.model import Events, Links, Trace
from gpudash.trace.names import BACKWARD, MODULE
from gpudash.trace.nesting import ROUNDING_US, innermost


def modules_around(trace: Trace, calls: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return of each call the innermost module's event, −1 for none.

    What a backward pass does belongs to the module of the operator that it goes back to.
    """
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


def _links_in(events: Events, links: Links, around: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the first link that goes back within each of these events, −1 for none."""
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
    events: Events,
    containers: NDArray[np.bool_],
    at_us: NDArray[np.float64],
    lane: NDArray[np.int16],
) -> NDArray[np.intp]:
    """Return the innermost of the containers at each of these moments, −1 for none."""
    chosen = np.flatnonzero(containers)
    none = np.zeros(len(chosen) + len(at_us), np.int64)
    both = Events(
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
