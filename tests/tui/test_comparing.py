"""A/B on the dashboard: the requests of the keys, the pane, and the actions on a verdict."""

import re
import shlex
from contextlib import asynccontextmanager
from unittest import mock

import msgspec
import pytest

from gpudash.cli import ab_trial as ab
from gpudash.cli.main import main
from gpudash.compare.ab import Question
from gpudash.compare.starts import of_one_start
from gpudash.protocol.answer import Answer
from gpudash.protocol.readings import HostReading
from gpudash.protocol.session import SlowingShown
from gpudash.snapshot import BlockShown, Snapshot
from gpudash.tui.screens.chooser import Chooser
from tests.tui.comparisons import CONCLUDED, VERDICT, compared, comparing
from tests.tui.driving import dashboard, still, strips_of
from tests.tui.fake_engine import result, settings, training
from workloads import CATALOGUE
from workloads.levers import resolve

changed = msgspec.structs.replace
ABLE = (*training().can, "profile")
SIZES = [(200, 50), (120, 40), (110, 34), (80, 24), (60, 16)]


# ── the key ─────────────────────────────────────────────────────────────────────────────


async def test_a_compares_a_switch_with_its_other_value_at_once():
    async with dashboard(snapshot=training()) as d:
        await d.choose("pipelined")
        await d.press("a")
        assert d.engine.calls_of("compare") == [(Question(lever="pipelined", a="on", b="off"),)]
        assert d.app.main_screen.pane.tab == "ab"


async def test_a_choice_is_compared_with_the_one_chosen_among_its_values():
    async with dashboard(snapshot=training()) as d:
        await d.choose("precision")
        await d.press("a")
        assert isinstance(d.app.screen, Chooser)
        present = d.app.control.levers.active["precision"]
        await d.press("end", "a")
        assert d.engine.calls_of("compare") == [(Question(lever="precision", a=present, b="bf16"),)]
        assert d.app.main_screen.pane.tab == "ab"


async def test_a_count_is_typed_and_its_blocks_are_short_runs_where_a_loader_is_made():
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        await d.press("a")
        await d.type("48")
        await d.press("a")
        question = Question(lever="batch_size", a="8", b="48", short_runs=True)
        assert d.engine.calls_of("compare") == [(question,)]


async def test_capital_e_slows_the_parts_of_the_step_that_the_answer_is_about():
    answer = Answer(limit="gpu", title="GPU-bound", step_ms=4.2)
    async with dashboard(snapshot=changed(training(), answer=answer)) as d:
        await d.press("E")
        assert d.engine.calls_of("slow") == [(4.2,)]
        await d.press("E")
        assert d.engine.calls_of("slow") == [(4.2,)]  # the first one runs


async def test_there_is_nothing_to_prove_before_there_is_an_answer():
    none_yet = changed(training(), steps_since_break=0)
    async with dashboard(snapshot=none_yet, notifications=True) as d:
        await d.press("E")
        assert d.engine.calls_of("slow") == []
        assert d.notices() == ["there is no answer yet that could be proven"]


async def test_a_ends_a_proof_that_runs_and_q_says_what_it_ends():
    slowing = SlowingShown(delay_ms=0.5, slopes=(), rounds=3)
    proving = changed(training(), slowing=slowing)
    async with dashboard(snapshot=proving, notifications=True) as d:
        await d.press("E")
        assert d.notices() == ["a proof by slowing is running; a ends it"]
        await d.press("a")
        assert d.engine.calls_of("end_comparison") == [()]


async def test_enter_in_the_chooser_that_a_has_opened_compares_too():
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        await d.press("a")
        assert "enter A/B against 8" in d.text()
        assert "enter set" not in d.text()
        await d.type("16")
        await d.press("enter")
        question = Question(lever="batch_size", a="8", b="16", short_runs=True)
        assert d.engine.calls_of("compare") == [(question,)]
        assert d.engine.calls_of("change") == []


async def test_escape_compares_nothing():
    async with dashboard(snapshot=training()) as d:
        for lever in ("batch_size", "data"):
            await d.choose(lever)
            await d.press("a")
            assert d.app.screen is not d.app.main_screen
            await d.press("escape")
            assert d.engine.calls_of("compare") == []
            assert d.app.main_screen.pane.tab == "history"


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("0", "a whole number from 1 to"),
        ("9999999", "a whole number from 1 to"),
        ("8", "it is 8 now: choose what to compare that with"),
    ],
)
async def test_the_chooser_says_why_a_value_cannot_be_compared(typed, why):
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        await d.press("a")
        await d.type(typed)
        await d.press("a")
        assert why in d.text()
        assert d.engine.calls_of("compare") == []
        assert isinstance(d.app.screen, Chooser)
        await d.press("escape")
        assert d.app.main_screen.pane.tab == "history"


