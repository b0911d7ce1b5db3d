"""Paired comparisons, and the simulations that docs/concepts/statistics.md quotes.

By hand, with more comparisons than a test has time for:
python -c "from tests.compare import test_paired_t as t; print(t.false_alarms(20_000))"
"""

import math
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.compare.paired_t import (
    Estimate,
    block_order,
    estimate,
    holds_zero,
    pairs_until_check,
    round_order,
    same_setting_check,
    student_t,
    verdict,
)
from tests.having import having

COSTS = st.floats(0.01, 1e5)
PAIRS = st.lists(st.tuples(COSTS, COSTS), min_size=2, max_size=40)
DROPPED, KEPT = 2, 5


@pytest.fixture(autouse=True)
def _calculated_anew():
    """Clear cached results between tests."""
    student_t.cache_clear()


# ── simulated step times ────────────────────────────────────────────────────────────────


def noise_of_steps(random, memory, spread=0.05):
    """Logarithms of step times: each keeps `memory` of the one before (AR(1))."""
    level = random.gauss(0, spread)
    while True:
        yield level
        level = memory * level + random.gauss(0, spread * math.sqrt(1 - memory**2))


def balanced_order(pairs, seed):
    """One AB and one BA in every two pairs: an alternative that `block_order` rejects."""
    return [order for first in block_order(pairs // 2, seed) for order in (first, first[::-1])]


def compared(
    pairs,
    seed,
    *,
    effect=0.0,
    leak=0.0,
    memory=0.6,
    drift=0.05,
    wave=150,
    draw=block_order,
):
    """Pairs of block costs and their orders, of steps of 10 ms and 8 samples.

    B is `effect` faster; a block right after a switch costs `leak` more. Both settings share
    a drift in 600 steps and a wave of ±5 %, `wave` steps long, that begins anywhere.
    """
    orders = draw(pairs, seed)
    random = Random(f"noise {seed}")
    noise, phase = noise_of_steps(random, memory), random.random()
    costs, step, before = [], 0, None
    for setting in "".join(orders):
        extra = leak if before not in (None, setting) else 0.0
        extra -= effect if setting == "B" else 0.0
        times = []
        for _ in range(DROPPED + KEPT):
            trend = drift * step / 600 + 0.05 * math.sin((step / wave + phase) * math.tau)
            times.append(10 * math.exp(trend + next(noise) + extra))
            step += 1
        costs.append((setting, sum(times[DROPPED:]) / (8 * len(times[DROPPED:]))))
        before = setting
    found = [dict(costs[at : at + 2]) for at in range(0, 2 * pairs, 2)]
    return [(one["A"], one["B"]) for one in found], orders


def false_alarms(comparisons, pairs=40, **simulated):
    """Share of comparisons of equal settings whose 95 % interval does not contain 0."""
    found = [estimate(compared(pairs, seed, **simulated)[0]) for seed in range(comparisons)]
    return sum(not one.low <= 0 <= one.high for one in found) / comparisons


def found_effects(comparisons, effect, pairs=40):
    """Share of comparisons whose 95 % interval shows that B is faster."""
    found = [estimate(compared(pairs, seed, effect=effect)[0]) for seed in range(comparisons)]
    return sum(one.low > 0 for one in found) / comparisons


def failed_checks(comparisons, pairs=40, **simulated):
    """Share of comparisons whose control fails."""
    checks = [same_setting_check(*compared(pairs, at, **simulated)) for at in range(comparisons)]
    return sum(check is not None and not holds_zero(check) for check in checks) / comparisons


# ── the interval ────────────────────────────────────────────────────────────────────────


def test_the_interval_agrees_with_a_calculation_by_hand():
    # log ratios 0.1, 0.2, 0.3: mean 0.2, standard error 0.1/√3, t(2 df, 95 %) = 4.3027
    found = estimate([(math.exp(ratio), 1.0) for ratio in (0.1, 0.2, 0.3)])
    assert found == having(
        pairs=3,
        change=pytest.approx(math.exp(0.2) - 1),
        low=pytest.approx(math.exp(0.2 - 4.302653 * 0.1 / math.sqrt(3)) - 1),
        high=pytest.approx(math.exp(0.2 + 4.302653 * 0.1 / math.sqrt(3)) - 1),
        half_width=pytest.approx((found.high - found.low) / 2),
    )


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf, 0.0, -1.0])
@pytest.mark.parametrize("place", [0, 1])
def test_an_invalid_cost_is_refused(cost, place):
    pair = (1.0, cost) if place else (cost, 1.0)
    with pytest.raises(ValueError, match=f"positive and finite, not {cost}"):
        estimate([(1.0, 1.0), pair])
    with pytest.raises(ValueError, match=f"positive and finite, not {cost}"):
        same_setting_check([(1.0, 1.0), pair], ["AB", "BA"])


