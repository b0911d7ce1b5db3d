"""What comes in from a recording is checked here, once: whatever is behind relies on it."""

from collections.abc import Iterable, Mapping

import msgspec

from gpudash.json_input import DamagedError, refuse_impossible
from gpudash.metrics import METRICS
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.training import Progress, Step
from gpudash.recording.intervals import Interval
from gpudash.recording.rank_steps import in_order

LEAST = -1.0
"""Of what cannot be negative: a difference of two clocks may be, by as much as they are off."""
BELOW_ZERO = ("loss", "temperature_c")
AHEAD_S = 60.0
"""Seconds by which the clock of a report may be ahead of the envelope's."""


def refuse_damaged(item: msgspec.Struct) -> None:
    """Raise DamagedError for a message or a row that no training could have given."""
    refuse_impossible(item)
    match item.body if isinstance(item, Envelope) else item:
        case Interval(gpus=gpus, ranks=ranks):
            for gpu in gpus:
                _refuse_wrong(gpu.values)
            for rank in ranks:
                _refuse_wrong(rank.values)
                _refuse_wrong(rank.transform_ms)
        case GpuReading(values=values) | HostReading(values=values):
            _refuse_wrong(values)
        case Progress(values=values, transform_ms=transform_ms):
            _refuse_wrong(values)
            _refuse_wrong(transform_ms)


def refuse_false_times(steps: Iterable[Step]) -> None:
    """Raise DamagedError for steps that took less than no time; those in columns cannot."""
    if any(min((one.step_ms, *one.values.values())) < LEAST for one in steps):
        raise DamagedError("a step that takes less than no time")


def refuse_future(report: Progress, sent_s: float) -> None:
    ends_s = [step.finished_s for step in in_order(report)]
    if max([report.until_s, *ends_s]) > sent_s + AHEAD_S:
        raise DamagedError("a report of the future")


def _refuse_wrong(values: Mapping[str, float | str]) -> None:
    for name, value in values.items():
        metric = METRICS.get(name)
        is_text = metric is not None and metric.csv == "text"
        if isinstance(value, str):
            if not is_text:
                raise DamagedError(f"{name} is no number")
        elif is_text or (value < LEAST and name not in BELOW_ZERO):
            raise DamagedError(f"{name} cannot be {value}")