async def test_x_compares_what_the_answer_proposes_first():
    async with dashboard(snapshot=training()) as d:
        first = d.app.main_screen.headline.first
        assert f"x  TRY {first.lever} {first.before} → {first.value}" in d.text()
        await d.press("x")
        (question,) = d.engine.calls_of("compare")[0]
        assert (question.lever, question.b) == (first.lever, first.value)
        assert d.app.main_screen.pane.tab == "ab"


async def test_x_moves_the_levers_cursor_so_that_c_shows_its_lines_with_any_focus():
    async with dashboard(snapshot=training()) as d:
        first = d.app.main_screen.headline.first
        await d.choose("seed")
        await d.press("x", "3", "c")
        assert re.search(rf"{first.lever}=\w+ · y copies", d.text())


async def test_x_while_an_a_b_runs_neither_ends_it_nor_begins_another():
    async with dashboard(snapshot=comparing()) as d:
        await d.press("x")
        assert d.notices() == ["an A/B is running; a ends it"]
        assert len(d.engine.calls) == 1


async def test_x_in_a_pause_says_that_nothing_can_be_compared():
    async with dashboard(snapshot=changed(training(), state="paused", status="paused")) as d:
        await d.press("x")
        assert d.notices() == ["an A/B needs a running training; it is paused"]


async def test_x_without_a_proposal_says_what_else_compares():
    async with dashboard(snapshot=changed(training(), steps_since_break=0)) as d:
        await d.press("x")
        assert d.engine.calls_of("compare") == []
        assert d.notices() == [
            "the answer proposes no lever now; press a to compare the one under the cursor"
        ]


@pytest.mark.parametrize("lever", ["pipelined", "batch_size"])
async def test_without_a_running_training_a_says_why_and_asks_nothing(lever):
    async with dashboard(snapshot=training()) as d:
        await d.choose(lever)
        for state, why in (
            ("paused", "an A/B needs a running training; it is paused"),
            ("starting", "an A/B needs a running training; it is starting"),
            ("switching", "an A/B needs a running training; it is switching"),
            ("failed", "nothing is running to compare; press R first"),
            ("finished", "nothing is running to compare; press R first"),
        ):
            await d.show(changed(training(), state=state))
            await d.press("a")
            assert d.notices() == [why]
            d.app.clear_notifications()
            assert d.engine.calls_of("compare") == []
            assert d.app.screen is d.app.main_screen
            assert d.app.main_screen.pane.tab == "history"


async def test_a_again_ends_it():
    async with dashboard(snapshot=training()) as d:
        await d.press("a")
        await d.show(comparing())
        await d.press("a")
        assert d.engine.calls_of("end_comparison") == [()]
        assert len(d.engine.calls_of("compare")) == 1
        assert d.notices() == ["the A/B ends after this step"]


async def test_ended_while_the_levers_hide_the_pane_its_verdict_shows_with_its_buttons():
    async with dashboard(size=(80, 24), snapshot=training()) as d:
        await d.press("a")
        await d.show(comparing())
        await d.press("1", "a")
        await d.show(CONCLUDED)
        assert "⏎ sets off" in d.text()
        await d.press("enter")
        assert d.engine.calls_of("change") == [({"pipelined": "off"},)]


async def test_a_again_before_any_snapshot_shows_it_ends_it_too():
    async with dashboard(snapshot=CONCLUDED) as d:
        await d.press("a", "a")
        assert [call[0] for call in d.engine.calls[1:]] == ["compare", "end_comparison"]
        await d.press("a")  # nothing is on its way any more
        assert len(d.engine.calls_of("compare")) == 2


async def test_a_comparison_that_is_over_when_it_first_shows_is_not_waited_for():
    async with dashboard(snapshot=training()) as d:
        await d.press("a")
        await d.show(CONCLUDED)
        await d.press("a")
        assert d.engine.calls_of("end_comparison") == []
        assert len(d.engine.calls_of("compare")) == 2


async def test_a_while_paused_in_a_comparison_says_when_it_will_end():
    async with dashboard(snapshot=comparing()) as d:
        await d.press("space", "a")
        assert d.engine.calls_of("end_comparison") == [()]
        assert d.notices() == ["the A/B ends once the training goes on"]


