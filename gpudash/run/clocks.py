"""Another node's clock in terms of ours, and its messages with their moments in ours.

Clocks of nodes begin anywhere, so their times are never compared. Half the time that question and
answer take bounds how wrong a measured difference can be.
"""

from functools import cache
from typing import TypeVar, get_args, get_origin

import msgspec

RecordT = TypeVar("RecordT", bound=msgspec.Struct)

MOMENTS = frozenset(
    {
        "activity_since_s",
        "at_s",
        "energy_at_s",
        "finished_s",
        "sent_s",
        "trained_until_s",
        "until_s",
    }
)
"""Fields of messages that are a point in time."""
DRIFT = 50e-6
"""Seconds that two clocks may run apart in a second; what was measured is worth less with time."""


class Difference:
    """How far the other clock is behind ours, by the measurement that is worth most."""

    def __init__(self) -> None:
        self.behind_s = 0.0
        self.within_s = float("inf")
        """How wrong that can be."""
        self._measured_s = 0.0

    def take(self, asked_s: float, theirs_s: float, now_s: float) -> None:
        """Take an answer: we asked at the first moment, they answered at theirs, it is now here."""
        within_s = (now_s - asked_s) / 2
        if within_s <= self.within_s + DRIFT * (now_s - self._measured_s):
            self.behind_s = (asked_s + now_s) / 2 - theirs_s
            self.within_s, self._measured_s = within_s, now_s


def moved(record: RecordT, by_s: float) -> RecordT:
    """Return the record with all its moments so much later, also in records that it lists."""
    moments, lists = _fields(type(record))
    changes: dict[str, object] = {}
    for name in moments:
        at_s = getattr(record, name)
        if at_s is not None:
            changes[name] = at_s + by_s
    for name in lists:
        changes[name] = tuple(moved(one, by_s) for one in getattr(record, name))
    return msgspec.structs.replace(record, **changes) if changes else record


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which fields are moments, and which list records that have some."""
    fields = msgspec.structs.fields(kind)
    moments = tuple(field.name for field in fields if field.name in MOMENTS)
    lists = tuple(field.name for field in fields if _lists_moments(field.type))
    return moments, lists


def _lists_moments(kind: object) -> bool:
    items = get_args(kind) if get_origin(kind) is tuple else ()
    structs = (one for one in items if isinstance(one, type) and issubclass(one, msgspec.Struct))
    return any(any(_fields(one)) for one in structs)
