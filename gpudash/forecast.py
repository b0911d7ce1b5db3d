"""Forecast of the batch size that fits in device memory, from two measured ones."""

from collections.abc import Mapping
from math import floor, log2
from typing import NamedTuple

import msgspec


class Need(NamedTuple):
    """Device memory that a batch size took."""

    tensors_mib: float
    """Peak memory in tensors."""
    held_mib: float
    """Peak memory held by the allocator, which includes gaps between tensors."""


class _StraightLine(NamedTuple):
    """A straight line through two measured sizes."""

    base_mib: float
    per_sample_mib: float

    def at(self, batch_size: int) -> float:
        return self.base_mib + self.per_sample_mib * batch_size

    def reaches(self, capacity_mib: float) -> int:
        return floor((capacity_mib - self.base_mib) / self.per_sample_mib)


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Memory needs by batch size, from two that were measured.

    A batch fits if there is room for what the allocator would hold. It does not fit if there is no
    room even for its tensors. Between these two limits the forecast says nothing.
    """

    sizes: tuple[int, int]
    """The two measured batch sizes."""
    tensors: _StraightLine
    held: _StraightLine
    capacity_mib: float
    """Memory that the training may use: all of the device's but what other processes use."""

    @property
    def fits(self) -> int:
        most = self.held.reaches(self.capacity_mib)
        return most // _step(most) * _step(most)

    @property
    def exceeds(self) -> int:
        most = self.tensors.reaches(self.capacity_mib)
        return (most // _step(most) + 1) * _step(most)

    def __str__(self) -> str:
        small, large = self.sizes
        return (
            f"batch {self.fits} would fit, {self.exceeds} would not "
            f"(from the peaks at {small} and {large})"
        )


def forecast(points: Mapping[int, Need], capacity_mib: float | None) -> Forecast | None:
    """Use the two largest batch sizes; all other settings of the points must be the same.

    None where the larger one does not need more, or where not even a single sample would fit.
    """
    if len(points) < 2 or capacity_mib is None:
        return None
    (small, less), (large, more) = sorted(points.items())[-2:]
    tensors = _line(small, less.tensors_mib, large, more.tensors_mib)
    held = _line(small, less.held_mib, large, more.held_mib)
    if held.per_sample_mib < tensors.per_sample_mib:  # the allocator holds large segments
        gaps_mib = max(more.held_mib - more.tensors_mib, 0.0)
        held = tensors._replace(base_mib=tensors.base_mib + gaps_mib)
    if tensors.per_sample_mib <= 0 or held.at(1) > capacity_mib:
        return None
    return Forecast(sizes=(small, large), tensors=tensors, held=held, capacity_mib=capacity_mib)


def _line(small: int, small_mib: float, large: int, large_mib: float) -> _StraightLine:
    per_sample_mib = (large_mib - small_mib) / (large - small)
    return _StraightLine(large_mib - per_sample_mib * large, per_sample_mib)


def _step(most: int) -> int:
    return 1 << max(floor(log2(max(most, 1))) - 2, 0)  # rounding may leave `most` below 1
