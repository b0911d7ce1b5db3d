"""The sampler: reads the watched GPUs and processes at a steady pace.

Each GPU is read on threads of its own (`watched_gpu`), so no driver call delays another reading.
One more thread reads the processes of the worker, and at a slower pace those of other ranks.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

from msgspec.structs import replace

from gpudash.protocol.readings import (
    EnergyTick,
    GpuMissing,
    GpuReading,
    HostReading,
    OtherJobs,
    Reading,
)
from gpudash.telemetry.gpu import list_gpus
from gpudash.telemetry.other_jobs import OtherJobsReader
from gpudash.telemetry.processes import HostReader
from gpudash.telemetry.procfs import children_lookup
from gpudash.telemetry.watched_gpu import STALE_S, WatchedGpu, sentence, ticks

HOST_S = 0.2
RANKS_S = 1.0
ON_CPU = "training on the CPU"


class Sampler:
    """Calls `emit` on one of its threads, never on two at once; `emit` must not raise."""

    def __init__(
        self, emit: Callable[[Reading | OtherJobs | EnergyTick], None], *, energy: bool = False
    ) -> None:
        self._emit = emit
        self._energy = energy
        self._emitting = threading.Lock()
        self._worker: HostReader | None = None
        self._uuid: str | None = None  # of the worker's GPU
        self._no_gpu = "waiting for the worker"  # said while no GPU of the worker is watched
        self._others: frozenset[str] = frozenset()
        self._gpus: dict[str, WatchedGpu] = {}  # by UUID; replaced as a whole
        self._readers: dict[int, HostReader] = {}  # by pid; replaced as a whole too
        self._other_jobs = OtherJobsReader()
        self._stopped = threading.Event()
        self._host = threading.Thread(target=self._run_host, name="gpudash-host", daemon=True)
        self._is_started = False

    @property
    def missing(self) -> GpuMissing:
        gpus = self._gpus
        own = gpus.get(self._uuid or "")
        others = {uuid: one.missing for uuid, one in gpus.items() if one.was_read and one != own}
        return GpuMissing(
            why=own.missing if own else self._no_gpu,
            values=own.unread if own else {},
            others={uuid: why for uuid, why in others.items() if why is not None},
        )

    def watch(self, pid: int, gpu_uuid: str | None) -> None:
        """Read this worker from now on; a UUID of None means training on the CPU."""
        self._worker = HostReader(pid)
        self._uuid = gpu_uuid
        self._follow()
        if gpu_uuid is None:
            self._no_gpu = ON_CPU
            if self._is_started:
                self._look()

    def watch_others(self, gpu_uuids: Collection[str]) -> None:
        """Leave out a GPU that never could be read: it may be in another machine."""
        self._others = frozenset(gpu_uuids)
        self._follow()

    def watch_processes(self, pids: Collection[int]) -> None:
        known = self._readers
        self._readers = {pid: known.get(pid) or HostReader(pid, reads_own=False) for pid in pids}

    def tell_loaders(self, pid: int, loaders: Collection[int] | None) -> None:
        """Tell which processes of a training are its loader workers; None: it does not say."""
        for reader in (self._worker, *self._readers.values()):
            if reader is not None and reader.pid == pid:
                reader.roles.tell(loaders)

    def start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._host.start()
            for gpu in self._gpus.values():
                gpu.start()
            if self._no_gpu == ON_CPU:
                self._look()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Close the GPUs for good, within `timeout_s` even while a driver call hangs."""
        self._stopped.set()
        with self._emitting:
            pass  # what is being emitted, is
        deadline_s = time.monotonic() + timeout_s
        for gpu in self._gpus.values():
            gpu.stop()
        for gpu in self._gpus.values():
            gpu.join(deadline_s)
        if self._is_started:
            self._host.join(max(0.0, deadline_s - time.monotonic()))

    def _follow(self) -> None:
        uuids = self._others | ({self._uuid} if self._uuid else set())
        known = self._gpus
        self._gpus = {
            uuid: known.get(uuid)
            or WatchedGpu(uuid, self._pass_on_gpu, energy=self._energy, training=self._pids)
            for uuid in uuids
        }
        for uuid in known.keys() - uuids:
            known[uuid].stop()
        for uuid in uuids - known.keys():
            if self._is_started:
                self._gpus[uuid].start()

    def _run_host(self) -> None:
        ranks_s = 0.0  # when the processes of other ranks are read next
        for _ in ticks(HOST_S, self._stopped):
            if (worker := self._worker) is not None:
                reading = _read_host(worker, self._pids())
                if worker is self._worker:
                    self._pass_on(reading)
                    jobs = self._read_other_jobs(reading)
                    if jobs is not None:
                        self._pass_on(jobs)
            now_s = time.monotonic()
            if now_s >= ranks_s:
                ranks_s = now_s + RANKS_S
                for reading in self._read_processes():
                    self._pass_on(reading)

    def _read_other_jobs(self, reading: HostReading) -> OtherJobs | None:
        with suppress(Exception):  # an unreadable /proc must not end the readings
            return self._other_jobs.read(self._pids(), reading.number("core_wait_pct"))
        return None

    def _pids(self) -> list[int]:
        worker = () if self._worker is None else (self._worker.pid,)
        return [*worker, *self._readers]

    def _pass_on_gpu(self, gpu: WatchedGpu, reading: GpuReading | EnergyTick) -> None:
        if time.monotonic() - reading.at_s < STALE_S:  # else nobody knows when it was so
            self._pass_on(reading, lambda: self._gpus.get(gpu.uuid) is gpu)

    def _pass_on(
        self,
        sample: Reading | OtherJobs | EnergyTick,
        is_watched: Callable[[], bool] = lambda: True,
    ) -> None:
        """Emit a sample, stamped so that the samples of all threads come in order."""
        with self._emitting:
            if is_watched() and not self._stopped.is_set():
                is_tick = isinstance(sample, EnergyTick)  # its moment is what it says
                self._emit(sample if is_tick else replace(sample, at_s=time.monotonic()))

    def _read_processes(self) -> Iterator[HostReading]:
        readers = self._readers.values()
        with suppress(Exception):  # an unreadable /proc must not end the readings
            children = children_lookup() if readers else None
            ranks = self._pids()
            yield from (reading for one in readers if (reading := one.read(children, ranks)).values)

    def _look(self) -> None:
        def look() -> None:
            self._no_gpu = _on_cpu()

        threading.Thread(target=look, name="gpudash-look", daemon=True).start()


def _read_host(worker: HostReader, ranks: Collection[int]) -> HostReading:
    try:
        return worker.read(ranks=ranks)
    except Exception:  # noqa: BLE001  # an unreadable /proc must not end the readings
        return HostReading(at_s=time.monotonic(), pid=worker.pid)


def _on_cpu() -> str:
    try:
        _, gpus = list_gpus()
    except Exception as error:  # noqa: BLE001  # shown to the user
        return f"{ON_CPU}: {sentence(error)}"
    if not gpus:
        return f"{ON_CPU}: no NVIDIA GPU is present"
    more = f" and {len(gpus) - 1} more" if len(gpus) > 1 else ""
    return f"{ON_CPU}, though NVML lists {gpus[0].name}{more}"
