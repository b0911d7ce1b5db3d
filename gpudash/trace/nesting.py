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
    # Each looks at the event before it. What does not reach as far contains nothing of what follows
    # within its own lookout either, so the next to look at is what that one looks at: the distance
    # doubles with every round.
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
