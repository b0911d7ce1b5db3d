"""A gate: which interval passes which limit, and what a gate can find at all."""

import math
from random import Random

import pytest

from gpudash.compare.counted import CountChange
from gpudash.compare.gate import are_moved, ending, forecast, foreseen, of_throughput, sentence
from gpudash.compare.paired_t import Estimate
from gpudash.compare.rounds import StartCosts, over_rounds


def rounds(count, change=0.0, spread=0.014, seed=0):
    random = Random(seed)
    logs = [math.log1p(change) + random.gauss(0, spread) for _ in range(count)]
    return [StartCosts((math.exp(one), 1.0), 20.0) for one in logs]


def found(low, high):
    return Estimate(pairs=9, change=0.0 if low is None else (low + high) / 2, low=low, high=high)


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (-0.05, -0.021, "slower"),
        (-0.05, -0.019, "inconclusive"),
        (-0.03, 0.01, "inconclusive"),
        (-0.019, 0.05, "pass"),
        (-0.019, -0.001, "pass"),  # it is slower, by no more than is allowed
        (0.001, 0.05, "faster"),
        (None, None, "inconclusive"),
    ],
)
def test_the_whole_interval_decides(low, high, ends):
    assert of_throughput(found(low, high), 0.02) == ends


def test_a_count_that_has_grown_fails_unless_it_has_paid():
    within, faster = found(-0.01, 0.01), found(0.01, 0.02)
    more = CountChange("launches", 90, 91, came=("add",), went=())
    fewer = CountChange("launches", 91, 90, came=(), went=("add",))
    for of, count, ends in (
        (within, more, "slower"),
        (within, fewer, "pass"),
        (faster, more, "faster"),
    ):
        assert ending(of, 0.02, [count]) == ends


def test_losses_end_a_gate_early_only_where_each_side_repeats_itself():
    same, other, third = {1: 2.0, 2: 1.512}, {1: 2.0, 2: 1.401}, {1: 2.0, 2: 1.455}
    assert are_moved([same] * 4, [other] * 4)
    assert not are_moved([same] * 4, [same] * 4)
    assert not are_moved([same] * 3, [other] * 3)  # of two kernels each may have chosen its own
    assert not are_moved([same] * 4, [other, other, other, third])
    assert not are_moved([{}] * 4, [{}] * 4)


def test_the_sentence_says_the_limit_and_what_a_decision_takes():
    assert ", beyond 2 %, 12 starts of each" in sentence("B", rounds(12, -0.1), 0.02)
    assert ", within 20 %, 12 starts of each" in sentence("B", rounds(12), 0.2)
    assert "B is " in sentence("B", rounds(12, 0.1), 0.02)
    assert "a decision would take about " in sentence("B", rounds(6), 0.02)
    assert "; too few for an interval" in sentence("B", rounds(2), 0.02)


def ended(change, seed, most):
    """Look after every start until the gate ends."""
    all_rounds = rounds(most, change, seed=seed)
    looks = (
        (of_throughput(over_rounds(all_rounds[:count]), 0.02), count)
        for count in range(1, most + 1)
    )
    return next(((how, count) for how, count in looks if how != "inconclusive"), ("", most))


def test_the_forecast_from_twelve_equal_starts_comes_about():
    foretold = forecast(rounds(12, seed=9), 0.02, 600)
    slower = [ended(-foretold.loss, seed, 30) for seed in range(100)]
    same = [ended(0.0, seed, 30) for seed in range(100)]
    found_pct = sum(how == "slower" for how, _ in slower) / 100
    looks = sorted(count for _, count in slower)[50]
    assert 0.9 / 1.5 < found_pct <= 1
    assert 1 / 1.5 < foretold.loss_s / (20 * looks) < 1.5
    assert 1 / 1.5 < foretold.passes / (sum(how == "pass" for how, _ in same) / 100) < 1.5
    assert sum(how == "slower" for how, _ in same) <= 1


def test_a_forecast_needs_starts_and_a_budget():
    assert forecast(rounds(3), 0.02, 600) is None
    short = forecast(rounds(12), 0.02, 60)
    assert (short.loss, short.passes) == (math.inf, 0.0)
    assert "60 s cannot suffice" in foreseen("main", short, 0.02, 60)
    alike = forecast(rounds(12, spread=0.0), 0.02, 600)
    assert (alike.loss, alike.passes, alike.pass_s) == (pytest.approx(0.02), 1.0, 80.0)
