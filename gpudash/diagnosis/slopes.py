"""Hold a model and its answer against what slowing the parts of a step has shown."""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.diagnosis.causes import Limit
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

SLOWED: Mapping[Limit, tuple[Slowable, ...]] = {
    "data": ("loader",),
    "copy": ("device",),
    "communication": ("device",),
    "sync": ("host", "device"),
    "launch": ("host",),
    "own_code": ("host",),
    "host": ("host",),
    "throttled": ("device",),
    "memory": ("device",),
    "compute": ("device",),
    "gpu": ("device",),
    "cpu": ("host",),
}
"""What is on the critical path if this is the limit."""
HIDDEN: frozenset[tuple[Limit, Slowable]] = frozenset({("sync", "host")})
"""Limits whose part may be slowed where it has slack: the host is behind a wait of a phase before
it can be delayed between two."""
SHOWN: Mapping[Slowable, Limit] = {"loader": "data", "host": "host", "device": "gpu"}
SHOWN_ON_CPU: Mapping[Slowable, Limit] = {**SHOWN, "host": "cpu", "device": "cpu"}
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
    return Model(kept or model.scenarios)


def proof_of(limit: Limit, slopes: tuple[Slope, ...]) -> Proof | None:
    """None if the slopes say neither; untested where a delay may have met slack."""
    known = {one.part: one for one in slopes}
    ends = {part: _ends(known.get(part)) for part in SLOWED.get(limit, ())}
    low = [part for part, (_, high) in ends.items() if high < PROVEN]
    if low:
        return "untested" if all((limit, part) in HIDDEN for part in low) else "withdrawn"
    return "proven" if ends and all(low > PROVEN for low, _ in ends.values()) else None


def shown_by(slopes: tuple[Slope, ...], *, on_gpu: bool) -> Limit:
    proven = [one.part for one in slopes if _ends(one)[0] > PROVEN]
    if len(proven) != 1:
        return "none"
    return (SHOWN if on_gpu else SHOWN_ON_CPU)[proven[0]]


def proven_parts(slopes: tuple[Slope, ...]) -> str:
    proven = [one.part for one in slopes if _ends(one)[0] > PROVEN]
    if proven:
        return f"proven: {', '.join(proven)}"
    return "nothing is proven"


def slope_clause(limit: Limit, slowing: SlowingShown) -> str:
    known = {one.part: one for one in slowing.slopes}
    told = (known[part] for part in SLOWED.get(limit, ()) if part in known)

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
