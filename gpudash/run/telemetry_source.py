"""The sampler's readings, as a source."""

import contextlib
import itertools
import platform
import time
from queue import Empty, SimpleQueue

from gpudash.protocol import Envelope, GpuMissing, Hello, Reading, Started
from gpudash.run.source import Source
from gpudash.telemetry.sampler import Sampler


class TelemetrySource(Source):
    """Reads the device and the processes of the training that it is told to watch."""

    def __init__(self) -> None:
        self._seq = itertools.count()
        self._arrived: SimpleQueue[Envelope] = SimpleQueue()
        self._sampler = Sampler(self._put)
        self._missing: str | None = None
        self._gpus: dict[int, str | None] = {}  # of each rank
        self._put(Hello())

    def watch(self, started: Started, /, rank: int = 0) -> None:
        """Read rank 0's processes, and the GPU of each rank, from now on, from two threads.

        Another node's are read there.
        """
        if started.node not in ("", platform.node()):
            return
        self._gpus[rank] = started.device.uuid
        if started.world_size > 1:
            self._gpus = {one: uuid for one, uuid in self._gpus.items() if one < started.world_size}
        self._sampler.start()
        if rank == 0:
            self._sampler.watch(started.pid, started.device.uuid)
        others = set(self._gpus.values()) - {self._gpus.get(0)}
        self._sampler.watch_others({uuid for uuid in others if uuid is not None})

    def read(self) -> list[Envelope]:
        """Return what came since the last call: readings, and why there is none of a GPU."""
        missing, self._missing = self._missing, self._sampler.gpu_missing
        if missing != self._missing:
            self._put(GpuMissing(why=self._missing))
        found = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._arrived.get_nowait())
        return found

    def close(self) -> None:
        """Stop reading."""
        self._sampler.stop()

    def _put(self, body: Hello | GpuMissing | Reading) -> None:
        seq, now_s = next(self._seq), time.monotonic()
        self._arrived.put(Envelope(source="telemetry", seq=seq, sent_s=now_s, body=body))