@given(PAIRS)
def test_swapping_the_settings_inverts_the_ratio(pairs):
    there = estimate(pairs)
    back = estimate([(b, a) for a, b in pairs])
    assert back.change == pytest.approx(1 / (1 + there.change) - 1)
    assert there.low <= there.change <= there.high
    assert math.isinf(there.high) or back.low == pytest.approx(1 / (1 + there.high) - 1)


@given(PAIRS, st.floats(1e-3, 1e3))
def test_scaling_both_settings_changes_nothing(pairs, factor):
    assert estimate([(a * factor, b * factor) for a, b in pairs]) == having(
        change=pytest.approx(estimate(pairs).change, rel=1e-9, abs=1e-9)
    )


@given(PAIRS, st.lists(st.floats(0.1, 10.0), min_size=40, max_size=40))
def test_drift_that_both_blocks_of_a_pair_share_cancels(pairs, drift):
    drifted = estimate([(a * by, b * by) for (a, b), by in zip(pairs, drift, strict=False)])
    steady = estimate(pairs)
    assert drifted == having(
        change=pytest.approx(steady.change, rel=1e-9, abs=1e-9),
        low=pytest.approx(steady.low, rel=1e-9, abs=1e-9),
    )


@given(PAIRS, st.floats(0.5, 0.99), st.floats(0.5, 0.99))
def test_a_wider_confidence_contains_a_narrower_one(pairs, one, other):
    narrow, wide = (estimate(pairs, confidence) for confidence in sorted((one, other)))
    assert wide.low <= narrow.low <= narrow.high <= wide.high


def test_wild_pairs_do_not_overflow():
    assert estimate([(1e300, 1e-300), (1e-300, 1e300)]).high == math.inf


@pytest.mark.parametrize("wave", [28, 150])  # 28 steps: four blocks
def test_equal_settings_differ_in_about_one_comparison_of_twenty(wave):
    assert 0.02 < false_alarms(600, pairs=20, wave=wave) < 0.08


def test_orders_that_are_not_fully_random_raise_more_false_alarms():
    balanced = false_alarms(400, pairs=20, wave=28, draw=balanced_order)
    assert balanced > 1.5 * false_alarms(400, pairs=20, wave=28)


def test_a_difference_is_found():
    assert found_effects(100, effect=0.05) > 0.9


# ── Student's t ─────────────────────────────────────────────────────────────────────────

# NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, critical values of Student's t:
# by degrees of freedom, for 80, 90, 95, 98 and 99 % between both tails


CONFIDENCES = (0.80, 0.90, 0.95, 0.98, 0.99)
NIST = {
    1: (3.078, 6.314, 12.706, 31.821, 63.657),
    2: (1.886, 2.920, 4.303, 6.965, 9.925),
    3: (1.638, 2.353, 3.182, 4.541, 5.841),
    4: (1.533, 2.132, 2.776, 3.747, 4.604),
    5: (1.476, 2.015, 2.571, 3.365, 4.032),
    9: (1.383, 1.833, 2.262, 2.821, 3.250),
    10: (1.372, 1.812, 2.228, 2.764, 3.169),
    15: (1.341, 1.753, 2.131, 2.602, 2.947),
    20: (1.325, 1.725, 2.086, 2.528, 2.845),
    29: (1.311, 1.699, 2.045, 2.462, 2.756),
    40: (1.303, 1.684, 2.021, 2.423, 2.704),
    60: (1.296, 1.671, 2.000, 2.390, 2.660),
    100: (1.290, 1.660, 1.984, 2.364, 2.626),
}


@pytest.mark.parametrize("degrees", NIST)
def test_students_t_agrees_with_the_published_table(degrees):
    found = [student_t(degrees, confidence) for confidence in CONFIDENCES]
    assert found == pytest.approx(NIST[degrees], abs=6e-4)  # printed with three decimals


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99, 0.999])
def test_students_t_agrees_with_its_closed_forms(confidence):
    assert student_t(1, confidence) == pytest.approx(math.tan(math.pi / 2 * confidence), abs=1e-7)
    two = confidence * math.sqrt(2 / (1 - confidence**2))
    assert student_t(2, confidence) == pytest.approx(two, abs=1e-9)