async def test_a_just_after_another_key_compares_what_that_key_asked_for():
    async with dashboard(snapshot=training()) as d:
        await d.choose("pipelined")
        await d.press("p", "a")
        assert d.engine.calls_of("compare") == [(Question(lever="pipelined", a="off", b="on"),)]


async def test_a_restart_leaves_no_comparison_to_end():
    async with dashboard(snapshot=comparing()) as d:
        await d.press("R")
        await d.show(changed(comparing(), state="starting"))  # until the worker is ready
        assert "end A/B" not in d.lines()[-1]
        await d.press("a")
        assert d.engine.calls_of("end_comparison") == []
        assert "it is starting" in d.notices()[0]


async def test_a_key_that_changes_no_lever_works_during_a_comparison():
    async with dashboard(snapshot=comparing()) as d:
        await d.press("space", "space", "n", "down")
        told = [call[0] for call in d.engine.calls[1:]]
        assert told == ["pause", "resume", "new_row"]
        await d.press("R")
        assert len(d.engine.calls_of("restart")) == 1


@pytest.mark.parametrize(
    ("pairs", "becomes"), [(21, "the ledger keeps its verdict"), (3, "too few pairs for a verdict")]
)
async def test_before_another_workload_ends_an_a_b_the_dialog_says_so(pairs, becomes):
    async with dashboard(snapshot=comparing(pairs)) as d:
        await d.press("w")
        assert f"the A/B of pipelined ends after {pairs} of 40 pairs:" in d.text()
        assert becomes in d.text()
        await d.press("escape")
        await d.show(training())
        await d.press("w")
        assert "the A/B of" not in d.text()


@pytest.mark.parametrize("key", ["p", "plus", "minus", "u", "U", "right", "left", "enter"])
async def test_a_key_that_changes_a_lever_does_not_end_a_comparison(key):
    row = result(3, "batch_size=32", 400.0, settings=settings(pipelined="off", batch_size="32"))
    async with dashboard(snapshot=training()) as d:
        await d.press("plus")
        await d.show(changed(comparing(), results=(row,)))
        asked = len(d.engine.calls)
        await d.press(key)
        assert d.notices() == ["an A/B is running; a ends it"]
        assert len(d.engine.calls) == asked
        assert d.app.screen is d.app.main_screen


async def test_a_row_of_the_history_and_the_palette_set_no_lever_during_a_comparison():
    row = result(3, "batch_size=32", 400.0, settings=settings(pipelined="off", batch_size="32"))
    async with dashboard(snapshot=changed(comparing(), results=(row,))) as d:
        told = {command.title: command.help for command in d.app.get_system_commands(d.app.screen)}
        assert not any(title.startswith("Levers") for title in told)
        assert "an A/B is running; a ends it" in told.values()
        await d.press("5", "enter")
        assert d.engine.calls_of("change") == []
        assert d.notices() == ["an A/B is running; a ends it"]


async def test_the_footer_and_the_levers_show_that_no_lever_can_be_changed_during_a_comparison():
    async with dashboard(snapshot=changed(comparing(), can=ABLE)) as d:
        footer = d.footer()
        assert footer["pipelining"]["p"] == footer["batch(1)"]["+"] == footer["undo"]["u"] == "dim"
        assert footer["timeline"]["t"] == "dim"
        assert footer["compare"]["a"] == footer["pause"]["space"] == "key"
        await d.press("t")
        assert d.engine.calls_of("profile") == []
        assert d.notices() == ["an A/B is running; a ends it"]
        assert "an A/B is running; a ends it" in d.lines()[d.app.main_screen.levers.region.y]
        await d.press("a")  # ends it
        await d.press("p")
        assert d.engine.calls_of("change") == [({"pipelined": "off"},)]


async def test_in_a_pause_the_footer_shows_that_neither_an_a_b_nor_a_profile_can_begin():
    able = changed(training(), can=ABLE)
    async with dashboard(snapshot=able) as d:
        footer = d.footer()
        assert footer["compare"]["a"] == footer["timeline"]["t"] == "key"
        await d.show(changed(able, state="paused", status="paused"))
        footer = d.footer()
        assert footer["compare"]["a"] == footer["try_it"]["x"] == footer["timeline"]["t"] == "dim"
        await d.press("t")
        assert d.engine.calls_of("profile") == []
        assert d.notices() == ["the training is paused; space resumes it"]


