"""The interval that holds however often one looks, and when a comparison ends.

docs/concepts/statistics.md quotes simulations of this file. By hand, with more comparisons:
python -c "from tests.compare import test_sequential as t; print(t.alarms(t.of_noise(10_000)))"
"""

import math
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.compare.lengths import FEWEST_PAIRS
from gpudash.compare.paired_t import Estimate, estimate
from gpudash.compare.sequential import (
    EFFECTS,
    LARGE_TOO,
    LEAST,
    estimate_so_far,
    is_settled,
    is_sure,
)
from tests.compare.test_paired_t import compared

LOGS = st.lists(st.floats(-2, 2), min_size=FEWEST_PAIRS, max_size=60)


def _student_3(random):
    chi = sum(random.gauss(0, 1) ** 2 for _ in range(3)) / 3
    return random.gauss(0, 1) / math.sqrt(3 * chi)


NOISE = {
    "normal": lambda random: random.gauss(0, 1),
    "heavy tails": _student_3,
    "bursts": lambda random: random.gauss(0, 5 if random.random() < 0.05 else 0.7),
}
"""Log ratios of a pair, with a spread of about 1."""


def pairs_of(logs):
    return [(math.exp(one), 1.0) for one in logs]


def looked_at(pairs, effects=EFFECTS):
    """The interval after each pair."""
    counts = range(2, len(pairs) + 1)
    return [estimate_so_far(pairs[:count], effects=effects) for count in counts]


def of_noise(comparisons, noise="normal", pairs=40):
    """The pairs of comparisons of equal settings."""
    draw = NOISE[noise]
    of_seed = map(Random, range(comparisons))
    return [pairs_of([0.01 * draw(random) for _ in range(pairs)]) for random in of_seed]


def of_steps(comparisons, pairs=40, **simulated):
    """The same over simulated step times, with drift, a wave, and steps like their neighbours."""
    return [compared(pairs, seed, **simulated)[0] for seed in range(comparisons)]


def alarms(comparisons, effects=EFFECTS):
    """Share of comparisons of equal settings in which a look after any pair shows a difference."""
    alarmed = (any(map(is_sure, looked_at(pairs, effects))) for pairs in comparisons)
    return sum(alarmed) / len(comparisons)


