"""When there is no answer: before enough steps, in interruptions, and at the end."""

import pytest

from gpudash.diagnosis.headline import headline, why_lines
from gpudash.diagnosis.recent_step import recent_step
from gpudash.protocol.readings import OtherJobs
from gpudash.snapshot import Hang, RankRow, RankStack, RecentMeans, Series, Snapshot
from gpudash.statistics import WARMUP_STEPS
from tests.diagnosis.trainings import answered, ask, changed, compared, gpu_step, measured
from tests.having import having
from tests.tui.fake_engine import result

FAILED = Snapshot(
    state="failed", status="ValueError: a batch: too small", notice="at step 3", total_steps=3
)
SCRIPT = Snapshot(state="finished", can=("leave",))
SAID = {
    "before the first step it is starting": (Snapshot(), "starting", "starting", ()),
    "until there are enough steps it counts them towards a goal that stays": (
        changed(gpu_step(), steps_since_break=12),
        "measuring",
        "measuring … 12 of at most 20 steps",
        (f"the first {WARMUP_STEPS} steps do not count",),
    ),
    "then the answer waits for half a second": (
        changed(gpu_step(), steps_since_break=96, recent=RecentMeans()),
        "measuring",
        "measuring the first half second …",
        (f"the first {WARMUP_STEPS} steps do not count",),
    ),
    "without steps it says for how long": (
        changed(gpu_step(), quiet_s=12.0),
        "silent",
        "no step for 12 s",
        ("something compiles, the loader is late, or the step hangs",),
    ),
    "during an A/B there is no new answer": (
        changed(gpu_step(), comparison=compared()),
        "comparing",
        "an A/B is running: precision tf32 or bf16",
        (),
    ),
    "a training that has ended says what limited it": (
        changed(gpu_step(), state="finished"),
        "ended",
        "finished; it was GPU-bound",
        ask(gpu_step()).evidence,
    ),
    "one that failed says why": (FAILED, "ended", "failed", (FAILED.status,)),
    "and one that ends well does not": (changed(FAILED, state="finished"), "ended", "finished", ()),
    "a script that ends without a step says so": (
        SCRIPT,
        "ended",
        "finished",
        ("no training step was seen",),
    ),
    "but with one it does not": (changed(SCRIPT, total_steps=3), "ended", "finished", ()),
    "nor does a workload": (changed(SCRIPT, can=("levers",)), "ended", "finished", ()),
}


@pytest.mark.parametrize(("snapshot", "kind", "title", "evidence"), SAID.values(), ids=SAID)
def test_what_is_said_in_place_of_an_answer(snapshot, kind, title, evidence):
    found = ask(snapshot)
    assert (found.kind, found.title, found.evidence, found.tries) == (kind, title, evidence, ())


def test_at_the_end_the_answers_lanes_are_shown():
    assert ask(changed(gpu_step(), state="finished")).lanes


def test_an_a_b_that_has_failed_stands_in_no_answers_way():
    over = changed(gpu_step(), comparison=compared(failure="the training ended"))
    assert ask(over).kind == "gpu"


def test_steps_of_100_ms_are_measured_until_20_of_them():
    slow = measured(step_ms=100.0, host_ms=30.0, device_ms=99.0)
    kinds = [ask(changed(slow, steps_since_break=steps)).kind for steps in (15, 19, 20)]
    assert kinds == ["measuring", "measuring", "gpu"]
    assert ask(changed(slow, steps_since_break=15, state="finished")).answer.limit == "gpu"


def test_while_it_measures_it_shows_its_row():
    early = changed(gpu_step(), steps_since_break=12)
    rows = (
        result(1, "batch_size=4", 100.0),
        result(2, "batch_size=8", 250.0),
        result(3, "batch_size=16", 1.0, live=True),
    )
    assert ask(changed(early, results=rows)).evidence[1:] == ("setting 3: batch_size=16",)
    for none_live in ((), rows[:1], rows[:2]):
        assert len(ask(changed(early, results=none_live)).evidence) == 1


