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
        self._put(Hello())

    def watch(self, started: Started, /) -> None:
        """Read this training's processes and its GPU from now on, from two threads.

        Another node's are read there.
        """
        if started.node not in ("", platform.node()):
            return
        self._sampler.start()
        self._sampler.watch(started.pid, started.device.uuid)

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
