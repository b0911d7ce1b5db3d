"""What limits a training by the model of its step, on forty trainings that an H200 recorded."""

import pytest

from gpudash.diagnosis.causes import causes, limit_of
from gpudash.diagnosis.model import model_of
from gpudash.diagnosis.recent_step import recent_step
from tests.diagnosis.recorded import NAMES, recorded

WORDS = {"data": "input", "cores": "others", "asides": "paused", "none": "unclear"}


def modelled(name, *, profiled):
    """The limit of a recorded training, and the model of its step."""
    known, snapshot = recorded(name)
    step = recent_step(snapshot, known.cores, known.summary if profiled else None)
    model = model_of(step)
    return limit_of(causes(model, step, snapshot.straggler)), model


@pytest.mark.parametrize(("profiled", "least"), [(False, 32), (True, 37)])
def test_most_limits_are_right(profiled, least):
    limits = {name: modelled(name, profiled=profiled)[0] for name in NAMES}
    right = [
        name
        for name, limit in limits.items()
        if WORDS.get(limit, limit) in recorded(name)[0].limits
    ]
    assert len(right) >= least


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_step_of_the_model_takes_as_long_as_the_measured_one(name, profiled):
    assert modelled(name, profiled=profiled)[1].residual < 0.15