@pytest.mark.parametrize("degrees", [3, 4, 15, 39, 100, 199, 200])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_the_density_within_students_t_integrates_to_the_confidence(degrees, confidence):
    end, parts = student_t(degrees, confidence), 1000
    scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    scale = math.exp(scale) / math.sqrt(degrees * math.pi)
    heights = [
        scale * (1 + (end * at / parts) ** 2 / degrees) ** (-(degrees + 1) / 2)
        for at in range(parts + 1)
    ]
    within = heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
    assert 2 * within * end / parts / 3 == pytest.approx(confidence, abs=1e-9)  # Simpson's rule


# ── the control ───────────────────────────────────────────────────────────────────────


def test_the_check_compares_the_middle_blocks_less_the_trend_of_the_outer_ones():
    # in time: A 1.00, B 2.20, B 2.00, A 1.00; then B 4.00, A 3.15, A 3.00, B 4.00; and again
    assert same_setting_check(
        [(1.0, 2.2), (1.0, 2.0), (3.15, 4.0), (3.0, 4.0)] * 2, ["AB", "BA", "BA", "AB"] * 2
    ) == having(pairs=4, change=pytest.approx(math.sqrt(1.1 * 1.05) - 1), confidence=0.99)


def test_each_pair_takes_part_in_the_check_once():
    pairs = [(1.0, 2.0)] * 12
    check = same_setting_check(pairs, ["AB", "BA", "AB", "AB", "AB", "BA"] * 2)
    assert check == Estimate(pairs=4, change=0.0, low=0.0, high=0.0, confidence=0.99)


def test_the_check_needs_four_pairs_of_neighbours_with_opposite_orders():
    assert same_setting_check([], []) is None
    assert same_setting_check([(1.0, 2.0)] * 4, ["AB", "AB", "AB", "BA"]) is None
    assert same_setting_check([(1.0, 2.0)] * 7, ["AB", "BA"] * 3 + ["AB"]) is None
    with pytest.raises(ValueError, match="shorter"):
        same_setting_check([(1.0, 2.0)] * 4, ["AB"])


def test_four_neighbours_show_what_a_switch_leaves_behind():
    """With two neighbours even this would pass: a block after a switch costs twice as much."""
    after_switch = [(1.0, 2.0), (1.0, 1.0)] * 4  # A B B A: the first of the two B costs more
    assert not holds_zero(same_setting_check(after_switch, ["AB", "BA"] * 4))
    assert same_setting_check(after_switch[:4], ["AB", "BA"] * 2) is None


@given(st.floats(0.9, 1.1), st.integers(0, 99))
def test_the_check_is_blind_to_a_steady_drift(drift, seed):
    orders = block_order(20, seed)
    blocks = [drift**at for at in range(40)]
    pairs = [
        (blocks[2 * at], blocks[2 * at + 1])[:: 1 if order == "AB" else -1]
        for at, order in enumerate(orders)
    ]
    check = same_setting_check(pairs, orders)
    assert check is None or holds_zero(check)  # the coin may give too few neighbours


def test_the_check_passes_if_its_interval_holds_zero():
    assert holds_zero(Estimate(pairs=8, change=0.01, low=-0.01, high=0.03, confidence=0.99))
    assert not holds_zero(Estimate(pairs=8, change=0.02, low=0.01, high=0.03, confidence=0.99))
    assert holds_zero(Estimate(pairs=1, change=0.0, low=None, high=None)) is False
    rounding = 3e-16
    assert holds_zero(Estimate(pairs=8, change=rounding, low=rounding, high=rounding))


def test_the_check_seldom_fails_by_chance_and_finds_what_a_switch_leaves_behind():
    assert failed_checks(400, pairs=20) < 0.03
    assert failed_checks(100, leak=0.15) > 0.9


@given(PAIRS, st.integers(0, 99), st.floats(0.1, 10.0))
def test_the_check_does_not_depend_on_how_the_settings_differ(pairs, seed, faster):
    orders = block_order(len(pairs), seed)
    one = same_setting_check(pairs, orders)
    other = same_setting_check([(a, b * faster) for a, b in pairs], orders)
    if one is None:
        assert other is None
    else:
        assert other.change == pytest.approx(one.change, rel=1e-9, abs=1e-9)


# ── the sentence ────────────────────────────────────────────────────────────────────────

PASSED = Estimate(pairs=20, change=0.001, low=-0.01, high=0.012, confidence=0.99)
FAILED = Estimate(pairs=20, change=0.0123, low=0.002, high=0.02, confidence=0.99)


