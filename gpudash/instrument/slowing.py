"""Make a part of each step longer, to see whether the step gets longer by as much.

This is the idea of Coz (Curtsinger and Berger, SOSP 2015) turned round. Where a part is on the
critical path, a step grows by the whole delay; where it has slack, by nothing.

The host's work between two waits for the device is one chain, and a delay behind its last launch
that matters is hidden. So the host is delayed where the device has run out of work, as it has
behind a wait. If it never does, any place of the step is as good.
"""

import struct
import time
from functools import wraps
from mmap import mmap
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

from ..protocol.commands import Slow
from . import patching
from .guard import unseen
from .patching import uncompiled

CALIBRATION_CYCLES = 20_000_000
"""About 10 ms."""
TAIL = 0.05
"""Of a delay: a device that has run out of work so soon behind the newest launch is idle."""
LAST = "optimizer"
"""The phase before which the host is delayed at the latest."""


class Slowing:
    """Delays one part of the steps of this process; nothing at first."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._host_s = 0.0
        self._left_s = 0.0  # of the host's delay in the present step
        self._cycles = 0
        self._cycles_per_ms = 0.0
        self.is_on = False
        """Whether `step` and `at_mark` do anything."""

    def begin(self, slow: Slow | None) -> None:
        """Wait for the device at its first delay, to see how long it spins."""
        part, ms = (slow.part, slow.ms) if slow is not None else ("", 0.0)
        self._host_s, self._left_s = ms / 1e3 if part == "host" else 0.0, 0.0
        self._cycles = round(ms * self._pace()) if part == "device" and ms else 0
        _Batches.delay(ms if part == "loader" else 0.0)
        self.is_on = self._host_s > 0 or self._cycles > 0

    def why_not(self, slow: Slow) -> str | None:
        if slow.part == "device" and self._device.type != "cuda":
            return "the training is on a CPU, where the host computes"
        if slow.part == "loader" and _Batches.page is None:
            return "its loader was made before gpudash came"
        return None

    def step(self) -> None:
        if self._cycles:
            with torch.cuda.device(self._device):
                torch.cuda._sleep(self._cycles)  # type: ignore[no-untyped-call]  # noqa: SLF001  # no public spin
        _spin(self._left_s)
        self._left_s = self._host_s
        self.at_mark("")

    def at_mark(self, phase: str) -> None:
        if not self._left_s:
            return
        began_s, patience_s = time.perf_counter(), TAIL * self._host_s
        while phase != LAST and not self._is_idle():
            waited_s = time.perf_counter() - began_s
            if waited_s >= patience_s:
                self._left_s = max(self._left_s - waited_s, 0.0)
                return
        _spin(self._left_s - (time.perf_counter() - began_s))
        self._left_s = 0.0

    def _is_idle(self) -> bool:
        if self._device.type != "cuda":
            return True
        if torch.cuda.is_current_stream_capturing():  # a query would end the capture
            return False
        return torch.cuda.current_stream(self._device).query()

    def _pace(self) -> float:
        if not self._cycles_per_ms:
            begin, end = (torch.Event("cuda", enable_timing=True) for _ in range(2))
            with torch.cuda.device(self._device):
                # the first spin is loaded when it is launched, which takes longer than it spins
                torch.cuda._sleep(1)  # type: ignore[no-untyped-call]  # noqa: SLF001  # as above
                begin.record()
                torch.cuda._sleep(CALIBRATION_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001  # as above
                end.record()
                end.synchronize()  # sync: once in a proof, between two blocks
            self._cycles_per_ms = CALIBRATION_CYCLES / begin.elapsed_time(end)
        return self._cycles_per_ms


def hook_loaders() -> None:
    """Have all loaders read their delay, also in workers that are forked from here on."""
    if _Batches.page is None:
        _Batches.page = mmap(-1, _Batches.FORMAT.size)
        for kind in (_MapDatasetFetcher, _IterableDatasetFetcher):
            patching.replace(kind, "fetch", _Batches.delayed(kind.fetch, _Batches.page))
        patching.at_undo(_Batches.forget)


class _Batches:
    """The delay of a batch in ms, in memory that is shared with loader workers."""

    FORMAT = struct.Struct("d")
    page: mmap | None = None

    @classmethod
    def delay(cls, ms: float) -> None:
        if cls.page is not None:
            cls.FORMAT.pack_into(cls.page, 0, ms)

    @classmethod
    def forget(cls) -> None:
        cls.delay(0.0)
        cls.page = None

    @classmethod
    def delayed(cls, fetch: Any, page: mmap) -> Any:
        """Sleep n times as long in each of n workers, which makes every n-th batch."""
        read = cls.FORMAT.unpack_from

        @wraps(fetch)
        def slowed(self: Any, *args: Any) -> Any:
            with unseen:
                batch = fetch(self, *args)
                (ms,) = read(page)
                if ms:
                    worker = get_worker_info()
                    _spin(ms / 1e3) if worker is None else time.sleep(ms / 1e3 * worker.num_workers)
                return batch

        return uncompiled(slowed, deeply=False)


def _spin(seconds: float) -> None:
    """Keep the core, which a sleep would give away, and so wake up late."""
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        pass
