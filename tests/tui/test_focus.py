"""The focus, what keys and mouse mean in each panel, and the time that all charts share."""

import re
from itertools import cycle

import pytest
from msgspec.structs import replace as changed
from textual import events

from gpudash.snapshot import Snapshot
from gpudash.tui.keys import KEYS, REPLAY_KEYS
from gpudash.tui.screens.chooser import Chooser
from gpudash.tui.screens.dialog import AskChoice, AskText
from gpudash.tui.screens.keys import Palette
from gpudash.tui.screens.main import PANELS, MainScreen
from tests.tui.comparisons import comparing
from tests.tui.driving import Driver, dashboard, showing
from tests.tui.fake_engine import answered, recording, training
from tests.tui.test_replay import SHOWN, FakePlayer

SMALL, LARGE, HUGE = (80, 24), (120, 40), (200, 50)
SIZES = [(60, 16), LARGE]
TITLES = {"history": "history", "ab": "A/B", "log": "log"}
GUTTER = 6
"""Columns of the labels left of a plot."""
LONG = training(ticks=1200)
"""Ten minutes, with a lever change at 5:00."""
DECIDED = comparing(40, verdict="pipelined=off is 6.4 % slower", low=-0.07, high=-0.06)


@pytest.fixture(autouse=True)
def _what_a_key_writes_lies_elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def focused(d: Driver) -> list[str]:
    """The panels with a heavy rule, of those that are in sight."""
    main = d.app.main_screen
    shown = [name for name in PANELS if main.query_one(f"#{name}").region]
    return [name for name in shown if rule(d, name).startswith(" ━")]


def in_sight(d: Driver) -> set[str]:
    return {name for name in PANELS if d.app.main_screen.query_one(f"#{name}").region}


def rule(d: Driver, panel: str) -> str:
    """The rule above a panel."""
    region = d.app.main_screen.query_one(f"#{panel}").region
    return d.lines()[region.y][region.x : region.right]


def cursor_columns(d: Driver, panel: str) -> set[int]:
    """Columns of the panel's plot with a cursor in them."""
    x, y, width, height = d.app.main_screen.query_one(f"#{panel}").region
    inside = [line[x : x + width] for line in d.lines()[y + 1 : y + height]]
    return {
        column
        for line in inside
        for column, one in enumerate(line)
        if one == "│" and column >= GUTTER
    }


# ── the focus ───────────────────────────────────────────────────────────────────────────


async def test_an_arrow_means_the_panel_and_the_lever_that_had_the_focus_as_it_was_typed(d):
    before = d.app.main_screen.pane.tab
    await d.press_together("5", "right")
    assert d.app.main_screen.pane.tab != before
    assert d.engine.calls_of("change") == []
    await d.press("1")
    d.choose("batch_size")
    await d.press_together("right", "down")
    assert [list(change) for (change,) in d.engine.calls_of("change")] == [["batch_size"]]
    assert d.app.main_screen.levers.chosen.name != "batch_size"
    d.engine.calls.clear()
    await d.press("d", "enter", "left", "right", "h", "l")  # the levers are out of sight
    assert d.engine.calls == []
    assert d.app.screen is d.app.main_screen


async def test_a_digit_gives_the_focus_and_brings_the_panel_into_sight(d):
    assert focused(d) == ["levers"]
    for size in SIZES:
        await d.resize(*size)
        for digit, panel in enumerate(PANELS, 1):
            await d.press(str(digit))
            assert focused(d) == [panel]


async def test_a_focus_that_moves_leaves_what_did_not_change_as_it_stands_in_the_terminal(d):
    await d.resize(*LARGE)
    drawn, refresh = [], MainScreen.refresh

    def refreshed(screen, *regions, **how):
        drawn.append(screen)
        return refresh(screen, *regions, **how)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MainScreen, "refresh", refreshed)
        await d.press("5", "1")
    assert focused(d) == ["levers"]
    assert not drawn


async def test_tab_goes_through_all_panels_but_the_hidden_one_and_shift_tab_back(d):
    for size in SIZES:
        await d.resize(*size)
        went = []
        for key in ["tab"] * 5 + ["shift+tab"] * 5:
            await d.press(key)
            went += focused(d)
        assert went[:5] == ["throughput", "activity", "step", "pane", "levers"]
        assert went[5:] == [*went[3::-1], "levers"]


