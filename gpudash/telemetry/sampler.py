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
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

import msgspec

from gpudash.protocol.readings import GpuReading, HostReading, OtherJobs, Reading
from gpudash.telemetry.gpu import Gpu, list_gpus, open_gpu
from gpudash.telemetry.nvml import GpuUnavailable
from gpudash.telemetry.other_jobs import OtherJobsReader
from gpudash.telemetry.processes import HostReader
from gpudash.telemetry.procfs import children_lookup

FAST_S = 0.2
SLOW_S = 1.0
ON_CPU = "training on the CPU"
STALE_S = 2.5
"""A slow value older than this is not returned with the fast ones."""


class Sampler:
    """Reads the watched GPUs and processes from `start` to `stop`, and passes samples to `emit`.

    `emit` is called on one of the sampler's threads, never on two at once, and must not raise.
    """

    def __init__(self, emit: Callable[[Reading | OtherJobs], None]) -> None:
        self._emit = emit
        self._worker: HostReader | None = None
        self._gpu: WatchedGpu | None = None  # the worker's
        self._others: dict[str, WatchedGpu] = {}  # replaced as a whole: two threads iterate over it
        self._readers: dict[int, HostReader] = {}  # by pid; replaced as a whole too
        self._other_jobs = OtherJobsReader()
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._threads = [
            threading.Thread(target=loop, name=name, daemon=True)
            for loop, name in ((self._run_fast, "gpudash-fast"), (self._run_slow, "gpudash-slow"))
        ]
        self._is_started = False

    @property
    def gpu_missing(self) -> str | None:
        """Why no GPU is read, as a sentence; None while one is."""
        return self._gpu.missing if self._gpu else "waiting for the worker"

    def watch(self, pid: int, gpu_uuid: str | None) -> None:
        """Read this worker and its GPU from now on; a UUID of None means training on the CPU."""
        self._worker = HostReader(pid)
        self._gpu = WatchedGpu(gpu_uuid) if gpu_uuid else NoGpu()
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
        """Start reading; a second call does nothing."""
        if not self._is_started:
            self._is_started = True
            for thread in self._threads:
                thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stop reading and close the GPUs, for good; nothing is emitted afterwards.

        Returns within `timeout_s` even while a driver call hangs; its thread ends later.
        """
        self._stopped.set()
        self._wake.set()
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads if self._is_started else ():
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _watched(self) -> list["WatchedGpu"]:
        return [*(() if self._gpu is None else (self._gpu,)), *self._others.values()]

    def _run_fast(self) -> None:
        processes_s = 0.0  # when the processes of other ranks are read next
        for _ in ticks(FAST_S, self._stopped, self._stopped):
            if (worker := self._worker) is not None:
                reading = _read_host(worker)
                if worker is self._worker:
                    self._pass_on(reading)
                    jobs = self._read_other_jobs(reading)
                    if jobs is not None:
                        self._pass_on(jobs)
            for gpu in self._watched():
                sample = gpu.read_fast()
                if sample is not None and gpu in self._watched():
                    self._pass_on(sample)
            now_s = time.monotonic()
            if now_s >= processes_s:
                processes_s = now_s + SLOW_S
                for reading in self._read_processes():
                    self._pass_on(reading)

    def _read_other_jobs(self, reading: HostReading) -> OtherJobs | None:
        """Return what other jobs use, if it is time and the training lacks cores."""
        with suppress(Exception):  # an unreadable /proc must not end the GPU's samples
            pids = [pid for pid in (reading.pid, *self._readers) if pid is not None]
            return self._other_jobs.read(pids, reading.number("core_wait_pct"))
        return None

    def _pass_on(self, sample: Reading | OtherJobs) -> None:
        if not self._stopped.is_set():
            self._emit(sample)

    def _read_processes(self) -> Iterator[HostReading]:
        """Yield readings of the other ranks' processes; none for a process that has ended."""
        readers = self._readers.values()
        with suppress(Exception):  # an unreadable /proc must not end the GPU's samples
            children = children_lookup() if readers else None
            yield from (reading for one in readers if (reading := one.read(children)).values)

    def _run_slow(self) -> None:
        opened: list[WatchedGpu] = []
        try:
            for _ in ticks(SLOW_S, self._stopped, self._wake):
                opened = self._read_slow(opened)
        finally:
            for gpu in opened:
                gpu.close()

    def _read_slow(self, opened: list["WatchedGpu"]) -> list["WatchedGpu"]:
        """Close the GPUs that are no longer watched, open new ones, and read all."""
        watched = self._watched()
        for gpu in opened:
            if gpu not in watched:
                gpu.close()
        for gpu in watched:
            if gpu not in opened:
                gpu.open()
            gpu.read_slow()
        return watched


