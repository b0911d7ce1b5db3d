"""Attribute the device's idle time to causes, gap by gap.

This follows the idle time breakdown of Holistic Trace Analysis
(https://hta.readthedocs.io/en/latest/source/features/idle_time_breakdown.html): a gap has the cause
that delays the device's next event. There each stream has its gaps; here the device as a whole has
them, and waits for another stream and for communication are separate causes.
"""

import numpy as np
from numpy.typing import NDArray

from gpudash.trace.model import ON_DEVICE, Events
from gpudash.trace.spans import Spans, ends_last
from gpudash.trace.summary import CAUSES


def gaps_of(
    events: Events, busy: Spans, begin_us: float, end_us: float
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the gaps between two moments in which no stream was busy.

    The first column has their lengths in µs, the second one their causes as indices of `CAUSES`.

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
