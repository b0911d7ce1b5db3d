"""Device memory that settings were seen to need, which explains why others did not fit."""

from collections.abc import Iterator

import torch

from gpudash import format as fmt
from gpudash.forecast import Need, forecast
from gpudash.instrument.device import DeviceMemory, capacity_mib
from gpudash.protocol.inspections import MemoryOwners
from gpudash.protocol.records import Settings


class MemoryNeeds:
    """The needs of one training, by batch size for equal other settings."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._needs: dict[frozenset[tuple[str, str]], dict[int, Need]] = {}

    def note(self, settings: Settings, memory: DeviceMemory) -> None:
        """Record the device memory of a training with these settings, where it is known."""
        if memory.peak_mib is not None and memory.reserved_mib is not None:
            others, batch_size = _by_batch_size(settings)
            need = Need(memory.peak_mib, memory.reserved_mib)
            self._needs.setdefault(others, {})[batch_size] = need

    def why_not(self, failed: Settings, known: MemoryOwners | None) -> Iterator[str]:
        """Yield clauses: which batch would have fitted, and who owned most, if they are known."""
        others, _ = _by_batch_size(failed)
        expected = forecast(self._needs.get(others, {}), capacity_mib(self._device))
        if expected is not None:
            yield str(expected)
        largest = next((one for one in known.owners if one.file), None) if known else None
        if largest is not None:
            place = fmt.source_line(largest.file, largest.line)
            yield f"most at {place}, {fmt.memory(largest.mib)} of {largest.use}"


def _by_batch_size(settings: Settings) -> tuple[frozenset[tuple[str, str]], int]:
    """Split settings into all others and the batch size."""
    others = frozenset(one for one in settings.items() if one[0] != "batch_size")
    return others, int(settings["batch_size"])
