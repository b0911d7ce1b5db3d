"""How long an answer and its proposals stand, and which of its figures are shown."""

import pytest

from gpudash.diagnosis.answer import FIGURES_S, HOLD_S, Answers, held
from gpudash.diagnosis.headline import answer_lines, why_lines
from gpudash.protocol.answer import Gain
from gpudash.protocol.inspections import CodeLine, CodeLines, Rehearsed, Timing
from gpudash.snapshot import Marker
from gpudash.trace.summary import Summary
from tests.diagnosis.trainings import (
    behind,
    changed,
    compared,
    given,
    gpu_step,
    later,
    launching,
    measured,
    two_streams,
)


def look(answers, snapshot, profile=None):
    answers.look(snapshot, 8, profile)
    return answers.newest


def test_an_answer_is_found_once_another_tick_is_over():
    answers, snapshot = Answers(), gpu_step()
    first = look(answers, snapshot)
    assert look(answers, changed(snapshot, total_steps=5050, host=None, elapsed_s=60.0)) is first
    assert look(answers, later(measured(data_ms=3.0), HOLD_S)).limit == "data"


def test_a_new_profile_is_looked_at_within_the_same_tick():
    answers, snapshot = Answers(), launching()
    without = look(answers, snapshot)
    profile = Summary(steps=10, step_ms=10.0, on_device=True, busy_ms=9.9)
    assert look(answers, snapshot, profile) != without


def test_what_was_rehearsed_counts_at_once():
    answers, snapshot = Answers(), two_streams()
    assert look(answers, snapshot).tries[0].label == "precision=bf16"
    slower = Timing(
        lever="precision",
        value="bf16",
        is_frozen=False,
        before_ms=2.0,
        after_ms=14.0,
        spread=0.0,
        before_host_ms=0.1,
        after_host_ms=0.1,
    )
    rehearsed = changed(snapshot, rehearsed=Rehearsed(at_s=1.0, timings=(slower,)))
    assert "precision=bf16" not in [one.label for one in look(answers, rehearsed).tries]


def test_what_comes_while_nothing_is_measured_is_in_the_next_answer():
    answers, snapshot = Answers(), gpu_step()
    look(answers, snapshot)
    code = CodeLines(at_s=1.0, looks=20, lines=(CodeLine("train.py", 7, "augment", 15),))
    look(answers, changed(snapshot, state="paused", code=code))
    assert "train.py:7 augment" in "".join(look(answers, changed(snapshot, code=code)).why)


def test_a_printed_answer_has_its_evidence_whatever_the_training_does_meanwhile():
    answers, snapshot = Answers(), gpu_step()
    answer = look(answers, snapshot)
    silent = changed(snapshot, quiet_s=60.0, answer=answer)
    lines = list(answer_lines(silent, answer))
    assert f"  {answer.evidence[0]}" in lines
    assert lines == list(answer_lines(changed(snapshot, answer=answer), answer))


def test_a_change_makes_the_answer_void_at_once():
    answers, snapshot = Answers(), gpu_step()
    best = look(answers, snapshot).tries[0]
    moved = changed(
        snapshot,
        settings={**snapshot.settings, best.lever: best.value},
        steps_since_break=3,
        markers=(Marker(kind="change", at_s=10.0, label=best.label),),
    )
    assert look(answers, moved) is None
    assert look(answers, later(changed(moved, settings=snapshot.settings), 10.0)) is None


def test_a_limit_holds_through_a_profile_and_once_it_has_ended():
    answers, less = Answers(), measured(data_ms=0.9, device_ms=7.0)
    assert look(Answers(), less).limit == "none"
    assert look(answers, measured(data_ms=1.1, device_ms=7.0)).limit == "data"
    look(answers, changed(later(less, 10.0), profiling=True))
    (ended,) = given(answers, changed(less, state="finished"), begin_s=30.0)
    assert ended.title == "finished; it was input-bound"
    assert sum(line.startswith("▸") for line in why_lines(ended)) == 1


def test_a_limit_that_stands_is_shown_with_what_it_was_last_found_with():
    less = measured(step_ms=11.0, device_ms=8.0)
    first, *held, over = given(Answers(), gpu_step(), *[less] * 5)
    for shown in held:
        assert (shown.title, shown.evidence) == (first.title, first.evidence)
        assert (shown.step_ms, shown.lanes) == (first.step_ms, first.lanes)
        assert why_lines(shown) == why_lines(first)
    assert over.lanes != first.lanes
    assert over.evidence[0] == "GPU 73 %"


