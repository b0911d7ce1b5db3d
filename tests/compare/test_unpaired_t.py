"""Two runs that were not interleaved, with simulated correlated rows."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.compare.unpaired_t import (
    BATCHES,
    MIN_BLOCKS,
    MIN_ROWS,
    RunPart,
    Spread,
    batched,
    rate,
    ratio,
    spread_of_blocks,
    spread_of_rows,
)
from tests.having import having

ROWS = st.lists(
    st.builds(RunPart, st.integers(0, 1000), st.floats(0.001, 10)), min_size=MIN_ROWS, max_size=60
)


def rows_of(random, count, memory, steps_per_row=1000):
    """Rows of 0.5 s whose rate varies by 5 %; each keeps `memory` of the one before (AR(1))."""
    level, rows = random.gauss(0, 0.05), []
    for _ in range(count):
        rows.append(RunPart(round(steps_per_row * math.exp(level)), 0.5))
        level = memory * level + random.gauss(0, 0.05 * math.sqrt(1 - memory**2))
    return rows


def compared(one, other, spread=spread_of_rows):
    return ratio(rate(one), rate(other), spread(one), spread(other))


def intervals(count, memory, *, times=400, spread=spread_of_rows, seed=0):
    """Return the intervals of comparisons of a setting with itself, if they have one."""
    random = Random(f"{count} {memory} {seed}")
    found = [
        compared(rows_of(random, count, memory), rows_of(random, count, memory), spread)
        for _ in range(times)
    ]
    return [(one.low, one.high) for one in found if one.low is not None]


def holding_1(shown):
    return sum(low <= 1 <= high for low, high in shown) / len(shown)


def naive(rows):
    """Every row counted as independent of the others."""
    steps, per_s = sum(row.steps for row in rows), rate(rows)
    squares = sum((row.steps - per_s * row.train_s) ** 2 for row in rows)
    return Spread(squares * len(rows) / (len(rows) - 1) / steps**2, len(rows) - 1)


@pytest.mark.parametrize(
    ("count", "memory"), [(40, 0.0), (60, 0.0), (60, 0.5), (120, 0.5), (120, 0.8), (240, 0.8)]
)
def test_95_percent_of_the_intervals_hold_the_truth_whatever_the_correlation(count, memory):
    shown = intervals(count, memory)
    assert 0.93 <= holding_1(shown) <= 0.995
    assert len(shown) >= 0.85 * 400


def test_rows_counted_as_independent_would_give_too_narrow_intervals():
    assert holding_1(intervals(120, 0.8, spread=naive)) < 0.7


@pytest.mark.parametrize(("count", "memory"), [(40, 0.8), (40, 0.95), (60, 0.9), (120, 0.95)])
def test_a_run_too_short_for_its_correlation_rarely_has_an_interval_and_rarely_a_false_one(
    count, memory
):
    shown = intervals(count, memory)
    assert len(shown) < 0.6 * 400
    assert (1 - holding_1(shown)) * len(shown) <= 0.06 * 400


def test_blocks_count_as_independent():
    shown = intervals(5, 0.0, spread=spread_of_blocks)
    assert len(shown) == 400
    assert 0.93 <= holding_1(shown) <= 0.99


def test_too_few_rows_or_blocks_have_no_interval():
    rows = rows_of(Random(0), MIN_ROWS, 0.0)
    assert spread_of_rows(rows) is not None
    assert spread_of_rows(rows[:-1]) is None
    assert spread_of_blocks(rows[:MIN_BLOCKS]) is not None
    assert spread_of_blocks(rows[: MIN_BLOCKS - 1]) is None
    found = compared(rows, rows[:-1])
    assert (found.ratio > 0, found.low, found.high) == (True, None, None)


def test_equal_rows_are_off_by_the_steps_at_their_ends():
    """One step in each row of 0.5 s could be 1.99 steps a second or 2.01."""
    rows = [RunPart(1, 0.5)] * MIN_ROWS
    found = compared(rows, rows)
    assert found.ratio == 1
    assert found.high - 1 == pytest.approx(2.0 * math.sqrt(2 / 6) / MIN_ROWS, rel=0.1)


def test_equal_blocks_have_an_interval_without_length():
    blocks = [RunPart(10, 0.5)] * MIN_BLOCKS
    assert compared(blocks, [RunPart(20, 0.5)] * MIN_BLOCKS, spread_of_blocks) == having(
        ratio=2, low=2, high=2
    )


def test_the_error_of_blocks_is_that_of_a_ratio_estimator():
    blocks = [RunPart(90, 1.0), RunPart(110, 1.0), RunPart(90, 1.0), RunPart(110, 1.0)]
    assert spread_of_blocks(blocks) == having(
        variance=pytest.approx(4 * 10**2 * 4 / 3 / 400**2), degrees=3
    )


def test_rows_that_fall_as_often_as_they_rise_count_each_and_are_off_at_their_ends():
    """Batches of two rows, above and below the mean in turn: no correlation above 0."""
    rows = [RunPart(90 + 20 * (number // 2 % 2), 1.0) for number in range(MIN_ROWS)]
    assert spread_of_rows(rows) == having(
        variance=pytest.approx((20 * 20**2 * 20 / 19 + 1 / 6) / 4000**2), degrees=pytest.approx(19)
    )


def test_few_degrees_of_freedom_make_a_wide_interval():
    found = ratio(1.0, 1.0, Spread(0.01, 1.0), Spread(0.0, 1.0))
    assert math.log(found.high) == pytest.approx(12.706 * 0.1, rel=1e-3)  # t of one degree
    assert ratio(1.0, 1.0, Spread(1e6, 1.0), Spread(0.0, 1.0)) == having(low=0.0, high=math.inf)


def test_nothing_trained_has_no_rate():
    for rows in ([], [RunPart(0, 0.5)] * MIN_ROWS, [RunPart(0, 0.0)]):
        assert rate(rows) is None
        assert spread_of_rows(rows) is None
        assert spread_of_blocks(rows) is None


def test_a_rate_is_the_sum_of_steps_over_the_sum_of_seconds():
    assert rate([RunPart(10, 0.5), RunPart(10, 2.0)]) == 8
    assert rate([RunPart(4, 0.5)]) == 8
    assert rate([RunPart(4, 0.0)]) is None


@given(ROWS)
def test_batches_hold_every_step_and_every_second_once_in_order(rows):
    batches = batched(rows)
    assert len(batches) == BATCHES
    assert sum(one.steps for one in batches) == sum(row.steps for row in rows)
    assert sum(one.train_s for one in batches) == pytest.approx(sum(row.train_s for row in rows))


@given(ROWS, ROWS)
def test_the_ratio_lies_in_its_interval_and_turns_over_with_the_runs(one, other):
    if rate(one) is None or rate(other) is None:
        return
    found, turned = compared(one, other), compared(other, one)
    assert found.ratio * turned.ratio == pytest.approx(1)
    assert (found.low is None) == (turned.low is None)
    if found.low is not None:
        assert found.low <= found.ratio <= found.high
        assert math.isinf(found.high) or turned.low * found.high == pytest.approx(1)


@given(ROWS, st.floats(0.01, 100))
def test_the_clocks_unit_does_not_matter_to_how_sure_a_rate_is(rows, factor):
    slower = [RunPart(row.steps, row.train_s * factor) for row in rows]
    one, other = spread_of_rows(rows), spread_of_rows(slower)
    assert (one is None) == (other is None)
    if one is not None:
        assert other == pytest.approx(one, rel=1e-6)
