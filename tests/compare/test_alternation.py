"""Two trainings that are measured in turns: one block at a time, in the drawn order."""

import math

import pytest
from msgspec.structs import replace

from gpudash.compare.alternation import Turns, alternating, cost_ms, noise, undisturbed, unit_of
from gpudash.compare.blocks import MeasuredBlock
from gpudash.protocol.readings import HostReading
from gpudash.protocol.training import Progress, Refused
from tests.lives import Narrator, changed, finished, paused
from tests.scripted_run import BEGAN_S, started

BLOCK = MeasuredBlock(number=0, steps=10, samples=320, tokens=None, busy_s=1.0)


class Trainings:
    """Both sides; each comes to its next block as soon as its last one is over."""

    def __init__(self, sides):
        self.begun, self.turns = "", Turns(sides)
        self.turns.begin()
        self.left = {one: [at for at, side in enumerate(sides) if side == one] for one in "AB"}

    def comes(self, side):
        self.turns.ready(self.left[side].pop(0), lambda: self._begin(side))

    def _begin(self, side):
        self.begun += side


@pytest.mark.parametrize("first", ["A", "B"])
def test_no_block_begins_before_both_have_come_to_their_first(first):
    both = Trainings("ABBA")
    both.comes(first)
    assert both.begun == ("A" if first == "A" else "")
    both.comes("B" if first == "A" else "A")
    assert both.begun == "A"


def test_no_block_begins_before_it_is_said():
    both = Trainings("AB")
    both.turns = Turns("AB")
    both.comes("A")
    both.comes("B")
    assert both.begun == ""
    both.turns.begin()
    assert both.begun == "A"


def test_a_block_begins_once_the_one_before_is_over():
    both = Trainings("ABBAAB")
    both.comes("A")
    both.comes("B")
    for side, begun in (("A", "AB"), ("B", "ABB"), ("B", "ABBA"), ("A", "ABBAA")):
        both.comes(side)
        assert both.begun == begun


def test_a_side_that_has_no_block_left_lets_the_other_one_go_on():
    both = Trainings("AB")
    both.comes("A")
    both.comes("B")
    both.turns.over(0)
    assert both.begun == "AB"


def conducted():
    """The side A of a pair, which has come to its first block and waits there."""
    ((side, _), _), narrator = alternating(seed=0), Narrator()
    resumed = []
    side.go = lambda: resumed.append(True)
    (block, *_) = side.begin(narrator.tell(started(BEGAN_S - 1)), 1)
    within = {"run": 1, "block": block.number}
    side.fold(narrator.tell(changed(BEGAN_S, settings={}, **within)))
    return side, narrator, resumed, block


def test_a_side_waits_before_each_of_its_blocks():
    side, narrator, _, block = conducted()
    assert block.waits
    assert not side.waits
    side.fold(narrator.tell(paused(BEGAN_S + 1)))
    assert side.waits


def test_what_a_paused_side_takes_counts_once_its_loader_had_time_to_fill_its_queue():
    side, narrator, _, _ = conducted()
    readings = [(0.5, 900.0), (1.2, 900.0), (3.0, 40.0), (3.5, 60.0)]
    side.fold(narrator.tell(paused(BEGAN_S + 1)))
    for after_s, cpu_pct in readings:
        side.fold(HostReading(at_s=BEGAN_S + 1 + after_s - 0.5, values={"cpu_pct": cpu_pct}))
    assert side.paused_cpu_pct == 50.0


@pytest.mark.parametrize(("measured", "failed"), [(1, True), (2, False)])
def test_the_end_of_its_blocks_is_a_failure_if_they_are_too_few(measured, failed):
    side, narrator, *_ = conducted()
    side.blocks += [BLOCK] * measured
    side.fold(narrator.tell(finished(BEGAN_S + 1)))
    assert side.done
    assert (side.failure is not None) == failed


def test_losses_of_the_first_steps_are_kept_by_step():
    side, *_ = conducted()
    report = Progress(until_s=BEGAN_S, steps=(), total_steps=2, total_samples=None)
    side.fold(replace(report, first_losses=((1, 2.5), (2, None))))
    assert side.losses[1] == 2.5
    assert math.isnan(side.losses[2])
    assert not side.has_losses
    for _ in range(3):  # of later steps
        side.fold(replace(report, total_steps=64))
    assert side.has_losses  # those that there are


def test_what_a_training_counts_itself_is_kept_once_a_block_was_measured():
    side, *_ = conducted()
    report = Progress(until_s=BEGAN_S, steps=(), total_steps=2, total_samples=None)
    side.fold(replace(report, values={"compiles": 1.0}))  # as a start does
    side.blocks.append(BLOCK)
    side.fold(replace(report, values={"compiles": 0.0, "cpu_pct": 90.0}))
    assert side.told == {"compiles": [0.0]}


def test_what_is_refused_before_the_first_step_is_what_it_was_to_begin_with():
    side, *_ = conducted()
    report = Progress(until_s=BEGAN_S, steps=(), total_steps=2, total_samples=None)
    refused = Refused(kind="bad_setting", changes={}, reason="no such lever")
    for one in (refused, report, replace(refused, reason="another command")):
        side.fold(one)
    assert side.refused == "no such lever"


@pytest.mark.parametrize(
    ("a", "b", "unit", "ratio"),
    [
        (BLOCK, replace(BLOCK, samples=640, busy_s=2.0), "sample", 1.0),
        (replace(BLOCK, samples=None), replace(BLOCK, samples=None, busy_s=2.0), "step", 2.0),
        (replace(BLOCK, tokens=100), replace(BLOCK, tokens=200, busy_s=1.0), "token", 0.5),
    ],
)
def test_costs_are_of_what_both_know_to_have_done(a, b, unit, ratio):
    assert unit_of([a], [b]) == unit
    assert cost_ms([b], unit) / cost_ms([a], unit) == pytest.approx(ratio)


def test_nothing_is_compared_if_one_side_alone_knows_its_samples():
    assert unit_of([BLOCK], [replace(BLOCK, samples=None)]) is None


QUIET, BESIDE = (BLOCK, BLOCK), replace(BLOCK, others_pct=40.0)
WAITS = (BLOCK, replace(BLOCK, values={"core_wait_pct": 40.0}))
UNDISTURBED = {
    "none beside others' work": (
        [QUIET, (BESIDE, BLOCK), QUIET, (BLOCK, BESIDE)],
        [QUIET, QUIET],
    ),
    "those that wait for cores, as the change may be why": (
        [QUIET, WAITS, QUIET],
        [QUIET, WAITS, QUIET],
    ),
    "all, on a machine that is never idle": (
        [QUIET, (BESIDE, BESIDE), (BESIDE, BLOCK)],
        [QUIET, (BESIDE, BESIDE), (BESIDE, BLOCK)],
    ),
}


@pytest.mark.parametrize(("pairs", "counted"), UNDISTURBED.values(), ids=UNDISTURBED)
def test_the_pairs_that_count_are(pairs, counted):
    assert undisturbed(pairs) == counted


def test_the_noise_of_blocks_is_that_of_their_ratios():
    drifting = [replace(BLOCK, busy_s=one) for one in (1.0, 2.0, 4.0)]
    assert noise(drifting, drifting, "sample") == 0.0  # both sides share a drift
    assert noise(drifting[:2], [BLOCK, BLOCK], "sample") == pytest.approx(math.log(2) ** 2 / 4)
