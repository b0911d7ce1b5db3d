"""Remove impossible events, which profilers are known to report.

Some versions of torch.profiler give the first kernels of a later profile times of an earlier one
(pytorch #192021, #175790).
"""

import numpy as np
from numpy.typing import NDArray

from gpudash.trace.model import ON_DEVICE, ON_HOST, Events
from gpudash.trace.spans import ends_last

ROUNDING_US = 1.0
"""Accuracy of the alignment of host and device clocks; times have ns resolution."""


def consistent(events: Events, until_us: float = np.inf) -> Events:
    """Return the events without those that contradict themselves or others.

    No duration is negative. No device event begins before its launch or before the host's first
    event, or ends after the recording. No event of a stream ends before one that was launched into
    it earlier. Kernels of a stream may overlap: a kernel may begin while the one before it drains
    (programmatic dependent launch), and branches of a replayed graph run side by side.
    """
    keep = events.duration_us >= 0
    device = np.flatnonzero(events.are(*ON_DEVICE))
    first_us = events.begin_us[events.are(*ON_HOST)].min(initial=np.inf)
    begin_us, launch = events.begin_us[device], events.launch[device]
    from_us = np.where(
        launch >= 0, events.begin_us[launch], first_us if np.isfinite(first_us) else -np.inf
    )
    end_us = begin_us + events.duration_us[device]
    keep[device] &= (begin_us >= from_us - ROUNDING_US) & (end_us <= until_us + ROUNDING_US)
    keep[_overtaking(events, device[keep[device]])] = False
    return events if keep.all() else events.only(keep)


def _overtaking(events: Events, device: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return events of a stream that end before an earlier one with another launch."""
    found = []
    for lane in np.flatnonzero(np.bincount(events.lane[device])):
        here = device[events.lane[device] == lane]
        end_us = events.end_us[here]
        before = np.concatenate(([0], ends_last(end_us)[:-1]))  # the latest end before each event
        overtakes = end_us < end_us[before] - ROUNDING_US
        launch = events.launch[here]
        found.append(here[overtakes & ((launch != launch[before]) | (launch < 0))])
    return np.concatenate(found) if found else device[:0]
