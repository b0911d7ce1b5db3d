"""A GPU's energy in an interval, from its counter's readings."""

import pytest

from gpudash.recording.gpu_interval import ENERGY_REACH_S, GpuTrack
from gpudash.recording.readings import hold
from tests.scripted_run import gpu


def track_of(*readings):
    track = GpuTrack(0, "GPU-1111")
    for reading in readings:
        track.add(reading)
    return track


def energy_j(track, began_s, ended_s):
    return track.take(began_s, ended_s, settings_s=0.0).values.get("energy_j")


def counted(*moments_s, power_w=100.0):
    """Readings of the counter of a GPU that draws a constant power."""
    return [gpu(at_s, energy_j=power_w * at_s) for at_s in moments_s]


COUNTED = {
    "between two readings it is interpolated": (counted(0.0, 1.0, 2.0, 3.0), 1.5, 2.5, 100.0),
    "a reading without a value is none": (
        [*counted(1.0, 2.0), gpu(1.6, energy_at_s=1.6)],
        1.0,
        1.5,
        50.0,
    ),
    "it is known up to its reach": (
        counted(0.0, 2 * ENERGY_REACH_S),
        0.0,
        ENERGY_REACH_S,
        100.0 * ENERGY_REACH_S,
    ),
    "beyond its reach of both": (counted(0.0, 2.7), 0.0, 1.35, None),
    "beyond its reach of the next": (counted(0.0, 1.0, 2.7), 0.0, 1.35, None),
    "beyond its reach of the last": (counted(0.0, 1.3), 0.0, 1.35, None),
}


@pytest.mark.parametrize(
    ("readings", "began_s", "ended_s", "spent_j"), COUNTED.values(), ids=COUNTED
)
def test_the_counter_is_known_near_its_readings(readings, began_s, ended_s, spent_j):
    found = energy_j(track_of(*readings), began_s, ended_s)
    assert found == (spent_j and pytest.approx(spent_j))


def test_the_energies_of_intervals_add_up_even_if_a_reading_of_their_border_comes_late():
    track = track_of(*counted(0.0, 2.0))
    first = energy_j(track, 0.0, 1.0)
    track.add(gpu(1.0, energy_j=180.0))
    assert first == pytest.approx(100.0)
    assert first + energy_j(track, 1.0, 2.0) == pytest.approx(200.0)


def test_a_counter_that_went_back_has_spent_nothing_that_is_known():
    """A reloaded driver counts from 0."""
    track = track_of(gpu(0.0, energy_j=500.0), gpu(1.0, energy_j=3.0), gpu(2.0, energy_j=3.0))
    assert energy_j(track, 0.0, 1.0) is None
    assert energy_j(track, 1.0, 2.0) == 0.0


def test_of_more_readings_than_may_be_held_every_second_one_goes():
    held = []
    for number in (4, 1, 2, 3):
        hold(held, gpu(float(number)), most=4)
    assert [one.at_s for one in held] == [1.0, 2.0, 3.0, 4.0]
    hold(held, gpu(5.0), most=4)
    assert [one.at_s for one in held] == [2.0, 4.0]
