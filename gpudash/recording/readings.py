"""Readings that wait for the row they belong to, and what those of a row come to."""

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

from gpudash.metrics import METRICS, Kind, OverTime
from gpudash.protocol import GpuReading, HostReading, Reading
from gpudash.statistics import mean

ReadingT = TypeVar("ReadingT", GpuReading, HostReading)

moment = attrgetter("at_s")
"""Of a sample: what samples are kept in the order of."""
MOST_HELD = 8192
"""Samples that wait for the end of their row: half an hour, in which no step was told of."""


def hold(samples: list[ReadingT], sample: ReadingT, most: int = MOST_HELD) -> None:
    """Keep a sample in its order; where too many wait, every second one is let go."""
    insort(samples, sample, key=moment)
    if len(samples) > most:
        del samples[::2]


def take(samples: list[ReadingT], began_s: float, ended_s: float) -> list[ReadingT]:
    """Return the samples of (began_s, ended_s]; forget them, and what was before."""
    first = bisect_right(samples, began_s, key=moment)
    end = bisect_right(samples, ended_s, key=moment)
    taken = samples[first:end]
    del samples[:end]
    return taken


def over_time(kind: Kind, readings: Sequence[Reading]) -> dict[str, float | str]:
    """Return what readings in order come to, by metric of this kind; absent if never measured."""
    values: dict[str, float | str] = {}
    for name, metric in METRICS.items():
        fold = FOLDS.get(metric.over_time)
        if metric.kind == kind and fold is not None:
            value = fold([one.values[name] for one in readings if name in one.values])
            if value is not None:
                values[name] = value
    return values


def _union(values: Sequence[float | str]) -> str | None:
    seen = {reason for text in values if isinstance(text, str) for reason in text.split("+")}
    if not seen:
        return None
    return "+".join(sorted(seen - {"none"})) or "none"


FOLDS: dict[OverTime, Callable[[Sequence[float | str]], float | str | None]] = {
    "mean": lambda values: mean(value for value in values if not isinstance(value, str)),
    "union": _union,
    "last": lambda values: values[-1] if values else None,
}
"""What becomes of several readings; a counter's difference needs those around a row too."""
