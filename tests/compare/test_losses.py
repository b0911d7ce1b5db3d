"""Whether two sides train alike, by the losses of their first steps.

benchmarks/bench_changes.py has the same with real trainings.
"""

from itertools import product
from math import exp, frexp, inf, ldexp, nan, sqrt
from random import Random

import pytest

from gpudash.compare.losses import FLOAT32_UNIT, compare_losses, sentence

STEPS = range(1, 65)
LEARNED = {step: 2.3 * exp(-step / 40) for step in STEPS}


def repeated(losses=LEARNED, starts=4):
    """The same seed, and a device that computes the same again."""
    return [dict(losses) for _ in range(starts)]


def moved_from(step, by):
    return {one: loss * (1 + by * (one >= step)) for one, loss in LEARNED.items()}


def rounding(seed, losses=LEARNED, starts=4):
    """The same seed, and a device whose rounding differs; the difference grows."""
    random = Random(seed)
    return [
        {
            step: loss * (1 + 1e-7 * exp(step / 8) * random.gauss(0, 1))
            for step, loss in losses.items()
        }
        for _ in range(starts)
    ]


def other_seeds(seed, spread=0.02, losses=LEARNED, starts=4):
    """Each start has a path of its own, with a heavy tail."""
    random, found = Random(seed), []
    for _ in range(starts):
        away, path = 0.0, {}
        for step, loss in losses.items():
            away += spread / 8 * random.gauss(0, 1) * (5 if random.random() < 0.05 else 1)
            path[step] = loss * exp(away)
        found.append(path)
    return found


def found(a, b):
    return sentence(compare_losses(a, b))


IDENTICAL = "losses identical over 64 steps"
SPREAD = "losses within the spread of each side's own starts over 64 steps"
DIVERGED = {**LEARNED, 63: inf, 64: nan}
TENTHS = [{step: loss for step, loss in LEARNED.items() if step % 10 == 0} for _ in range(2)]
SENTENCES = {
    "alike to the last bit": (repeated(), repeated(starts=2), IDENTICAL),
    "alike in one start each": (repeated(starts=1), repeated(starts=1), IDENTICAL),
    "with fixed seeds any difference has moved": (
        repeated(),
        repeated(moved_from(2, 0.004)),
        "losses moved from step 2 on (by up to 0.40 %)",
    ),
    "against a single start": (
        repeated(starts=2),
        repeated(moved_from(2, 0.5), starts=1),
        "losses moved from step 2 on (by up to 50.0 %)",
    ),
    "at first as rounding explains": (
        repeated(),
        repeated(moved_from(3, 2 * FLOAT32_UNIT) | {64: LEARNED[64] * 1.0005}),
        "losses moved from step 3 on (by up to 0.050 %, at first by no more than rounding)",
    ),
    "a side alone that does not repeat itself": (repeated(), rounding(1), SPREAD),
    "own starts differ as much as the loss falls": (
        other_seeds(1, 0.5),
        other_seeds(2, 0.5),
        "losses not known to be the same: a side's own starts differ too much",
    ),
    "equal NaNs are the same": (repeated(DIVERGED), repeated(DIVERGED), IDENTICAL),
    "a NaN on one side": (
        repeated(),
        repeated(DIVERGED),
        "losses moved from step 63 on (no longer finite on one side)",
    ),
    "a NaN where nothing repeats": (
        rounding(5),
        rounding(5, DIVERGED),
        "losses moved from step 63 on (no longer finite on one side)",
    ),
    "only steps that both sides know": (TENTHS, repeated(), "losses identical over 6 steps"),
    "moved between such steps": (
        TENTHS,
        repeated(moved_from(15, 0.1)),
        "losses moved from step 20 on (by up to 10.0 %)",
    ),
    "no start": ([], repeated(), "losses not compared"),
    "no losses": ([{}], [{}], "losses not compared"),
    "no second start": ([{1: 1.0}], [{1: 2.0}], "losses not compared"),
    "no step of both": ([{1: 1.0}], [{2: 1.0}], "losses not compared"),
}


@pytest.mark.parametrize(("a", "b", "said"), SENTENCES.values(), ids=SENTENCES)
def test_what_is_said_of_the_losses(a, b, said):
    assert found(a, b) == said