@pytest.mark.parametrize(
    ("change", "low", "high", "sentence"),
    [
        (0.063, 0.059, 0.068, "a=1 is 6.3 % faster [5.9, 6.8]"),
        (-0.021, -0.025, -0.017, "a=1 is 2.1 % slower [1.7, 2.5]"),
        (1.5, 1.25, 1.75, "a=1 is 150.0 % faster [125.0, 175.0]"),
        (0.0631, 0.0629, 0.0634, "a=1 is 6.31 % faster [6.29, 6.34]"),
        (0.00004, 0.00003, 0.00005, "a=1 is 0.004 % faster [0.003, 0.005]"),
        (0.002, 0.0003, 0.004, "a=1 is 0.20 % faster [0.03, 0.40]"),
        (0.002, 0.001, 0.003, "a=1 is 0.2 % faster [0.1, 0.3]"),
        (0.002, 0.000995, 0.003, "a=1 is 0.20 % faster [0.10, 0.30]"),
        (0.05, 0.05, 0.05, "a=1 is 5.0 % faster [5.0, 5.0]"),
        (0.002, -0.003, 0.007, "no difference shown for a=1: +0.2 % [-0.3, +0.7]"),
        (-0.0001, -0.02, 0.02, "no difference shown for a=1: +0.0 % [-2.0, +2.0]"),
        (0.0, 0.0, 0.0, "no difference shown for a=1: +0.0 % [+0.0, +0.0]"),
    ],
)
def test_the_verdict(change, low, high, sentence):
    found = Estimate(pairs=40, change=change, low=low, high=high)
    assert verdict("a=1", found, PASSED) == f"{sentence}, 40 pairs, control passed"


FASTER = Estimate(pairs=40, change=0.063, low=0.059, high=0.068)
NO_DIFFERENCE = Estimate(pairs=40, change=0.002, low=-0.003, high=0.007)
OF_40 = "a=1 is 6.3 % faster [5.9, 6.8], 40 pairs"
LESS_SURE = {
    "a control that failed": (
        FASTER,
        FAILED,
        None,
        f"{OF_40}, control failed: a block right after a switch costs about 1.2 % more",
    ),
    "no control": (FASTER, None, None, f"{OF_40}, no control yet"),
    "a difference below what matters is none": (
        NO_DIFFERENCE,
        None,
        0.01,
        "no difference above 1 % for a=1: +0.2 % [-0.3, +0.7], 40 pairs, no control yet",
    ),
    "a difference that may be what matters": (
        NO_DIFFERENCE,
        None,
        0.006,
        "no difference shown for a=1: +0.2 % [-0.3, +0.7], 40 pairs, no control yet",
    ),
    "one pair": (
        estimate([(1.063, 1.0)]),
        None,
        None,
        "a=1: +6.3 %, 1 pair: too few for an interval",
    ),
}


@pytest.mark.parametrize(("found", "check", "matters", "said"), LESS_SURE.values(), ids=LESS_SURE)
def test_the_verdict_says_what_it_does_not_claim(found, check, matters, said):
    assert verdict("a=1", found, check, matters) == said


# ── orders and blocks ───────────────────────────────────────────────────────────────────


def test_both_orders_are_equally_likely_whatever_came_before():
    orders = block_order(4000, seed=7)
    assert 0.47 < orders.count("AB") / 4000 < 0.53
    assert 0.47 < sum(one != other for one, other in pairwise(orders)) / 4000 < 0.53


def test_a_seed_draws_one_order_and_a_longer_one_goes_on_from_it():
    assert block_order(23, seed=5) == block_order(40, seed=5)[:23]
    assert block_order(0, seed=5) == []
    assert len({tuple(block_order(40, seed)) for seed in range(20)}) == 20


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 1000))
def test_every_round_visits_every_setting_once(count, rounds, seed):
    drawn = round_order(count, rounds, seed)
    assert len(drawn) == rounds
    assert all(sorted(one) == list(range(count)) for one in drawn)
    assert drawn == round_order(count, rounds, seed)


@pytest.mark.parametrize(
    ("blocks", "pairs"),
    [("", 12), ("ABAB", 12), ("ABBA", 9), ("ABABABBA", 9), ("ABBABAAB", 6), ("ABBA" * 5, 0)],
)
def test_an_a_a_check_needs_four_neighbours_of_opposite_order(blocks, pairs):
    assert pairs_until_check(blocks) == pairs
