"""Which batch would fit in device memory, by two that were measured. No I/O, no torch."""

from collections.abc import Mapping
from math import floor, log2

import msgspec


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """A straight line through two measured sizes: what tensors need at once, by batch size."""

    sizes: tuple[int, int]
    """The two that it comes from."""
    base_mib: float
    per_sample_mib: float
    capacity_mib: float
    """What the training may hold: the device's memory without what others use of it."""

    def needed_mib(self, batch_size: int) -> float:
        """Return what a batch of this size needs."""
        return self.base_mib + self.per_sample_mib * batch_size

    @property
    def fits(self) -> int:
        """The largest batch that fits, in steps of about an eighth of it."""
        return self._most // self._step * self._step

    @property
    def exceeds(self) -> int:
        """The next one."""
        return self.fits + self._step

    def __str__(self) -> str:
        small, large = self.sizes
        return (
            f"batch {self.fits} would fit, {self.exceeds} would not "
            f"(from the peaks at {small} and {large})"
        )

    @property
    def _most(self) -> int:
        return floor((self.capacity_mib - self.base_mib) / self.per_sample_mib)

    @property
    def _step(self) -> int:
        return 1 << max(floor(log2(max(self._most, 1))) - 2, 0)  # rounding may leave less than one


def forecast(points: Mapping[int, float], capacity_mib: float | None) -> Forecast | None:
    """Return what the two largest batch sizes tell; `points` are their peaks in MiB.

    None without two sizes that differ in what they need, all other settings being the same, and
    where not even a single sample would fit.
    """
    if len(points) < 2 or capacity_mib is None:
        return None
    (small, small_mib), (large, large_mib) = sorted(points.items())[-2:]
    per_sample_mib = (large_mib - small_mib) / (large - small)
    base_mib = large_mib - per_sample_mib * large
    if per_sample_mib <= 0 or base_mib + per_sample_mib > capacity_mib:
        return None
    return Forecast(
        sizes=(small, large),
        base_mib=base_mib,
        per_sample_mib=per_sample_mib,
        capacity_mib=capacity_mib,
    )
