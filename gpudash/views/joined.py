"""Find the collective that ranks wait in, and who has not joined it, from flight recorders."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpudash import format as fmt
from gpudash.protocol import Joined

UNNAMED = ("", "undefined", "default_pg")
"""PyTorch's names for a process group that the script has not named."""


class Awaited(NamedTuple):
    """A collective that has not completed."""

    collective: str
    absent: tuple[int, ...]
    """Ranks of its group that have not joined it, or that have joined another one instead."""
    instead: str
    """The other collective; empty if they joined none."""


def awaited(by_rank: Mapping[int, Sequence[Joined]]) -> Awaited | None:
    """Return the oldest collective that has not completed; None if all have.

    With several groups, prefer the one whose absent ranks wait in no collective themselves: the
    other groups wait for those ranks.
    """
    groups: dict[str, dict[int, Joined]] = defaultdict(dict)
    for rank, ones in by_rank.items():
        for one in ones:
            groups[one.group][rank] = one
    idle = {rank for rank, ones in by_rank.items() if all(one.waits_in is None for one in ones)}
    found = [one for one in map(_of_group, groups.values()) if one is not None]
    return max(found, key=lambda one: (bool(one.absent), idle.issuperset(one.absent)), default=None)


def _of_group(ranks: Mapping[int, Joined]) -> Awaited | None:
    numbers = [one.waits_in for one in ranks.values() if one.waits_in is not None]
    if not numbers:
        return None
    number = min(numbers)
    inside = {rank: one for rank, one in ranks.items() if one.waits_in == number}
    (most, _), *others = Counter(one.collective for one in inside.values()).most_common()
    first = next(one for one in inside.values() if one.collective == most)
    absent = tuple(sorted(rank for rank, one in ranks.items() if one.newest < number))
    instead = ""
    if others and not absent:
        absent = tuple(sorted(rank for rank, one in inside.items() if one.collective != most))
        instead = inside[absent[0]].collective
    return Awaited(_described(first), absent, instead)


def _described(one: Joined) -> str:
    """Return the collective as `all_reduce #1,418 (25 MiB)`."""
    size = "" if one.mib is None else f" ({fmt.memory(one.mib) if one.mib >= 1 else '< 1 MiB'})"
    group = "" if one.group_name in UNNAMED else f" of {one.group_name}"
    return f"{one.collective} #{one.waits_in:,}{group}{size}"
