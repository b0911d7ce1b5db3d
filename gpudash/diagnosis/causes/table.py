"""All causes of a training, in the order in which they are asked."""

from gpudash.diagnosis.causes.cause import Cause, Measured
from gpudash.diagnosis.causes.outside import outside
from gpudash.diagnosis.causes.within import NONE, UNKNOWN, within


def causes(now: Measured) -> tuple[Cause, ...]:
    found = (*outside(now), *within(now))
    return tuple(sorted(found, key=lambda one: (one.limit.rank, -(one.pct or 0.0))))


def limit_of(found: tuple[Cause, ...]) -> Cause:
    is_measured = any(one.pct is not None for one in found if not one.limit.is_outside)
    unclear = Cause(NONE if is_measured else UNKNOWN, None)
    return next((one for one in found if one.binds), unclear)
