"""A/B on the dashboard: what the keys ask for, the panel, and what is said about it."""

import math
import shlex
from contextlib import asynccontextmanager
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.commands import ab
from gpudash.compare.ab import Question
from gpudash.protocol import ComparisonShown, HostReading
from gpudash.snapshot import BlockShown
from gpudash.tui.screens.chooser import Chooser
from gpudash.tui.widgets.comparison import Axis, axis_of, comparison_rows, forest_rows, sampled
from tests.tui.driving import dashboard
from tests.tui.fake_engine import CPU, result, settings, training, with_series
from workloads import CATALOGUE
from workloads.levers import resolve

changed = msgspec.structs.replace
VERDICT = "pipelined=off is 6.3 % faster [5.9, 6.8], 40 pairs, A/A check passed"
SIZES = [(200, 50), (120, 40), (110, 34), (80, 24), (60, 16)]


def closing_in(pairs=20):
    """Intervals around +6 %, the first ones wild."""
    return tuple((0.06 - 0.8 / n**2, 0.06, 0.06 + 1.6 / n**2) for n in range(2, pairs + 1))


def compared(pairs=20, **values):
    """A comparison in progress after so many pairs."""
    history = closing_in(pairs)
    low, change, high = history[-1] if history else (None, None, None)
    shown = ComparisonShown(
        lever="pipelined",
        a="on",
        b="off",
        pairs=pairs,
        planned_pairs=40,
        change=change,
        low=low,
        high=high,
        history=history,
        steps_per_s=(277.0, 295.0),
        host_ms=(2.1, 2.2),
        verdict=None,
        failure=None,
    )
    return changed(shown, **values)


def comparing(pairs=20, **values):
    return changed(training(), comparison=compared(pairs, **values))


CONCLUDED = comparing(40, verdict=VERDICT)


# ── the axis and its intervals ──────────────────────────────────────────────────────────


def text_of(rows):
    return ["".join(text for text, _ in parts) for parts in rows]


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
    axis = axis_of(intervals)
    assert axis.left <= 0 <= axis.right
    assert axis.left < axis.right
    labels = axis.labels(width, zero)
    assert len(labels) == width
    assert zero in labels
    assert all(len(axis.bar(interval, width)) == width for interval in intervals)


def test_the_axis_holds_the_newest_interval_and_not_every_wild_one_before():
    for pairs in range(2, 41):
        axis = axis_of(closing_in(pairs))
        low, _, high = closing_in(pairs)[-1]
        assert axis.left <= low <= high <= axis.right
    assert axis.right < closing_in()[0][2]


def test_without_an_interval_the_axis_is_short():
    assert axis_of([]).right <= 0.01


# ── what is shown of a comparison ───────────────────────────────────────────────────────


def test_fewer_than_four_pairs_show_no_interval():
    for pairs in (0, 1, 2, 3):
        lines = text_of(comparison_rows(compared(pairs), 118, 8))
        assert f"{pairs} of 4 pairs before an interval is shown" in lines[1]
        assert "●" not in "".join(lines)
        assert "+" not in "".join(lines)


def test_intervals_close_in_down_to_the_newest():
    lines = text_of(comparison_rows(compared(9), 118, 8))
    drawn = [line for line in lines if "●" in line]
    widths = [line.count("─") for line in drawn]
    assert len(drawn) >= 3
    assert widths == sorted(widths, reverse=True)
    assert drawn[-1].split()[:2] == ["9", "pairs"]
    assert "so far pipelined=off +6.0 % [+5.0, +8.0]   on: 277.0  off: 295.0 steps/s" in lines[-2]


def test_a_wild_interval_is_not_spelled_out():
    wild = compared(4, change=0.105, low=-1.0, high=15070.477)
    assert "[-100.0, > +999]" in "".join(text_of(comparison_rows(wild, 118, 8)))


