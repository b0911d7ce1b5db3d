"""Hold a model and its answer against what slowing the parts of a step has shown."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.diagnosis.causes.cause import Cause, Limit
from gpudash.diagnosis.causes.table import CPU, GPU, HOST, INPUT, NONE
from gpudash.diagnosis.model import Model, grown_by
from gpudash.diagnosis.parts import CODE, DATA, DEVICE, PARTS, ModelPart, Times
from gpudash.protocol.commands import Slowable
from gpudash.protocol.session import Slope, SlowingShown

PROVEN = 0.5
"""A limit is proven where the interval of its part's slope lies above this, and withdrawn where it
lies below."""
LEEWAY = 0.15
"""A schedule agrees with a slope up to so far from its interval."""
Proof: TypeAlias = Literal["proven", "withdrawn", "untested"]

SHOWN: Mapping[Slowable, Limit] = {"loader": INPUT, "host": HOST, "device": GPU}
SHOWN_ON_CPU: Mapping[Slowable, Limit] = {**SHOWN, "host": CPU, "device": CPU}
"""The limit if this alone is on the critical path; what else is known of it names it closer."""
GROWS: Mapping[Slowable, ModelPart] = {"loader": DATA, "host": CODE, "device": DEVICE}
"""The part of a model that a delay makes longer."""


def over(slowing: SlowingShown | None) -> tuple[Slope, ...]:
    return slowing.slopes if slowing is not None and slowing.is_over else ()


def held_against(
    model: Model | None, slowing: SlowingShown | None
) -> tuple[Model | None, tuple[Slope, ...]]:
    """Return the schedules that agree, or all if none does, and what all had foretold."""
    slopes = over(slowing)
    if model is None:
        return None, slopes
    kept = tuple(one for one in model.scenarios if all(_agrees(one, slope) for slope in slopes))
    foretold = (replace(one, modelled=tuple(model.slope(GROWS[one.part]))) for one in slopes)
    return model._replace(scenarios=kept or model.scenarios), tuple(foretold)


def proof_of(part: ModelPart | None, slopes: tuple[Slope, ...]) -> Proof | None:
    """None if the slopes say neither; untested where a delay may have met slack."""
    if part is None:
        return None
    known = {one.part: one for one in slopes}
    ends = {slowed: _ends(known.get(slowed)) for slowed in part.slowed}
    low = {slowed for slowed, (_, high) in ends.items() if high < PROVEN}
    if low:
        return "untested" if low <= {*part.missed} else "withdrawn"
    return "proven" if all(low > PROVEN for low, _ in ends.values()) else None


def shown_by(
    slopes: tuple[Slope, ...],
    slowing: SlowingShown | None,
    known: Iterable[Cause],
    *,
    on_gpu: bool,
) -> Cause:
    """Return the cause that the one proven part names; its evidence may be the slope alone."""
    proven = proven_parts(slopes)
    if len(proven) != 1:
        return Cause(NONE._replace(title="unclear, because slowing shows something else"), None)
    limit = (SHOWN if on_gpu else SHOWN_ON_CPU)[proven[0]]
    by_slope = Cause(limit._replace(clauses=tuple(slope_clauses(limit.part, slowing))), None)
    return next((one for one in known if one.binds and one.limit.word == limit.word), by_slope)


def proven_parts(slopes: tuple[Slope, ...]) -> list[Slowable]:
    return [one.part for one in slopes if _ends(one)[0] > PROVEN]


def slope_clauses(part: ModelPart | None, slowing: SlowingShown | None) -> Iterator[str]:
    if part is None or slowing is None:
        return

    def grown(share: float) -> str:
        return fmt.milliseconds(share * slowing.delay_ms)

    for one in slowing.slopes:
        if one.part in part.slowed and one.slope is not None:
            added = _shown(one, grown)
            yield f"slowing the {one.part} by {grown(1.0)} ms adds {added} ms to a step"


def slowed_label(part: str, slopes: Iterable[Slope]) -> str:
    slowed = next((one.slowed for one in PARTS if one.name == part), ())
    told = (_shown(one, "{:.2f}".format) for one in slopes if (one.part,) == slowed)
    return next(told, fmt.ABSENT)


def _ends(slope: Slope | None) -> tuple[float, float]:
    """For an interval that is not known, return ends that prove nothing, and agree with all."""
    if slope is None or slope.low is None or slope.high is None:
        return 0.0, 1.0
    return slope.low, slope.high


def _agrees(times: Times, slope: Slope) -> bool:
    low, high = _ends(slope)
    return low - LEEWAY <= grown_by(times, GROWS[slope.part]) <= high + LEEWAY


def _shown(slope: Slope, text: Callable[[float], str]) -> str:
    if slope.slope is None:
        return fmt.ABSENT
    if slope.low is None or slope.high is None:
        return text(slope.slope)
    return f"{text(slope.slope)} ± {text((slope.high - slope.low) / 2)}"
