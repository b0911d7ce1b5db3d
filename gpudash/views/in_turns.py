"""The series of two trainings that take turns, as one; and of one start after the other."""

from collections.abc import Mapping
from operator import methodcaller

from msgspec.structs import replace

from gpudash.snapshot import Series

RATES = ("steps_per_s", "samples_per_s")
"""What the two do in a tick together; all else is of the one that does more."""
MOST_TICKS = 1200
"""Most ticks kept of earlier starts."""


def in_turns(*of_both: Series) -> Series:
    """Return the ticks that are known of both."""
    known = [one for one in of_both if one.at_s]
    if len(known) < 2:
        return known[0] if known else Series()
    rows: dict[float, dict[str, float]] = {}
    until_s = min(one.at_s[-1] for one in known)
    for series in known:
        for index, at_s in enumerate(series.at_s):
            if at_s <= until_s:
                rows[at_s] = _together(rows.get(at_s, {}), _row(series, index))
    names = dict.fromkeys(name for row in rows.values() for name in row)
    ends = sorted(rows)
    return replace(
        known[0],
        at_s=tuple(ends),
        values={name: tuple(map(methodcaller("get", name), map(rows.get, ends))) for name in names},
    )


def _row(series: Series, index: int) -> dict[str, float]:
    found = ((name, values[index]) for name, values in series.values.items())
    return {name: value for name, value in found if value is not None}


def _together(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    less, more = sorted((one, other), key=_steps)
    added = {name: one[name] + other[name] for name in RATES if name in one and name in other}
    return less | more | added


def _steps(row: Mapping[str, float]) -> float:
    return row.get("steps_per_s", -1.0)


def followed(past: Series, now: Series) -> Series:
    """Return what is kept of the past, and then the present."""
    first_s = now.at_s[0] if now.at_s else float("inf")
    kept = [index for index, at_s in enumerate(past.at_s) if at_s < first_s][-MOST_TICKS:]
    if not kept:
        return now
    part = slice(kept[0], kept[-1] + 1)
    none = (None,) * len(kept), (None,) * len(now.at_s)
    return replace(
        now,
        at_s=past.at_s[part] + now.at_s,
        values={
            name: (past.of(name)[part] or none[0]) + (now.of(name) or none[1])
            for name in past.values | now.values
        },
    )