def test_the_blocks_stand_in_their_order_in_the_inks_of_their_sides():
    first, *_ = comparison_rows(compared(2, blocks="ABBA"), 118, 8)
    assert [(text, ink) for text, ink in first if text in "AB"] == [
        *zip("ABBA", "abba", strict=True)
    ]
    assert "".join(text for text, _ in first) == " blocks ABBA   A on   B off"


def test_the_newest_blocks_are_in_sight_where_there_is_no_room_for_all():
    (line, *_) = text_of(comparison_rows(compared(40, blocks="AB" * 39 + "BA"), 60, 8))
    assert len(line) <= 60
    assert "ABBA   A on   B off" in line
    assert "…" in line


@pytest.mark.parametrize(
    ("passed", "said"),
    [(True, "✓ passed so far"), (False, "✗ failed so far"), (None, "needs more pairs")],
)
def test_the_check_is_told_while_it_runs(passed, said):
    lines = text_of(comparison_rows(compared(check_passed=passed), 118, 8))
    assert f"A/A check {said}" in lines[-1]


def test_a_verdict_stands_first_and_both_sides_in_figures_below():
    lines = text_of(comparison_rows(CONCLUDED.comparison, 118, 8))
    assert lines[0] == f" ✓ {VERDICT}"
    assert lines[-2].startswith(" on   277.0 steps/s  step 3.610 ms  host 2.100 ms")
    assert lines[-1].startswith(" off  295.0 steps/s  step 3.390 ms  host 2.200 ms")


def test_only_an_interval_that_excludes_0_is_proven():
    assert CONCLUDED.comparison.proven
    assert not compared(40, verdict=VERDICT, low=-0.01).proven
    assert not compared(40, verdict=VERDICT, check_passed=False).proven
    assert not compared(40).proven  # still running


def test_the_rates_of_two_batch_sizes_are_those_that_the_change_is_of():
    rates = {"steps_per_s": (281.0, 80.3), "samples_per_s": (2248.0, 5139.2)}
    shown = compared(lever="batch_size", a="8", b="64", **rates)
    assert "8: 2,248  64: 5,139 samples/s" in "".join(text_of(comparison_rows(shown, 118, 8)))


def test_a_comparison_without_a_verdict_says_why_and_what_it_knew():
    why = "out of memory with batch_size=4096: went back to batch_size=8 \x1b[31m"
    text = "\n".join(text_of(comparison_rows(compared(failure=why), 118, 8)))
    assert "✗ no verdict: out of memory with batch_size=4096" in text
    assert "pipelined=off so far +6.0 %" in text
    assert "\x1b" not in text
    early = "\n".join(text_of(comparison_rows(compared(0, failure="it ended"), 118, 8)))
    assert early.startswith(" ✗ no verdict: it ended")
    assert "so far" not in early


def test_the_comparisons_of_a_run_share_one_axis_the_newest_first():
    proven = compared(
        16, lever="batch_size", b="16", change=0.3, low=0.2, high=0.4, verdict="faster"
    )
    none = compared(16, lever="seed", b="1", change=0.05, low=-0.1, high=0.1, verdict="none")
    _, first, second = forest_rows((none, proven), 60, 8)
    assert [parts[0][0].strip() for parts in (first, second)] == ["batch_size=16", "seed=1"]
    assert [parts[1][1] for parts in (first, second)] == ["strong", "text"]
    assert second[1][0].index("●") < first[1][0].index("├") < first[1][0].index("●")
    assert first[1][0].index("│") > second[1][0].index("├")


@given(st.integers(-2, 60), st.integers(-2, 30))
def test_rows_are_spread_evenly_and_the_newest_is_always_among_them(count, rows):
    indices = sampled(count, rows)
    assert len(indices) == max(min(count, rows), 0)
    assert indices == sorted(set(indices))
    if indices:
        assert indices[-1] == count - 1
        assert indices[0] >= 0


