"""Tell by what two trainings differ exactly: what each of their steps does so often, and holds.

A count has no noise where nearly all steps have the same; a step in which the script also logs is
passed over so. Where steps differ, as with a mixture of experts, all steps of one side have to lie
beyond all of the other one's. What starts of one program have shown to differ is no change: which
of a library's kernels is taken, in which line of a version a call stands, and some of the memory.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import TypeAlias

import msgspec

from gpudash.compare.rounds import CONFIDENCE, EFFECTS
from gpudash.compare.sequential import estimate_so_far
from gpudash.format import clip, figure, memory

STEADY = 0.8
"""Share of the steps with the same count from which on it is that of a step."""
ALLOWED = {"peak memory": 0.01}
"""Relative change of what is nearly exact."""
BY_NAME = ("operators", "collectives", "copies")
"""Names of these are the same in each start: another one is a change, if there are as many too."""
MOST_NAMES, MOST_NAME = 4, 40
"""Names in a sentence, and columns of each."""
ONE = {"copies": "copy", "launches": "launch", "calls for device memory": "call for device memory"}
_LINE = re.compile(r":\d+$")

Each: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]
"""By counter and name: how often in each step, or how much at each moment."""
Phases: TypeAlias = tuple[Mapping[str, float], Mapping[str, float]]
"""Of A and B, in ms a step."""


class CountChange(msgspec.Struct, frozen=True):
    """What differs in the steps of two trainings."""

    name: str
    """In the plural: `syncs`."""
    before: float
    """In a step; of `peak memory` in MiB."""
    after: float
    came: tuple[str, ...]
    """What there is more of: operators, kernels, lines that wait."""
    went: tuple[str, ...]

    @property
    def has_grown(self) -> bool:
        return self.after > self.before

    @property
    def sentence(self) -> str:
        if self.name == "peak memory":
            return f"peak memory: {memory(self.after)} instead of {memory(self.before)}"
        more = abs(self.after - self.before)
        what = ONE.get(self.name, self.name[:-1]) if more == 1 else self.name
        how = f"other {what}"
        if more:
            how = f"{more:,.4g} {what} a step {'more' if self.has_grown else 'fewer'}"
        names = " in place of ".join(filter(None, map(_listed, (self.came, self.went))))
        return f"{how}: {names}" if names else how


def _listed(names: Sequence[str]) -> str:
    shown = [clip(one, MOST_NAME) for one in names[:MOST_NAMES]]
    left = len(names) - MOST_NAMES
    return ", ".join(shown) + (f" and {left} more" if left > 0 else "")


class PhaseLoss(msgspec.Struct, frozen=True):
    """The phase that has become longer."""

    phase: str
    ms: float
    """By how much in a step."""

    @property
    def sentence(self) -> str:
        return f"{self.phase} takes {figure(self.ms)} ms a step longer"


def changes(before: Each, after: Each) -> Iterator[CountChange]:
    """Compare what both sides have counted."""
    for name in before:
        if name not in after:
            continue
        old, new = before[name], after[name]
        by_name = {one: _moved(old.get(one), new.get(one)) for one in {**old, **new}}
        was, now = _together(old), _together(new)
        if _moved(was, now, ALLOWED.get(name, 0.0)) or (name in BY_NAME and any(by_name.values())):
            by_place = {_place(one): 0.0 for one in by_name}
            for one, by in by_name.items():
                by_place[_place(one)] += by
            came, went = (
                tuple(
                    one
                    for one, by in by_name.items()
                    if way * by > 0 and way * by_place[_place(one)] > 0
                )
                for way in (1, -1)
            )
            yield CountChange(name, median(was), median(now), came, went)


def _place(name: str) -> str:
    return _LINE.sub("", name)


def _together(names: Mapping[str, Sequence[float]]) -> Sequence[float]:
    return [sum(step) for step in zip(*names.values(), strict=True)] or [0]


def _moved(
    before: Sequence[float] | None, after: Sequence[float] | None, allowed: float = 0.0
) -> float:
    """Return by how much; 0 if that may be chance."""
    before, after = before or [0], after or [0]
    (low, high), (new_low, new_high) = _reached(before), _reached(after)
    is_beyond = max(new_low - high, low - new_high) > allowed * high
    return median(after) - median(before) if is_beyond else 0.0


def _reached(each: Sequence[float]) -> tuple[float, float]:
    usual, often = Counter(each).most_common(1)[0]
    return (usual, usual) if often >= STEADY * len(each) else (min(each), max(each))


def phase_lost(starts: Sequence[Phases]) -> PhaseLoss | None:
    """Return the one that has become longest, of those that surely have become longer."""
    names = [
        one for one in starts[0][0] if all(side.get(one) for start in starts for side in start)
    ]
    lost = list[PhaseLoss]()
    for name in names:
        pairs = [(a[name], b[name]) for a, b in starts]
        confidence = 1 - (1 - CONFIDENCE) / len(names)
        found = estimate_so_far(pairs, confidence, EFFECTS)
        if found.high is not None and found.high < 0:
            lost.append(PhaseLoss(name, fmean(b - a for a, b in pairs)))
    return max(lost, key=lambda one: one.ms, default=None)
