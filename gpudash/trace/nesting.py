"""Find the events of a thread that enclose others."""

import numpy as np
from numpy.typing import NDArray

from gpudash.trace.model import Events

ROUNDING_US = 0.01


def innermost(
    events: Events, containers: NDArray[np.bool_], inner: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Return the innermost container around each inner event, in order; −1 for none.

    Both are on the same lane. No event contains itself.
    """
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
