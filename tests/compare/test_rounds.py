"""Starts of two sides, round after round, until the change is known."""

import math
from random import Random

import pytest

from gpudash.compare.paired_t import Estimate
from gpudash.compare.rounds import (
    FEWEST_ROUNDS,
    StartCosts,
    is_decided,
    measuring_s,
    of_budget,
    over_rounds,
    rounds_within,
    seconds_to_decide,
    verdict,
)
from gpudash.compare.sequential import is_sure


def rounds(count, faster=0.0, spread=0.01, seed=0):
    random = Random(seed)
    logs = [math.log1p(faster) + random.gauss(0, spread) for _ in range(count)]
    return [StartCosts((math.exp(one), 1.0), 20.0) for one in logs]


def first_decision(all_rounds, within=None):
    counts = range(1, len(all_rounds) + 1)
    return next(n for n in counts if is_decided(over_rounds(all_rounds[:n]), within))


def found(change, half):
    return Estimate(pairs=12, change=change, low=change - half, high=change + half)


@pytest.mark.parametrize(
    ("change", "half", "within", "decided"),
    [
        (0.20, 0.15, None, True),  # the sign is known
        (0.01, 0.02, None, False),
        (0.002, 0.007, None, True),  # none above 1 %
        (0.20, 0.15, 0.01, False),
        (0.20, 0.009, 0.01, True),
        (0.01, 0.02, 0.05, True),  # none above 5 %
    ],
)
def test_it_ends_with_the_sign_or_as_closely_as_was_asked(change, half, within, decided):
    assert is_decided(found(change, half), within) == decided


def test_an_interval_has_ends_from_four_rounds_on():
    assert over_rounds(rounds(FEWEST_ROUNDS - 1, 0.5)).low is None
    assert is_sure(over_rounds(rounds(FEWEST_ROUNDS, 0.5)))


def test_of_equal_sides_a_look_after_every_round_finds_one_in_a_hundred_at_most():
    alarms = 0
    for seed in range(300):
        equal = rounds(40, seed=seed)
        alarms += any(is_sure(over_rounds(equal[:count])) for count in range(1, 41))
    assert alarms <= 5


@pytest.mark.parametrize(("faster", "within"), [(0.01, None), (0.0, None), (0.03, 0.01)])
def test_the_time_that_is_said_is_about_the_time_it_takes(faster, within):
    ratios = []
    for seed in range(30):
        many = rounds(400, faster, 0.02, seed)
        said = seconds_to_decide(many[:12], within)
        ratios.append((12 + said / 20) / max(first_decision(many, within), 12))
    assert 0.5 < sorted(ratios)[15] < 2


def test_before_there_is_an_interval_no_time_is_said():
    few = rounds(2)
    assert seconds_to_decide(few) is None
    assert verdict("B", few).endswith("2 starts of each; too few for an interval")
    assert "would take" not in verdict("B", few)


def test_equal_costs_are_decided_at_once():
    same = [StartCosts((1.0, 1.0), 20.0)] * FEWEST_ROUNDS
    assert verdict("B", same).startswith("no difference above 1 % for B")


def test_the_verdict_says_the_change_and_else_what_a_decision_takes():
    assert verdict("B", rounds(8, 0.1)).startswith("B is ")
    assert verdict("B", rounds(8, 0.1)).endswith("], 8 starts of each")
    unknown = verdict("B", rounds(12, 0.008, 0.05))
    assert unknown.startswith("inconclusive: ")
    assert ", 12 starts of each; a decision would take about " in unknown
    assert unknown.endswith(" more")


def test_a_sign_that_is_known_is_said_where_the_size_is_not_yet():
    said = verdict("B", rounds(8, 0.1, 0.03), within=0.01)
    assert said.startswith("B is ")
    assert "; ± 1 % would take about " in said


def test_a_budget_that_cannot_suffice_is_said_after_the_first_round():
    first = StartCosts((1.0, 1.0), 70.0)
    assert rounds_within(300, first.seconds) == 4
    assert of_budget(300, first) == ""
    assert of_budget(200, first) == (
        "3:20 hardly suffices: a start of each took 70 s, "
        "and a change is known after 4 of each at the earliest"
    )


def measured(ratios, noise):
    return [StartCosts((one, 1.0), 20.0, measured_s=10.0, noise=noise) for one in ratios]


MEASURED = {
    "nothing is known of the starts": ([], 10.0),
    "of one start": (measured([1.05], 1e-6), 10.0),
    "blocks explain how starts differ": (measured([1.05, 0.95, 1.05, 0.95], 0.0033), 10.0),
    "blocks differ by far more": (measured([1.05, 0.95, 1.05, 0.95], 0.1), 10.0),
    "starts without any spread": (measured([1.0, 1.0, 1.0], 0.0), 10.0),
    # more starts are worth more than longer ones; theirs have a variance of 0.0033
    "starts differ more than blocks": (
        measured([1.05, 0.95, 1.05, 0.95], 1e-5),
        10.0 * math.sqrt(1e-5 / 0.0033),
    ),
    "starts differ far more": (
        measured([1.05, 0.95, 1.05, 0.95], 1e-6),
        10.0 * math.sqrt(1e-6 / 0.0033),
    ),
}


@pytest.mark.parametrize(("starts", "seconds"), MEASURED.values(), ids=MEASURED)
def test_the_next_start_is_measured_for(starts, seconds):
    assert measuring_s(starts, 10.0) == pytest.approx(seconds, rel=0.05 if seconds < 10.0 else 0.0)
