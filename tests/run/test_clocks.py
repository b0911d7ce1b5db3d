"""Times of another node's clock, converted to the local clock."""

import importlib
import inspect
import pkgutil

import msgspec
import pytest

from gpudash import protocol
from gpudash.protocol.commands import Block
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuReading
from gpudash.protocol.training import Progress, State, Step
from gpudash.run.clocks import MOMENTS, ClockDifference, moved

LENGTHS_AND_RATES = {
    ("Block", "min_s"),
    ("EnergyTick", "period_s"),
    ("EnergyTick", "within_s"),
    ("Peak", "memory_gb_s"),
    ("Plan", "duration_s"),
    ("Playback", "length_s"),
    ("Playback", "position_s"),
    ("SlowingShown", "expected_s"),
    ("TrainingProcess", "bus_gb_s"),
    ("Try", "takes_s"),
}
"""Fields that end in `_s` and are not points in time."""
RECORDS = [
    one
    for module in pkgutil.iter_modules(protocol.__path__)
    for _, one in inspect.getmembers(
        importlib.import_module(f"gpudash.protocol.{module.name}"), inspect.isclass
    )
    if issubclass(one, msgspec.Struct)
]


def test_every_moment_of_a_message_is_known():
    named = {
        (record.__name__, field)
        for record in RECORDS
        for field in record.__struct_fields__
        if field.endswith("_s")
    }
    moments = {(record, field) for record, field in named if field in MOMENTS}
    assert named - moments == LENGTHS_AND_RATES
    assert {field for _, field in moments} == MOMENTS


def test_the_moments_of_listed_records_move_too():
    step = Step(step=1, segment=0, samples=None, finished_s=5.0, step_ms=2.0)
    progress = Progress(until_s=6.0, steps=(step,), total_steps=1, total_samples=None)
    steps = (msgspec.structs.replace(step, finished_s=105.0),)
    assert moved(progress, 100.0) == msgspec.structs.replace(progress, until_s=106.0, steps=steps)


def test_what_is_not_known_stays_unknown_and_lengths_stay():
    reading = GpuReading(at_s=1.0, index=0, uuid="GPU-1", name="H200", energy_at_s=0.5)
    later = moved(reading, 100.0)
    assert (later.at_s, later.energy_at_s, later.activity_since_s) == (101.0, 100.5, None)
    assert moved(State(at_s=1.0, phase="finished"), -1.0).trained_until_s is None
    block = Block(number=1, changes={}, min_steps=2, min_s=3.0)
    assert moved(block, 100.0) is block


def test_an_envelope_moves_without_its_body():
    body = State(at_s=1.0, phase="training")
    later = moved(Envelope(source="training", seq=1, sent_s=2.0, body=body), 10.0)
    assert (later.sent_s, later.body) == (12.0, body)


# ── the difference of two clocks ────────────────────────────────────────────────────────


@pytest.mark.parametrize(("there_s", "back_s"), [(0.01, 0.01), (0.02, 0.0), (0.0, 0.02)])
def test_the_difference_is_right_within_half_the_way_there_and_back(there_s, back_s):
    difference, behind_s, asked_s = ClockDifference(), 1000.0, 5000.0
    difference.take(asked_s, asked_s + there_s - behind_s, asked_s + there_s + back_s)
    assert difference.within_s == pytest.approx(0.01)
    assert abs(difference.behind_s - behind_s) <= difference.within_s + 1e-9


def test_a_slow_answer_does_not_replace_a_quick_one_until_that_is_old_as_clocks_drift():
    difference = ClockDifference()
    difference.take(0.0, 100.0, 0.001)
    difference.take(1.0, 101.3, 1.4)
    assert difference.within_s == pytest.approx(0.0005)
    difference.take(3600.0, 3700.1, 3600.004)
    assert difference.behind_s == pytest.approx(-100.098)