# ── the key ─────────────────────────────────────────────────────────────────────────────


async def test_a_compares_a_switch_with_its_other_value_at_once():
    async with dashboard(snapshot=training()) as d:
        await d.press("a")
        assert d.engine.told("compare") == [(Question(lever="pipelined", a="on", b="off"),)]
        assert d.app._main.pane.tab == "ab"


async def test_a_choice_is_compared_with_the_one_chosen_among_its_values():
    async with dashboard(snapshot=training()) as d:
        await d.choose("precision")
        await d.press("a")
        assert isinstance(d.app.screen, Chooser)
        present = d.app.control.active["precision"]
        await d.press("end", "a")
        assert d.engine.told("compare") == [(Question(lever="precision", a=present, b="bf16"),)]
        assert d.app._main.pane.tab == "ab"


async def test_a_count_is_typed_and_its_blocks_are_short_runs_where_a_loader_is_made():
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        await d.press("a")
        await d.type("48")
        await d.press("a")
        question = Question(lever="batch_size", a="8", b="48", short_runs=True)
        assert d.engine.told("compare") == [(question,)]


async def test_enter_in_the_chooser_that_a_has_opened_compares_too():
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        await d.press("a")
        assert "⏎ A/B against 8" in d.text()
        assert "⏎ set" not in d.text()
        await d.type("16")
        await d.press("enter")
        question = Question(lever="batch_size", a="8", b="16", short_runs=True)
        assert d.engine.told("compare") == [(question,)]
        assert d.engine.told("change") == []


async def test_escape_compares_nothing():
    async with dashboard(snapshot=training()) as d:
        for lever in ("batch_size", "data"):
            await d.choose(lever)
            await d.press("a")
            assert d.app.screen is not d.app._main
            await d.press("escape")
            assert d.engine.told("compare") == []
            assert d.app._main.pane.tab == "results"


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("0", "a whole number from 1 to"),
        ("9999999", "a whole number from 1 to"),
        ("8", "it is 8 now: choose what to compare that with"),
    ],
)
async def test_a_value_that_cannot_be_compared_is_said_in_the_chooser(typed, why):
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        await d.press("a")
        await d.type(typed)
        await d.press("a")
        assert why in d.text()
        assert d.engine.told("compare") == []
        assert isinstance(d.app.screen, Chooser)
        await d.press("escape")
        assert d.app._main.pane.tab == "results"


async def test_x_compares_what_the_answer_proposes_first():
    async with dashboard(snapshot=training()) as d:
        first = d.app._main.answer.tries[0]
        assert f"x try {first.lever}={first.value} by A/B" in d.text()
        await d.press("x")
        (question,) = d.engine.told("compare")[0]
        assert (question.lever, question.b) == (first.lever, first.value)
        assert d.app._main.pane.tab == "ab"


async def test_x_while_an_a_b_runs_neither_ends_it_nor_begins_another():
    async with dashboard(snapshot=comparing()) as d:
        await d.press("x")
        assert d.notices() == ["an A/B is running; a ends it"]
        assert len(d.engine.calls) == 1


async def test_x_without_a_proposal_says_what_else_compares():
    async with dashboard(snapshot=changed(training(), steps_since_break=0)) as d:
        await d.press("x")
        assert d.engine.told("compare") == []
        assert d.notices() == [
            "the answer proposes no lever now; a compares the one under the cursor"
        ]


@pytest.mark.parametrize("lever", ["pipelined", "batch_size"])
async def test_without_a_running_training_a_says_why_and_asks_nothing(lever):
    async with dashboard(snapshot=training()) as d:
        await d.choose(lever)
        for told, (state, why) in enumerate(
            (
                ("paused", "an A/B needs a running training; it is paused"),
                ("starting", "an A/B needs a running training; it is starting"),
                ("switching", "an A/B needs a running training; it is switching"),
                ("failed", "nothing is running to compare; press R first"),
                ("finished", "nothing is running to compare; press R first"),
            ),
            start=1,
        ):
            await d.show(changed(training(), state=state))
            await d.press("a")
            assert len(d.notices()) == told
            assert d.notices()[-1] == why
            assert d.engine.told("compare") == []
            assert d.app.screen is d.app._main
            assert d.app._main.pane.tab == "results"


