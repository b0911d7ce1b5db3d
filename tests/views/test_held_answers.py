"""How long an answer and its proposals stand, and what is shown in interruptions."""

import pytest

from gpudash.snapshot import Marker, Series, Snapshot
from gpudash.trace.summary import Summary
from gpudash.views.answer import HOLD_S, Answers
from gpudash.views.why import why_lines
from tests.views.trainings import (
    ask,
    behind,
    changed,
    compared,
    cpu_step,
    crowding,
    given,
    gpu_step,
    later,
    launching,
    measured,
    read,
    settings,
    two_streams,
)
from workloads import CATALOGUE


def test_a_limit_stands_until_another_tick_is_over_or_something_else_goes_on():
    before = tuple(Marker(at_s=at_s, label="seed=1") for at_s in (1.0, 2.0, 3.0))
    answers, snapshot = Answers(), changed(gpu_step(), markers=before)
    levers = CATALOGUE["encdec"].levers
    first = answers.give(snapshot, levers)
    later = changed(snapshot, total_steps=5050, host=None)
    assert answers.give(later, levers) is first
    assert answers.give(changed(later, profiling=True), levers).kind == "profiling"
    assert answers.give(later, levers) == first
    waiting = changed(measured(data_ms=3.0), elapsed_s=HOLD_S)
    assert answers.give(waiting, levers).kind == "data"
    assert answers.give(changed(waiting, state="finished"), levers).kind == "ended"


def test_a_new_profile_is_looked_at_within_the_same_tick():
    answers, snapshot, levers = Answers(), launching(), CATALOGUE["encdec"].levers
    without = answers.give(snapshot, levers)
    profile = Summary(steps=10, step_ms=10.0, on_device=True, busy_ms=9.9)
    assert answers.give(snapshot, levers, profile=profile) != without


def test_a_change_that_was_over_within_a_tick_is_seen_at_once():
    answers, snapshot, levers = Answers(), gpu_step(), CATALOGUE["encdec"].levers
    best = answers.give(snapshot, levers).tries[0]
    moved = changed(
        snapshot,
        settings={**snapshot.settings, best.lever: best.value},
        steps_since_break=3,
        markers=(Marker(at_s=10.0, label=best.label),),
    )
    assert answers.give(moved, levers).kind == "measuring"
    answers.give(snapshot, levers)
    resumed = changed(moved, settings=snapshot.settings, elapsed_s=10.0)
    assert answers.give(resumed, levers).kind == "measuring"


def test_a_limit_holds_below_its_threshold_through_a_profile_and_once_it_has_ended():
    answers, levers, less = Answers(), CATALOGUE["encdec"].levers, measured(data_ms=0.9)
    assert ask(less).kind == "none"
    assert answers.give(measured(data_ms=1.1), levers).kind == "data"
    answers.give(changed(less, profiling=True), levers)
    assert answers.give(less, levers).kind == "data"
    end = changed(less, state="finished")
    for last in (end, changed(end, series=changed(end.series))):
        ended = answers.give(last, levers)
        assert ended.title == "finished; it was input-bound"
        assert sum(line.startswith("▸") for line in why_lines(ended, end)) == 1


def test_a_limit_stands_until_it_was_not_found_for_a_while():
    busy, waiting = gpu_step(), measured(data_ms=3.0)
    found = given(Answers(), busy, busy, *[waiting] * 6)
    assert [one.kind for one in found] == ["gpu"] * 6 + ["data"] * 2


def test_a_limit_that_comes_and_goes_with_other_jobs_does_not_flicker():
    alone, crowded = cpu_step(), changed(cpu_step(), host=crowding(30.0))
    found = given(Answers(), *[*[alone] * 3, *[crowded] * 4] * 4)
    assert {one.kind for one in found} == {"cpu"}
    assert given(Answers(), alone, *[crowded] * 6)[-1].kind == "cores"


def test_a_limit_that_stands_is_shown_with_the_evidence_it_was_last_found_with():
    less = measured(step_ms=11.0, device_ms=8.8)
    first, *held, over = given(Answers(), gpu_step(), *[less] * 6)
    assert not any("stands until" in line for line in why_lines(first, gpu_step(), 8))
    for shown in held[:4]:
        assert any("stands until" in line for line in why_lines(shown, less, 8))
        assert (shown.title, *shown.evidence) == (first.title, *first.evidence)
        assert (shown.step_ms, shown.lanes) == (first.step_ms, first.lanes)
    assert over.lanes != first.lanes
    assert over.evidence[0] == "GPU 80 %"


