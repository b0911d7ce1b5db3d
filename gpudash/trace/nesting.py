"""Which event of a thread lies in which."""

import numpy as np
from numpy.typing import NDArray

from gpudash.trace.model import Events

ROUNDING_US = 0.01


def innermost(
    events: Events, containers: NDArray[np.bool_], inner: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Return, for each of the inner events in order, the innermost container around it, or −1.

    Both are on the same lane; nothing contains itself.
    """
    chosen = np.flatnonzero(containers | inner)
    order = np.lexsort((-events.duration_us[chosen], events.begin_us[chosen], events.lane[chosen]))
    chosen = chosen[order]
    lane, end_us = events.lane[chosen], events.begin_us[chosen] + events.duration_us[chosen]
    contains_until_us = np.where(containers[chosen], end_us + ROUNDING_US, -np.inf)
    around = np.arange(-1, len(chosen) - 1)
    # Pointer jumping: each event first points at the one that begins before it. Where that one ends
    # too early, so does all that it has passed over itself, and its pointer is taken over. All jump
    # at once, so the rounds are few.
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
