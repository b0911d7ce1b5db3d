"""The rows of an A/B: its axis, its intervals, and its texts."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.present.change_axis import Axis, shared_axis
from gpudash.protocol.session import EnergyFound
from gpudash.snapshot import BlockShown
from gpudash.tui.widgets.comparison import (
    comparison_rows,
    sampled,
    time_left,
)
from tests.tui.comparisons import CONCLUDED, VERDICT, compared, text_of

# ── the axis and its intervals ──────────────────────────────────────────────────────────


def test_labels_stand_at_their_place_on_the_axis_and_the_one_at_0_is_the_setting_compared_with():
    axis = Axis(left=-0.05, right=0.2, step=0.05)
    labels = axis.labels(61, "off")
    assert labels == "-5 %       off         +5          +10         +15      +20 %"
    assert labels.index("off") + 1 == axis.column(0, 61) == axis.bar((1, 1, 1), 61).index("│")


def test_labels_without_room_are_left_out_whole():
    assert Axis(left=-0.05, right=0.2, step=0.05).labels(16, "off").split() == ["off", "+20", "%"]


@pytest.mark.parametrize(
    ("interval", "drawn"),
    [
        ((-0.5, 0.0, 0.5), "     ├────●────┤     "),
        ((0.2, 0.4, 0.6), "          │ ├─●─┤    "),
        ((-0.6, -0.4, -0.2), "    ├─●─┤ │          "),
        ((0.4, 0.4, 0.4), "          │   ●      "),
        ((-3.0, 0.1, 3.0), "◂──────────●────────▸"),
        ((0.5, 2.0, 9.0), "          │    ├────▸"),
        ((2.0, 3.0, 9.0), "          │         ▸"),
        ((-9.0, -3.0, -2.0), "◂         │          "),
        ((0.0, math.inf, math.inf), "          ├─────────▸"),
    ],
)
def test_an_interval_is_drawn_to_scale_and_cut_at_the_ends(interval, drawn):
    assert Axis(left=-1.0, right=1.0, step=0.5).bar(interval, 21) == drawn


CHANGES = st.one_of(st.floats(-1, 12), st.floats(-1e-6, 1e-6), st.just(math.inf))
INTERVALS = st.lists(CHANGES, min_size=3, max_size=3).map(sorted).map(tuple)


@given(st.lists(INTERVALS, max_size=6), st.integers(12, 200), st.sampled_from(["0", "off"]))
def test_any_intervals_fit_their_axis_and_0_is_on_it(intervals, width, zero):
    axis = shared_axis(end for interval in intervals for end in interval)
    assert axis.left <= 0 <= axis.right
    assert axis.left < axis.right
    labels = axis.labels(width, zero)
    assert len(labels) == width
    assert zero in labels
    assert all(len(axis.bar(interval, width)) == width for interval in intervals)


# ── what is shown of a comparison ───────────────────────────────────────────────────────


SPENT = EnergyFound(
    per="sample",
    pairs=16,
    joules=(1.25, 1.125),
    within=(0.0125, 0.0125),
    pairs_j=(),
    change=-0.1,
    low=-0.11,
    high=-0.09,
    confidence=0.95,
    sensor=0.05,
)
BATCHES = {"lever": "batch_size", "a": "8", "b": "64"}
RATES = {"steps_per_s": (281.0, 80.3), "samples_per_s": (2248.0, 5139.2)}
VERSIONS = {"lever": "version", "a": "main", "b": "HEAD"}
WHY = "out of memory with batch_size=4096: went back to batch_size=8 \x1b[31m"
CONTROL = "control (the same setting twice)"


def judged(**values):
    return compared(40, verdict=VERDICT, samples_per_s=(2216.0, 2360.0), gpus=1, **values)


@pytest.mark.parametrize(
    ("what", "shown", "price", "said", "hidden"),
    [
        *(("too few pairs show no interval", compared(pairs), None,
           [f"{pairs} pair{'s' * (pairs != 1)}: too few for an interval"], ["●", "+"])
          for pairs in range(5)),
        ("a wild interval is not spelled out",
         compared(5, change=0.105, low=-1.0, high=15070.477), None, ["[-100.0, > +9999]"], []),
        *((f"the control is shown: {said}", compared(check_passed=passed), None,
           [f"{CONTROL} {said}"], [])
          for passed, said in
          [(True, "✓ passed so far"), (False, "✗ failed so far"), (None, "needs about 12 more")]),
        *((f"it lacks {missing} pairs", compared(len(blocks) // 2, blocks=blocks), None,
           [f"needs about {missing} more pairs"], [])
          for blocks, missing in [("ABAB", 12), ("ABBAABAB", 9), (3 * "ABBA", 3)]),
        ("rates of two batch sizes are those that the change is of", compared(**BATCHES, **RATES),
         None, ["2,248 samples/s", "5,139 samples/s"], []),
        ("without a verdict it says why and what it knew", compared(failure=WHY), None,
         ["✗ no verdict: out of memory with batch_size=4096", "pipelined=off so far +6.0 %"],
         ["\x1b"]),
        ("and early the reason alone", compared(0, failure="it ended"), None,
         ["✗ no verdict: it ended"], ["so far"]),
        ("of two trainings starts are counted, without a control", compared(9, **VERSIONS), None,
         ["so far HEAD +6.0 % [", "main", " 9 starts "], ["pairs", "control", "version="]),
        ("few of them have a change already", compared(2, **VERSIONS), None,
         ["so far HEAD +6.0 %, 2 starts of each: too few for an interval"], ["pairs"]),
        ("below a verdict are the joules of a sample", judged(energy=SPENT), None,
         ["energy of a sample: on 1.250 ± 0.013 J, off 1.125 ± 0.013 J",
          "the sensor may be off by 5 %"], []),
        ("and what it saves at the user's price", judged(), 2.75,
         ["at 2.75 an hour for a GPU, a million samples cost 0.345 with on and 0.324",
          "off saves"], []),
        ("joules that are not known say why",
         judged(why_no_energy="the energy counter was not read all the time"), None,
         ["energy is not known: the energy counter was not read all the time"], []),
        ("nobody who asks for neither sees either", judged(), None, [], ["energy", "hour"]),
    ],
)  # fmt: skip
def test_the_tab_says(what, shown, price, said, hidden):
    rows = text_of(comparison_rows(shown, 118, 20 if shown.verdict else 8, price))
    text = " ".join(" ".join(rows).split())
    assert all(words in text for words in said), (what, text)
    assert not any(words in text for words in hidden), (what, text)


def test_joules_and_money_give_way_to_the_verdict():
    rows = [text_of(comparison_rows(judged(energy=one), 110, 4, 2.75)) for one in (SPENT, None)]
    assert rows[0] == rows[1]


def test_the_bars_of_both_sides_are_their_rates_on_one_scale_in_their_hues():
    *_, a, b, _ = comparison_rows(compared(9), 118, 8)
    bars = [row[-1] for row in (a, b)]
    assert [ink for _, ink in bars] == ["a", "b"]
    columns = [text.count("█") for text, _ in bars]
    assert columns[0] / columns[1] == pytest.approx(277 / 295, abs=0.03)


def began(*begins_s):
    """Blocks on the time axis that began at these moments."""
    return [BlockShown(begin_s=begin_s, side="a") for begin_s in begins_s]


@pytest.mark.parametrize(
    ("begins_s", "left"),
    [
        ((), ""),
        (range(8), "about 80 s left"),  # 36 pairs of 2 s each
        (range(0, 80, 10), "about 12 min left"),
        ((0, 1, 2, 3, 4, 5, 9, 13), "about 3 min left"),  # slow pairs count
        ((0, 1, 2, 900, 901, 902, 903, 904), "about 80 s left"),  # paused for a while
        ((0, 500, 1000, *range(1001, 1009)), "about 80 s left"),  # blocks of an earlier A/B
    ],
)
def test_the_time_left_is_that_of_all_pairs_at_the_pace_so_far(begins_s, left):
    assert time_left(compared(4), began(*begins_s)) == left


def test_one_pair_says_nothing_about_the_time_left():
    assert time_left(compared(1), began(0, 1, 2)) == ""


@pytest.mark.parametrize(("height", "sides"), [(5, 2), (4, 0), (3, 0)])
def test_both_sides_are_shown_or_neither(height, sides):
    lines = text_of(comparison_rows(CONCLUDED.comparison, 118, height))
    assert len(lines) == height
    assert len([line for line in lines if "steps/s" in line]) == sides


def test_only_an_interval_that_excludes_0_is_proven():
    assert CONCLUDED.comparison.proven
    assert not compared(40, verdict=VERDICT, low=-0.01).proven
    assert not compared(40, verdict=VERDICT, check_passed=False).proven
    assert not compared(40).proven  # still running


@given(st.integers(-2, 60), st.integers(-2, 30))
def test_rows_are_spread_evenly_and_the_newest_is_always_among_them(count, rows):
    indices = sampled(count, rows)
    assert len(indices) == max(min(count, rows), 0)
    assert indices == sorted(set(indices))
    if indices:
        assert indices[-1] == count - 1
        assert indices[0] >= 0


@pytest.mark.parametrize("high", [0.9, 1.5, 2.5, 4.0])
def test_an_axis_never_promises_a_loss_of_more_than_everything(high):
    axis = shared_axis((-0.95, -0.1, high))
    assert axis.left == -1.0
    assert all(int(label) >= -100 for label in re.findall(r"-\d+", axis.labels(150)))