def test_a_limit_that_is_found_again_is_shown_with_what_is_measured_now():
    busy, less = gpu_step(), measured(device_ms=8.0)
    found = given(Answers(), busy, less, measured(device_ms=9.5))
    assert [one.evidence[0][:9] for one in found] == ["busy 99 %", "busy 99 %", "busy 95 %"]


def test_what_interrupts_a_limit_that_stands_shows_its_evidence_and_leaves_none_of_itself():
    answers, busy, less = Answers(), gpu_step(), measured(device_ms=8.0)
    given(answers, busy, less)
    evaluating = changed(later(less, 2.0), status="evaluating")
    resumed = later(less, 3.0)
    levers = CATALOGUE["encdec"].levers
    during, after = (answers.give(one, levers, 8) for one in (evaluating, resumed))
    assert during.evidence[:2] == ("before that: GPU-bound", "busy 99 % of 10.0 ms")
    assert after.evidence[0] == "busy 99 % of 10.0 ms"


def test_a_slow_rank_that_stands_keeps_its_number_with_its_evidence():
    crowded = behind(measured(device_ms=9.9, core_wait_pct=30.0), rank=1)
    first, held = given(Answers(), behind(), crowded)
    assert (held.limit, held.title) == ("straggler", "limited by rank 5")
    assert held.evidence == first.evidence


@pytest.mark.parametrize(
    ("first", "then", "limit"),
    [
        (gpu_step(), measured(data_ms=3.0), "gpu"),  # its own rule no longer matches
        (cpu_step(), changed(cpu_step(), host=crowding(30.0)), "cpu"),  # an earlier one does, too
        (measured(), measured(data_ms=3.0), "none"),  # no rule matched
    ],
)
def test_why_says_that_an_answer_stands_wherever_another_rule_is_the_first_that_matches(
    first, then, limit
):
    answers = Answers()
    *_, held = given(answers, first, then)
    assert held.limit == limit
    ended = answers.give(changed(later(then, 2.0), state="finished"), CATALOGUE["encdec"].levers, 8)
    for shown in (held, ended):
        (said,) = [line for line in why_lines(shown, then, 8) if line.startswith("means over")]
        assert said.endswith("; an answer stands until it was not found for 5 s")


def test_why_says_of_the_limit_that_it_stands_and_of_the_rule_that_matches_that_it_is_none_yet():
    busy, waiting = gpu_step(), measured(data_ms=3.0)
    answers = Answers()
    *_, held = given(answers, busy, waiting, waiting)
    ended = answers.give(changed(later(waiting, 2.0), state="finished"), (), 8)
    for shown, since in ((held, "ago"), (ended, "before the end")):
        lines = why_lines(shown, later(waiting, 2.0), 8)
        (limit,) = [number for number, line in enumerate(lines) if line.startswith("▸")]
        assert lines[limit].endswith("60 %, matches from 90 %: the limit")
        assert lines[limit + 1] == f"    found last 2 s {since}: an answer stands for 5 s"
        (other,) = [number for number, line in enumerate(lines) if "waits for data" in line]
        assert lines[other].endswith("30 %, matches from 10 %")
        assert (
            lines[other + 1]
            == "    it matches: the answer once the present one was not found for 5 s"
        )
        assert sum(line.startswith("    ") for line in lines) == 2


def test_a_limit_of_which_nothing_is_measured_any_more_does_not_stand():
    found = given(Answers(), behind(), gpu_step())
    assert [one.kind for one in found] == ["straggler", "gpu"]


def test_a_throttling_that_is_over_does_not_stand():
    throttled = read(measured(device_ms=9.9), "sw_power_cap", sm_clock_mhz=990.0)
    clocks = {"sm_clock_mhz": (1980.0,) * 10 + (990.0,) * 10}
    series = changed(throttled.series, values=throttled.series.values | clocks)
    throttled = changed(throttled, series=series)
    over = changed(throttled, gpu=changed(throttled.gpu, values={"throttle": "none"}))
    assert [one.kind for one in given(Answers(), throttled, over)] == ["throttled", "gpu"]


def test_a_proposal_stands_until_it_was_not_found_for_a_while_and_its_range_is_of_now():
    one = {"num_workers": "1"}  # of 10 ms: four such workers would do, then three
    much = measured(chosen=one, data_ms=7.5, device_ms=2.5)
    less = measured(chosen=one, data_ms=6.0, device_ms=4.0)
    found = given(Answers(), much, *[less] * 6)
    said = [one.tries[0].promise for one in found]
    assert said[0] == "num_workers 1 → 4: +150 to +300 %"
    assert said[1:5] == ["num_workers 1 → 4: about +150 %"] * 4
    assert said[5:] == ["num_workers 1 → 3: +100 to +150 %"] * 2
    comes_and_goes = given(Answers(), *[much, less, less, less] * 5)
    assert {one.tries[0].label for one in comes_and_goes} == {"num_workers=4"}


