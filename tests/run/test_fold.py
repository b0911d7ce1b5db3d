"""The answer is found while steps are measured, and stands or is void meanwhile."""

from collections import deque
from itertools import count

import pytest
from msgspec.structs import replace

from gpudash.diagnosis.headline import headline, why_lines
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.commands import Change, Profile
from gpudash.protocol.inspections import Profiled
from gpudash.protocol.training import BlocksEnded, Hello
from gpudash.run.fold import MOST_RANKS, Fold
from gpudash.trace.summary import Summary
from tests.diagnosis.trainings import compared
from tests.lives import said
from tests.scripted_run import BEGAN_S, PLAN, Trainer, host

ABLE = ("levers", "pause", "restart", "blocks", "record", "profile")
WAITING = {"data_ms": 20.0, "device_ms": 28.0}
"""Of a step of 50 ms, which is input-bound with them."""
BUSY = {"data_ms": 0.0, "device_ms": 49.0}
LOOKS_S = 0.25


class Run:
    """A training of 20 steps a second on a made-up clock, folded as a session does."""

    def __init__(self, can=ABLE, looks_s=LOOKS_S):
        self.fold, self.trainer = Fold(PLAN, BEGAN_S), Trainer()
        self.looks_s, self.looked_s, self.seq = looks_s, BEGAN_S, count()
        self.say(Hello(can=can), self.trainer.start())

    @property
    def now_s(self):
        return self.trainer.now_s

    def say(self, *bodies):
        for body in map(self.trainer.say, bodies):
            self.fold.take(self.fold.stamp(said(body, seq=next(self.seq), at_s=self.now_s)))
            if self.now_s >= self.looked_s + self.looks_s:
                self.look()

    def conduct(self, body):
        one = said(body, seq=next(self.seq), source="session", at_s=self.now_s)
        self.fold.take(self.fold.stamp_own(one))

    def look(self):
        self.looked_s = self.now_s
        return self.fold.snapshot(self.now_s)

    def train(self, seconds, step_ms=50.0, **times):
        for _ in range(round(1e3 * seconds / step_ms)):
            progress = self.trainer.step(step_ms)
            steps = tuple(replace(one, values=one.values | BUSY | times) for one in progress.steps)
            self.say(replace(progress, steps=steps), host(self.now_s))
        return self.shown

    def pause(self):
        self.say(self.trainer.pause())

    def wait(self, seconds):
        for _ in range(round(seconds / 0.05)):
            self.say(self.trainer.wait(0.05))
        return self.shown

    def block(self, number, **changes):
        self.say(self.trainer.enter_block(number, **changes))

    @property
    def shown(self):
        return headline(self.look())


@pytest.fixture
def run():
    return Run()


@pytest.fixture
def bound(run):
    """One that has been found to be input-bound."""
    assert run.train(3.0, **WAITING).title == "input-bound"
    return run


SINCE = ("before that: input-bound", "the GPU waits for data 20.0 of 50.0 ms")


def test_an_answer_is_found_once_enough_steps_are_measured_and_is_part_of_the_snapshot(
    run,
):
    assert run.train(0.5, **WAITING).title == "measuring … 10 of at most 20 steps, about 1 s more"
    shown = run.train(3.0, **WAITING)
    assert (shown.title, shown.evidence[0]) == ("input-bound", SINCE[1])
    assert run.look().answer.title == "input-bound"


def test_in_a_pause_the_answer_stands_with_its_reasons_and_after_it_it_is_void(bound):
    run, reasons = bound, bound.shown.answer.why
    run.pause()
    shown = run.wait(8.0)
    assert (shown.kind, shown.title, shown.evidence[:2]) == ("paused", "paused", SINCE)
    assert set(reasons) <= set(why_lines(shown))
    run.say(run.trainer.resume())
    assert run.train(0.4).kind == "measuring"
    assert run.look().answer is None
    assert run.train(3.0).title == "GPU-bound"


@pytest.mark.parametrize("why", ["evaluation", "checkpoint", "profile"])
def test_beside_what_interrupts_the_steps_the_answer_stands_and_it_holds_afterwards(bound, why):
    run, asked = bound, Profile(id=1, steps=3, path="t.json")
    run.say(*[asked] * (why == "profile"), run.trainer.pause(why))
    assert run.wait(4.0).evidence[0] == SINCE[0]
    done = Profiled(
        at_s=run.now_s, answers=(1,), path="t", first_step=1, steps=3, steps_ms=1.0, took_ms=1.0
    )
    run.say(*[done] * (why == "profile"), run.trainer.resume())
    assert run.train(0.5, **WAITING).title == "input-bound"


