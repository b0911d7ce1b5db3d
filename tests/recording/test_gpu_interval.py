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


def test_the_counter_between_two_readings_is_interpolated():
    assert energy_j(track_of(*counted(0.0, 1.0, 2.0, 3.0)), 1.5, 2.5) == pytest.approx(100.0)


def test_a_reading_of_the_counter_without_a_value_is_none():
    without = gpu(1.6, energy_at_s=1.6)
    assert energy_j(track_of(*counted(1.0, 2.0), without), 1.0, 1.5) == pytest.approx(50.0)


def test_the_counter_is_known_up_to_its_reach_from_a_reading():
    reach = ENERGY_REACH_S
    assert energy_j(track_of(*counted(0.0, 2 * reach)), 0.0, reach) == pytest.approx(100.0 * reach)


@pytest.mark.parametrize("moments_s", [(0.0, 2.7), (0.0, 1.0, 2.7), (0.0, 1.3)])
def test_the_counter_is_unknown_beyond_its_reach_from_a_reading(moments_s):
    assert energy_j(track_of(*counted(*moments_s)), 0.0, 1.35) is None


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