async def test_a_again_ends_it():
    async with dashboard(snapshot=training()) as d:
        await d.press("a")
        await d.show(comparing())
        await d.press("a")
        assert d.engine.told("end_comparison") == [()]
        assert len(d.engine.told("compare")) == 1
        assert d.notices() == ["the A/B ends after this step"]


async def test_a_again_before_any_snapshot_shows_it_ends_it_too():
    async with dashboard(snapshot=CONCLUDED) as d:
        await d.press("a", "a")
        assert [call[0] for call in d.engine.calls[1:]] == ["compare", "end_comparison"]
        await d.press("a")  # nothing is on its way any more
        assert len(d.engine.told("compare")) == 2


async def test_a_comparison_that_is_over_when_it_first_shows_is_not_waited_for():
    async with dashboard(snapshot=training()) as d:
        await d.press("a")
        await d.show(CONCLUDED)
        await d.press("a")
        assert d.engine.told("end_comparison") == []
        assert len(d.engine.told("compare")) == 2


async def test_a_while_paused_in_a_comparison_says_when_it_will_end():
    async with dashboard(snapshot=comparing()) as d:
        await d.press("space", "a")
        assert d.engine.told("end_comparison") == [()]
        assert d.notices() == ["the A/B ends once the training goes on"]


async def test_a_just_after_another_key_compares_what_that_key_asked_for():
    async with dashboard(snapshot=training()) as d:
        await d.press("p", "a")
        assert d.engine.told("compare") == [(Question(lever="pipelined", a="off", b="on"),)]


async def test_a_restart_leaves_no_comparison_to_end():
    async with dashboard(snapshot=comparing()) as d:
        await d.press("R")
        await d.show(changed(comparing(), state="starting"))  # until the worker is ready
        assert "end A/B" not in d.lines()[-1]
        await d.press("a")
        assert d.engine.told("end_comparison") == []
        assert "it is starting" in d.notices()[0]


async def test_every_other_key_works_during_a_comparison():
    async with dashboard(snapshot=comparing()) as d:
        await d.press("p", "plus", "space", "space", "n", "down", "right")
        told = [call[0] for call in d.engine.calls[1:]]
        assert told == ["change", "change", "pause", "resume", "new_row", "change"]
        await d.press("R")
        assert len(d.engine.told("restart")) == 1


async def test_the_footer_says_that_a_ends_it():
    async with dashboard() as d:
        for size in SIZES:
            await d.resize(*size)
            await d.show(comparing())
            assert "a end A/B" in d.lines()[-1]
            await d.show(CONCLUDED)
            assert "end A/B" not in d.lines()[-1]


async def test_the_footer_ends_it_by_mouse():
    async with dashboard(size=(80, 24), snapshot=comparing()) as d:
        await d.click("a end A/B")
        assert d.engine.told("end_comparison") == [()]


async def test_while_it_runs_the_footer_offers_nothing_that_needs_a_verdict():
    async with dashboard(size=(80, 24), snapshot=training()) as d:
        await d.press("a")
        await d.show(comparing())
        assert "more pairs" not in d.lines()[-1]
        await d.show(CONCLUDED)
        assert "m more pairs" in d.lines()[-1]
        assert "o back" in d.lines()[-1]