def test_in_an_a_b_the_answer_from_before_it_stands_and_after_it_it_is_void(run):
    before = run.train(6.0, **WAITING).answer
    run.conduct(compared(lever="pipelined", a="off", b="on"))
    for number in range(4):
        run.block(number, pipelined=("off", "on")[number % 2])
        shown = run.train(2.0)  # the blocks are GPU-bound
        assert shown.title == "an A/B is running: pipelined off or on"
        assert (shown.evidence[:2], shown.answer, shown.tries) == (SINCE, before, ())
    run.say(run.trainer.leave_blocks(pipelined="off"))
    run.conduct(compared(lever="pipelined", a="off", b="on", verdict="no difference"))
    run.say(BlocksEnded(at_s=run.now_s, run=1, why="done"))
    assert run.train(0.3).kind == "measuring"
    assert run.train(2.0).title == "GPU-bound"


def test_an_a_b_after_too_few_steps_for_an_answer_shows_none_of_its_own(bound):
    run = bound
    run.say(run.trainer.change(batch_size="16"))
    run.train(0.5)
    run.conduct(compared(lever="pipelined", a="off", b="on"))
    run.block(0, pipelined="on")
    assert run.train(3.0).evidence == ()


def test_while_a_lever_switches_the_answer_from_before_stands_and_with_the_change_it_is_void(
    bound,
):
    run = bound
    run.conduct(Change(id=1, settings={"batch_size": "16"}))
    shown = run.train(2.0)
    assert (shown.kind, shown.evidence[0]) == ("switching", SINCE[0])
    run.say(run.trainer.change_and({"answers": (1,)}, batch_size="16"))
    run.pause()
    assert run.shown.evidence == ()


def test_a_training_that_ended_keeps_its_answer_and_a_short_one_gets_it_then():
    run, short = Run(), Run()
    run.train(5.0, **WAITING)
    short.train(3.0, step_ms=200.0, data_ms=80.0)  # fewer than are needed
    for one in (run, short):
        one.say(one.trainer.finish())
        assert one.shown.title == "finished; it was input-bound"


def test_a_profile_deepens_the_answer_at_once_as_long_as_its_settings_hold(run):
    by_profile = "the device is at work                  40 %"
    run.train(3.0, device_ms=40.0)
    assert not any(by_profile in line for line in why_lines(run.shown))
    settings = run.look().settings
    summary = Summary(steps=10, step_ms=50.0, on_device=True, busy_ms=20.0)
    run.fold.deepen("encdec", settings, summary)
    assert any(by_profile in line for line in why_lines(run.shown))
    run.say(run.trainer.change(batch_size="16"))
    assert not any(by_profile in line for line in why_lines(run.train(3.0, device_ms=40.0)))


def test_what_is_read_of_the_host_in_a_pause_is_no_evidence(bound):
    before = bound.shown.answer
    bound.pause()
    bound.say(host(bound.now_s, core_wait_pct=60.0))
    bound.wait(5.0)
    assert bound.look().answer == before


def test_a_recorded_answer_is_shown_and_none_is_found_beside_it(bound):
    again = Run(can=())
    again.say(AnswerShown(at_s=again.now_s, answer=None))
    assert again.train(3.0, **WAITING).answer is None
    answer = bound.look().answer
    again.say(AnswerShown(at_s=again.now_s, answer=answer))
    assert again.train(3.0).answer == answer


def test_however_rarely_somebody_looks_the_same_limits_are_found():
    found = []
    for looks_s in (LOOKS_S, 100.0):
        run = Run(looks_s=looks_s)
        run.train(15.0, **WAITING)
        run.train(15.0, data_ms=1.0)
        found.append({one.answer.title: one.share for one in run.fold.limits.shares()})
    assert found[0].keys() == {"input-bound", "GPU-bound"}
    assert found[1] == pytest.approx(found[0], abs=0.04)


def test_what_was_said_is_not_said_again(run):
    told = deque()
    for _ in range(100):
        run.train(0.25, **WAITING)
        if (unsaid := run.fold.unsaid(run.now_s)) is not None:
            told.append(unsaid)
            run.conduct(unsaid)
    assert told.popleft().answer is None
    assert {one.answer.title for one in told} == {"input-bound"}
    assert len(told) <= 4  # in 25 s


def test_of_too_many_ranks_the_first_are_followed_and_one_line_says_so():
    messages = []
    fold = Fold(PLAN, BEGAN_S, messages.append)
    for rank in range(MOST_RANKS + 100):
        run = Trainer(stamps=False)
        for seq, body in enumerate((run.start(), run.step())):
            fold.take(fold.stamp(said(body, rank, seq)))
    assert [row.rank for row in fold.snapshot(BEGAN_S).ranks] == list(range(MOST_RANKS))
    assert messages == ["more than 1,024 ranks train: gpudash follows the first 1,024"]