def test_the_footer_says_that_a_ends_it():
    d = still()
    for size in SIZES:
        d.resize(*size)
        d.show(comparing())
        assert "a end A/B" in d.lines()[-1]
        d.show(CONCLUDED)
        assert "end A/B" not in d.lines()[-1]


async def test_the_footer_ends_it_by_mouse():
    async with dashboard(size=(80, 24), snapshot=comparing()) as d:
        await d.click("a end A/B")
        assert d.engine.calls_of("end_comparison") == [()]


async def test_without_an_a_b_the_footer_offers_nothing_that_needs_one():
    async with dashboard(size=(80, 24), snapshot=training()) as d:
        d.app.action_pane("ab")
        await d.settle()
        assert "more pairs" not in d.lines()[-1]


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
async def test_asking_for_a_comparison_opens_it_in_the_pane_and_the_rate_stays_in_sight(size):
    """A small terminal has the rate among the readings, and the smallest only the pane."""
    rate = {SIZES[-1]: "pane", SIZES[-2]: "activity"}.get(size, "throughput")
    async with dashboard(size, snapshot=training()) as d:
        main = d.app.main_screen
        await d.press("a")
        await d.show(comparing(9))
        assert main.pane.tab == "ab"
        assert "so far pipelined=off +6.0 %" in d.text()
        assert main.query_one(f"#{rate}").region.area
        await d.show(CONCLUDED)
        for word in VERDICT.split():
            assert word in d.text()


async def test_the_answer_says_that_an_a_b_runs_and_what_was_known_before():
    for size in [(120, 40), (200, 50)]:
        async with dashboard(size, snapshot=training()) as d:
            known = d.app.main_screen.headline.title
            await d.show(comparing())
            assert "an A/B is running: pipelined on or off" in d.text()
            assert f"before that: {known}" in d.text()
            assert "x try" not in d.lines()[1]
            await d.show(CONCLUDED)
            assert "an A/B is running" not in d.text()


def hues(d):
    """The inks of the throughput chart's columns."""
    strips = strips_of(d.app)
    region = d.app.main_screen.query_one("#throughput").region
    return {
        segment.style.color.get_truecolor()
        for y in range(region.y + 1, region.bottom)
        for segment in strips[y].crop(region.x + 6, region.right)
        if "█" in segment.text
    }


async def test_long_blocks_have_their_hue_and_are_named_under_the_curve():
    blocks = tuple(
        BlockShown(begin_s=at_s, end_s=at_s + 5, side=side)
        for at_s, side in ((2.0, "a"), (7.0, "b"), (17.0, "b"))
    )
    async with dashboard(size=(200, 50), snapshot=training()) as d:
        plain = hues(d)
        assert len(plain) == 1
        await d.show(changed(comparing(), blocks=blocks))
        assert len(hues(d) - plain) == 1  # of B: A has the usual one
        region = d.app.main_screen.query_one("#throughput").region
        band = d.lines()[region.bottom - 3][region.x : region.right]
        assert "A/B" in band
        assert "AA" in band
        assert "BB" in band


# ── a verdict, and what follows from it ─────────────────────────────────────────────────


@asynccontextmanager
async def at_a_verdict(snapshot=CONCLUDED, **options):
    """The dashboard after an A/B that was begun with its key, at its verdict."""
    async with dashboard(snapshot=training(), **options) as d:
        await d.choose("pipelined")
        await d.press("a")
        await d.show(snapshot)
        d.engine.calls.clear()
        yield d


@pytest.mark.parametrize(("key", "value"), [("enter", "off"), ("o", "on")])
async def test_a_verdict_offers_both_values_and_a_key_sets_one(key, value):
    async with at_a_verdict() as d:
        for offered in ("m more pairs", "y copy", "Y card"):
            assert offered in d.text()
        other = {"on": "off", "off": "on"}[value]
        active = msgspec.structs.replace(CONCLUDED, settings=settings(pipelined=other))
        await d.show(active)
        offer = {"off": "on is active   ⏎ sets off   m", "on": "off is active   o back to on   m"}
        assert offer[value] in d.text()
        await d.press(key)
        assert d.notices()[0].startswith(f"pipelined={value} from the next step on")
        await d.press(key)  # the second one does nothing else
        assert d.engine.calls_of("change") == [({"pipelined": value},)]
        (notice,) = d.notices()  # one at a time, or they would hide the result
        assert notice.startswith(f"pipelined stays {value}")
        await d.show(msgspec.structs.replace(active, pending={"pipelined": value}))
        assert offer[other] in d.text()