# ── the pane ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", SIZES)
async def test_asking_for_a_comparison_opens_it_in_the_pane_and_hides_no_chart(size):
    async with dashboard(size, snapshot=training()) as d:
        main = d.app._main
        charts = {name: main.query_one(f"#{name}").region for name in ("throughput", "step")}
        await d.press("a")
        await d.show(comparing(9))
        assert main.pane.tab == "ab"
        assert "so far pipelined=off +6.0 %" in d.text()
        for name, before in charts.items():
            assert main.query_one(f"#{name}").region == before
            assert before.area
        await d.show(CONCLUDED)
        for word in VERDICT.split():
            assert word in d.text()


async def test_the_answer_says_that_an_a_b_runs_and_what_was_known_before():
    for size in [(120, 40), (200, 50)]:
        async with dashboard(size, snapshot=training()) as d:
            known = d.app._main.answer.title
            await d.show(comparing())
            assert "an A/B is running: pipelined on or off" in d.text()
            assert f"before that: {known}" in d.text()
            assert "x try" not in d.lines()[1]
            await d.show(CONCLUDED)
            assert "an A/B is running" not in d.text()


def shades(d):
    """The inks behind the throughput chart's columns."""
    strips = d.app.screen._compositor.render_strips()
    region = d.app._main.query_one("#throughput").region
    return {
        segment.style.bgcolor.get_truecolor()
        for y in range(region.y + 1, region.bottom - 1)
        for segment in strips[y].crop(region.x + 7, region.right - 1)
        if segment.style and segment.style.bgcolor
    }


async def test_long_blocks_are_shaded_and_named_under_the_curve():
    blocks = tuple(
        BlockShown(begin_s=at_s, end_s=at_s + 5, side=side)
        for at_s, side in ((2.0, "a"), (7.0, "b"), (17.0, "b"))
    )
    async with dashboard(snapshot=training()) as d:
        plain = shades(d)
        await d.show(changed(comparing(), blocks=blocks))
        assert len(shades(d) - plain) == 4  # of the curve's ground and of the band
        region = d.app._main.query_one("#throughput").region
        band = d.lines()[region.bottom - 3][region.x : region.right]
        assert "A/B" in band
        assert "AA" in band
        assert "BB" in band


# ── a verdict, and what follows from it ─────────────────────────────────────────────────


@asynccontextmanager
async def at_a_verdict(snapshot=CONCLUDED, **options):
    """The dashboard after an A/B that was begun with its key, at its verdict."""
    async with dashboard(snapshot=training(), **options) as d:
        await d.press("a")
        await d.show(snapshot)
        d.engine.calls.clear()
        yield d


@pytest.mark.parametrize(("key", "value"), [("enter", "off"), ("o", "on")])
async def test_a_verdict_offers_both_values_and_a_key_sets_one(key, value):
    async with at_a_verdict() as d:
        for offered in ("⏎ keep off", "o back to on", "m more pairs", "y copy", "Y copy it"):
            assert offered in d.text()
        other = {"on": "off", "off": "on"}[value]
        active = msgspec.structs.replace(CONCLUDED, settings=settings(pipelined=other))
        await d.show(active)
        await d.press(key)
        assert d.engine.told("change") == [({"pipelined": value},)]
        assert d.notices() == [f"pipelined={value} from the next step on"]


async def test_m_runs_it_anew_with_more_pairs():
    async with at_a_verdict() as d:
        await d.press("m")
        question = Question(lever="pipelined", a="on", b="off", pairs=80)
        assert d.engine.told("compare") == [(question,)]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_verdict_says_so_where_cores_were_short(size):
    short = "; cores were short: the training waited for one 48 % of the time"
    told = changed(training(), comparison=compared(40, verdict=VERDICT + short))
    async with at_a_verdict(told, size=size) as d:
        pane = d.app._main.pane.region
        lines = [line[1:-1].strip() for line in d.lines()[pane.y + 1 : pane.bottom]]
        assert f"{VERDICT}{short}" in " ".join(lines)


async def test_m_and_o_before_a_verdict_ask_nothing():
    async with at_a_verdict(comparing()) as d:
        await d.press("m", "o", "enter")
        assert d.engine.calls == []
        assert d.notices() == ["no A/B has ended here"] * 3