class WatchedGpu:
    """Opens, reads and closes a GPU without raising: `missing` says what failed."""

    def __init__(self, uuid: str) -> None:
        self.missing: str | None = "the GPU is being opened"
        """Why the GPU is not read, as a sentence; None while it is."""
        self._uuid = uuid
        self._gpu: Gpu | None = None
        self._slow: GpuReading | None = None
        self._in_use = threading.Lock()  # the GPU must not be closed while it is read

    def open(self) -> None:
        """Open the GPU."""
        try:
            self._gpu = open_gpu(self._uuid)
        except Exception as error:  # noqa: BLE001  # shown to the user; the thread goes on
            self.missing = sentence(error)
        else:
            self.missing = None

    def close(self) -> None:
        """Close the GPU, if it is open; `missing` keeps its text."""
        with self._in_use:
            gpu, self._gpu = self._gpu, None
        if gpu is not None:
            gpu.close()

    def read_slow(self) -> None:
        """Read the slow values; the next fast readings include them."""
        if self._gpu is None or self.missing is not None:
            return
        try:
            self._slow = self._gpu.slow()
        except Exception as error:  # noqa: BLE001  # shown to the user; the thread goes on
            self.missing = sentence(error)

    def read_fast(self) -> GpuReading | None:
        """Return the values now, with the slow ones unless they are older than `STALE_S`."""
        with self._in_use:
            if self._gpu is None or self.missing is not None:
                return None
            slow = self._slow  # taken first: a sample must hold nothing from after its time
            try:
                sample = self._gpu.fast()
            except Exception as error:  # noqa: BLE001  # shown to the user; the thread goes on
                self.missing = sentence(error)
                return None
        if slow is None or sample.at_s - slow.at_s > STALE_S:
            return sample
        both = sample.values | slow.values
        return msgspec.structs.replace(slow, at_s=sample.at_s, values=both)


class NoGpu(WatchedGpu):
    """Stands for the GPU of a training on the CPU; `missing` says whether the machine has one."""

    def __init__(self) -> None:
        super().__init__("")
        self.missing = ON_CPU

    def open(self) -> None:
        """Find out whether the machine has a GPU."""
        self.missing = _on_cpu()


def _read_host(worker: HostReader) -> HostReading:
    try:
        return worker.read()
    except Exception:  # noqa: BLE001  # an unreadable /proc must not end the GPU's samples
        return HostReading(at_s=time.monotonic(), pid=worker.pid)


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


def _on_cpu() -> str:
    try:
        _, gpus = list_gpus()
    except Exception as error:  # noqa: BLE001  # shown to the user; the thread goes on
        return f"{ON_CPU}: {sentence(error)}"
    if not gpus:
        return f"{ON_CPU}: no NVIDIA GPU is present"
    more = f" and {len(gpus) - 1} more" if len(gpus) > 1 else ""
    return f"{ON_CPU}, though NVML lists {gpus[0].name}{more}"


def sentence(error: Exception) -> str:
    """Return the error as a sentence for the user."""
    if isinstance(error, GpuUnavailable):
        return str(error)
    return f"reading the GPU failed: {type(error).__name__}: {error}"
