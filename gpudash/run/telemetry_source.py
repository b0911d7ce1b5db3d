"""Provide the sampler's readings as a source."""

import itertools
import platform
import time
from queue import SimpleQueue
from threading import Lock

from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import EnergyTick, GpuMissing, HostReading, OtherJobs, Reading
from gpudash.protocol.training import Hello, State, TrainingProcess
from gpudash.run.source import Source
from gpudash.telemetry.sampler import Sampler


class TelemetrySource(Source):
    """Reads the devices and the processes of the training ranks that it watches."""

    def __init__(self, *, energy: bool = False) -> None:
        """`energy`: the ticks of the GPUs' energy counters are sent too."""
        self._seq = itertools.count()
        self._arrived: SimpleQueue[Envelope] = SimpleQueue()
        self._putting = Lock()
        self.meters = energy
        self._sampler = Sampler(self._put, energy=energy)
        self._missing = GpuMissing(why=None)
        self._watched: dict[int, TrainingProcess] = {}  # of each rank, replaced as a whole
        self._put(Hello())

    def watch(self, state: State, /, rank: int = 0) -> None:
        """Ranks of another node are read there."""
        process = state.process
        if process is None or process.node not in ("", platform.node()):
            return
        if self._watched.get(rank) != process:
            self._begin(process, rank)
        self._sampler.tell_loaders(process.pid, state.loader_pids)

    def _begin(self, process: TrainingProcess, rank: int) -> None:
        known = self._watched | {rank: process}
        if process.world_size > 1:
            known = {one: of for one, of in known.items() if one < process.world_size}
        self._watched = known
        self._sampler.start()
        if rank == 0:
            self._sampler.watch(process.pid, process.device.uuid)
        first = known.get(0)
        others = {one.device.uuid for one in known.values()} - {first and first.device.uuid}
        self._sampler.watch_others({uuid for uuid in others if uuid is not None})
        self._sampler.watch_processes({of.pid for one, of in known.items() if one})

    def forget(self) -> None:
        """Rank 0's readings go on until the next start: they include gpudash's own usage."""
        self._watched = {rank: of for rank, of in self._watched.items() if rank == 0}

    def read(self) -> list[Envelope]:
        missing, self._missing = self._missing, self._sampler.missing
        if missing != self._missing:
            self._put(self._missing)
        return [self._arrived.get_nowait() for _ in range(self._arrived.qsize())]

    def close(self) -> None:
        self._sampler.stop()

    def _put(self, body: Hello | GpuMissing | OtherJobs | EnergyTick | Reading) -> None:
        rank = self._rank_of(body.pid) if isinstance(body, HostReading) else 0
        if rank is None:  # not watched any more
            return
        with self._putting:  # what comes out of its order is dropped
            self._arrived.put(
                Envelope(
                    source="telemetry",
                    rank=rank,
                    seq=next(self._seq),
                    sent_s=time.monotonic(),
                    body=body,
                )
            )

    def _rank_of(self, pid: int | None) -> int | None:
        return next((rank for rank, one in self._watched.items() if one.pid == pid), None)