@pytest.mark.parametrize("starts", [2, 4])
def test_starts_that_choose_one_of_two_kernels_seem_moved_only_where_each_side_chose_one(starts):
    kernel, other = repeated(starts=1) + rounding(1, starts=1)
    sides = [[other] * count + [kernel] * (starts - count) for count in range(starts + 1)]
    moved = [both for both in product(sides, repeat=2) if "moved" in found(*both)]
    assert moved == [(sides[0], sides[-1]), (sides[-1], sides[0])]


@pytest.mark.parametrize("starts", [2, 3, 4, 12])
def test_equal_sides_that_do_not_repeat_are_within_their_spread(starts):
    said = {
        found(rounding(2 * n, starts=starts), rounding(2 * n + 1, starts=starts)) for n in range(20)
    }
    assert {one.partition(" over ")[0] for one in said} == {
        "losses within the spread of each side's own starts"
    }


@pytest.mark.parametrize("starts", [2, 4, 8])
def test_equal_sides_of_other_seeds_have_not_moved(starts):
    for n in range(50):
        sides = (other_seeds(2 * n + side, starts=starts) for side in (0, 1))
        assert compare_losses(*sides).kind in {"within spread", "not known"}


@pytest.mark.parametrize("step", [1, 2, 10, 30])
def test_a_difference_larger_than_the_spread_has_moved(step):
    moved = compare_losses(rounding(1, starts=2), rounding(2, moved_from(step, 0.004), starts=2))
    assert (moved.kind, moved.from_step, moved.is_rounding) == ("moved", step, False)
    assert moved.change == pytest.approx(0.004, rel=0.1)


def two_decimals(side):
    return [{step: round(loss, 2) for step, loss in one.items()} for one in side]


def as_bf16(side):
    def eight_bits(loss):
        share, exponent = frexp(loss)
        return ldexp(round(ldexp(share, 8)), exponent - 8)

    return [{step: eight_bits(loss) for step, loss in one.items()} for one in side]


@pytest.mark.parametrize("rounded", [two_decimals, as_bf16])
@pytest.mark.parametrize("spread", [0.00005, 0.002])
def test_losses_that_are_rounded_do_not_seem_to_have_no_spread(rounded, spread):
    for n in range(50):
        sides = (rounded(other_seeds(2 * n + side, spread, starts=2)) for side in (0, 1))
        assert compare_losses(*sides).kind != "moved"
    moved = compare_losses(rounded(repeated()), rounded(repeated(moved_from(5, 0.05))))
    assert (moved.kind, moved.from_step) == ("moved", 5)


@pytest.mark.parametrize(
    ("rounded", "digit"),
    [(two_decimals, lambda _loss: 0.01), (as_bf16, lambda loss: ldexp(1, frexp(loss)[1] - 8))],
)
def test_starts_that_repeat_are_alike_up_to_the_last_digit_of_their_losses(rounded, digit):
    (one,) = rounded(repeated(starts=1))
    for digits, says in {1: "losses alike to their last digit over 64", 2: "losses moved"}.items():
        (other,) = rounded([{step: loss + digits * digit(loss) for step, loss in one.items()}])
        assert found(repeated(one), repeated(other)).startswith(says)


@pytest.mark.parametrize(
    ("a", "b", "half"),  # the pooled variance with the t of 2 and of 3 degrees
    [
        ((1.0, 1.2), (1.0, 1.2), 9.9248 * sqrt(0.02 * (1 / 2 + 1 / 2))),
        ((1.0, 1.2, 1.4), (1.15, 1.25), 5.8409 * sqrt((2 * 0.04 + 0.005) / 3 * (1 / 3 + 1 / 2))),
    ],
)
def test_sides_have_moved_where_their_means_are_further_apart_than_students_t(a, b, half):
    for share in (0.999, 1.001):
        sides = [{1: one} for one in a], [{1: one + share * half} for one in b]
        assert (compare_losses(*sides).kind == "moved") == (share > 1)


def test_losses_are_known_to_be_the_same_up_to_where_the_spread_is_less_than_they_fell():
    """From the fourth step on the starts are too far apart for what the loss has fallen."""
    spreads = {1: 0.01, 2: 0.01, 3: 0.01, 4: 0.9, 5: 0.9}
    side = [{step: 9.0 - step + one * spreads[step] for step in spreads} for one in (-1, 1)]
    same = compare_losses(side, [*reversed(side)])
    assert (same.kind, same.steps) == ("within spread", 3)