def needed(comparisons, effect, spread, noise="normal", most=200, effects=EFFECTS):
    """Pairs until a comparison ends, and those that the usual interval needs for that width.

    Medians. The spread is that of a pair's ratio.
    """
    ended, usual = [], []
    for seed in range(comparisons):
        random = Random(seed)
        logs = [math.log1p(effect) + spread * NOISE[noise](random) for _ in range(most)]
        pairs = pairs_of(logs)
        for count in range(2, most + 1):
            so_far = estimate_so_far(pairs[:count], effects=effects)
            if is_settled(so_far):
                break
        half = so_far.half_width
        ended.append(count)
        usual.append(next(n for n in range(2, most) if estimate(pairs[:n]).half_width <= half))
    return sorted(ended)[comparisons // 2], sorted(usual)[comparisons // 2]


def stopped(comparisons, effect, spread, most=40):
    """Mean estimate of those A/Bs that someone ends as soon as they are sure."""
    found = []
    for seed in range(comparisons):
        random = Random(seed)
        logs = [math.log1p(effect) + spread * random.gauss(0, 1) for _ in range(most)]
        found += [one.change for one in looked_at(pairs_of(logs)) if is_sure(one)][:1]
    return math.fsum(found) / len(found)


# ── the interval ────────────────────────────────────────────────────────────────────────


def e_value(logs, mean, effect=1.0):
    """The e-process of the t-test against this mean, as its source has it."""
    shifted = [one - mean for one in logs]
    count, squares = len(logs), sum(one**2 for one in shifted)
    prior = 1 / effect**2
    within = (count + prior) * squares
    ratio = within / (within - sum(shifted) ** 2)
    return math.sqrt(prior / (count + prior)) * ratio ** (count / 2)


@pytest.mark.parametrize("effects", [EFFECTS, LARGE_TOO])
def test_the_ends_are_where_the_e_process_reaches_its_threshold(effects):
    logs = [0.01, 0.03, -0.02, 0.05, 0.04, 0.02, 0.01]
    found = estimate_so_far(pairs_of(logs), effects=effects)

    def evidence(change):
        return sum(e_value(logs, math.log1p(change), one) for one in effects) / len(effects)

    assert [evidence(found.low), evidence(found.high)] == pytest.approx([20, 20])
    assert evidence(found.change) < 20


def test_without_five_pairs_there_is_no_interval():
    four = estimate_so_far(pairs_of([0.1, 0.11, 0.1, 0.12]))
    assert four.change == pytest.approx(math.exp(0.1075) - 1)
    assert (four.low, four.high, is_sure(four), is_settled(four)) == (None, None, False, False)
    assert estimate_so_far(pairs_of([0.1, 0.11, 0.1, 0.12, 0.11])).low > 0


def test_made_for_large_effects_too_it_has_ends_from_three_pairs_on():
    logs = [1.1, 1.12, 1.11]
    assert estimate_so_far(pairs_of(logs[:2]), effects=LARGE_TOO).low is None
    assert is_settled(estimate_so_far(pairs_of(logs), effects=LARGE_TOO))
    many = pairs_of([*logs, 1.08] * 10)
    usual, longer = (estimate_so_far(many, effects=one).half_width for one in (EFFECTS, LARGE_TOO))
    assert usual < longer < 1.1 * usual


def test_it_has_no_ends_before_each_setting_came_first_once():
    pairs = pairs_of([1.1, 1.12, 1.11])
    for orders, has_ends in (["AB", "AB", "AB"], False), (["AB", "AB", "BA"], True):
        found = estimate_so_far(pairs, effects=LARGE_TOO, orders=orders)
        assert (found.low is not None, is_sure(found), is_settled(found)) == (has_ends,) * 3


@given(LOGS)
def test_it_is_longer_than_an_interval_for_a_number_of_pairs_that_was_fixed(logs):
    found, fixed = estimate_so_far(pairs_of(logs)), estimate(pairs_of(logs))
    assert found.change == pytest.approx(fixed.change)
    assert found.low <= fixed.low <= fixed.high <= found.high


@given(LOGS)
def test_swapping_the_settings_inverts_it(logs):
    there, back = estimate_so_far(pairs_of(logs)), estimate_so_far(pairs_of([-one for one in logs]))
    assert back.low == pytest.approx(1 / (1 + there.high) - 1)


@given(LOGS, st.floats(0.5, 0.99), st.floats(0.5, 0.99))
def test_a_wider_confidence_contains_a_narrower_one(logs, one, other):
    narrow, wide = (estimate_so_far(pairs_of(logs), level) for level in sorted((one, other)))
    assert wide.low is None or wide.low <= narrow.low <= narrow.high <= wide.high


def test_wild_pairs_do_not_overflow():
    assert estimate_so_far([(1e300, 1e-300), (1e-300, 1e300)] * 3).high == math.inf


def longer(pairs):
    """How many times as long as the usual interval it is over so many pairs."""
    each = pairs_of([0.01 * math.sin(one) for one in range(pairs)])
    return estimate_so_far(each).half_width / estimate(each).half_width


def test_how_much_longer_it_is_than_the_usual_one():
    assert longer(5) == pytest.approx(3.0, abs=0.05)
    assert {round(longer(pairs), 1) for pairs in range(8, 201, 4)} == {1.6, 1.7, 1.8}


# ── looking after every pair ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("noise", NOISE)
def test_looking_after_every_pair_finds_no_difference_that_is_none(noise):
    comparisons = of_noise(300, noise)
    for effects in (EFFECTS, LARGE_TOO):
        assert alarms(comparisons, effects) < 0.05


@pytest.mark.parametrize("shape", [{}, {"drift": 0.5}, {"wave": 28}, {"memory": 0.9}])
def test_nor_does_it_where_steps_drift_and_are_like_their_neighbours(shape):
    comparisons = of_steps(150, **shape)
    for effects in (EFFECTS, LARGE_TOO):
        assert alarms(comparisons, effects) < 0.06


def test_the_usual_interval_would():
    alarmed = 0
    for seed in range(200):
        random = Random(seed)
        pairs = pairs_of([random.gauss(0, 0.01) for _ in range(40)])
        looks = (estimate(pairs[:count]) for count in range(FEWEST_PAIRS, 41))
        alarmed += any(map(is_sure, looks))
    assert alarmed > 0.15 * 200


def test_an_ab_that_is_ended_once_it_is_sure_shows_too_much():
    assert [stopped(200, 0.02, spread) > 0.02 for spread in (0.015, 0.03, 0.08)] == [True] * 3


# ── when it ends ────────────────────────────────────────────────────────────────────────


def of_width(change, half):
    return Estimate(pairs=20, change=change, low=change - half, high=change + half)


@pytest.mark.parametrize(
    ("found", "precision", "settled"),
    [
        (of_width(0.4, 0.1), None, True),  # a quarter of the effect
        (of_width(0.4, 0.11), None, False),
        (of_width(0.02, LEAST), None, True),
        (of_width(0.02, 0.011), None, False),
        (of_width(0.002, 0.007), None, True),  # no difference above 1 %
        (of_width(0.005, 0.009), None, False),  # neither
        (of_width(0.4, 0.06), 0.05, False),
        (of_width(0.4, 0.05), 0.05, True),
        (of_width(0.01, 0.03), 0.05, True),
        (of_width(-0.4, 0.1), None, True),
    ],
)
def test_it_ends_once_sign_and_size_are_known(found, precision, settled):
    assert is_settled(found, precision) == settled


@pytest.mark.parametrize(
    ("effect", "spread", "most"), [(0.1, 0.03, 24), (0.1, 0.01, 8), (0.02, 0.01, 16), (0, 0.01, 22)]
)
def test_pairs_that_a_verdict_needs(effect, spread, most):
    ended, usual = needed(40, effect, spread)
    assert ended <= most
    assert usual >= ended / 3


def test_the_price_of_looking_is_that_of_the_table():
    text = (Path(__file__).parents[2] / "docs" / "concepts" / "statistics.md").read_text("utf-8")
    below = text.partition("| pairs | usual interval |\n")[2].partition("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in below.splitlines()[1:]]
    times = [int(pairs) / int(usual) for *_, pairs, usual in rows]
    assert len(times) > 5
    assert f"it takes {min(times):.1f} to {max(times):.1f} times the pairs" in text
