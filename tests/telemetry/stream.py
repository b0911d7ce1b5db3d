"""A sampler at ten times its usual pace, and what it has emitted."""

import os
from typing import TypeAlias

from gpudash.protocol.readings import GpuReading, HostReading, OtherJobs, Reading
from gpudash.telemetry.gpu import GpuName
from gpudash.telemetry.sampler import Sampler
from tests.telemetry.shim import FIRST

FAST_S, SLOW_S = 0.02, 0.15
Found: TypeAlias = tuple[str, ...] | Exception
"""The names of the GPUs that the driver lists, or the error that it raises."""


class Stream:
    """A sampler at ten times its usual pace, and the samples that it has emitted."""

    def __init__(self) -> None:
        self.samples: list[Reading | OtherJobs] = []
        self.listings = 0
        self.listed: Found = ()
        self.sampler = Sampler(self.samples.append)

    def follow(self, uuid: str | None) -> None:
        """Read this process, which trains on that GPU, from now on."""
        self.sampler.watch(os.getpid(), uuid)
        self.sampler.start()

    def list_gpus(self) -> tuple[str, tuple[GpuName, ...]]:
        self.listings += 1
        if isinstance(self.listed, Exception):
            raise self.listed
        return "580", tuple(GpuName(index=0, uuid=FIRST, name=name) for name in self.listed)

    @property
    def gpu(self) -> list[GpuReading]:
        return [each for each in list(self.samples) if isinstance(each, GpuReading)]

    @property
    def host(self) -> list[HostReading]:
        return [each for each in list(self.samples) if isinstance(each, HostReading)]
