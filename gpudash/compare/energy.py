"""Energy of a sample under each of two settings. No I/O, no clock.

The sensor's own error is the same for both: it is in the joules, and not in their ratio.
"""

from collections.abc import Callable, Sequence
from math import expm1, fsum, hypot, log, sqrt
from statistics import geometric_mean, stdev
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from gpudash.compare.blocks import MeasuredBlock
from gpudash.compare.meter import BlockEnergy
from gpudash.compare.paired_t import Estimate, estimate, student_t
from gpudash.protocol.session import EnergyFound

SENSOR = 0.05
"""Systematic error of the sensor, relative: NVIDIA's own figure."""
Per: TypeAlias = Literal["sample", "step"]
Method: TypeAlias = Callable[[Sequence[tuple[float, float]]], Estimate]


def of_blocks(
    pairs: Sequence[tuple[MeasuredBlock, MeasuredBlock]], method: Method
) -> tuple[EnergyFound | None, str]:
    """Return what a sample takes under A and B, by pairs of blocks, or why that is not known.

    `method` is that of the throughput: it says whether the number of pairs was fixed.
    """
    by_step = any(one.samples is None for pair in pairs for one in pair)
    known, why = [], ""
    for a, b in pairs:
        if isinstance(a.energy, str) or isinstance(b.energy, str):
            why = next(one.energy for one in (a, b) if isinstance(one.energy, str))
        else:
            known.append((_share(a, a.energy), _share(b, b.energy)))
    found = compared(known, "step" if by_step else "sample", method)
    return found, "" if found is not None else why or "too few pairs of blocks"


def _share(block: MeasuredBlock, spent: BlockEnergy) -> "Share":
    work = block.samples or block.steps
    return Share(spent.joules / work, spent.within_j / work)


class Share(NamedTuple):
    """Energy of a block by the work that it did."""

    joules: float
    """Of a sample, or of a step if samples are unknown."""
    within_j: float


def compared(
    pairs: Sequence[tuple[Share, Share]],
    per: Per,
    method: Method,
) -> EnergyFound | None:
    """Return what a sample takes under A and B, by pairs of blocks; None with fewer than two."""
    if len(pairs) < 2 or any(one.joules <= 0 for pair in pairs for one in pair):
        return None
    more = method([(a.joules, b.joules) for a, b in pairs])  # work of a joule, B's against A's
    a, b = (_side([pair[side] for pair in pairs]) for side in (0, 1))
    return EnergyFound(
        per=per,
        pairs=len(pairs),
        joules=(a.joules, b.joules),
        within=(a.within_j, b.within_j),
        pairs_j=tuple((a.joules, b.joules) for a, b in pairs),
        change=_inverse(more.change),
        low=None if more.high is None else _inverse(more.high),
        high=None if more.low is None else _inverse(more.low),
        confidence=more.confidence,
        sensor=SENSOR,
    )


def of_starts(found: Sequence[EnergyFound | None]) -> EnergyFound | None:
    """Return what several starts have found together; None unless each has found something.

    Each start counts as one pair, as for the throughput.
    """
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    pairs = [(Share(one.joules[0], 0.0), Share(one.joules[1], 0.0)) for one in known]
    per: Per = "step" if any(one.per == "step" for one in known) else "sample"
    whole = compared(pairs, per, estimate)
    return whole and msgspec.structs.replace(whole, pairs=sum(one.pairs for one in known))


def _side(blocks: Sequence[Share]) -> Share:
    """Return the geometric mean of the blocks, and half of its 95 % interval."""
    count = len(blocks)
    joules = geometric_mean(one.joules for one in blocks)
    spread = stdev(log(one.joules) for one in blocks)
    of_ticks = sqrt(fsum((one.within_j / one.joules) ** 2 for one in blocks)) / count
    half = hypot(student_t(count - 1, 0.95) * spread / sqrt(count), 1.96 * of_ticks)
    return Share(joules, joules * expm1(half))


def _inverse(change: float) -> float:
    """Return the change of 1 / x from that of x."""
    return 1 / (1 + change) - 1
