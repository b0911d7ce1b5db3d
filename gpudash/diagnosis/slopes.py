"""Hold a model and its answer against what slowing the parts of a step has shown."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.diagnosis.causes.cause import Cause, Limit
from gpudash.diagnosis.causes.within import CPU, GPU, HOST, INPUT, NONE
from gpudash.diagnosis.model import Model, grown_by
from gpudash.diagnosis.parts import CODE, DATA, DEVICE, PARTS, Part, Times
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
GROWS: Mapping[Slowable, Part] = {"loader": DATA, "host": CODE, "device": DEVICE}
"""The part of a model that a delay makes longer."""


def over(slowing: SlowingShown | None) -> tuple[Slope, ...]:
    return slowing.slopes if slowing is not None and slowing.is_over else ()


def modelled(model: Model, slopes: tuple[Slope, ...]) -> tuple[Slope, ...]:
    return tuple(
        replace(one, modelled=(low, high))
        for one in slopes
        for low, high in (model.slope(GROWS[one.part]),)
    )


def agreeing(model: Model, slopes: tuple[Slope, ...]) -> Model:
    """If no schedule agrees, keep all."""
    kept = tuple(one for one in model.scenarios if all(_agrees(one, slope) for slope in slopes))
    return model._replace(scenarios=kept or model.scenarios)


def proof_of(part: Part | None, slopes: tuple[Slope, ...]) -> Proof | None:
    """None if the slopes say neither; untested where a delay may have met slack."""
    if part is None:
        return None
    known = {one.part: one for one in slopes}
    ends = {slowed: _ends(known.get(slowed)) for slowed in part.slowed}
    low = {slowed for slowed, (_, high) in ends.items() if high < PROVEN}
    if low:
        return "untested" if low <= {*part.missed} else "withdrawn"
    return "proven" if all(low > PROVEN for low, _ in ends.values()) else None


def shown_by(slopes: tuple[Slope, ...], known: Iterable[Cause], *, on_gpu: bool) -> Cause:
    """Return the cause that the one proven part leaves; one that does not bind has no figure."""
    proven = [one.part for one in slopes if _ends(one)[0] > PROVEN]
    if len(proven) != 1:
        return Cause(NONE._replace(title="unclear, because slowing shows something else"), None)
    limit = (SHOWN if on_gpu else SHOWN_ON_CPU)[proven[0]]
    measured = (one for one in known if one.binds and one.limit.word == limit.word)
    return next(measured, Cause(limit, None))


def proven_parts(slopes: tuple[Slope, ...]) -> str:
    proven = [one.part for one in slopes if _ends(one)[0] > PROVEN]
    if proven:
        return f"proven: {', '.join(proven)}"
    return "nothing is proven"


def slope_clause(part: Part | None, slowing: SlowingShown) -> str:
    known = {one.part: one for one in slowing.slopes}
    told = (known[one] for one in (part.slowed if part is not None else ()) if one in known)

    def grown(share: float) -> str:
        return fmt.milliseconds(share * slowing.delay_ms)

    return ", ".join(
        f"slowing the {one.part} by {grown(1.0)} ms adds {_shown(one, grown)} ms to a step"
        for one in told
        if one.slope is not None
    )


def slowed_label(part: str, slopes: Iterable[Slope]) -> str:
    slowed = next((one.slowed for one in PARTS if one.name == part), ())
    told = (_shown(one, "{:.2f}".format) for one in slopes if (one.part,) == slowed)
    return next(told, fmt.ABSENT)


def _ends(slope: Slope | None) -> tuple[float, float]:
    """For an interval that is not known, return ends that prove nothing."""
    if slope is None or slope.low is None or slope.high is None:
        return 0.0, 1.0
    return slope.low, slope.high


def _agrees(times: Times, slope: Slope) -> bool:
    if slope.low is None or slope.high is None:
        return True
    modelled = grown_by(times, GROWS[slope.part])
    return slope.low - LEEWAY <= modelled <= slope.high + LEEWAY


def _shown(slope: Slope, text: Callable[[float], str]) -> str:
    if slope.slope is None:
        return fmt.ABSENT
    if slope.low is None or slope.high is None:
        return text(slope.slope)
    return f"{text(slope.slope)} ± {text((slope.high - slope.low) / 2)}"