@pytest.mark.parametrize("state", ["paused", "switching"])
def test_an_interruption_shows_what_was_known_before(state):
    known = ask(gpu_step())
    stopped = changed(gpu_step(), state=state, pending={"batch_size": "16"}, steps_since_break=0)
    for _ in range(3):
        found = ask(stopped, known)
        known = found
    assert found == having(
        kind=state, title={"paused": "paused", "switching": "switching to batch_size=16 …"}[state]
    )
    assert found.evidence[:1] == ("before that: GPU-bound",)
    assert found.evidence.count("before that: GPU-bound") == 1
    assert found == having(lanes=ask(gpu_step()).lanes, tries=())
    assert ask(stopped).lanes == ()


def in_ab(core_wait_pct, **changes):
    """An A/B of which the last 5 s had this core wait; before them it was 60 %."""
    waits_pct = (60.0,) * 10 + (core_wait_pct,) * 10
    snapshot = changed(gpu_step(), comparison=compared(), elapsed_s=10.2, **changes)
    at_s = tuple(0.5 * (tick + 1) for tick in range(20))
    return changed(snapshot, series=Series(at_s=at_s, values={"core_wait_pct": waits_pct}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "other jobs take cores: until they end, the A/B has a wide interval"),
        (
            {"other_jobs": OtherJobs(at_s=0.0, used_cores=1.2, cores=2)},
            "other jobs take 1.2 of 2 cores: until they end, the A/B has a wide interval",
        ),
        (
            {"ranks": (RankRow(rank=0), RankRow(rank=1))},
            "too few cores: until other jobs end, the A/B has a wide interval",
        ),
    ],
)
def test_in_an_a_b_a_caution_says_that_other_jobs_take_the_cores_now(changes, said):
    quiet, crowded = in_ab(14.9, **changes), in_ab(15.0, **changes)
    before = ask(gpu_step())
    assert (ask(quiet, before).caution, ask(crowded, before).caution) == ("", said)
    assert ask(crowded).caution == said  # also where nothing is known from before
    assert ask(changed(crowded, state="paused"), ask(crowded, before)).caution == ""
    assert said in why_lines(ask(crowded, before))


def test_a_hang_shows_where_the_ranks_are_also_before_the_first_step():
    stacks = (
        RankStack(rank=0, doing="waits in barrier (train.py:7)", collective="barrier"),
        RankStack(rank=1, doing="is in load (data.py:41)"),
    )
    hang = Hang(for_s=34.0, missing=(1,), stacks=stacks)
    switching = changed(gpu_step(), state="switching", hang=hang)  # a lever that no step takes up
    for shown in (Snapshot(state="training", hang=hang), changed(gpu_step(), hang=hang), switching):
        found = ask(shown)
        assert (found.kind, found.title) == ("silent", "no rank has finished a step for 34 s")
        assert found.evidence[0] == "rank 1 is in load (data.py:41)"
    unanswered = changed(gpu_step(), hang=Hang(for_s=12.0), quiet_s=12.0)
    assert ask(unanswered).title == "no step for 12 s"


def test_while_no_step_comes_why_shows_the_reasons_of_the_answer_before():
    found = answered(gpu_step())
    lines = why_lines(headline(changed(found, quiet_s=12.0)))
    assert set(found.answer.why) <= set(lines)
    assert "there is no answer yet" in why_lines(headline(changed(gpu_step(), quiet_s=12.0)))


def test_steps_whose_phases_are_measured_may_be_slower_than_the_others():
    slower = measured(device_ms=15.0, overlap_ms=3.0, forward_ms=6.0, backward_ms=9.0)
    found = recent_step(slower)
    assert (found.device_ms, found.overlap_ms) == (10.0, 2.0)
    assert found.phases_ms == {"forward": 4.0, "backward": 6.0}
