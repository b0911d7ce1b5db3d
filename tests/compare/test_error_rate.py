"""The error rate over all attempts: what it promises, simulated for programs that try on."""

from random import Random

import pytest

from gpudash.compare.error_rate import RATE, allowed, level, which_hold
from gpudash.compare.paired_t import estimate
from gpudash.compare.rounds import CONFIDENCE, EFFECTS, StartCosts, is_decided, over_rounds

RUNS = 4_000


def until_three_claims(levels, held):
    return sum(held) == 3


def until_something_holds(levels, held):
    return any(held)


def until_the_end(levels, held):
    return False


@pytest.mark.parametrize("stop", [until_the_end, until_something_holds, until_three_claims])
@pytest.mark.parametrize("worth", [0.0, 0.1, 0.5])
def test_wherever_a_program_stops_few_of_the_claims_that_hold_are_wrong(stop, worth):
    """So many of its attempts are worth something. It tries 40 at most."""
    random = Random(3)
    wrong, held_in_all = 0, 0
    for _ in range(RUNS):
        levels, true, held = [], [], []
        while len(levels) < 40 and not stop(levels, held):
            true.append(random.random() < worth)
            levels.append(random.random() ** (8 if true[-1] else 1))  # without worth as by chance
            held.append(levels[-1] <= allowed(held))
        wrong += sum(holds and not is_true for holds, is_true in zip(held, true, strict=True))
        held_in_all += max(sum(held), 1)
        assert held == which_hold(levels)
    assert wrong <= RATE * held_in_all + 3 * (RATE * held_in_all) ** 0.5


def test_by_intervals_alone_a_program_that_tries_until_it_is_faster_always_finds_something():
    random = Random(4)
    found = [any(random.random() <= 0.05 for _ in range(100)) for _ in range(1_000)]
    assert sum(found) > 950


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