def test_figures_that_change_alone_are_shown_anew_after_a_while():
    busy, less = measured(device_ms=9.9), measured(device_ms=9.5)
    found = given(Answers(), busy, *[less] * 3, every_s=5.0)
    assert [one.evidence[0].partition(" of ")[0] for one in found] == [
        *["the GPU is busy 99 %"] * 2,
        *["the GPU is busy 95 %"] * 2,
    ]


def test_figures_of_the_first_steps_are_shown_anew_soon():
    """They are few, and the readings of the device reach back before them."""
    first, more = measured(device_ms=9.9), measured(device_ms=9.5)
    first = changed(first, recent=changed(first.recent, steps=100))
    found = given(Answers(), first, *[more] * 3)
    said = [one.evidence[0].partition(" of ")[0] for one in found]
    assert said == [*["the GPU is busy 99 %"] * 2, *["the GPU is busy 95 %"] * 2]


def test_a_limit_stands_until_it_was_not_found_for_a_while():
    busy, waiting = gpu_step(), measured(data_ms=3.0)
    found = given(Answers(), busy, busy, *[waiting] * 6)
    assert [one.kind for one in found] == ["gpu"] * 6 + ["data"] * 2


def test_a_slow_rank_counts_at_once_as_it_was_looked_at_for_seconds():
    alone = gpu_step()
    found = given(Answers(), alone, behind(alone), *[alone] * 3)
    assert [one.title for one in found] == ["GPU-bound", *["limited by rank 5"] * 4]


def test_a_slow_rank_that_stands_keeps_its_number_with_its_evidence():
    crowded = behind(measured(device_ms=9.9, core_wait_pct=30.0), rank=1)
    first, held = given(Answers(), behind(), crowded)
    assert (held.kind, held.title) == ("straggler", "limited by rank 5")
    assert held.evidence == first.evidence


def test_a_proposal_stands_until_it_was_not_found_for_a_while():
    one = {"num_workers": "1"}  # of 10 ms: four such workers would do, then two
    much = measured(chosen=one, data_ms=7.5, device_ms=2.5)
    less = measured(chosen=one, data_ms=4.0, device_ms=6.0)
    found = given(Answers(), much, *[less] * 6)
    said = [one.tries[0].promise for one in found]
    assert said[:5] == ["num_workers 1 → 4: +143 to +312 %"] * 5
    assert said[5:] == ["num_workers 1 → 2: +46 to +72 %"] * 2
    comes_and_goes = given(Answers(), *[much, less, less, less] * 5)
    assert {one.tries[0].label for one in comes_and_goes} == {"num_workers=4"}


def test_what_an_a_b_has_refused_is_no_proposal_any_more_at_once():
    answers = Answers()
    comparing = changed(two_streams(), comparison=compared())
    judged = changed(two_streams(), verdicts=(compared(verdict="no difference"),))
    found = given(answers, two_streams(), comparing, judged)
    assert found[0].tries[0].label == "precision=bf16"
    assert found[-1].tries[0].label == "channels_last=on"
    assert "precision=bf16" not in [one.label for one in found[-1].tries]


# ── gains ───────────────────────────────────────────────────────────────────────────────


NARROW, WIDE = Gain(50.0, 80.0, "then"), Gain(None, 300.0, "then")


@pytest.mark.parametrize(
    ("found", "stays"),
    [
        (Gain(60.0, 90.0, "now"), True),  # 75 % are expected
        (Gain(70.0, 100.0, "now"), False),
        (Gain(20.0, 60.0, "now"), False),
        (Gain(None, 150.0, "now"), True),
        (Gain(60.0, 70.0, "now", "rehearsed"), False),
        (None, False),
    ],
)
def test_a_gain_is_shown_until_the_expected_one_leaves_its_range(found, stays):
    assert held(NARROW, found) is (NARROW if stays else found)
    assert held(None, found) is found


def test_words_are_shown_until_a_gain_has_figures():
    assert held(WIDE, Gain(None, 200.0, "now")) is WIDE
    figures = Gain(140.0, 160.0, "now")
    assert held(WIDE, figures) is figures


def waiting(data_ms):
    """A training whose four workers are to become eight."""
    return measured(data_ms=data_ms, device_ms=10.0 - data_ms)


def test_a_profile_has_its_own_gains_and_another_limit_too():
    answers, snapshot = Answers(), waiting(5.0)
    shown = look(answers, snapshot).tries[0].gain
    assert look(answers, later(waiting(5.1), 2 * FIGURES_S)).tries[0].gain == shown
    profile = Summary(steps=10, step_ms=10.0, on_device=True, busy_ms=4.9)
    assert look(answers, later(waiting(5.1), 2 * FIGURES_S), profile).tries[0].gain != shown
