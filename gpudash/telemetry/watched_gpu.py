"""One GPU, read on threads that share nothing, so a call that hangs holds up no other reading.

A connection that failed is closed, and the GPU is looked up again by its UUID. `ticks` gives
threads that read a steady pace.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

from msgspec.structs import replace

from gpudash.protocol.readings import EnergyTick, GpuReading
from gpudash.telemetry.energy_ticks import TickReader
from gpudash.telemetry.gpu import Gpu, open_gpu
from gpudash.telemetry.nvml import GpuUnavailable


def ticks(period_s: float, stopped: threading.Event) -> Iterator[None]:
    """Yield at once, and then without drift; ticks missed during long work are skipped."""
    due_s = time.monotonic()
    while not stopped.wait(max(0.0, due_s - time.monotonic())):
        yield
        late_s = time.monotonic() - due_s
        due_s += period_s * max(1, math.ceil(late_s / period_s))


FoundT = TypeVar("FoundT", GpuReading, EnergyTick)

FAST_S = 0.2
SLOW_S = 1.0
STALE_S = 2.5
"""A slow value older than this is not returned with the fast ones; a call that takes longer counts
as one that hangs; a value that has failed for this long is told as missing."""
REOPEN_S, REOPEN_MOST_S = 2.0, 16.0
"""Seconds until a GPU is looked up again, doubled each time. They are more than `SLOW_S`: a driver
that was reloaded answers once all connections of the process to the one before are closed."""
TICK_S = 0.01
"""Less than the shortest time between two ticks of an energy counter."""
HANGS = "the NVIDIA driver does not answer"


class WatchedGpu:
    """Reads a GPU from `start` to `stop`, and passes each reading to `take`."""

    def __init__(
        self,
        uuid: str,
        take: Callable[["WatchedGpu", GpuReading | EnergyTick], None],
        *,
        energy: bool = False,
        training: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """Call `take` on several threads; `training` has the pids that are not others'."""
        self.uuid = uuid
        self._take = take
        self._training = training
        self._slow: _Reader[GpuReading] = _Reader(uuid, self._read_slow, SLOW_S)
        self._fast = _Reader(uuid, self._read_fast, FAST_S, self._pass_on)
        self._readers: list[_Reader[GpuReading] | _Reader[EnergyTick]] = [self._slow, self._fast]
        if energy:
            self._readers.append(_Reader(uuid, TickReader(uuid).next, TICK_S, self._pass_on))

    @property
    def missing(self) -> str | None:
        return self._fast.missing

    @property
    def was_read(self) -> bool:
        return self._fast.was_read

    @property
    def unread(self) -> dict[str, str]:
        if self.missing is not None:
            return {}
        slow = self._slow.missing
        told = {} if slow is None or not self._slow.was_read else {"energy and activity": slow}
        return self._fast.unread | self._slow.unread | told

    def start(self) -> None:
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """Have each thread end, and close its connection, once its call has returned."""
        for reader in self._readers:
            reader.stopped.set()

    def join(self, deadline_s: float) -> None:
        for reader in self._readers:
            reader.join(deadline_s)

    def _read_slow(self, gpu: Gpu) -> GpuReading:
        gpu.training = self._training
        return gpu.slow()

    def _read_fast(self, gpu: Gpu) -> GpuReading:
        """Add the slow values unless they are older than `STALE_S`."""
        slow = self._slow.newest  # taken first: a sample must hold nothing from after its time
        reading = gpu.fast()
        if slow is None or reading.at_s - slow.at_s > STALE_S:
            return reading
        return replace(slow, at_s=reading.at_s, values=reading.values | slow.values)

    def _pass_on(self, reading: GpuReading | EnergyTick) -> None:
        self._take(self, reading)


class _Reader(Generic[FoundT]):
    """One kind of reading of one GPU, again and again, on a thread of its own."""

    def __init__(
        self,
        uuid: str,
        read: Callable[[Gpu], FoundT],
        period_s: float,
        take: Callable[[FoundT], None] = lambda _: None,
    ) -> None:
        self.stopped = threading.Event()
        self.newest: FoundT | None = None
        """The newest reading; None after a failure."""
        self.was_read = False
        """Whether there has been a reading."""
        self._uuid, self._period_s = uuid, period_s
        self._read: Callable[[Gpu], FoundT] = read
        self._take: Callable[[FoundT], None] = take
        self._why: str | None = "the GPU is being opened"
        self._asked_s: float | None = None  # since when the driver is asked; None between readings
        self._reopen_s, self._wait_s = 0.0, REOPEN_S
        self._failing: dict[str, tuple[float, str]] = {}  # of a reading: since when, and why
        self._thread = threading.Thread(target=self._run, name="gpudash-gpu", daemon=True)

    @property
    def missing(self) -> str | None:
        asked_s = self._asked_s
        is_late = asked_s is not None and time.monotonic() - asked_s > STALE_S
        return HANGS if is_late else self._why

    @property
    def unread(self) -> dict[str, str]:
        since_s = time.monotonic() - STALE_S
        failing = self._failing  # replaced as a whole
        return {name: why for name, (at_s, why) in failing.items() if at_s <= since_s}

    def start(self) -> None:
        self._thread.start()

    def join(self, deadline_s: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(max(0.0, deadline_s - time.monotonic()))

    def _run(self) -> None:
        gpu: Gpu | None = None
        try:
            for _ in ticks(self._period_s, self.stopped):
                if gpu is not None or time.monotonic() >= self._reopen_s:
                    self._asked_s = time.monotonic()
                    gpu = self._round(gpu)
                    self._asked_s = None
        finally:
            if gpu is not None:
                gpu.close()

    def _round(self, gpu: Gpu | None) -> Gpu | None:
        try:
            gpu = gpu or open_gpu(self._uuid)
            self.newest = self._read(gpu)
        except Exception as error:  # noqa: BLE001  # shown to the user; the thread goes on
            self.newest, self._why = None, sentence(error)
            self._reopen_s = time.monotonic() + self._wait_s
            self._wait_s = min(2 * self._wait_s, REOPEN_MOST_S)
            if gpu is not None:
                gpu.close()
            return None
        now_s, failing = time.monotonic(), self._failing
        self._failing = {
            name: (failing.get(name, (now_s, why))[0], why) for name, why in gpu.unread.items()
        }
        self._why, self.was_read, self._wait_s = None, True, REOPEN_S
        self._take(self.newest)
        return gpu


def sentence(error: Exception) -> str:
    if isinstance(error, GpuUnavailable):
        return str(error)
    return f"reading the GPU failed: {type(error).__name__}: {error}"
