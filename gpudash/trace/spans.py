"""Compute with spans of busy time."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray


class Spans(msgspec.Struct, frozen=True):
    """Spans in order that do not touch each other."""

    begin_us: NDArray[np.float64]
    end_us: NDArray[np.float64]

    @property
    def total_us(self) -> float:
        return float((self.end_us - self.begin_us).sum())

    def within(self, begin_us: float, end_us: float) -> "Spans":
        begin = np.clip(self.begin_us, begin_us, end_us)
        end = np.clip(self.end_us, begin_us, end_us)
        return Spans(begin[end > begin], end[end > begin])

    def between(self, begin_us: float, end_us: float) -> "Spans":
        begin = np.concatenate(([begin_us], self.end_us))
        end = np.concatenate((self.begin_us, [end_us]))
        return Spans(begin[end > begin], end[end > begin])


def union(begin_us: NDArray[np.float64], end_us: NDArray[np.float64]) -> Spans:
    order = np.argsort(begin_us, kind="stable")
    begin_us, end_us = begin_us[order], np.maximum.accumulate(end_us[order])
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = begin_us[1:] > end_us[:-1]
    return Spans(begin_us[is_first], end_us[np.roll(is_first, -1)])


def ends_last(end_us: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return for each event, in order of begin, the index of the latest end so far."""
    is_latest = end_us >= np.maximum.accumulate(end_us)
    return np.maximum.accumulate(np.where(is_latest, np.arange(len(end_us)), 0))


def overlap(all_spans: Sequence[Spans]) -> Spans:
    """Include spans of length 0."""
    begins = np.concatenate([spans.begin_us for spans in all_spans])
    ends = np.concatenate([spans.end_us for spans in all_spans])
    at_us = np.concatenate((begins, ends))
    order = np.argsort(at_us, kind="stable")
    several = np.cumsum(np.repeat([1, -1], len(begins))[order]) > 1
    edges = np.diff(several.astype(np.int8), prepend=0)
    return Spans(at_us[order][edges == 1], at_us[order][edges == -1])
