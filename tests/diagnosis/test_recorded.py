"""Answers about forty trainings that an H200 recorded, judged by what is right to say of each."""

import pytest

from gpudash.diagnosis.answer import find
from tests.diagnosis.recorded import NAMES, recorded

WORDS = {"data": "input", "cores": "others", "asides": "paused", "none": "unclear"}


def is_right(name, *, profiled):
    """Whether the limit found is one of those that are right."""
    known, snapshot = recorded(name)
    found = find(snapshot, None, known.cores, known.summary if profiled else None)
    return found is not None and WORDS.get(found.limit, found.limit) in known.limits


def test_forty_trainings_are_recorded():
    assert len(NAMES) == 40
    assert sum(recorded(name).known.summary is not None for name in NAMES) == 40


@pytest.mark.parametrize(("profiled", "least"), [(False, 16), (True, 27)])
def test_most_limits_are_right(profiled, least):
    assert sum(is_right(name, profiled=profiled) for name in NAMES) >= least
