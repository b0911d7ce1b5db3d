"""Measure another node's clock and convert its messages; the error is half a round trip at most."""

from functools import cache
from types import NoneType, UnionType
from typing import TypeVar, get_args, get_origin

import msgspec

RecordT = TypeVar("RecordT", bound=msgspec.Struct)

MOMENTS = frozenset(
    {
        "activity_since_s",
        "at_s",
        "energy_at_s",
        "finished_s",
        "ready_s",
        "sent_s",
        "since_s",
        "trained_until_s",
        "until_s",
    }
)
"""Fields of messages that are points in time."""
DRIFT = 50e-6
"""Seconds that two clocks may drift apart in a second: a measurement ages."""


class ClockDifference:
    """How far the other clock is behind the local one, by the most exact measurement."""

    def __init__(self) -> None:
        self.behind_s = 0.0
        self.within_s = float("inf")
        """Largest error of `behind_s`."""
        self._measured_s = 0.0

    def take(self, asked_s: float, theirs_s: float, now_s: float) -> None:
        """`asked_s` and `now_s` are local times, `theirs_s` is the other clock's."""
        within_s = (now_s - asked_s) / 2
        if within_s <= self.within_s + DRIFT * (now_s - self._measured_s):
            self.behind_s = (asked_s + now_s) / 2 - theirs_s
            self.within_s, self._measured_s = within_s, now_s


def moved(record: RecordT, by_s: float) -> RecordT:
    moments, inner = _fields(type(record))
    changes: dict[str, object] = {}
    for name in moments:
        at_s = getattr(record, name)
        if at_s is not None:
            changes[name] = at_s + by_s
    for name in inner:
        value = getattr(record, name)
        if isinstance(value, tuple):
            changes[name] = tuple(moved(one, by_s) for one in value)
        elif value is not None:
            changes[name] = moved(value, by_s)
    return msgspec.structs.replace(record, **changes) if changes else record


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    fields = msgspec.structs.fields(kind)
    moments = tuple(field.name for field in fields if field.name in MOMENTS)
    inner = tuple(field.name for field in fields if _contains_moments(field.type))
    return moments, inner


def _contains_moments(kind: object) -> bool:
    items = get_args(kind)
    if not (get_origin(kind) is tuple or (isinstance(kind, UnionType) and NoneType in items)):
        return False
    structs = (one for one in items if isinstance(one, type) and issubclass(one, msgspec.Struct))
    return any(any(_fields(one)) for one in structs)