async def test_d_shows_every_reading_in_all_of_the_room_and_esc_or_d_the_levers_again(d):
    for size in SIZES:
        await d.resize(*size)
        for opening, closing in [("d", ["d"]), ("6", ["g"]), ("g", ["escape", "escape"])]:
            await d.press(opening)
            assert focused(d) == ["activity"]
            assert in_sight(d) == {"activity"}
            await d.press(*closing)
            assert focused(d) == ["levers"]
            assert "levers" in in_sight(d)
    await d.press("d")
    for value in ("SM occupancy", "17 %", "412 W", "51 °C", "1,980 MHz", "140.4 GiB"):
        assert value in d.text()
    await d.show(training(on_gpu=False), shows="no GPU is read: the NVIDIA")


@showing(size=SMALL)
async def test_v_goes_through_levers_history_ab_and_log(d):
    rate = "samples/s"
    d.engine.log("hello from the worker")
    for tab, shown in [
        ("history", "GPU busy   setting"),
        ("ab", "no A/B yet"),
        ("log", "hello from the worker"),
        ("", "from → to"),
    ] * 2:
        assert shown not in d.text() or tab in ("", "history")
        await d.press("v", shows=(shown, rate))
        assert f"⁵{TITLES.get(tab, '')}" in d.text() or not tab


@showing(size=SMALL)
async def test_a_panel_that_was_out_of_sight_has_the_focus_again_and_esc_leads_to_the_levers(d):
    for keys in (["5"], ["2"], ["3", "z"]):
        await d.press(*keys)
        before = focused(d)
        await d.resize(30, 3)
        await d.resize(*SMALL)
        (after,) = focused(d)
        assert after in (*before, "pane")
    d.choose("pipelined")
    await d.press("z", "a")
    assert focused(d) == ["pane"]
    await d.press("escape")
    assert focused(d) == ["levers"]
    assert d.app.main_screen.levers.chosen.name == "pipelined"


@showing(size=HUGE)
async def test_a_click_gives_the_focus(d):
    for panel in ("throughput", "activity", "step", "pane", "levers"):
        await d.pilot.click(f"#{panel}", offset=(1, 1))
        await d.settle()
        assert d.app.main_screen.view.focus == panel


# ── inside of the panels ────────────────────────────────────────────────────────────────


async def test_arrows_to_the_side_open_the_panes_tabs_and_up_and_down_choose_a_row(d):
    pane = d.app.main_screen.pane
    await d.press("5")
    for right, left in (("right", "left"), ("l", "h")):
        went = []
        for key in [right] * 4 + [left] * 4:
            await d.press(key)
            went.append(pane.tab)
        assert went[:4] == ["ab", "profile", "log", "history"]
        assert went[4:] == ["log", "profile", "ab", "history"]
    for key, number in (("up", 1), ("j", 2)):
        await d.press(key)
        assert pane.chosen_result.number == number
    d.engine.log(*(f"line {n}" for n in range(60)))
    await d.press("left", "pageup", hides="line 59")
    await d.press("pagedown", shows="line 59")


async def test_slash_finds_a_lever_or_in_the_pane_a_row_or_a_line(d):
    d.engine.log(*(f"line {n} " for n in range(60)))
    for size, before, text, found in (
        (LARGE, (), "seed", "▸ seed"),
        (LARGE, ("d",), "data", "▸ data"),
        (LARGE, ("5",), "batch", "▸ 1 "),
        (SMALL, ("left",), "line 3", "line 3 "),
        (SMALL, ("2",), "seed", "▸ seed"),
    ):
        await d.resize(*size)
        await d.press(*before, "slash")
        assert isinstance(d.app.screen, AskText)
        d.app.screen.query_one("Input").value = text
        await d.press("enter", shows=found)
        assert d.notices() == []
    await d.press("slash", *"xyz", "enter")
    assert d.notices() == ["nothing found for 'xyz'"]


# ── zoom ────────────────────────────────────────────────────────────────────────────────


async def test_z_gives_the_focused_panel_all_the_room_and_z_or_esc_takes_it_back(d):
    for size in SIZES:
        await d.resize(*size)
        for (digit, panel), closing in zip(enumerate(PANELS, 1), cycle(("z", "escape"))):
            await d.press(str(digit))
            before = in_sight(d)
            await d.press("z")
            assert in_sight(d) == {panel}
            await d.press(closing)
            assert in_sight(d) == before
            assert focused(d) == [panel]


async def test_enter_zooms_a_chart_and_zoomed_another_panel_is_zoomed_in_its_place(d):
    for digit, panel in enumerate(("throughput", "activity", "step"), 2):
        await d.press(str(digit), "enter")
        assert in_sight(d) == {panel}
        await d.press("enter")
        assert len(in_sight(d)) > 1
    await d.press("2", "z")
    for key, panel in (("tab", "activity"), ("1", "levers"), ("a", "pane")):
        await d.press(key)
        assert in_sight(d) == {panel}


# ── the charts' common time ─────────────────────────────────────────────────────────────


