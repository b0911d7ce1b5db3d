"""The series of two trainings that take turns, as one; and of one start after another."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from gpudash.snapshot import Series

RATES = ("steps_per_s", "samples_per_s")
"""What both do in a tick adds up; all else is that of the one that does more."""
MOST_TICKS = 1200
"""Most ticks kept of earlier starts."""


def in_turns(*of_both: Series) -> Series:
    """Return the ticks that are known of both."""
    known = [one for one in of_both if one.at_s]
    until_s = min((one.at_s[-1] for one in known), default=0.0)
    ticks: dict[float, list[dict[str, float]]] = defaultdict(list)
    for one in known:
        for at_s, *row in zip(one.at_s, *one.values.values(), strict=True):
            named = zip(one.values, row, strict=True)
            ticks[at_s].append({name: value for name, value in named if value is not None})
    rows = {at_s: _together(ticks[at_s]) for at_s in sorted(ticks) if at_s <= until_s}
    names = dict.fromkeys(name for row in rows.values() for name in row)
    values = {name: tuple(row.get(name) for row in rows.values()) for name in names}
    return Series(at_s=tuple(rows), values=values)


def _together(of_both: Sequence[dict[str, float]]) -> dict[str, float]:
    together: dict[str, float] = {}
    for row in sorted(of_both, key=lambda row: row.get("steps_per_s", 0.0)):
        added = {
            name: together[name] + row[name] for name in RATES if name in together.keys() & row
        }
        together |= row | added
    return together


def followed(past: Series, now: Series) -> Series:
    """Return what is kept of the past, and then the present."""
    kept = slice(bisect_left(past.at_s, now.at_s[0]) if now.at_s else None)
    ends = past.at_s[kept][-MOST_TICKS:]
    before, after = (None,) * len(past.at_s), (None,) * len(now.at_s)
    values = {
        name: (past.of(name) or before)[kept][-MOST_TICKS:] + (now.of(name) or after)
        for name in past.values | now.values
    }
    return replace(now, at_s=ends + now.at_s, values=values)
