"""The sampler: two threads that read the watched GPUs and processes at a steady pace.

There are two threads so that a slow driver call delays no sample. `fast` reads the host and the
GPUs' fast values, and emits. `slow` opens the GPUs, reads their slow values and closes them. In a
training on the CPU it looks once whether the machine has a GPU. `fast` also reads the processes of
other ranks, all in one pass, at the period of `slow`.
Nothing is read before `watch` is called. A failure is reported in `gpu_missing`.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import TypeAlias

from gpudash.protocol import HostReading, Reading
from gpudash.telemetry.gpu import Gpu, GpuName, list_gpus, open_gpu
from gpudash.telemetry.processes import HostReader, children_lookup
from gpudash.telemetry.watched_gpu import WatchedGpu, sentence

FAST_S = 0.2
SLOW_S = 1.0
STALE_S = 2.5
"""A slow value older than this is not emitted with a fast reading."""
ON_CPU = "training on the CPU"

ListGpus: TypeAlias = Callable[[], tuple[str, tuple[GpuName, ...]]]


class Sampler:
    """Reads the watched GPUs and processes from `start` to `stop`, and passes samples to `emit`.

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
        """Periods and `stale_s`, the age limit of slow values, are in seconds."""
        self._emit = emit
        self._fast_s = fast_s
        self._slow_s = slow_s
        self._stale_s = stale_s
        self._open_gpu = open_gpu
        self._list_gpus = list_gpus
        self._target: Target | None = None
        self._others: dict[str, WatchedGpu] = {}  # replaced as a whole: two threads iterate over it
        self._readers: dict[int, HostReader] = {}  # by pid; replaced as a whole too
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def gpu_missing(self) -> str | None:
        """Why no GPU is read, as a sentence; None while one is."""
        return self._target.missing if self._target else "waiting for the worker"

    def watch(self, pid: int, gpu_uuid: str | None) -> None:
        """Read this worker and its GPU from now on; a UUID of None means training on the CPU."""
        self._target = Target(pid, gpu_uuid)
        self._wake.set()

    def watch_others(self, gpu_uuids: Collection[str]) -> None:
        """Read these GPUs from now on, besides the worker's.

        A GPU that cannot be read is left out: it may be in another machine.
        """
        known = self._others
        self._others = {uuid: known.get(uuid) or WatchedGpu(uuid) for uuid in gpu_uuids}
        self._wake.set()

    def watch_processes(self, pids: Collection[int]) -> None:
        """Read these training processes from now on, besides the worker."""
        known = self._readers
        self._readers = {pid: known.get(pid) or HostReader(pid, reads_own=False) for pid in pids}

    def start(self) -> None:
        """Start reading, unless it runs already. May follow a `stop`."""
        if self._threads:
            return
        if self._target is not None:  # a target belongs to the threads that opened it
            self._target = Target(self._target.pid, self._target.gpu_uuid)
        self._others = {uuid: WatchedGpu(uuid) for uuid in self._others}
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=loop, args=(self._stopped, self._wake), name=name, daemon=True)
            for loop, name in ((self._run_fast, "gpudash-fast"), (self._run_slow, "gpudash-slow"))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stop reading and close the GPUs; nothing is emitted afterwards.

        Returns within `timeout_s` even while a driver call hangs; its thread ends later.
        """
        self._stopped.set()
        self._wake.set()
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline_s - time.monotonic()))
        self._threads = []

    def _run_fast(self, stopped: threading.Event, _wake: threading.Event) -> None:
        processes_s = 0.0  # when the processes of other ranks are read next
        for _ in ticks(self._fast_s, stopped, stopped):
            if (target := self._target) is not None:
                for sample in target.read_fast(self._stale_s):
                    if not stopped.is_set() and target is self._target:
                        self._emit(sample)
            for gpu in self._others.values():
                other = gpu.read_fast(self._stale_s)
                if other is not None and not stopped.is_set():
                    self._emit(other)
            now_s = time.monotonic()
            if now_s >= processes_s:
                processes_s = now_s + self._slow_s
                for reading in self._read_processes():
                    if not stopped.is_set():
                        self._emit(reading)

    def _read_processes(self) -> Iterator[HostReading]:
        """Yield readings of the other ranks' processes; none for a process that has ended."""
        readers = self._readers.values()
        with suppress(Exception):  # an unreadable /proc must not end the GPU's samples
            children = children_lookup() if readers else None
            yield from (reading for one in readers if (reading := one.read(children)).values)

    def _run_slow(self, stopped: threading.Event, wake: threading.Event) -> None:
        opened: Target | None = None
        others: Mapping[str, WatchedGpu] = {}
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
                others = self._read_others(others)
        finally:
            if opened is not None:
                opened.close()
            for gpu in others.values():
                gpu.close()

    def _read_others(self, before: Mapping[str, WatchedGpu]) -> Mapping[str, WatchedGpu]:
        """Open the GPUs that are new, read all, and close those no longer watched."""
        others = self._others
        for uuid, gpu in others.items():
            if before.get(uuid) is not gpu:
                gpu.open(self._open_gpu)
            gpu.read_slow()
        for uuid, gpu in before.items():
            if others.get(uuid) is not gpu:
                gpu.close()
        return others


class Target:
    """One worker and its GPU, from one `watch` to the next; shared by the two threads."""

    def __init__(self, pid: int, gpu_uuid: str | None) -> None:
        self.pid = pid
        self.gpu_uuid = gpu_uuid
        self.gpu = WatchedGpu(gpu_uuid) if gpu_uuid else None
        self._on_cpu = ON_CPU
        self._host = HostReader(pid)

    @property
    def missing(self) -> str | None:
        """Why no GPU is read, as a sentence; None while one is."""
        return self.gpu.missing if self.gpu else self._on_cpu

    def open(self, open_gpu: Callable[[str], Gpu], list_gpus: ListGpus) -> None:
        """Open the GPU; on a CPU training, find out whether the machine has one."""
        if self.gpu:
            self.gpu.open(open_gpu)
        else:
            self._on_cpu = _on_cpu(list_gpus)

    def close(self) -> None:
        """Close the GPU, if one is open."""
        if self.gpu:
            self.gpu.close()

    def read_slow(self) -> None:
        """Read the slow values; the next fast readings include them."""
        if self.gpu:
            self.gpu.read_slow()

    def read_fast(self, stale_s: float) -> Iterator[Reading]:
        """Yield readings of host and GPU, each with its own time."""
        yield self._read_host()
        sample = self.gpu.read_fast(stale_s) if self.gpu else None
        if sample is not None:
            yield sample

    def _read_host(self) -> HostReading:
        try:
            return self._host.read()
        except Exception:  # noqa: BLE001  # an unreadable /proc must not end the GPU's samples
            return HostReading(at_s=time.monotonic(), pid=self.pid)


def ticks(period_s: float, stopped: threading.Event, wake: threading.Event) -> Iterator[None]:
    """Yield at once, every `period_s` until stopped, and whenever woken.

    The deadlines are absolute, so the work between two ticks does not make the period drift.
    Ticks missed during long work are skipped.
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
    except Exception as error:  # noqa: BLE001  # shown to the user; the thread goes on
        return f"{ON_CPU}: {sentence(error)}"
    if not gpus:
        return f"{ON_CPU}: no NVIDIA GPU is present"
    more = f" and {len(gpus) - 1} more" if len(gpus) > 1 else ""
    return f"{ON_CPU}, though NVML lists {gpus[0].name}{more}"
