"""The lanes of a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.diagnosis.lanes import lane, lanes_of, look
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.metrics import METRICS
from gpudash.protocol.answer import Part
from gpudash.protocol.training import Phase
from gpudash.snapshot import Snapshot
from tests.diagnosis.trainings import (
    ask,
    changed,
    gpu_step,
    measured,
    starved,
)


def test_a_short_label_is_a_word_or_its_first_letters():
    assert look("your_code", "your code", 0)[1] == "code"
    assert [look("own", label, 0)[1] for label in ("copy", "decode")] == ["copy", "dec"]


def test_a_phase_has_its_own_hue_or_one_of_six_in_turn():
    assert [look("own", "own", index)[0] for index in range(8)] == [1, 2, 3, 4, 5, 6, 1, 2]
    assert {look("forward", "forward", index)[0] for index in range(8)} == {
        METRICS["forward_ms"].hue
    }


def test_without_a_step_there_are_no_lanes():
    assert lanes_of(Snapshot(), RecentStep()) == ()


def test_unknown_phases_have_a_hue_too():
    own = (Phase(name="all-reduce", label="all-reduce", lane="train"),)
    snapshot = changed(measured(**{"all-reduce_ms": 4.0}), phases=own)
    assert ask(snapshot).lanes[0].parts == (Part("all-reduce", "all", 4.0, "fill-1"),)


@given(
    st.lists(st.floats(0, 1e6), max_size=6),
    st.floats(1e-6, 1e6),
)
def test_the_parts_of_a_lane_and_its_rest_add_up_to_the_step(parts_ms, step_ms):
    found = lane("GPU", [Part("p", "p", ms, "fill-1") for ms in parts_ms], step_ms, "idle")
    assert found.rest_ms >= 0
    total_ms = sum(part.ms for part in found.parts) + found.rest_ms
    assert total_ms == pytest.approx(step_ms)


def test_the_lanes_are_as_long_as_a_step_at_the_rate_of_the_screen_and_keep_their_shares():
    snapshot = gpu_step()
    then, now = ask(snapshot), ask(changed(snapshot, steps_per_s=50.0))
    assert now.step_ms == pytest.approx(20.0)
    for before, after in zip(then.lanes, now.lanes, strict=True):
        assert sum(part.ms for part in after.parts) + after.rest_ms == pytest.approx(20.0)
        assert after.rest_ms / now.step_ms == pytest.approx(before.rest_ms / then.step_ms)


def test_evidence_has_the_times_of_the_lanes():
    snapshot = starved(5.0)
    then, now = (ask(changed(snapshot, steps_per_s=one)) for one in (100.0, 50.0))
    assert then.evidence[0] == "the GPU waits for data 7.00 of 10.0 ms"
    assert now.evidence == ("the GPU waits for data 14.0 of 20.0 ms", *then.evidence[1:])