def test_what_an_a_b_has_judged_goes_last_at_once():
    answers = Answers()
    comparing = changed(two_streams(), comparison=compared())
    judged = changed(two_streams(), verdicts=(compared(verdict="no difference"),))
    found = given(answers, two_streams(), comparing, judged)
    assert found[0].tries[0].label == "precision=bf16"
    assert found[-1].tries[0].label == "channels_last=on"


def in_pause(training, at_s, *marks):
    """The training, paused at `at_s`, after other marks."""
    markers = tuple(Marker(at_s=when, label=label) for label, when in (*marks, ("paused", at_s)))
    return changed(training, state="paused", status="paused", elapsed_s=at_s + 5, markers=markers)


def test_in_a_pause_the_answer_from_before_it_is_shown_wherever_a_replay_comes_from():
    waits = measured(data_ms=3.0)
    input_bound, gpu_bound = in_pause(waits, 10.0), in_pause(gpu_step(), 12.0, ("paused", 1.0))
    answers, levers = Answers(), CATALOGUE["encdec"].levers
    for training, paused, title in (
        (waits, input_bound, "input-bound"),  # played
        (waits, gpu_bound, "GPU-bound"),  # a jump ahead, from the training …
        (gpu_bound, input_bound, "input-bound"),  # … or from a pause
        (input_bound, gpu_bound, "GPU-bound"),
    ):
        answers.give(training, levers)
        for _ in range(2):
            assert answers.give(paused, levers).evidence[0] == f"before that: {title}"


@pytest.mark.parametrize(
    "doing",
    [
        {"status": "evaluating"},
        {"status": "saving a checkpoint"},
        {"profiling": True},
        {"state": "switching", "pending": {"precision": "tf32"}},
    ],
    ids=["evaluation", "checkpoint", "profile", "switch"],
)
def test_beside_what_interrupts_the_steps_is_the_answer_from_before_it_wherever_a_replay_comes_from(
    doing,
):
    waits = measured(data_ms=3.0)
    no_step = {name: (*column, None) for name, column in waits.series.values.items()}
    no_step["steps_per_s"] = (*waits.series.values["steps_per_s"], 0.0)
    ticks = Series(at_s=(*waits.series.at_s, waits.series.at_s[-1] + 0.5), values=no_step)
    within = changed(waits, **doing, series=ticks, elapsed_s=60.0, quiet_s=12.0)
    levers = CATALOGUE["encdec"].levers
    for earlier_s in (2.0, 90.0):  # a jump ahead, or back
        answers = Answers()
        answers.give(changed(gpu_step(), elapsed_s=earlier_s), levers)
        for shown_s in (0.0, 0.5):
            shown = answers.give(changed(within, elapsed_s=60.0 + shown_s), levers)
            assert shown.evidence[0] == "before that: input-bound"
    played = Answers()
    played.give(changed(gpu_step(), elapsed_s=59.0), levers)
    assert played.give(within, levers).evidence[0] == "before that: GPU-bound"


def test_in_an_a_b_the_answer_from_before_it_is_shown_wherever_a_replay_comes_from():
    marks = (("precision=tf32", 1.0), ("A/B", 10.0), ("evaluation", 12.0))
    began = changed(measured(data_ms=3.0), comparison=compared(), elapsed_s=10.1)
    within = changed(
        began,
        markers=tuple(Marker(at_s=at_s, label=label) for label, at_s in marks),
        steps_since_break=3,  # of this block
        elapsed_s=60.0,
    )
    blocks = {name: (*column, column[0] / 2) for name, column in within.series.values.items()}
    within = changed(within, series=Series(at_s=(*within.series.at_s, 10.5), values=blocks))
    answers, levers = Answers(), CATALOGUE["encdec"].levers
    for training in (gpu_step(), in_pause(gpu_step(), 5.0), began):
        answers.give(training, levers)
        paused, jumped = changed(within, state="paused"), changed(within, elapsed_s=75.0)
        for shown in (within, paused, within, jumped):
            found = answers.give(changed(shown, total_steps=6000), levers)
            assert found.evidence[:2] == ("before that: input-bound", "waits 3.00 of 10.0 ms")
            assert found.lanes == ask(began, ask(measured(data_ms=3.0))).lanes


