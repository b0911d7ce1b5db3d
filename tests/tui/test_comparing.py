"""A/B on the dashboard: the requests of the keys, the pane, and the actions on a verdict."""

import re
import shlex
from unittest import mock

import pytest
from msgspec.structs import replace as changed

from gpudash.cli.main import main
from gpudash.compare.ab import Question
from gpudash.errors import Exit
from gpudash.protocol.answer import Answer
from gpudash.protocol.readings import HostReading
from gpudash.protocol.session import SlowingShown
from gpudash.snapshot import Snapshot
from gpudash.tui.screens.chooser import Chooser
from tests.scripted_run import started
from tests.tui.comparisons import CONCLUDED, VERDICT, compared, comparing
from tests.tui.driving import dashboard, showing, still
from tests.tui.fake_engine import FakeEngine, result, settings, training
from tests.tui.frames import control_of
from workloads import CATALOGUE
from workloads.levers import resolve

# ── the key ─────────────────────────────────────────────────────────────────────────────


async def test_a_compares_a_switch_at_once_and_another_lever_with_a_value_chosen_or_typed(d):
    def sixteen_or(b):
        return Question(lever="batch_size", a="8", b=b, short_runs=True)

    for lever, keys, question in (
        ("pipelined", "", Question(lever="pipelined", a="on", b="off")),
        ("precision", ("home", "a"), Question(lever="precision", a="bf16", b="fp32")),
        ("batch_size", "48a", sixteen_or("48")),  # its blocks are short runs
        ("batch_size", (*"16", "enter"), sixteen_or("16")),
    ):
        d.choose(lever)
        await d.press("a")
        assert isinstance(d.app.screen, Chooser) == bool(keys)
        if "enter" in keys:
            assert "enter A/B against 8" in d.text()
            assert "enter set" not in d.text()
        await d.press(*keys)
        assert d.engine.calls_of("compare")[-1] == (question,)
        assert d.app.main_screen.pane.tab == "ab"
        await d.show(training())  # it is over
        await d.press("1")
    assert len(d.engine.calls) == 1 + 4


async def test_capital_e_slows_the_parts_of_the_step_that_the_answer_is_about():
    answer = Answer(limit="gpu", title="GPU-bound", step_ms=4.2)
    async with dashboard(snapshot=changed(training(), answer=answer)) as d:
        await d.press("E", "E")  # the first one runs
        assert d.engine.calls_of("slow") == [(4.2,)]
        slowing = SlowingShown(delay_ms=0.5, slopes=(), rounds=3)
        await d.show(changed(training(), slowing=slowing))
        await d.press("a")
        assert d.engine.calls_of("end_comparison") == [()]


async def test_escape_compares_nothing_nor_does_the_present_value(d):
    for lever in ("batch_size", "data"):
        d.choose(lever)
        await d.press("a")
        assert d.app.screen is not d.app.main_screen
        await d.press("escape")
    d.choose("batch_size")
    await d.press("a", "8", "a", shows="it is 8 now: choose what to compare that with")
    await d.press("escape")
    assert d.engine.calls_of("compare") == []
    assert d.app.main_screen.pane.tab == "history"


async def test_x_compares_what_the_answer_proposes_first_and_moves_the_levers_cursor_there(d):
    first = d.app.main_screen.headline.first
    assert f"x  TRY {first.lever} {first.before} → {first.value}" in d.text()
    d.choose("seed")
    await d.press("x")
    (question,) = d.engine.calls_of("compare")[0]
    assert (question.lever, question.b) == (first.lever, first.value)
    assert d.app.main_screen.pane.tab == "ab"
    await d.press("3", "c")  # with any focus
    assert re.search(rf"{first.lever}=\w+ · y copies", d.text())


BUSY = "other jobs take 1.2 of 2 cores: until they end, an A/B has a wide interval"


def busy(d, pct):
    """The training some seconds later, waiting for a core for this share of the time."""
    shown = d.app.control.snapshot
    values = {**shown.series.values, "core_wait_pct": (pct,) * len(shown.series.at_s)}
    answer = changed(d.app.main_screen.headline.answer, caution=BUSY if pct else "")
    at_s = tuple(one + 3.0 for one in shown.series.at_s)
    series = changed(shown.series, at_s=at_s, values=values)
    return changed(shown, series=series, answer=answer, elapsed_s=shown.elapsed_s + 3.0)


