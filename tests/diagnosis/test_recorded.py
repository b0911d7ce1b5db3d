"""The forty trainings that an H200 recorded."""

from tests.diagnosis.recorded import NAMES, recorded


def test_forty_trainings_are_recorded():
    assert len(NAMES) == 40
    assert sum(recorded(name).known.summary is not None for name in NAMES) == 40