def test_the_answer_from_right_before_an_a_b_is_kept_although_few_whole_ticks_are_of_its_steps():
    change, began = Marker(at_s=9.4, label="precision=tf32"), Marker(at_s=10.0, label="A/B")
    slow = measured(step_ms=50.0, device_ms=49.5)
    slow = changed(slow, markers=(change,), elapsed_s=9.9, steps_since_break=25)
    comparing = changed(slow, comparison=compared(), elapsed_s=10.2)
    within = changed(comparing, markers=(change, began), elapsed_s=10.4, steps_since_break=3)
    for snapshots in ((slow, comparing, within), (slow, within)):
        answers = Answers()
        *_, last = [answers.give(one, CATALOGUE["encdec"].levers) for one in snapshots]
        assert last.evidence[0] == "before that: GPU-bound"


def test_in_an_a_b_nothing_is_shown_of_what_came_before_the_last_change():
    marks = (Marker(at_s=9.8, label="precision=tf32"), Marker(at_s=10.0, label="A/B"))
    answers, comparing = Answers(), changed(gpu_step(), comparison=compared(), elapsed_s=60.0)
    answers.give(gpu_step(), CATALOGUE["encdec"].levers)
    shown = answers.give(changed(comparing, markers=marks), CATALOGUE["encdec"].levers)
    assert (shown.kind, shown.evidence) == ("comparing", ())


@pytest.mark.parametrize("jump_s", [0.0, 10.0])
def test_a_pause_shows_the_answer_that_stood_when_it_began(jump_s):
    answers, waits = Answers(), measured(data_ms=3.0)
    *_, held = given(answers, gpu_step(), waits)
    paused = in_pause(waits, 1.5)
    paused = changed(paused, elapsed_s=paused.elapsed_s + jump_s)
    for _ in range(2):
        shown = answers.give(paused, CATALOGUE["encdec"].levers, 8)
        assert shown.evidence[0] == f"before that: {held.title}" == "before that: GPU-bound"


def test_what_is_read_of_the_host_in_a_pause_is_no_evidence():
    crowded, answers = changed(cpu_step(), host=None), Answers()
    values = {**crowded.series.values, "core_wait_pct": (30.0,) * 20}
    crowded = changed(crowded, series=changed(crowded.series, values=values))
    *_, before = given(answers, crowded)
    assert before.evidence[0] == "the training waits for a core 30 % of the time"
    idle = {name: (*column, None) for name, column in values.items()}
    idle |= {"steps_per_s": (*values["steps_per_s"], 0.0), "core_wait_pct": (*(30.0,) * 20, 0.0)}
    paused = in_pause(crowded, 10.2)
    paused = changed(paused, series=Series(at_s=(*paused.series.at_s, 10.5), values=idle))
    for asked in (answers, Answers()):  # played, or a replay that began here
        shown = asked.give(paused, (), 8)
        assert shown.evidence[1] == before.evidence[0]
        said = " ".join(" ".join(why_lines(shown, paused, 8)).split())
        assert "▸ the training waits for a core 30 %" in said


def test_in_a_pause_the_reasons_are_those_from_before_it_and_in_an_a_b_there_are_none():
    waits, answers, levers = measured(data_ms=3.0, core_wait_pct=1.0), Answers(), ()
    *_, first = given(answers, waits)
    asked = [line for line in why_lines(first, waits, 8) if "matches from" in line]
    assert any(line.startswith("▸") for line in asked)
    paused = in_pause(waits, 11.0)
    lines = why_lines(answers.give(paused, levers, 8), paused, 8)
    assert set(asked) < set(lines)
    comparing = changed(waits, comparison=compared())
    for state in ("training", "paused"):
        shown = changed(comparing, state=state)
        lines = why_lines(answers.give(shown, levers, 8), shown, 8)
        assert lines[-1] == "the rules are not tried during an A/B"
        assert not any("matches from" in line for line in lines)


def test_in_a_pause_nothing_is_shown_of_what_came_before_a_change_or_came_later():
    answers, levers = Answers(), CATALOGUE["encdec"].levers
    newly = changed(
        in_pause(gpu_step(), 70.0, ("batch_size=64", 69.9)),
        settings=settings(batch_size="64"),
        steps_since_break=0,
    )
    first = in_pause(Snapshot(state="training", total_steps=1, series=Series()), 1.0)
    for paused in (newly, first):
        answers.give(changed(gpu_step(), elapsed_s=60.0), levers)
        assert answers.give(paused, levers).evidence == ()
