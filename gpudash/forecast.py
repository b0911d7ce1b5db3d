"""Which batch would fit in device memory, by two that were measured. No I/O, no torch."""

from collections.abc import Mapping
from math import floor, log2
from typing import NamedTuple

import msgspec


class Need(NamedTuple):
    """What a batch size took of device memory."""

    tensors_mib: float
    """The most in tensors at once."""
    held_mib: float
    """The most that the allocator held for them: gaps between tensors are part of it."""


class Line(NamedTuple):
    """A straight line through two measured sizes."""

    base_mib: float
    per_sample_mib: float

    def at(self, batch_size: int) -> float:
        """Return what a batch of this size takes."""
        return self.base_mib + self.per_sample_mib * batch_size

    def reaches(self, capacity_mib: float) -> int:
        """Return the largest batch that takes no more."""
        return floor((capacity_mib - self.base_mib) / self.per_sample_mib)


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch of any size needs, by two that were measured.

    A batch fits if what the allocator would hold for it has room. It does not fit if its tensors
    alone have none. Of sizes between the two nothing is known.
    """

    sizes: tuple[int, int]
    """The two that it comes from."""
    tensors: Line
    held: Line
    capacity_mib: float
    """What the training may hold: the device's memory without what others use of it."""

    @property
    def fits(self) -> int:
        """The largest batch that fits, in steps of about an eighth of it."""
        most = self.held.reaches(self.capacity_mib)
        return most // _step(most) * _step(most)

    @property
    def exceeds(self) -> int:
        """The next one that does not."""
        most = self.tensors.reaches(self.capacity_mib)
        return (most // _step(most) + 1) * _step(most)

    def __str__(self) -> str:
        small, large = self.sizes
        return (
            f"batch {self.fits} would fit, {self.exceeds} would not "
            f"(from the peaks at {small} and {large})"
        )


def forecast(points: Mapping[int, Need], capacity_mib: float | None) -> Forecast | None:
    """Return what the two largest batch sizes tell; `points` are what they needed.

    None without two sizes that differ in what they need, all other settings being the same, and
    where not even a single sample would fit.
    """
    if len(points) < 2 or capacity_mib is None:
        return None
    (small, less), (large, more) = sorted(points.items())[-2:]
    tensors = _line(small, less.tensors_mib, large, more.tensors_mib)
    held = _line(small, less.held_mib, large, more.held_mib)
    if held.per_sample_mib < tensors.per_sample_mib:  # segments come in large pieces
        gaps_mib = max(more.held_mib - more.tensors_mib, 0.0)
        held = tensors._replace(base_mib=tensors.base_mib + gaps_mib)
    if tensors.per_sample_mib <= 0 or held.at(1) > capacity_mib:
        return None
    return Forecast(sizes=(small, large), tensors=tensors, held=held, capacity_mib=capacity_mib)


def _line(small: int, small_mib: float, large: int, large_mib: float) -> Line:
    per_sample_mib = (large_mib - small_mib) / (large - small)
    return Line(large_mib - per_sample_mib * large, per_sample_mib)


def _step(most: int) -> int:
    return 1 << max(floor(log2(max(most, 1))) - 2, 0)  # rounding may leave less than one