async def test_while_other_jobs_take_cores_x_waits_and_begins_by_itself_once_they_end(d):
    await d.show(busy(d, 48.0))
    first = d.app.main_screen.headline.first
    await d.press("x")
    assert d.engine.calls_of("compare") == []
    assert f"{first.lever} {first.before} → {first.value} waits until other jobs end" in d.text()
    await d.show(busy(d, 40.0))
    assert d.engine.calls_of("compare") == []
    await d.show(changed(busy(d, 0.0), state="paused"))
    assert d.engine.calls_of("compare") == []
    await d.show(changed(busy(d, 0.0), state="training"))
    (question,) = d.engine.calls_of("compare")[0]
    assert (question.lever, question.b) == (first.lever, first.value)
    assert "waits until" not in d.text()


@pytest.mark.parametrize(("key", "begun"), [("escape", 0), ("x", 1)])
async def test_what_waits_is_taken_back_by_escape_and_begins_at_once_by_another_x(d, key, begun):
    await d.show(busy(d, 48.0))
    await d.press("x", key)
    assert len(d.engine.calls_of("compare")) == begun
    assert "waits until other jobs end" not in d.text()
    await d.show(busy(d, 0.0))
    assert len(d.engine.calls_of("compare")) == begun


async def test_what_waited_and_is_set_by_then_is_refused_once(d):
    await d.show(busy(d, 48.0))
    first = d.app.main_screen.headline.first
    await d.press("x")
    quiet = busy(d, 0.0)
    await d.show(changed(quiet, settings=quiet.settings | {first.lever: first.value}))
    assert d.engine.calls_of("compare") == []
    assert "waits until other jobs end" not in d.text()


async def test_x_sets_what_is_proven(d):
    first = d.app.main_screen.headline.first
    proven = changed(first, gain=changed(first.gain, low_pct=10.0, high_pct=12.0, how="measured"))
    answer = changed(d.app.main_screen.headline.answer, tries=(proven,), caution=BUSY)
    told = f"x  SET {first.lever} {first.before} → {first.value}"
    await d.show(changed(training(), answer=answer), shows=told)
    assert "proven here" in d.text()
    assert BUSY[:20] not in d.text()  # what is proven waits for nothing
    await d.press("x")
    assert d.engine.calls_of("change")[0][0] == {first.lever: first.value}
    assert d.engine.calls_of("compare") == []


async def test_a_again_ends_it_also_before_any_snapshot_shows_it(d):
    await d.press("a", "a")
    assert [call[0] for call in d.engine.calls[1:]] == ["compare", "end_comparison"]
    await d.press("a")  # nothing is on its way any more
    await d.show(comparing())
    await d.press("a")
    assert len(d.engine.calls_of("compare")) == len(d.engine.calls_of("end_comparison")) == 2
    assert d.notices() == ["the A/B ends after this step"]


@showing(size=(80, 24))
async def test_ended_while_the_levers_hide_the_pane_its_verdict_shows_with_its_buttons(d):
    await d.press("a")
    await d.show(comparing())
    await d.press("1", "a")
    await d.show(CONCLUDED, shows="⏎ sets off")
    await d.press("enter")
    assert d.engine.calls_of("change") == [({"pipelined": "off"},)]


async def test_a_compares_what_the_key_before_it_asked_for_and_waits_for_none_that_is_over(d):
    d.choose("pipelined")
    await d.press("p", "a")
    assert d.engine.calls_of("compare") == [(Question(lever="pipelined", a="off", b="on"),)]
    await d.show(CONCLUDED)  # it is over when it first shows
    await d.press("a")
    assert d.engine.calls_of("end_comparison") == []
    assert len(d.engine.calls_of("compare")) == 2


@showing(comparing())
async def test_a_key_that_changes_no_lever_works_during_a_comparison_and_a_restart_ends_it(d):
    await d.press("space", "a")
    assert d.notices() == ["the A/B ends once the training goes on"]
    await d.press("space", "n", "down", "R")
    told = [call[0] for call in d.engine.calls[1:]]
    assert told == ["pause", "end_comparison", "resume", "new_row", "restart"]
    await d.show(changed(comparing(), state="starting"))  # until the worker is ready
    assert "end it" not in d.lines()[-1]
    d.app.clear_notifications()
    await d.is_refused("a", why="an A/B needs a running training; it is starting")


