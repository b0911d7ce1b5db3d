"""The sampler's readings, as a source."""

import itertools
import platform
import time
from queue import SimpleQueue

from gpudash.protocol import Envelope, GpuMissing, Hello, HostReading, Reading, Started
from gpudash.run.source import Source
from gpudash.telemetry.sampler import Sampler


class TelemetrySource(Source):
    """Reads the device and the processes of the training that it is told to watch."""

    def __init__(self) -> None:
        self._seq = itertools.count()
        self._arrived: SimpleQueue[Envelope] = SimpleQueue()
        self._sampler = Sampler(self._put)
        self._missing: str | None = None
        self._started: dict[int, Started] = {}  # of each rank, replaced as a whole
        self._put(Hello())

    def watch(self, started: Started, /, rank: int = 0) -> None:
        """Read the processes and the GPU of each rank from now on, from two threads.

        Another node's are read there.
        """
        if started.node not in ("", platform.node()):
            return
        known = self._started | {rank: started}
        if started.world_size > 1:
            known = {one: of for one, of in known.items() if one < started.world_size}
        self._started = known
        self._sampler.start()
        if rank == 0:
            self._sampler.watch(started.pid, started.device.uuid)
        first = known.get(0)
        others = {one.device.uuid for one in known.values()} - {first and first.device.uuid}
        self._sampler.watch_others({uuid for uuid in others if uuid is not None})
        self._sampler.watch_processes({of.pid for one, of in known.items() if one})

    def forget(self) -> None:
        """Take that those have ended: a training with fewer ranks may follow.

        Rank 0's is read until the next one begins: with it comes what gpudash itself takes.
        """
        self._started = {rank: of for rank, of in self._started.items() if rank == 0}

    def read(self) -> list[Envelope]:
        """Return what came since the last call: readings, and why there is none of a GPU."""
        missing, self._missing = self._missing, self._sampler.gpu_missing
        if missing != self._missing:
            self._put(GpuMissing(why=self._missing))
        return [self._arrived.get_nowait() for _ in range(self._arrived.qsize())]

    def close(self) -> None:
        """Stop reading."""
        self._sampler.stop()

    def _put(self, body: Hello | GpuMissing | Reading) -> None:
        rank = self._rank_of(body.pid) if isinstance(body, HostReading) else 0
        if rank is None:  # it was watched until now
            return
        seq, now_s = next(self._seq), time.monotonic()
        self._arrived.put(Envelope(source="telemetry", rank=rank, seq=seq, sent_s=now_s, body=body))

    def _rank_of(self, pid: int | None) -> int | None:
        return next((rank for rank, one in self._started.items() if one.pid == pid), None)
