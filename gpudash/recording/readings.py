"""Hold readings for their rows, and combine the readings of a row."""

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

from gpudash.metrics import METRICS, Kind, OverTime
from gpudash.protocol.readings import GpuReading, HostReading, Reading
from gpudash.statistics import mean

ReadingT = TypeVar("ReadingT", GpuReading, HostReading)

moment = attrgetter("at_s")
"""The key by which samples are sorted."""
MOST_HELD = 8192
"""Most samples that wait for the end of their row: half an hour without a report of steps."""


def hold(samples: list[ReadingT], sample: ReadingT, most: int = MOST_HELD) -> None:
    """If there are too many samples, drop every second one."""
    insort(samples, sample, key=moment)
    if len(samples) > most:
        del samples[::2]


def take(samples: list[ReadingT], began_s: float, ended_s: float) -> list[ReadingT]:
    first = bisect_right(samples, began_s, key=moment)
    end = bisect_right(samples, ended_s, key=moment)
    taken = samples[first:end]
    del samples[:end]
    return taken


def over_time(kind: Kind, readings: Sequence[Reading]) -> dict[str, float | str]:
    values: dict[str, float | str] = {}
    for name in dict.fromkeys(name for one in readings for name in one.values):
        metric = METRICS.get(name)
        fold = FOLDS.get(metric.over_time) if metric and metric.kind == kind else None
        if fold is not None:
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
    "last": lambda values: values[-1],
}
"""How several readings combine; a counter's difference also needs readings around the row."""