async def test_y_copies_the_verdict_with_what_it_depends_on():
    async with at_a_verdict() as d:
        await d.press("y")
        assert d.app.clipboard.splitlines()[0] == VERDICT
        assert "encdec on NVIDIA H200" in d.app.clipboard


@pytest.mark.parametrize("workload", CATALOGUE)
async def test_y_capital_copies_a_command_that_asks_the_same_of_gpudash_ab(monkeypatch, workload):
    asked = []
    monkeypatch.setattr(ab, "Session", lambda plan, **_: mock.Mock(plan=plan))
    monkeypatch.setattr(
        ab, "run_ab", lambda session, comparison, **_: asked.append((session.plan, comparison)) or 0
    )
    entry = CATALOGUE[workload]
    others = resolve(entry.levers, {"batch_size": "16"})
    a = others.pop("pipelined")
    shown = compared(a=a, b="on", verdict=VERDICT, settings=others, planned_pairs=80)
    snapshot = changed(training(), workload=workload, comparison=shown)
    async with at_a_verdict(snapshot) as d:
        await d.press("Y")
        words = shlex.split(d.app.clipboard)
    assert words[:2] == ["gpudash", "ab"]
    assert ab.main(words[2:]) == 0
    (plan, comparison) = asked[0]
    assert plan.workload == workload
    assert resolve(entry.levers, plan.settings) == {**others, "pipelined": a}
    question = comparison.question
    assert (question.lever, question.a, question.b) == ("pipelined", a, "on")
    assert question.pairs == 80


# ── verdicts and rows in the results ────────────────────────────────────────────────────


def with_rows(*rows, **values):
    return changed(training(), results=(*training().results, *rows), **values)


def verdict_row(text=VERDICT):
    return result(2, text, 1.0, verdict=True)


async def test_a_verdict_stands_among_the_results_and_is_marked_where_it_is_proven():
    verdict = compared(40, verdict=VERDICT)
    async with dashboard(snapshot=with_rows(verdict_row(), verdicts=(verdict,))) as d:
        (line,) = [line for line in d.lines() if f"A/B {VERDICT}" in line]
        assert "✓ proven" in line
        await d.show(with_rows(verdict_row(), verdicts=(changed(verdict, low=-0.1),)))
        (line,) = [line for line in d.lines() if f"A/B {VERDICT}" in line]
        assert "proven" not in line


async def test_enter_on_a_row_puts_its_levers_in_force_as_one_change_that_u_takes_back():
    row = result(3, "batch_size=32", 400.0, settings=settings(pipelined="off", batch_size="32"))
    async with dashboard(snapshot=with_rows(row)) as d:
        await d.press("5", "down", "enter")
        assert d.engine.told("change") == [({"pipelined": "off", "batch_size": "32"},)]
        await d.press("u")
        assert d.engine.told("change")[1:] == [({"pipelined": "on", "batch_size": "8"},)]


async def test_enter_on_a_verdict_row_says_why_it_sets_nothing():
    async with dashboard(snapshot=with_rows(verdict_row())) as d:
        await d.press("5", "down", "enter")
        assert d.engine.told("change") == []
        assert d.notices() == ["a verdict has no settings of its own; choose a numbered row"]


# ── what is said beside it ──────────────────────────────────────────────────────────────


def lasting(**values):
    """A run whose newest steps all took so long."""
    ticks = len(training().series.at_s)
    return with_series(training(), **{name: (value,) * ticks for name, value in values.items()})


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_the_lane_of_the_host_says_by_how_much_it_runs_ahead(size):
    async with dashboard(size, snapshot=lasting(host_ms=0.4, data_ms=0.0, step_ms=4.0)) as d:
        (host,) = [line for line in d.lines()[:6] if "host ▏" in line]
        assert "busy 0.40" in host or "ahead" in host
        assert "3.60 ahead" in host
        await d.show(lasting(host_ms=3.9, data_ms=0.0, step_ms=4.0))
        (host,) = [line for line in d.lines()[:6] if "host ▏" in line]
        assert "busy 3.90" in host


