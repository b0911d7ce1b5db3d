"""The error rate over all attempts: what it promises, simulated for programs that try on."""

from random import Random

import pytest

from gpudash.compare.error_rate import RATE, level, which_hold
from gpudash.compare.paired_t import estimate
from gpudash.compare.rounds import CONFIDENCE, EFFECTS, StartCosts, is_decided, over_rounds


def claimed_until(claims, true, held):
    """Whether each of the attempts that hold, up to so many, is worth something."""
    return [is_true for is_true, holds in zip(true, held, strict=True) if holds][:claims]


@pytest.mark.parametrize("worth", [0.0, 0.1, 0.5])
def test_wherever_a_program_stops_few_of_the_claims_that_hold_are_wrong(worth):
    """So many of its attempts are worth something. It tries 40 at most."""
    random, runs = Random(3), []
    for _ in range(2_000):
        true = [random.random() < worth for _ in range(40)]
        # without worth as by chance
        levels = [random.random() ** (8 if is_true else 1) for is_true in true]
        runs.append((true, which_hold(levels)))
    for claims in (1, 3, 40):
        claimed = [claimed_until(claims, true, held) for true, held in runs]
        wrong = sum(one.count(False) for one in claimed)
        held_in_all = sum(max(len(one), 1) for one in claimed)
        assert wrong <= RATE * held_in_all + 3 * (RATE * held_in_all) ** 0.5


def rounds_between_equals(random):
    rounds = []
    while len(rounds) < 12 and not (rounds and is_decided(over_rounds(rounds), None)):
        rounds.append(StartCosts((random.gauss(100, 2), random.gauss(100, 2)), 1.0))
    return over_rounds(rounds), len(rounds)


def test_the_level_of_a_comparison_that_is_ended_by_what_it_shows_is_no_smaller_than_it_may_be():
    random = Random(5)
    levels = [level(*rounds_between_equals(random), EFFECTS) for _ in range(2_000)]
    for bound in (0.01, 0.05, 0.2):
        assert sum(one is not None and one <= bound for one in levels) <= 1.2 * bound * 2_000


@pytest.mark.parametrize("count", [5, 12])
@pytest.mark.parametrize("noise", [0.5, 2.0, 8.0])
def test_an_interval_leaves_out_0_where_its_level_is_below_its_own(count, noise):
    random = Random(6)
    for _ in range(50):
        pairs = [(random.gauss(104, noise), random.gauss(100, noise)) for _ in range(count)]
        found, usual = over_rounds([StartCosts(one, 1.0) for one in pairs]), estimate(pairs, 0.95)
        for one, effects, own in ((found, EFFECTS, 1 - CONFIDENCE), (usual, None, 0.05)):
            assert (level(one, count, effects) < own) == (one.low > 0 or one.high < 0)


def test_what_has_no_interval_claims_nothing_and_no_spread_claims_much():
    assert level(estimate([(2.0, 1.0)]), 1, None) is None
    same = [(2.0, 1.0)] * 8
    assert level(estimate(same), 8, None) == 0
    assert level(over_rounds([StartCosts(one, 1.0) for one in same]), 8, EFFECTS) < 1e-3
    assert which_hold([None, 0.0, None]) == [False, True, False]
