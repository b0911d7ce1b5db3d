"""What processes of others use of a GPU, by the driver's samples of each process.

The driver's pids are the machine's, not those of a container, and newer drivers translate only
some. So in a container nothing is known.
"""

import os
import time
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from statistics import fmean

from gpudash.telemetry import procfs
from gpudash.telemetry.nvml import NotMeasured, Nvml
from gpudash.telemetry.other_jobs import name_of
from gpudash.telemetry.procfs import GONE, children_lookup, tree

FIRST_US = 1_000_000
"""How far the first reading looks back: older samples may be of processes that have ended."""

MOST_PCT = 110.0
"""Samples that add up to more are wrong; those of several processes are not of the same moment."""


class OtherProcesses:
    """Reads them for one GPU; each reading covers the time since the one before."""

    def __init__(self, nvml: Nvml, handle: object) -> None:
        self._nvml, self._handle = nvml, handle
        self._since_us = time.time_ns() // 1000 - FIRST_US
        self.used_pct: float | None = None
        """Percent of the time in which they had work on the SMs, by the newest reading; None if it
        is not known: in a container, without the training in the list, and without new samples."""
        self.busiest = ""
        """The one that had most, as `train.py (pid 42)`; empty: none."""

    def read(self, training: Collection[int]) -> None:
        """Leave out the trees of `training`, and this process's: it may run another training.

        Raises `NotMeasured` if never known.
        """
        self.used_pct, self.busiest = None, ""
        if not procfs.are_of_machine():
            return
        ours = _trees({os.getpid(), *training})
        try:
            listed = self._nvml.call("nvmlDeviceGetComputeRunningProcesses", self._handle)
            if ours.isdisjoint(one.pid for one in listed):
                return
            samples = self._nvml.call(
                "nvmlDeviceGetProcessUtilization", self._handle, self._since_us
            )
        except NotMeasured as error:
            if error.lasts:
                raise
            return
        found = defaultdict[int, list[int]](list)
        for one in samples:
            if one.timeStamp > self._since_us:
                found[one.pid].append(one.smUtil)
        self._since_us = max((one.timeStamp for one in samples), default=self._since_us)
        used_pct = sum(map(fmean, found.values()))
        if not found or used_pct > MOST_PCT:
            return
        others = {pid: fmean(used) for pid, used in found.items() if pid not in ours}
        pid = max(others, key=lambda one: others[one], default=None)
        if pid is not None and others[pid]:
            self.busiest = f"{name_of(pid) or 'a process'} (pid {pid})"
        self.used_pct = sum(others.values())


def _trees(training: Collection[int]) -> set[int]:
    with suppress(*GONE):
        children = children_lookup()
        return {one for pid in training for one in tree(pid, children)}
    return set(training)
