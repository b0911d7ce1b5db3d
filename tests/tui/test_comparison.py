"""A/B on the dashboard: what the keys ask for, the panel, and what is said about it."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.compare.ab import Question
from gpudash.protocol import ComparisonShown, HostReading
from gpudash.tui.screens.dialog import AskChoice, AskText
from gpudash.tui.widgets.comparison import axis, column, interval_bar, sampled, scale_of
from gpudash.tui.widgets.results import ResultsTable
from tests.tui.driving import dashboard
from tests.tui.fake_engine import CPU, result, training, with_series
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


def test_an_axis_is_labelled_at_both_ends_and_where_nothing_changes():
    text = axis(0.05, 41)
    assert (text[:4], text[-4:], len(text)) == ("-5 %", "+5 %", 41)
    assert text.index("0", 4) == column(0, 0.05, 41) == interval_bar(1, 1, 1, 0.05, 41).index("│")


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
    assert interval_bar(*interval, 1.0, 21) == drawn


ENDS = st.lists(st.floats(-1, 1e6), min_size=3, max_size=3).map(sorted)


@given(ENDS, st.floats(0.01, 100), st.integers(12, 200))
def test_any_interval_fits_its_axis(ends, scale, width):
    assert len(interval_bar(*ends, scale, width)) == width
    assert len(axis(scale, width)) >= width


def test_the_scale_holds_the_newest_interval_and_not_every_wild_one_before():
    scales = [scale_of(compared(pairs)) for pairs in range(1, 41)]
    assert all(s > compared(n).high for n, s in enumerate(scales, 1) if n > 2)
    assert scales[0] == 0.01  # nothing known
    assert scales[-1] <= 4 * 0.08
    assert scale_of(compared(history=((-0.5, 3.0, math.inf),))) >= 3.0
    assert scale_of(compared(history=((-0.9, 0.0, 120.0),))) == 1.0


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
        assert d.app._main.has_class("-comparing")


async def test_a_choice_is_compared_with_the_one_chosen_and_the_present_one_is_not_offered():
    async with dashboard(snapshot=training()) as d:
        await d.choose("precision")
        await d.press("a")
        assert isinstance(d.app.screen, AskChoice)
        assert "A/B precision" in d.text()
        present = d.app.control.active["precision"]
        offered = [option.id for option in d.app.screen.query_one("OptionList").options]
        assert offered == [one for one in ("fp32", "tf32", "bf16") if one != present]
        await d.press("down", "enter")
        question = Question(lever="precision", a=present, b=offered[1])
        assert d.engine.told("compare") == [(question,)]


async def test_a_choice_is_not_compared_with_a_name_that_may_stand_for_it():
    async with dashboard(snapshot=training()) as d:
        await d.choose("model_scale")
        await d.press("a")
        offered = [option.id for option in d.app.screen.query_one("OptionList").options]
        assert offered == ["small"]  # full is active; auto is one of the two


async def test_a_count_is_asked_for_and_its_blocks_are_short_runs_where_a_loader_is_made():
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        await d.press("a")
        assert isinstance(d.app.screen, AskText)
        assert "batch_size=8 against this" in d.text()
        await d.press("enter")
        question = Question(lever="batch_size", a="8", b="16", short_runs=True)
        assert d.engine.told("compare") == [(question,)]


async def test_escape_compares_nothing():
    async with dashboard(snapshot=training()) as d:
        for lever in ("batch_size", "data"):
            await d.choose(lever)
            await d.press("a")
            assert d.app.screen is not d.app._main
            await d.press("escape")
            assert d.engine.told("compare") == []
            assert not d.app._main.has_class("-comparing")


async def test_a_value_that_cannot_be_compared_is_one_notice_and_no_panel():
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        for told, (typed, why) in enumerate(
            (
                ("0", "a whole number from 1 to"),
                ("many", "a whole number from 1 to"),
                ("8", "batch_size is 8 already; an A/B needs another value"),
            ),
            start=1,
        ):
            await d.press("a")
            await d.type(typed)
            await d.press("enter")
            assert d.engine.told("compare") == []
            assert len(d.notices()) == told
            assert why in d.notices()[-1]
            assert not d.app._main.has_class("-comparing")


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
            assert not d.app._main.has_class("-comparing")


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
        await d.press("p", "plus", "space", "space", "n", "tab", "right")
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


# ── the panel ───────────────────────────────────────────────────────────────────────────


async def test_the_panel_closes_in_on_the_verdict_and_escape_hides_it():
    async with dashboard() as d:
        for size in SIZES:
            await d.resize(*size)
            await d.show(training())
            await d.press("a")
            await d.show(comparing(0, steps_per_s=(None, None), host_ms=(None, None)))
            assert "A/B pipelined: on or off? 0/40 pairs" in d.text()
            assert "waiting for two pairs of blocks" in d.text()
            assert "a ends it · esc hides it" in d.text()
            for pairs in (8, 16, 32):
                await d.show(comparing(pairs))
                assert f"{pairs}/40 pairs" in d.text()
                drawn = [line for line in d.lines() if "●" in line]
                widths = [line.count("─") for line in drawn]
                assert widths == sorted(widths, reverse=True)
                assert f" {pairs}  " in drawn[-1]
            assert "pipelined=off: +6.0 % [+5.9, +6.2]" in d.text()
            await d.show(CONCLUDED)
            for word in VERDICT.split():
                assert word in d.text()
            assert "esc closes" in d.text()
            await d.press("escape")
            assert "40/40 pairs" not in d.text()


async def test_the_panel_hides_charts_only():
    async with dashboard() as d:
        for size in SIZES:
            await d.resize(*size)
            await d.show(training())
            before = d.lines()
            await d.press("a")
            await d.show(changed(comparing(), markers=()))
            panel = d.app._main.query_one("#comparison").region
            charts = d.app._main.query_one("#charts").region
            assert charts.contains_region(panel)
            for y in (0, *range(charts.bottom, size[1] - 2)):
                assert d.lines()[y] == before[y]
            assert "training" in d.lines()[-2]
            await d.press("escape")


async def test_both_sides_are_shown_in_figures_on_two_lines_where_one_is_too_short():
    names = {"lever": "loss", "a": "ignore_index", "b": "nonzero"}
    wide = {"steps_per_s": (12_345.0, 23_456.0), "host_ms": (123.4, 234.5)}
    async with dashboard(size=(120, 40), snapshot=training()) as d:
        await d.press("a")
        await d.show(comparing())
        assert "on: 277 steps/s, host 2.10 ms · off: 295 steps/s, host 2.20 ms" in d.text()
        await d.show(comparing(**names, **wide))
        assert "ignore_index: 12,345 steps/s, host 123 ms " in d.text()
        assert "nonzero: 23,456 steps/s, host 234 ms " in d.text()


async def test_the_rates_of_two_batch_sizes_are_those_that_the_change_is_of():
    sizes = {"lever": "batch_size", "a": "8", "b": "64"}
    rates = {"steps_per_s": (281.0, 80.3), "samples_per_s": (2248.0, 5139.2)}
    async with dashboard(size=(120, 40), snapshot=training()) as d:
        await d.press("a")
        await d.show(comparing(**sizes, **rates))
        assert "8: 2,248 samples/s, host 2.10 ms · 64: 5,139 samples/s, host 2.20 ms" in d.text()


async def test_a_comparison_without_a_verdict_says_why_and_what_it_knew():
    why = "out of memory with batch_size=4096: went back to batch_size=8 \x1b[31m"
    async with dashboard(size=(80, 24), snapshot=training()) as d:
        await d.press("a")
        await d.show(comparing(failure=why))
        assert "pipelined=off: +6.0 %" in d.text()
        assert "no verdict: out of memory with batch_size=4096" in d.text()
        assert "\x1b" not in d.text()
        await d.show(comparing(0, failure="the training ended"))
        assert "no verdict: the training ended" in d.text()
        assert "waiting" not in d.text()


async def test_a_second_comparison_opens_the_panel_again():
    async with dashboard(snapshot=CONCLUDED) as d:
        assert "40/40 pairs" not in d.text()  # nobody opened it in this test
        await d.press("a")
        await d.show(comparing(3))
        assert "3/40 pairs" in d.text()


async def test_the_device_panel_is_seen_whole_beside_or_instead_of_it():
    async with dashboard(snapshot=comparing()) as d:
        for size in [(120, 40), (80, 24)]:
            await d.resize(*size)
            d.app._main.open_comparison()
            await d.press("g")
            assert "│ trains on NVIDIA H200" in d.text()
            assert "time unattributed" in d.text()
            assert d.app._main.region.contains_region(d.app._main.query_one("#device").region)
            await d.press("g")
            assert "20/40 pairs" in d.text()
            await d.press("g")
            d.app._main.open_comparison()
            await d.settle()
            assert "20/40 pairs" in d.text()
            await d.press("escape")
            assert "20/40 pairs" not in d.text()
            assert "trains on NVIDIA" not in d.text()


async def test_dialogs_and_help_stand_above_the_panel():
    async with dashboard(snapshot=comparing()) as d:
        d.app._main.open_comparison()
        await d.press("question_mark")
        assert "gpudash · keys" in d.text()
        await d.press("escape")
        assert "20/40 pairs" in d.text()


async def test_the_panel_is_not_shown_on_a_terminal_too_small():
    async with dashboard(snapshot=comparing()) as d:
        d.app._main.open_comparison()
        await d.pilot.resize_terminal(40, 10)
        await d.settle()
        assert "20/40 pairs" not in d.text()
        await d.pilot.resize_terminal(80, 24)
        await d.until("20/40 pairs")


async def test_a_theme_and_a_change_of_size_repaint_the_panel():
    async with dashboard(snapshot=comparing()) as d:
        d.app._main.open_comparison()
        d.app.theme = "textual-light"
        for size in SIZES:
            await d.pilot.resize_terminal(*size)
            await d.settle()
            assert "20/40 pairs" in d.text()


# ── the table of results ────────────────────────────────────────────────────────────────


def verdict_row(text=VERDICT):
    row = result(2, text, 1.0, verdict=True)
    nothing = dict.fromkeys(
        ("steps_per_s", "samples_per_s", "step_ms_p50", "step_ms_p95", "host_ms", "ratio")
    )
    return changed(row, steps=0, util_pct=None, cpu_pct=None, **nothing)


async def test_nothing_in_the_table_is_coloured_as_proven():
    rows = tuple(result(1, "a row", 276.4, ratio=ratio) for ratio in (1.0, 1.17, 0.5))
    verdict = verdict_row("pipelined=on is 6.3 % slower [5.9, 6.8]")
    async with dashboard(snapshot=changed(training(), results=(*rows, verdict))) as d:
        table = d.app.query_one(ResultsTable)
        shown = list(table.rows(120, 10))[1:]
        neutral = {table.ink("text"), table.ink("strong")}
        assert {segment.style for row in shown for segment in row} <= neutral


async def test_a_verdict_keeps_its_place_in_the_table():
    rows = (*training().results, verdict_row())
    async with dashboard(snapshot=changed(training(), results=rows)) as d:
        for size in SIZES:
            await d.resize(*size)
            (line,) = [line for line in d.lines() if "A/B pipelined=off" in line]
            assert "A/B pipelined=off is 6.3 % faster [5.9, 6.8]" in line
            assert "–" not in line
            assert "1.07×" in d.text()


async def test_many_verdicts_do_not_push_the_live_row_out_of_sight():
    verdicts = tuple(verdict_row(f"batch_size={number} is faster") for number in range(9))
    rows = (*training().results, *verdicts)
    async with dashboard(size=(80, 24), snapshot=changed(training(), results=rows)) as d:
        assert "▸ 2 pipelined=on" in d.text()
        assert "batch_size=8 is faster" in d.text()
        assert "batch_size=5 is faster" not in d.text()
        await d.press(*["pageup"] * 9)
        assert "batch_size=0 is faster" in d.text()


async def test_the_host_time_is_a_column_where_there_is_room():
    async with dashboard(size=(120, 40), snapshot=training()) as d:
        assert "host ms" in d.text()
        assert " 2.17 " in d.text()
        await d.resize(80, 24)
        assert "host ms" not in d.text()


# ── host time, both streams, own cost ───────────────────────────────────────────────────


def lasting(**values):
    ticks = len(training().series.at_s)
    return with_series(training(), **{name: (value,) * ticks for name, value in values.items()})


async def test_the_host_time_says_whether_the_host_runs_ahead():
    async with dashboard() as d:
        for size in [(120, 40), (80, 24)]:
            await d.resize(*size)
            await d.show(lasting(host_ms=0.4, step_ms=4.0))
            assert "host busy 0.40 of 4.00 ms: runs ahead" in d.text()
            await d.show(lasting(host_ms=3.9, step_ms=4.0))
            assert "host busy 3.90 of 4.00 ms: not ahead" in d.text()


async def test_an_idle_host_that_waits_for_data_does_not_run_ahead():
    async with dashboard() as d:
        for size in [(120, 40), (80, 24)]:
            await d.resize(*size)
            await d.show(lasting(host_ms=2.2, data_ms=2.1, step_ms=22.0))
            assert "host busy 2.20 of 22.0 ms: runs ahead" in d.text()
            await d.show(lasting(host_ms=2.2, data_ms=19.8, step_ms=22.0))
            assert "host waits for data 19.8 of 22.0 ms" in d.text()
            assert "ahead" not in d.text()


async def test_on_a_cpu_nobody_runs_ahead_of_anybody():
    on_cpu = changed(lasting(host_ms=3.9, step_ms=4.0), device=CPU)
    async with dashboard(snapshot=on_cpu) as d:
        assert "host busy 3.90 of 4.00 ms" in d.text()
        assert "ahead" not in d.text()


async def test_the_loaders_times_are_told_where_the_step_waits_for_data():
    times = {"read": 0.31, "decode": 2.345, "crop": 0.02}
    async with dashboard(size=(200, 50)) as d:
        await d.show(changed(lasting(data_ms=3.0, step_ms=4.0), transform_ms=times))
        assert "loader, ms a sample: read 0.31 decode 2.3 crop 0.02" in d.text()
        await d.show(changed(lasting(data_ms=0.1, step_ms=4.0), transform_ms=times))
        assert "ms a sample" not in d.text()
        await d.press("g")
        assert "decode" in d.text()
        assert "2.3 ms" in d.text()


async def test_the_time_in_which_both_streams_were_busy_is_a_line_of_the_activity():
    async with dashboard(size=(200, 50), snapshot=training()) as d:
        assert "both streams" not in d.text()
        await d.show(lasting(overlap_ms=1.0, step_ms=4.0))
        assert "both streams  25 %" in d.text()


OWN = HostReading(at_s=0.0, values={"own_cpu_pct": 3.2, "own_rss_mib": 61.0})


async def test_a_training_that_compiles_for_long_is_not_taken_for_one_that_hangs():
    async with dashboard(size=(80, 24), snapshot=changed(training(), quiet_s=12.4)) as d:
        assert "training · no step for 12 s" in d.lines()[-2]


async def test_its_own_cost_and_what_it_cannot_explain_are_in_sight():
    snapshot = changed(
        training(), host=OWN, instruments_ms=0.0123, unattributed_pct=1.26, skipped_samples=1234
    )
    async with dashboard(size=(200, 50), snapshot=snapshot) as d:
        assert "gpudash takes 3 % of a core, 61 MiB, 12 µs a step" in d.lines()[-2]
        assert "1.3 % of the time unattributed" in d.lines()[-2]
        assert "1,234 unreadable samples skipped" in d.lines()[-2]
        await d.press("g")
        for name, value in (
            ("instruments in a step", "12 µs"),
            ("time unattributed", "1 %"),
            ("unreadable samples skipped", "1,234"),
        ):
            assert any(name in line and value in line for line in d.lines())


async def test_nothing_is_said_of_what_was_not_measured():
    async with dashboard(size=(200, 50), snapshot=training()) as d:
        assert d.lines()[-2].strip() == "training"


async def test_a_verdict_in_the_status_stands_before_what_gpudash_costs():
    told = changed(training(), status=f"training – {VERDICT}", host=OWN, instruments_ms=0.01)
    async with dashboard(size=(80, 24), snapshot=told) as d:
        assert f"training – {VERDICT}"[:70] in d.lines()[-2]


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
