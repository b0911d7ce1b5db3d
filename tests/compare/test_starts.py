"""Several starts of one training, and the simulations that docs/concepts/statistics.md quotes.

By hand, with more comparisons than a test has time for:
python -c "from tests.compare import test_starts as t; print(t.simulated(4, times=20_000))"
"""

import math
from functools import cache
from random import Random
from statistics import median
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpudash.compare.ab import Comparison, Question
from gpudash.compare.lengths import PAIRS, PAIRS_OF_A_START
from gpudash.compare.paired_t import (
    CHECK_CONFIDENCE,
    block_order,
    estimate,
    holds_zero,
    same_setting_check,
    student_t,
)
from gpudash.compare.starts import (
    HOST_LIMITS,
    KnownStarts,
    check_of_starts,
    differ,
    host_share,
    of_one_start,
    over_starts,
    verdict,
)
from tests.having import having
from tests.scripted_worker import Conducted, Worker
from tests.tui.comparisons import compared

CHANGE = math.log(1.05)
OF_PAIRS = 0.098
"""Spread of the pairs of a host that launches slowly …"""
OF_STARTS = 0.043
"""… and the spread between its starts, both measured (encdec at batch size 8 on an H200)."""


# ── simulated starts ────────────────────────────────────────────────────────────────────


def normal(random):
    return random.gauss(0, OF_STARTS)


def two_paces(random):
    """A start is fast or slow: its memory lies well, or it does not."""
    return random.choice((OF_STARTS, -OF_STARTS))


def one_in_five_slow(random):
    return -2 * OF_STARTS if random.random() < 0.2 else OF_STARTS / 2


def no_spread(_random):
    return 0.0


def one_start(random, pace=normal, pairs=PAIRS_OF_A_START):
    centre = CHANGE + pace(random)
    return estimate([(math.exp(random.gauss(centre, OF_PAIRS)), 1.0) for _ in range(pairs)])


class Simulated(NamedTuple):
    held: float
    """Share of the intervals over starts that hold the mean of all other starts."""
    held_by_one: float
    """The same of the intervals of a single start."""
    half_width: float
    differ: float
    """Share of the cases in which the starts are said to differ."""


@cache
def simulated(starts, pace=normal, pairs=PAIRS_OF_A_START, times=1000):
    random, truth = Random(f"{starts} {pace.__name__} {pairs}"), math.expm1(CHANGE)
    cases = [[one_start(random, pace, pairs) for _ in range(starts)] for _ in range(times)]
    over = [over_starts(case) for case in cases]

    def share(flags):
        return sum(flags) / times

    return Simulated(
        share(one.low <= truth <= one.high for one in over),
        share(case[0].low <= truth <= case[0].high for case in cases),
        median(one.half_width for one in over),
        share(map(differ, cases)),
    )


# ── the interval ────────────────────────────────────────────────────────────────────────


def found(change, half=0.01, pairs=16):
    """What a start has found: a change, and ± `half` in logarithms over its pairs."""
    logs = [1.0 if at % 2 else -1.0 for at in range(pairs)]
    unit = student_t(pairs - 1, 0.95) / math.sqrt(pairs - 1)
    centre = math.log1p(change)
    return estimate([(math.exp(centre + half / unit * one), 1.0) for one in logs])


def test_the_interval_is_students_over_the_means_of_the_starts():
    # means 0.1, 0.2, 0.3: standard error 0.1/√3, t(2 df, 95 %) = 4.3027
    assert over_starts([found(math.expm1(mean)) for mean in (0.1, 0.2, 0.3)]) == having(
        pairs=48,
        change=pytest.approx(math.exp(0.2) - 1),
        low=pytest.approx(math.exp(0.2 - 4.302653 * 0.1 / math.sqrt(3)) - 1),
        high=pytest.approx(math.exp(0.2 + 4.302653 * 0.1 / math.sqrt(3)) - 1),
    )


