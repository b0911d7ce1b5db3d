"""Step times of the last minute, second by second."""

import pytest

from gpudash.protocol.training import Step
from gpudash.ranks.rank import SPAN_S, StepHistory


def history(*steps: tuple[float, float]) -> StepHistory:
    found = StepHistory()
    for number, (finished_s, step_ms) in enumerate(steps, 1):
        found.add(Step(step=number, segment=0, finished_s=finished_s, step_ms=step_ms))
    return found


MINUTE = tuple((float(second), float(second)) for second in range(100))
SECONDS = {
    "the mean of the steps that finished in each": (
        ((10.2, 4.0), (10.8, 6.0), (11.5, 7.0)),
        12.0,
        (5.0, 7.0),
    ),
    "one that is not over is left out": (((10.2, 4.0), (11.5, 7.0)), 11.9, (4.0,)),
    "the last one is not over": (((10.2, 4.0), (11.5, 7.0), (12.5, 9.0)), 12.9, (4.0, 7.0)),
    "one without a step has no time": (
        ((10.2, 4.0), (13.5, 7.0)),
        16.1,
        (4.0, None, None, 7.0, None, None),
    ),
    "it begins with the first step": ((), 5.0, ()),
    "it keeps a minute": (MINUTE, 100.0, tuple(map(float, range(100 - SPAN_S, 100)))),
    "a minute without a step": (MINUTE, 1000.0, (None,) * SPAN_S),
}


@pytest.mark.parametrize(("steps", "at_s", "times"), SECONDS.values(), ids=SECONDS)
def test_second_by_second(
    steps: tuple[tuple[float, float], ...], at_s: float, times: tuple[float | None, ...]
) -> None:
    assert history(*steps).values(at_s) == times