def seconds(clock: str) -> int:
    minutes, _, rest = clock.rpartition(":")
    return 60 * int(minutes) + int(rest)


def shown_s(d: Driver) -> tuple[float, float]:
    """The moments at both ends of the throughput chart; 0 where it begins before the run."""
    shown = d.app.main_screen.query_one("#throughput").time_range
    return max(shown.begin_s, 0.0), shown.end_s


def is_frozen(d: Driver) -> bool:
    """Whether the chart says which key follows the run again."""
    return " f live " in rule(d, "throughput")


@showing(LONG)
async def test_brackets_and_0_choose_the_range_from_wherever_the_focus_is(d):
    for focus in "12345":
        await d.press(focus)
        spans = []
        for key in ("f", "f", "left_square_bracket", "right_square_bracket", "0"):
            await d.press(key)
            begin_s, end_s = shown_s(d)
            spans.append(end_s - begin_s)
        two_minutes, again, one, two, whole = spans
        assert one < two_minutes == again == two < whole
        assert whole == pytest.approx(600, abs=5)
        await d.press(*["left_square_bracket"] * 3)  # back to two minutes


@showing(LONG)
async def test_f_freezes_the_charts_while_the_training_goes_on_and_follows_again(d):
    await d.press("f")
    before = shown_s(d)
    await d.show(training(ticks=1260))
    assert shown_s(d) == before
    assert is_frozen(d)
    assert "0:10:30" in d.lines()[0]
    for following in ("f", "end", "escape"):
        await d.press(following)
        assert shown_s(d)[1] == 630
        assert not is_frozen(d)
        await d.press("f")
    await d.show(changed(training(), workload="augment"))
    assert not is_frozen(d)


@showing(LONG, size=HUGE)
async def test_an_arrow_puts_a_cursor_through_all_charts_with_their_values_there(d):
    for chart, left in (("3", "left"), ("4", "h")):
        await d.press(chart)
        assert not cursor_columns(d, "throughput")
        await d.press(left, left, left)
        titles = {panel: rule(d, panel) for panel in ("throughput", "step", "activity")}
        moments = {title.partition(" at ")[2].split()[0] for title in titles.values()}
        assert len(moments) == 1, titles
        assert seconds(moments.pop()) < 600
        assert all(cursor_columns(d, panel) for panel in ("throughput", "step"))
        before = cursor_columns(d, "throughput")
        await d.press("right")
        assert max(cursor_columns(d, "throughput")) == max(before) + 1
        await d.press(*["right"] * 3)  # right of the newest moment the charts follow again
        assert not is_frozen(d)
        assert " at " not in rule(d, "throughput")


@showing(LONG)
async def test_the_cursor_goes_to_lever_changes_and_esc_one_level_back_at_a_time(d):
    await d.press("comma")
    assert "at 5:00" in rule(d, "throughput")
    await d.press("full_stop")
    assert not is_frozen(d)
    await d.press("2", "left", "z")

    def levels():
        pointed = d.app.main_screen.query_one("#throughput").view.cursor_s is not None
        return (len(in_sight(d)) == 1, pointed, is_frozen(d))

    for level in (
        (True, True, True),
        (False, True, True),
        (False, False, True),
        (False, False, False),
    ):
        assert levels() == level
        assert focused(d) == ["throughput"]
        await d.press("escape")
    assert focused(d) == ["levers"]


# ── the mouse ───────────────────────────────────────────────────────────────────────────


@showing(LONG, size=HUGE)
async def test_a_click_on_a_chart_puts_the_cursor_there_a_drag_chooses_the_range(d):
    for panel, x in (("throughput", 20), ("step", 60)):
        await d.pilot.click(f"#{panel}", offset=(x, 3))
        await d.settle()
        assert cursor_columns(d, panel) == {x}
        assert " at " in rule(d, "throughput")
        assert " at " in rule(d, "step")
    await d.press("end")
    await d.pilot.mouse_down("#step", offset=(20, 3))
    await d.pilot.mouse_up("#step", offset=(50, 3))
    await d.settle()
    begin_s, end_s = shown_s(d)
    assert 15 < end_s - begin_s < 110
    spans = [end_s - begin_s]
    for turn in (events.MouseScrollDown, events.MouseScrollUp):
        await d.mouse([turn], "#step", offset=(20, 3))
        await d.settle()
        begin_s, end_s = shown_s(d)
        spans.append(end_s - begin_s)
    assert spans[1] > spans[0]
    assert spans[2] < spans[1]


