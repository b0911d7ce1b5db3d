"""While no step finishes, stacks are requested; the answers are logged once."""

from itertools import count

import pytest

from gpudash.protocol.commands import Stacks
from gpudash.protocol.inspections import Stack
from gpudash.run.stacks import HangWatch
from tests.lives import said
from tests.scripted_run import BEGAN_S, Trainer

STACK = 'Stack (most recent call first):\n  File "/home/u/data.py", line 41 in load\n'


class Run:
    """A training of one process, on a made-up clock; it answers requests at once."""

    def __init__(self):
        self.seq, self.asked, self.log = count(), 0, []
        self.watch = HangWatch(10.0, self.ask, self.log.extend)
        self.trainer = Trainer()
        self.say(self.trainer.start())
        self.step()

    def say(self, body, sent_s=BEGAN_S):
        self.watch.take(said(body, seq=next(self.seq), at_s=sent_s))

    def step(self):
        self.say(self.trainer.step(50.0))

    def ask(self):
        self.asked += 1
        self.say(Stacks(id=self.asked), self.now_s)
        self.say(Stack(at_s=self.now_s, answers=(self.asked,), text=STACK))

    def look_after(self, seconds):
        self.now_s = self.trainer.now_s + seconds
        return self.watch.look(self.now_s)


@pytest.fixture
def run():
    return Run()


def test_answers_are_logged_once_and_requested_again_after_a_while(run):
    assert run.look_after(9.0) is None
    assert (run.asked, run.log) == (0, [])
    for seconds in range(11, 40):
        run.look_after(seconds)
    assert run.asked == 1
    (title, *_) = run.log
    assert title == "no step for 12 s: it is in load (data.py:41)"
    assert sum("no step for" in line for line in run.log) == 1
    run.look_after(42.0)
    assert run.asked == 2
    assert sum("no step for" in line for line in run.log) == 1


def test_the_end_of_a_hang_is_logged_too(run):
    run.look_after(11.0)
    run.look_after(12.0)
    run.trainer.now_s += 30.0
    run.step()
    assert run.look_after(1.0) is None
    assert run.log[-1].startswith("steps come again; for 30 s ")
    run.look_after(2.0)
    assert sum("steps come again" in line for line in run.log) == 1