def test_how_sure_each_start_is_of_itself_does_not_count():
    sure, unsure = ([found(change, half) for change in (0.02, 0.08)] for half in (1e-4, 0.05))
    assert over_starts(sure).half_width == pytest.approx(over_starts(unsure).half_width)


def test_one_start_has_no_interval_over_starts():
    assert over_starts([found(0.05)]) == having(change=pytest.approx(0.05), low=None, high=None)


@pytest.mark.parametrize("pace", [normal, no_spread])
def test_four_starts_hold_the_mean_of_all_others_as_often_as_they_claim(pace):
    assert simulated(4, pace).held == pytest.approx(0.95, abs=0.02)


def test_a_single_start_claims_too_much_where_starts_differ():
    """And the more pairs it measures, the more it does."""
    with_few, with_many = simulated(4), simulated(4, pairs=PAIRS)
    assert with_few.held_by_one < 0.75
    assert with_many.held_by_one < 0.6
    assert simulated(4, no_spread).held_by_one == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("pace", [two_paces, one_in_five_slow])
def test_starts_of_two_kinds_are_covered_almost_as_often(pace):
    assert 0.86 < simulated(4, pace).held < 0.96


def test_without_a_spread_between_starts_the_interval_is_not_much_wider_than_needed():
    """Needed would be that of all pairs together, if it were known that starts are alike."""
    all_pairs = OF_PAIRS * student_t(4 * PAIRS_OF_A_START - 1, 0.95)
    needed = (1 + math.expm1(CHANGE)) * all_pairs / math.sqrt(4 * PAIRS_OF_A_START)
    assert simulated(4, no_spread).half_width < 1.7 * needed


def test_more_pairs_in_a_start_narrow_the_interval_little():
    """The spread between starts stays. So there are fewer pairs than in an A/B of one start."""
    few, many = simulated(4).half_width, simulated(4, pairs=PAIRS).half_width
    assert few < 1.15 * many
    assert simulated(8).half_width < 0.65 * few


# ── do they differ ──────────────────────────────────────────────────────────────────────


def test_starts_differ_if_their_spread_is_larger_than_the_interval_of_one():
    changes = (0.042, 0.084, -0.018, 0.049)
    assert differ([found(change, 0.03) for change in changes])
    assert not differ([found(change, 0.06) for change in changes])
    assert not differ([found(0.05)])


@pytest.mark.parametrize(("starts", "most"), [(2, 0.07), (4, 0.02), (8, 0.01)])
def test_starts_of_one_pace_are_seldom_said_to_differ(starts, most):
    assert simulated(starts, no_spread).differ <= most


# ── the control ───────────────────────────────────────────────────────────────────────


def checked(seed, leak=0.0, pairs=PAIRS_OF_A_START):
    """The control of a start in which a block right after a switch costs `leak` more."""
    random, orders = Random(f"check {seed}"), block_order(pairs, seed)
    costs, before = [], None
    for side in "".join(orders):
        extra = leak if before not in (None, side) else 0.0
        costs.append((side, math.exp(random.gauss(extra, 0.03))))
        before = side
    found = [dict(costs[at : at + 2]) for at in range(0, 2 * pairs, 2)]
    return same_setting_check([(one["A"], one["B"]) for one in found], orders)


def failed(checks):
    return sum(not holds_zero(check) for check in checks) / len(checks)


def of_starts(first, **how):
    return check_of_starts([checked(4 * first + at, **how) for at in range(4)])


def test_the_check_of_all_starts_fails_as_seldom_as_that_of_one():
    assert failed([of_starts(at) for at in range(500)]) <= 0.03
    assert of_starts(0).confidence == CHECK_CONFIDENCE


def test_and_it_finds_more_than_the_check_of_one():
    together = failed([of_starts(at, leak=0.05) for at in range(100)])
    alone = failed([one for at in range(100) if (one := checked(at, leak=0.05)) is not None])
    assert together > 2 * alone


def test_starts_too_short_for_a_check_have_none_together():
    assert check_of_starts([None, None]) is None
    one = checked(1)
    assert check_of_starts([None, one]) == having(
        change=pytest.approx(one.change), half_width=pytest.approx(one.half_width)
    )