@showing(LONG)
async def test_a_drag_that_ends_beside_its_chart_leaves_the_other_ones_alone(d):
    await d.pilot.click("#activity", offset=(15, 3))
    await d.press("end")
    before = shown_s(d)
    await d.pilot.mouse_down("#throughput", offset=(20, 3))
    await d.pilot.mouse_up("#activity", offset=(25, 3))
    await d.settle()
    assert shown_s(d) == before


async def test_words_in_rules_are_buttons(d):
    await d.click("d all")
    assert in_sight(d) == {"activity"}
    await d.click("d close")
    assert focused(d) == ["levers"]


# ── footer ──────────────────────────────────────────────────────────────────────────────


@showing(DECIDED)
async def test_the_footer_begins_with_the_same_keys_and_then_has_those_of_the_focused_panel(d):
    charts = dict.fromkeys("234", "z zoom")
    d.app.main_screen.pane.open("ab")
    for size in ((120, 40), (200, 50)):
        await d.resize(*size)
        for key, own in {**charts, "1": "p pipeline", "5": "m more pairs"}.items():
            await d.press(key)
            always = [" x try it", "a A/B", "e why", "? help"]
            footer = d.lines()[-1]
            shown = re.split(r"  +", footer)
            assert [one for one in shown if one in always] == always
            assert footer.index(own) > footer.index("? help")
            between = {one for one in shown[: shown.index(own)] if not one.startswith("⏎")}
            assert not between - {*always, "c code"}


# ── every key in every state ────────────────────────────────────────────────────────────


STATES = {
    "starting": Snapshot(state="starting", workload="encdec"),
    "training": training(),
    "A/B running": comparing(),
    "failed": changed(training(), state="failed", status="failed."),
    "replay": SHOWN,
}
ANSWERED = {name: answered(shown) for name, shown in STATES.items()}
LEAVING = {"leave", "leave_now"}
NEEDS_A_TRAINING = {
    *("change", "compare", "end_comparison", "pause", "resume", "record", "new_row"),
}
SAME_IN_EVERY_STATE = ("question_mark", "slash", "ctrl+p", *"13", "tab", "shift+tab", "down", "up")


async def close(d: Driver) -> None:
    """Leave what is open above the main screen, after it was painted."""
    while d.app.screen is not d.app.main_screen:
        d.lines()
        await d.press("escape")


@pytest.mark.parametrize("name", ANSWERED)
async def test_every_key_in_every_state_works_and_asks_only_what_can_be(name):
    shown = ANSWERED[name]
    player = FakePlayer() if shown.playback else None
    async with dashboard(SMALL, snapshot=shown, player=player) as d:
        begun = len(d.engine.calls)
        for key in REPLAY_KEYS if player else KEYS:
            pressed = key.keys.partition(",")[0]
            if key.action in LEAVING or pressed in SAME_IN_EVERY_STATE:
                continue
            before = len(d.engine.calls)
            await d.press(pressed)
            if key.group in ("look", "move"):
                d.lines()
            await close(d)
            if len(d.engine.calls) > before:
                await d.show(shown)
        asked = {call[0] for call in d.engine.calls[begun:]}
    assert shown.state != "failed" or not asked & NEEDS_A_TRAINING
    assert shown.state == "training" or "compare" not in asked
    assert not player or asked <= {"new_row"}


@pytest.mark.parametrize(
    ("opening", "dialog"),
    [("enter", Chooser), ("w", AskChoice), ("r", AskText), ("ctrl+p", Palette)],
)
async def test_no_key_reaches_the_run_while_a_dialog_is_open(opening, dialog):
    # for the app, or for a dialog above this one
    answers = ("enter", "y", "a", "c", "question_mark", "ctrl+c", "ctrl+p")
    asking = [key for key in KEYS if key.group not in ("look", "move")]
    names = [name for key in asking for name in key.keys.split(",") if name not in answers]
    shown = training() if opening == "r" else changed(training(), recording=recording())
    async with dashboard(snapshot=shown) as d:
        for name in (*names, "left", "right", "pagedown"):
            if d.app.screen is d.app.main_screen:
                await d.press(opening)
            assert isinstance(d.app.screen, dialog)
            await d.press(name)
        assert [call[0] for call in d.engine.calls] == ["start"]
        assert not d.has_left


HELD = 5
"""Presses in one write of the terminal: odd, so that what toggles ends as it did not begin."""


@showing(LONG, size=SMALL)
async def test_any_key_held_down_leaves_a_screen_that_works(d):
    for key in KEYS:
        if key.action in LEAVING or (key.group == "move" and not key.panels):
            continue
        await d.press_together(*[key.keys.partition(",")[0]] * HELD)
        assert len(d.app.screen_stack) <= 2
        await close(d)
    await d.press("escape", "escape", "escape", "escape", "1")
    assert focused(d) == ["levers"]