async def test_on_a_cpu_nobody_runs_ahead_of_anybody():
    on_cpu = changed(lasting(host_ms=3.9, step_ms=4.0), device=CPU)
    async with dashboard(snapshot=on_cpu) as d:
        assert "ahead" not in d.text()


async def test_an_idle_host_that_waits_for_data_does_not_run_ahead():
    async with dashboard(snapshot=lasting(host_ms=2.2, data_ms=19.8, step_ms=22.0)) as d:
        assert "limited by the loader" in d.lines()[1]
        assert "0.00 ahead" not in d.text()


async def test_a_training_that_waits_for_data_names_its_slowest_transform():
    times = {"read": 0.31, "decode": 2.345, "crop": 0.02}
    starved = lasting(data_ms=3.0, step_ms=4.0, device_ms=1.0)
    async with dashboard((200, 60), snapshot=changed(starved, transform_ms=times)) as d:
        assert "slowest transform: decode, 2.35 ms a sample" in d.text()
        await d.press("d")
        assert all(name in d.text() for name in times)


async def test_the_time_in_which_both_streams_were_busy_is_a_line_of_the_activity():
    async with dashboard((200, 50), snapshot=training()) as d:
        assert "both streams" not in d.text()
        await d.show(lasting(overlap_ms=1.0, step_ms=4.0))
        (line,) = [line for line in d.lines() if "both streams" in line]
        assert "25 %" in line


async def test_a_training_that_takes_no_step_for_long_is_not_taken_for_one_that_hangs():
    async with dashboard((80, 24), snapshot=changed(training(), quiet_s=12.4)) as d:
        assert "pipelined=on since 0:00:15 · no step for 12 s" in d.lines()[-2]


OWN = HostReading(at_s=0.0, values={"own_cpu_pct": 3.2, "own_rss_mib": 61.0})


async def test_its_own_cost_and_what_it_cannot_explain_stand_with_the_device():
    snapshot = changed(
        training(), host=OWN, instruments_ms=0.0123, unattributed_pct=1.26, skipped_samples=1234
    )
    async with dashboard((200, 50), snapshot=snapshot) as d:
        assert "1,234 unreadable samples skipped" in d.lines()[-2]
        await d.press("d")
        for _ in range(60):
            if any("unreadable, skipped" in line for line in d.lines()):
                break
            await d.press("down")
        lines = d.lines()
        for name, value in (
            ("measuring", "12 µs/step"),
            ("unattributed time", "1.3 %"),
            ("unreadable, skipped", "1,234"),
        ):
            assert any(name in line and value in line for line in lines), name


async def test_a_verdict_in_the_status_is_whole_at_80_columns():
    told = changed(training(), status=f"training – {VERDICT}", host=OWN, instruments_ms=0.01)
    async with dashboard(size=(80, 24), snapshot=told) as d:
        assert f" {VERDICT} " in d.lines()[-2]


@pytest.mark.parametrize("workload", CATALOGUE)
async def test_every_lever_of_every_workload_can_be_compared(workload):
    levers = CATALOGUE[workload].levers
    snapshot = changed(training(), workload=workload, settings=resolve(levers, {}))
    async with dashboard(snapshot=snapshot) as d:
        for lever in levers:
            other = next(
                value
                for value in (lever.step(lever.default_text, 1), lever.step(lever.default_text, -1))
                if value != lever.default_text
            )
            d.app.control.compare(lever, other)
            (question,) = d.engine.told("compare")[-1]
            assert (question.lever, question.b) == (lever.name, other)
            assert question.short_runs == (lever.effect != "next step")