@pytest.mark.parametrize("size", SIZES)
async def test_notices_are_above_the_pane_and_hide_nothing_of_the_result(size):
    async with at_a_verdict(size=size, notifications=True) as d:
        pane = d.app.main_screen.pane.region
        before = d.lines()[pane.y : pane.bottom]
        await d.press("enter")
        assert "pipelined=off from the" in "".join(d.lines()[: pane.y])
        assert d.lines()[pane.y : pane.bottom] == before
        await d.press("z")
        await d.press("y")  # there is nothing above a pane that has all of the room
        assert f"copied: {VERDICT[:12]}" in d.text()


SLOWER = "pipelined=off is 6.3 % slower [6.8, 5.9], 40 pairs, control passed"


@pytest.mark.parametrize("size", [(200, 50), (120, 40), (80, 24)])
@pytest.mark.parametrize(
    ("how", "offered"),
    [({}, "⏎ sets off, slower  "), ({"check_passed": False}, "⏎ sets off  ")],
    ids=["proven", "not proven"],
)
async def test_enter_says_that_it_sets_the_value_that_was_proven_slower(size, how, offered):
    rates = {"low": -0.068, "change": -0.063, "high": -0.059}
    shown = compared(40, verdict=SLOWER, **rates, **how)
    async with at_a_verdict(changed(training(), comparison=shown), size=size) as d:
        assert offered in d.text()
        assert "on is active  " in d.text()


async def test_without_a_verdict_enter_keeps_nothing():
    failure = "lever batch_size: 4096 runs out of memory"
    failed = compared(3, lever="batch_size", a="8", b="4096", failure=failure)
    async with at_a_verdict(changed(training(), comparison=failed)) as d:
        await d.press("enter")
        assert d.engine.calls_of("change") == []
        assert d.notices() == ["the A/B has no verdict: there is nothing to keep"]


async def test_c_takes_home_what_the_a_b_was_about_wherever_the_levers_cursor_is():
    kept = changed(CONCLUDED, settings=settings(pipelined="off"))
    async with at_a_verdict(kept) as d:
        d.app.main_screen.levers.find("batch_size")
        await d.press("enter")
        assert "c shows the lines" in d.notices()[-1]
        assert "c code" in d.lines()[-1]
        await d.press("c")
        assert "pipelined=off · y copies" in d.text()


@pytest.mark.parametrize("snapshot", [comparing(), CONCLUDED], ids=["running", "not kept"])
async def test_c_shows_the_lines_of_the_value_under_test(snapshot):
    async with at_a_verdict(snapshot) as d:
        await d.press("c")
        assert "pipelined=off · y copies" in d.text()
        await d.press("escape", "1", "c")  # the cursor is on the lever compared
        assert "pipelined=off · y copies" in d.text()
        await d.press("escape")
        await d.choose("batch_size")
        await d.press("c")
        assert "batch_size=8 · y copies" in d.text()


async def test_c_shows_the_lines_of_the_present_value_if_another_one_was_set_after_the_ab():
    verdict = compared(40, lever="batch_size", a="8", b="16", verdict=VERDICT)
    later = changed(CONCLUDED, comparison=verdict, settings=settings(batch_size="32"))
    async with at_a_verdict(later) as d:
        await d.press("c")
        assert "batch_size=32 · y copies" in d.text()


async def test_m_runs_the_ab_again_with_more_pairs():
    async with at_a_verdict() as d:
        await d.press("m")
        question = Question(lever="pipelined", a="on", b="off", pairs=80)
        assert d.engine.calls_of("compare") == [(question, True)]


async def test_enter_ends_an_a_b_that_is_sure():
    shown = changed(comparing(9), comparison=compared(9, is_sure=True))
    async with at_a_verdict(shown) as d:
        assert "⏎ sure: ends it" in d.text()
        assert "sure: pipelined=off +6.0 %" in d.text()
        await d.press("enter")
        assert d.engine.calls_of("end_comparison") == [()]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_verdict_says_so_where_cores_were_short(size):
    short = "; cores were short: the training waited for one 48 % of the time"
    told = changed(training(), comparison=compared(40, verdict=VERDICT + short))
    async with at_a_verdict(told, size=size) as d:
        pane = d.app.main_screen.pane.region
        lines = [line.strip() for line in d.lines()[pane.y + 1 : pane.bottom]]
        assert f"{VERDICT}{short}" in " ".join(lines)