async def test_before_another_workload_ends_an_a_b_the_dialog_says_so(d):
    for pairs, becomes in (
        (21, "its verdict is kept"),
        (3, "too few for a verdict"),
    ):
        await d.show(comparing(pairs))
        ends = f"the A/B of pipelined ends after {pairs} of 40 pairs: {becomes.split()[0]}"
        await d.press("w", shows=(ends, becomes.split()[-1]))
        await d.press("escape")
    await d.show(training())
    await d.press("w", hides="the A/B of")


@showing(size=(80, 24))
async def test_the_footer_offers_what_needs_a_verdict_once_there_is_one(d):
    d.app.action_pane("ab")
    for shown, offers in ((training(), False), (comparing(), False), (CONCLUDED, True)):
        await d.show(shown)
        assert ("⏎ sets off" in d.lines()[-1]) == offers
    await d.show(comparing())
    await d.click("a end it")
    assert d.engine.calls_of("end_comparison") == [()]


# ── the pane ────────────────────────────────────────────────────────────────────────────


# ── the command line, rows and the status


@pytest.mark.parametrize("workload", CATALOGUE)
async def test_y_capital_copies_a_command_that_asks_the_same_of_gpudash_ab(monkeypatch, workload):
    session = mock.Mock(
        failure=None,
        start=lambda news: news.on_snapshot(Snapshot(process=started(0.0, {}).process)),
        wait=mock.Mock(side_effect=[False, True]),
    )
    begun = mock.Mock(return_value=session)
    monkeypatch.setattr("gpudash.cli.headless.Session", begun)
    entry = CATALOGUE[workload]
    others = resolve(entry.levers, {"batch_size": "16"})
    a = others.pop("pipelined")
    shown = compared(a=a, b="on", verdict=VERDICT, settings=others, planned_pairs=80)
    command = control_of(changed(training(), workload=workload, comparison=shown)).ab.command(shown)
    words = shlex.split(command)
    assert words[:2] == ["gpudash", "ab"]
    assert main(words[1:]) == Exit.FAILED  # as it was never measured
    (plan,), (comparison,) = begun.call_args.args, session.conduct.call_args.args
    assert plan.workload == workload
    assert resolve(entry.levers, plan.settings) == {**others, "pipelined": a}
    question = comparison.question
    assert (question.lever, question.a, question.b) == ("pipelined", a, "on")
    assert question.pairs == 80


# ── verdicts and rows of the history ────────────────────────────────────────────────────


async def test_enter_on_a_row_puts_its_levers_in_force_as_one_change_that_u_takes_back():
    tried = settings(pipelined="off", batch_size="32", precision="bf16")
    row = result(3, "batch_size=32", 400.0, settings=tried)
    async with dashboard(snapshot=changed(training(), results=(*training().results, row))) as d:
        await d.press("5", "down", "enter")
        assert d.engine.calls_of("change") == [({"pipelined": "off", "batch_size": "32"},)]
        await d.press("u")
        assert d.engine.calls_of("change")[1:] == [({"pipelined": "on", "batch_size": "8"},)]


def test_a_verdict_in_the_status_is_whole_at_80_columns():
    own = HostReading(at_s=0.0, values={"own_cpu_pct": 3.2, "own_rss_mib": 61.0})
    told = changed(training(), status="", notice=VERDICT, host=own, instruments_ms=0.01)
    d = still(size=(80, 24), snapshot=told)
    assert f" {VERDICT} " in d.lines()[-2]


@pytest.mark.parametrize("workload", CATALOGUE)
def test_every_lever_of_every_workload_can_be_compared(workload):
    levers, engine = CATALOGUE[workload].levers, FakeEngine()
    control = control_of(
        changed(training(), workload=workload, settings=resolve(levers, {})), engine
    )
    for lever in levers:
        steps = (lever.step(lever.default_text, direction) for direction in (1, -1))
        other = next(value for value in steps if value != lever.default_text)
        control.ab.compare(lever.name, other)
        (question,) = engine.calls_of("compare")[-1]
        assert (question.lever, question.b) == (lever.name, other)
        assert question.short_runs == (lever.effect != "next step")
        control.ab.end()
