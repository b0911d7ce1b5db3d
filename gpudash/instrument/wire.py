"""What a training process says of its steps, as plain records and as a line of JSON.

It needs only the standard library and the syntax of Python 3.10: a training may have nothing else.
The fields are described at `Step` and `Progress` of `gpudash.protocol`, which the session reads.
"""

import json
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class FinishedStep(NamedTuple):
    """A step, or several that were timed together; the first fields of `protocol.Step`."""

    step: int
    segment: int
    finished_s: float
    step_ms: float
    values: dict[str, float]
    count: int = 1  # type: ignore[assignment]  # instead of a tuple's method
    samples: int | None = None
    tokens: int | None = None
    parts_ms: dict[str, tuple[float, ...]] = {}  # noqa: RUF012  # nobody changes it


class UntimedSteps(NamedTuple):
    """Steps that were only counted: `protocol.Untimed`."""

    step: int
    segment: int
    finished_s: float
    count: int = 1  # type: ignore[assignment]  # …
    samples: int | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class StepReport:
    """The steps finished since the report before: `protocol.Progress`."""

    until_s: float
    steps: tuple[FinishedStep, ...]
    total_steps: int
    total_samples: int | None
    loss: float | None = None
    loss_step: int | None = None
    transform_ms: dict[str, float] = field(default_factory=dict)
    skipped_samples: int = 0
    instruments_ms: float = 0.0
    values: dict[str, float] = field(default_factory=dict)
    untimed: tuple[UntimedSteps, ...] = ()
    first_losses: tuple[tuple[int, float], ...] = ()


def encoded(report: StepReport, rank: int, seq: int, sent_s: float) -> bytes:
    envelope = ("training", rank, seq, sent_s, {"type": "Progress", **vars(report)})
    try:
        return _encode(envelope).encode()
    except ValueError:  # JSON has no NaN and no infinity: a loss may be one
        return _encode(_finite(envelope)).encode()


def _finite(value: Any) -> Any:
    """Leave out values by name that are not finite; make others None."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items() if not _is_odd(one)}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if _is_odd(value) else value


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not isfinite(value)