HOST_LIMITED = compared(40, verdict=VERDICT + of_one_start(0.97), host_ms=(3.5, 3.2))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_verdict_of_one_start_alone_says_so_and_what_to_do(size):
    told = changed(training(), comparison=HOST_LIMITED)
    async with at_a_verdict(told, size=size) as d:
        pane = d.app.main_screen.pane.region
        lines = [line.strip() for line in d.lines()[pane.y + 1 : pane.bottom]]
        assert f"{VERDICT}{of_one_start(0.97)}" in " ".join(lines)
        assert "S copy it for new starts" in d.text()


async def test_s_capital_copies_a_command_that_asks_it_in_new_starts():
    async with at_a_verdict() as d:
        await d.press("S")
        assert d.app.clipboard == "gpudash ab encdec --lever pipelined=on,off --starts 4"
        assert d.notices() == [f"copied, for when nothing else trains here: {d.app.clipboard}"]
        assert d.engine.calls == []  # two trainings on one GPU would disturb each other


async def test_s_capital_before_an_ab_copies_nothing():
    async with at_a_verdict(training()) as d:
        await d.press("S")
        assert d.app.clipboard == ""
        assert d.notices() == ["no A/B has been run here"]


async def test_m_and_o_before_a_verdict_request_nothing():
    async with at_a_verdict(comparing()) as d:
        await d.press("m", "o", "enter")
        assert d.engine.calls == []
        assert d.notices() == ["the A/B has no verdict yet"]


async def test_y_copies_the_verdict_with_what_it_depends_on():
    async with at_a_verdict() as d:
        await d.press("y")
        assert d.app.clipboard.splitlines()[0] == VERDICT
        assert "encdec on NVIDIA H200" in d.app.clipboard


@pytest.mark.parametrize("workload", CATALOGUE)
async def test_y_capital_copies_a_command_that_asks_the_same_of_gpudash_ab(monkeypatch, workload):
    asked = []
    monkeypatch.setattr("gpudash.cli.headless.Session", lambda plan, **_: mock.Mock(plan=plan))

    def run_ab(session, comparison, *_):
        asked.append((session.plan, comparison))
        return ab.Trial(None, Snapshot(), failed=0)

    monkeypatch.setattr(ab, "run_ab", run_ab)
    entry = CATALOGUE[workload]
    others = resolve(entry.levers, {"batch_size": "16"})
    a = others.pop("pipelined")
    shown = compared(a=a, b="on", verdict=VERDICT, settings=others, planned_pairs=80)
    snapshot = changed(training(), workload=workload, comparison=shown)
    async with at_a_verdict(snapshot) as d:
        await d.press("5", "y")
        words = shlex.split(d.app.clipboard.splitlines()[-1])
    assert words[:2] == ["gpudash", "ab"]
    assert main(words[1:]) == 0
    (plan, comparison) = asked[0]
    assert plan.workload == workload
    assert resolve(entry.levers, plan.settings) == {**others, "pipelined": a}
    question = comparison.question
    assert (question.lever, question.a, question.b) == ("pipelined", a, "on")
    assert question.pairs == 80


# ── verdicts and rows of the history ────────────────────────────────────────────────────


def with_rows(*rows, **values):
    return changed(training(), results=(*training().results, *rows), **values)


async def test_enter_on_a_row_puts_its_levers_in_force_as_one_change_that_u_takes_back():
    row = result(3, "batch_size=32", 400.0, settings=settings(pipelined="off", batch_size="32"))
    async with dashboard(snapshot=with_rows(row)) as d:
        await d.press("5", "down", "enter")
        assert d.engine.calls_of("change") == [({"pipelined": "off", "batch_size": "32"},)]
        await d.press("u")
        assert d.engine.calls_of("change")[1:] == [({"pipelined": "on", "batch_size": "8"},)]


def test_a_verdict_in_the_status_is_whole_at_80_columns():
    own = HostReading(at_s=0.0, values={"own_cpu_pct": 3.2, "own_rss_mib": 61.0})
    told = changed(training(), status=f"training – {VERDICT}", host=own, instruments_ms=0.01)
    d = still(size=(80, 24), snapshot=told)
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
            d.app.control.ab.compare(lever.name, other)
            (question,) = d.engine.calls_of("compare")[-1]
            assert (question.lever, question.b) == (lever.name, other)
            assert question.short_runs == (lever.effect != "next step")
