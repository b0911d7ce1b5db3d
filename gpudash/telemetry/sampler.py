"""The stream of samples: threads that read the watched GPU and processes at a steady pace.

Two threads, so that a slow driver call delays no sample: `fast` reads the host and what the
GPU tells in microseconds, and emits; `slow` opens the GPU, reads the rest, and closes it,
or finds out once whether there is one that is not trained on.
Nothing is read before `watch` says what. Whatever fails ends up in `gpu_missing`.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from gpudash.protocol import GpuReading, HostReading, Reading
from gpudash.telemetry.gpu import Gpu, GpuName, list_gpus, open_gpu
from gpudash.telemetry.nvml import GpuUnavailable
from gpudash.telemetry.processes import HostReader

FAST_S = 0.2
SLOW_S = 1.0
STALE_S = 2.5
"""A slow value older than this is no longer shown beside fresh ones."""
ON_CPU = "training on the CPU"

ListGpus: TypeAlias = Callable[[], tuple[str, tuple[GpuName, ...]]]


class Sampler:
    """Reads what `watch` names, from `start` to `stop`, and hands each sample to `emit`.

    `emit` is called on one of the sampler's threads, never on two at once, and must not raise.
    """

    def __init__(
        self,
        emit: Callable[[Reading], None],
        *,
        fast_s: float = FAST_S,
        slow_s: float = SLOW_S,
        stale_s: float = STALE_S,
        open_gpu: Callable[[str], Gpu] = open_gpu,
        list_gpus: ListGpus = list_gpus,
    ) -> None:
        """Periods and the age limit of slow values in seconds."""
        self._emit = emit
        self._fast_s = fast_s
        self._slow_s = slow_s
        self._stale_s = stale_s
        self._open_gpu = open_gpu
        self._list_gpus = list_gpus
        self._target: Target | None = None
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def gpu_missing(self) -> str | None:
        """Why no GPU is read, as a sentence; None while one is."""
        return self._target.missing if self._target else "waiting for the worker"

    def watch(self, pid: int, gpu_uuid: str | None) -> None:
        """Read this worker and its GPU from now on; `None` when it trains on the CPU."""
        self._target = Target(pid, gpu_uuid)
        self._wake.set()

    def start(self) -> None:
        """Start reading; nothing happens when it runs already. May follow a `stop`."""
        if self._threads:
            return
        if self._target is not None:  # a target belongs to the threads that opened it
            self._target = Target(self._target.pid, self._target.gpu_uuid)
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=loop, args=(self._stopped, self._wake), name=name, daemon=True)
            for loop, name in ((self._run_fast, "gpudash-fast"), (self._run_slow, "gpudash-slow"))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stop reading and close the GPU; nothing is emitted afterwards.

        Returns within `timeout_s` even while a driver call hangs: its thread then ends alone.
        """
        self._stopped.set()
        self._wake.set()
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline_s - time.monotonic()))
        self._threads = []

    def _run_fast(self, stopped: threading.Event, _wake: threading.Event) -> None:
        for _ in ticks(self._fast_s, stopped, stopped):
            if (target := self._target) is None:
                continue
            for sample in target.read_fast(self._stale_s):
                if not stopped.is_set() and target is self._target:
                    self._emit(sample)

    def _run_slow(self, stopped: threading.Event, wake: threading.Event) -> None:
        opened: Target | None = None
        try:
            for _ in ticks(self._slow_s, stopped, wake):
                if (target := self._target) is not opened:
                    if opened is not None:
                        opened.close()
                    opened = target
                    if opened is not None:
                        opened.open(self._open_gpu, self._list_gpus)
                if opened is not None:
                    opened.read_slow()
        finally:
            if opened is not None:
                opened.close()


class Target:
    """One worker and its GPU, from one `watch` to the next: all that the two threads share."""

    def __init__(self, pid: int, gpu_uuid: str | None) -> None:
        self.pid = pid
        self.gpu_uuid = gpu_uuid
        self.missing: str | None = "the GPU is being opened" if gpu_uuid else ON_CPU
        self._host = HostReader(pid)
        self._gpu: Gpu | None = None
        self._slow: GpuReading | None = None
        self._in_use = threading.Lock()  # the GPU is not closed while it is read

    def open(self, open_gpu: Callable[[str], Gpu], list_gpus: ListGpus) -> None:
        """Open the GPU; if none is trained on, find out whether there is one."""
        if self.gpu_uuid is None:
            self.missing = _on_cpu(list_gpus)
            return
        try:
            self._gpu = open_gpu(self.gpu_uuid)
        except Exception as error:  # noqa: BLE001  # told to the user, and the thread lives on
            self.missing = _sentence(error)
        else:
            self.missing = None

    def close(self) -> None:
        """Close the GPU, if one is open; `missing` keeps what it said."""
        with self._in_use:
            gpu, self._gpu = self._gpu, None
        if gpu is not None:
            gpu.close()

    def read_slow(self) -> None:
        """Take the slow values, for the next fast readings to carry."""
        if self._gpu is None or self.missing is not None:
            return
        try:
            self._slow = self._gpu.slow()
        except Exception as error:  # noqa: BLE001  # told to the user, and the thread lives on
            self.missing = _sentence(error)

    def read_fast(self, stale_s: float) -> Iterator[Reading]:
        """Host and GPU now, each stamped with its own time."""
        yield self._read_host()
        with self._in_use:
            sample = self._read_gpu(stale_s)
        if sample is not None:
            yield sample

    def _read_host(self) -> HostReading:
        try:
            return self._host.read()
        except Exception:  # noqa: BLE001  # an unreadable /proc must not end the GPU's samples
            return HostReading(at_s=time.monotonic())

    def _read_gpu(self, stale_s: float) -> Reading | None:
        if self._gpu is None or self.missing is not None:
            return None
        slow = self._slow  # before the fast values: a sample holds nothing from after its time
        try:
            sample = self._gpu.fast()
        except Exception as error:  # noqa: BLE001  # told to the user, and the thread lives on
            self.missing = _sentence(error)
            return None
        if slow is None or sample.at_s - slow.at_s > stale_s:
            return sample
        both = sample.values | slow.values
        return msgspec.structs.replace(slow, at_s=sample.at_s, values=both)


def ticks(period_s: float, stopped: threading.Event, wake: threading.Event) -> Iterator[None]:
    """Yield now and every `period_s` until stopped, and at once when woken.

    The deadlines are absolute, so the work between two ticks does not make the period drift;
    ticks missed by long work are skipped, never made up for.
    """
    due_s = time.monotonic()
    while True:
        if wake.wait(max(0.0, due_s - time.monotonic())):
            if stopped.is_set():
                return
            wake.clear()
            due_s = time.monotonic()
        yield
        late_s = time.monotonic() - due_s
        due_s += period_s * max(1, math.ceil(late_s / period_s))


def _on_cpu(list_gpus: ListGpus) -> str:
    try:
        _, gpus = list_gpus()
    except Exception as error:  # noqa: BLE001  # told to the user, and the thread lives on
        return f"{ON_CPU}: {_sentence(error)}"
    if not gpus:
        return f"{ON_CPU}: no NVIDIA GPU is present"
    more = f" and {len(gpus) - 1} more" if len(gpus) > 1 else ""
    return f"{ON_CPU}, though NVML lists {gpus[0].name}{more}"


def _sentence(error: Exception) -> str:
    if isinstance(error, GpuUnavailable):
        return str(error)
    return f"reading the GPU failed: {type(error).__name__}: {error}"
