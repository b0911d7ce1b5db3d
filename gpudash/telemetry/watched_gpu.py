"""A GPU read by two threads: one reads the fast values, the other the slow ones."""

import threading

import msgspec

from gpudash.protocol import GpuReading
from gpudash.telemetry.gpu import Gpu, open_gpu
from gpudash.telemetry.nvml import GpuUnavailable

STALE_S = 2.5
"""A slow value older than this is not returned with the fast ones."""


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


def sentence(error: Exception) -> str:
    """Return the error as a sentence for the user."""
    if isinstance(error, GpuUnavailable):
        return str(error)
    return f"reading the GPU failed: {type(error).__name__}: {error}"