# ── what is said ────────────────────────────────────────────────────────────────────────


def said(*changes, half=0.1, **how):
    return verdict("a=2", [found(change, half) for change in changes], [None], **how)


def test_the_verdict_names_the_interval_over_starts_and_how_many_there_are():
    assert (
        said(0.04, 0.05, 0.06)
        == "a=2 is 5.0 % faster [2.5, 7.5], 3 starts, 48 pairs, no control yet"
    )
    assert said(-0.04, -0.05, -0.06).startswith("a=2 is 5.0 % slower [2.5, 7.5], 3 starts")
    assert said(-0.1, 0.1, 0.0).startswith("no difference shown for a=2: -0.3 % [")


def test_two_starts_are_said_to_give_a_wide_interval():
    wide = "; two starts give a wide interval, four one about a fifth as wide"
    assert said(0.04, 0.05).endswith(wide)
    assert wide not in said(0.04, 0.05, 0.06)


def test_starts_that_differ_are_said_to():
    differs = "; the starts differ by more than the interval of one: one alone says little here"
    assert said(0.042, 0.084, -0.018, 0.049, half=0.03).endswith(differs)
    assert differs not in said(0.042, 0.084, -0.018, 0.049)


def test_an_early_end_is_said():
    assert "no control yet; interrupted before" in said(
        0.04, 0.05, early="; interrupted before its 4"
    )


# ── a single start ──────────────────────────────────────────────────────────────────────

ALONE = "; of this start alone: {} (gpudash ab --starts 4 covers that)"
NEEDS = "the host needs {} % of a step, and its pace differs from start to start"


def conduct(known=None, *, worker=None, start=1, settings=None, **how):
    """A comparison to its end, in a start of the training."""
    worker = worker or Worker(**how)
    state = replace(worker.start(), worker=start, settings=settings or worker.settings)
    worker.start = lambda: state
    question = Question(lever="pipelined", a="off", b="on", pairs=4)
    return Conducted(Comparison(question, known), worker).run().experiment.verdict


def needing(share, of="on"):
    """A worker whose host needs this share of a step under one value, and little else."""
    worker = Worker()
    worker.host_ms = lambda ms: ms * (share if worker.settings["pipelined"] == of else 0.1)
    return worker


@pytest.mark.parametrize("side", ["off", "on"])
@pytest.mark.parametrize(
    ("share", "clause"),
    [
        (0.5, ""),
        (HOST_LIMITS - 0.01, ""),
        (0.93, ALONE.format(NEEDS.format(93))),
        (1.02, ALONE.format(NEEDS.format(100))),
    ],
)
def test_a_verdict_is_of_one_start_where_the_host_needs_most_of_a_step(side, share, clause):
    assert conduct(worker=needing(share, side)) == conduct(worker=needing(0.1)) + clause


def test_a_host_that_was_not_measured_says_nothing():
    assert host_share(compared(host_ms=(None, None), steps_per_s=(20.0, 25.0))) is None
    share = host_share(compared(host_ms=(40.0, None), steps_per_s=(20.0, None)))
    assert share == pytest.approx(0.8)
    assert of_one_start(None) == ""


def test_a_verdict_is_of_one_start_where_starts_of_the_same_run_differed():
    def faster(ratio):
        return lambda settings: 50.0 / (ratio if settings["pipelined"] == "on" else 1.0)

    known = KnownStarts()
    differed = ALONE.format("2 starts differ by more than the interval of one")
    assert "of this start" not in conduct(known, step_ms=faster(1.10))
    assert "of this start" not in conduct(known, step_ms=faster(1.12))  # the same start again
    assert conduct(known, step_ms=faster(1.05), start=2).endswith(differed)
    assert "of this start" not in conduct(KnownStarts(), step_ms=faster(1.05), start=2)
    others = {**Worker().settings, "batch_size": "64"}
    assert "of this start" not in conduct(known, step_ms=faster(1.3), start=3, settings=others)
