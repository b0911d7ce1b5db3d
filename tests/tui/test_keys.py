"""Every key, by keyboard, mouse and palette, and the calls of the engine."""

import re
import threading

import pytest
from msgspec.structs import replace as changed

from gpudash.protocol.commands import Plan
from gpudash.tui.app import Dashboard
from gpudash.tui.keys import GROUPS, KEYS, REPLAY_KEYS
from gpudash.tui.screens.chooser import Chooser
from gpudash.tui.screens.dialog import AskKey
from gpudash.tui.screens.keys import Help, keys_text
from gpudash.tui.screens.main import PANELS, MainScreen, ReplayScreen
from tests.tui.comparisons import comparing
from tests.tui.driving import dashboard, showing, strips_of
from tests.tui.fake_engine import FakeEngine, recording, training

RECORDED = changed(training(), recording=recording())


async def test_the_engine_is_opened_and_started_once_on_the_main_thread_after_the_first_paint():
    painted = []

    class Watched(FakeEngine):
        def start(self, listener):
            super().start(listener)
            painted.append("samples/s" in driver_text())

    engine = Watched()

    def open_engine():
        painted.append("samples/s" in driver_text())
        return engine

    app = Dashboard(open_engine, engine.plan)

    def driver_text():
        return "\n".join(s.text for s in strips_of(app))

    async with app.run_test(size=(120, 40)) as pilot:
        while engine.listener is None:
            await pilot.pause(0.01)
    assert engine.calls_of("start") == [()]
    assert engine.started_on is threading.main_thread()
    assert painted == [True, True]  # once opened, once started


async def test_keys_of_levers_add_up_before_any_snapshot_confirms_them_and_are_undone(d):
    await d.press_together(*"uuu")  # held
    assert d.notices() == ["there is no lever change to undo"]
    for key, change, seen in (
        ("p", {"pipelined": "off"}, "on → off …"),
        ("p", {"pipelined": "on"}, ""),  # as it began
        ("plus", {"batch_size": "16"}, "8 → 16 …"),
        ("equals_sign", {"batch_size": "32"}, "8 → 32 …"),
        ("minus", {"batch_size": "16"}, "8 → 16 …"),
        ("u", {"batch_size": "32"}, "8 → 32 …"),
        ("U", {"batch_size": "16"}, "8 → 16 …"),
    ):
        d.engine.calls.clear()
        await d.press(key)
        assert d.engine.calls == [("change", change)]
        assert seen in d.text()
    assert "…" not in "".join(line for line in d.lines() if "pipelined  " in line)
    await d.show(training())  # they were refused
    assert "8 → 16 …" not in d.text()
    await d.press("plus")
    await d.show(training(), last_command=1)  # made before the last press was heard of
    assert "8 → 16 …" in d.text()


async def test_space_pauses_and_resumes_n_begins_a_row_and_capital_r_restarts_the_same_plan():
    plan = Plan(workload="encdec", settings={"pipelined": "on"}, device="cuda:1", steps=500)
    async with dashboard(engine=FakeEngine(plan), snapshot=training()) as d:
        await d.press("space", shows=" resume ")  # also before any snapshot shows it
        await d.show(changed(training(), state="paused", status="paused"), shows=" resume ")
        await d.press("space", "n", "R")
        assert [call[0] for call in d.engine.calls[1:]] == ["pause", "resume", "new_row", "restart"]
        assert d.engine.calls_of("restart") == [(plan,)]


async def test_without_a_worker_a_change_waits_for_the_restart(d):
    for state in ("failed", "finished", "stopped"):
        dead = changed(training(), state=state, status="out of memory.")
        await d.show(dead, shows="press R to restart")
        await d.press("minus", "p")
        await d.show(dead)
        await d.show(dead)
        assert d.engine.calls_of("change") == []
        assert "press R to restart with" in d.text()
        assert "batch_size=4" in d.text()
        await d.press("R")
        (restarted,) = d.engine.calls_of("restart")[-1]
        assert restarted.settings == {"batch_size": "4", "pipelined": "off"}
        await d.show(training(), hides="batch_size=4")


async def test_arrows_go_through_the_levers_and_from_the_last_to_the_first(d):
    for down, up in (("down", "up"), ("j", "k")):
        await d.press(*[down] * 3)
        assert f" {d.app.main_screen.levers.chosen.name}, with a new loader: " in d.text()
        await d.press(*[up] * 4, shows="When Python collects garbage")
        await d.press(down)
        assert d.app.main_screen.levers.chosen.name == d.app.main_screen.headline.first.lever


async def test_arrows_to_the_side_step_through_a_choice_and_enter_opens_its_values(d):
    d.choose("data")
    await d.press("right", "left", "l", "h")
    assert d.engine.calls_of("change") == [({"data": "cached"},), ({"data": "loader"},)] * 2
    await d.press("enter")
    assert isinstance(d.app.screen, Chooser)
    assert re.search(r"loader +now", d.text())
    await d.press("down", "down", "enter")
    assert d.engine.calls_of("change")[4:] == [({"data": "resident"},)]
    d.choose("batch_size")
    await d.press("enter", "0", "enter", shows="0 is not valid: a whole number from 1 to")
    await d.press("backspace", *"24")
    await d.press_together(*["enter"] * 8)  # the first of them answers
    assert d.engine.calls_of("change")[5:] == [({"batch_size": "24"},)]


async def test_w_lists_the_workloads_and_another_one_starts_fresh(d):
    await d.press("w", shows="● encdec · Image segmentation")
    begun, below = (one for one in d.lines() if "frozen convol" in one or "encoder," in one)
    assert below.index("encoder,") == begun.index("encdec") + 2  # set in, below its name
    await d.press_together("enter", "enter")
    assert d.app.screen is d.app.main_screen
    assert d.engine.calls_of("restart") == []
    d.app.control.start_workload("encdec")
    ((plan,),) = d.engine.calls_of("restart")
    assert plan.settings == {}


@showing(training(on_gpu=False))
async def test_on_a_cpu_the_key_for_pipelining_is_grey_and_says_that_it_does_nothing(d):
    assert d.footer()["pipelining"]["p"] == "dim"
    await d.press("p")
    assert d.engine.calls_of("change") == [({"pipelined": "off"},)]
    assert d.notices() == ["pipelined needs a GPU: it does nothing here"]
    await d.show(training())
    d.app.clear_notifications()
    await d.press("p")
    assert d.notices() == []


# ── A/B ─────────────────────────────────────────────────────────────────────────────────

CONCLUDED = comparing(40, verdict="pipelined=off is 6.4 % slower", low=-0.07, high=-0.06)


# ── copying ─────────────────────────────────────────────────────────────────────────────


@showing(CONCLUDED)
async def test_y_copies_what_the_focus_is_on_and_capital_y_writes_a_card(tmp_path, monkeypatch, d):
    monkeypatch.chdir(tmp_path)
    await d.press("y")
    assert d.app.clipboard == "fused_optimizer=off"
    d.app.clear_notifications()
    d.choose("data")
    for keys, copied in (
        (("y",), "data=loader"),
        (("5", "y"), "2366 samples/s"),
        (("5", "right", "y"), "pipelined=off is 6.4 % slower"),
        (("y",), "\ngpudash ab encdec --lever pipelined=onoff"),
    ):
        await d.press(*keys)
        assert copied in d.app.clipboard.replace(",", "")
        first, *_ = d.app.clipboard.splitlines()
        assert d.notices() == [f"copied: {first}"]
    svg = "gpudash-pipelined-on-off.svg"
    for _ in range(2):  # a newer one in its place
        await d.press("Y")
        assert d.notices() == [f"written: {svg} and gpudash-pipelined-on-off.md"]
    picture, text = sorted(tmp_path.iterdir(), reverse=True)
    assert "gpudash ab encdec --lever pipelined=on,off" in text.read_text()
    picture.unlink()
    picture.mkdir()
    await d.press("Y")
    (notice,) = d.notices()
    assert notice.startswith(f"cannot record to {svg}")
    d.choose("pin_memory")
    await d.press("a")  # compares the lever chosen last, wherever the focus is
    ((question,),) = d.engine.calls_of("compare")
    assert question.lever == "pin_memory"


# ── help and palette ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("keys", [KEYS, REPLAY_KEYS], ids=["run", "replay"])
def test_help_lists_every_key_once_in_groups_those_of_the_panel_first(keys):
    for panel in ("", *PANELS, "ab"):
        lines = keys_text(keys, panel).split("\n")
        for key in keys:
            assert lines.count(f"{key.shown:>7}  {key.help}") == 1
        own = [key for key in keys if panel in key.panels]
        assert (lines[0] == "Here") == bool(own)
        assert lines[1 : len(own) + 1] == [f"{key.shown:>7}  {key.help}" for key in own] or not own
        assert [line for line in lines if line in GROUPS.values()] == list(GROUPS.values())
    inside = 80 - 2 - 2 - 2  # border, padding, scroll bar
    assert max(map(len, lines)) <= inside


async def test_help_opens_with_the_keys_of_the_focused_panel_also_above_the_rules(d):
    await d.press("2")
    for closing in ("question_mark", "q", "enter"):
        await d.press("question_mark")
        assert isinstance(d.app.screen, Help)
        await d.press(closing)
        assert d.app.screen is d.app.main_screen
    await d.press("question_mark")
    text = d.text()
    assert text.index("Here") < text.index("Charts: the whole run") < text.index("Run")
    await d.press("escape", "e")
    for shown in ("why: GPU-bound", "gpudash · keys", "why: GPU-bound"):
        assert shown in d.text()
        await d.press("question_mark")
    await d.press("escape", "e")
    assert d.app.screen is d.app.main_screen


@pytest.mark.parametrize(("screen", "keys"), [(MainScreen, KEYS), (ReplayScreen, REPLAY_KEYS)])
def test_every_key_has_one_meaning_and_an_action_of_the_dashboards_own(screen, keys):
    names = [name for key in keys for name in key.keys.split(",")]
    assert len(names) == len(set(names))
    for key in keys:
        name = key.action.partition("(")[0]
        owner = screen if name.startswith("screen.") else Dashboard
        method = getattr(owner, f"action_{name.removeprefix('screen.')}")
        assert method.__module__.startswith("gpudash"), name


IN_PALETTE = [key for key in KEYS if key.palette]


def commands(d):
    """The palette's commands by title."""
    return {one.title: one.callback for one in d.app.get_system_commands(d.app.screen)}


async def test_every_lever_value_and_every_action_is_in_the_palette_in_groups(d):
    titles = [*commands(d)]
    assert titles[-1] == "Theme"
    for key in KEYS:
        assert (f"{GROUPS[key.group]} · {key.help}" in titles) == key.palette
    for lever in d.app.control.levers.all:
        others = {*lever.values, lever.default} - {d.app.control.levers.value(lever)}
        assert {f"Levers · {lever.name}={value}" for value in others} <= {*titles}
    groups = [title.partition(" · ")[0] for title in titles]
    assert {*groups} == {"Levers", "Theme", *(GROUPS[key.group] for key in IN_PALETTE)}
    assert {*groups[groups.index("Levers") :]} == {"Levers", "Theme"}
    for title, change in (
        ("Run · Pipelining on or off", {"pipelined": "off"}),
        ("Levers · batch_size=32", {"batch_size": "32"}),
    ):
        next(run for name, run in commands(d).items() if name.startswith(title))()
        await d.settle()
        assert d.engine.calls_of("change")[-1] == (change,)
    await d.press("enter")  # above a dialog what only the main screen can do is left out
    assert d.app.screen is not d.app.main_screen
    for key in IN_PALETTE:
        works = not key.action.startswith("screen.")
        assert (f"{GROUPS[key.group]} · {key.help}" in commands(d)) == works


async def test_the_palette_begins_with_the_footers_first_keys_and_ends_with_the_levers(d):
    await d.press("ctrl+p")
    await d.until("A/B of the proposal")
    first, second, *_ = re.findall(r"(\w+ · \w[^│]*?)  ", d.text().partition("Search")[2])
    assert first.startswith("Prove · A/B of the proposal")
    assert second.startswith("Prove · A/B of the lever under the cursor")


async def test_the_palette_opens_where_it_has_room_and_runs_a_command_once(d):
    for opening, rows in (("ctrl+p", 1), ("colon", 2)):
        await d.press(opening, *"new")
        await d.until("New row of the history")
        await d.press_together("enter", "enter")
        while len(d.engine.calls_of("new_row")) < rows:
            await d.pilot.pause(0.02)
        await d.settle()
        assert d.app.screen is d.app.main_screen
        assert len(d.engine.calls_of("new_row")) == rows
    for size in ((30, 3), (5, 2)):
        await d.resize(*size)
        for key in ("pageup", "pagedown"):
            await d.press("ctrl+p", key)
            assert d.app.screen is d.app.main_screen


async def test_a_theme_repaints_what_is_painted(d):
    before = d.app.main_screen.query_one("#throughput").render_line(0)
    d.app.theme = "textual-light"
    await d.settle()
    after = d.app.main_screen.query_one("#throughput").render_line(0)
    assert before.text == after.text
    assert before != after


# ── keys that arrive together ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("answer", ["enter", "escape", "y"])
@showing(RECORDED)
async def test_leaving_is_answered_once(answer, d):
    await d.press("q", shows="270 rows")
    await d.press_together(answer, answer)
    assert d.has_left == (answer == "y")
    assert len(d.engine.calls_of("stop_recording")) == (answer == "y")


async def test_backspace_within_one_write_acts_between_the_letters_around_it(d):
    for opening in ("r", "slash", "ctrl+p"):
        await d.press(opening)
        await d.press_together(*"zzq", "backspace", *"yx")
        assert "zzyx" in d.text()
        await d.press("escape")
    d.choose("batch_size")
    await d.press("enter")
    await d.press_together("1", "2", "backspace", "3")
    assert "batch_size = 13" in d.text()


# ── mouse ───────────────────────────────────────────────────────────────────────────────


@showing(size=(200, 50))
async def test_footer_keys_are_buttons_and_a_second_click_opens_a_levers_values(d):
    for text in ("p pipeline", "+ batch", "n new row"):
        await d.click(text)
    assert [c[0] for c in d.engine.calls[1:]] == ["change", "change", "new_row"]
    assert d.engine.calls_of("change")[1] == ({"batch_size": "16"},)
    await d.click("model_scale")
    assert d.app.main_screen.levers.chosen.name == "model_scale"
    assert len(d.engine.calls_of("change")) == 2
    await d.click("model_scale", times=2)
    assert len(d.app.screen_stack) == 2
    assert isinstance(d.app.screen, Chooser)
    await d.press("escape")
    await d.click("^p menu")
    assert d.app.screen is not d.app.main_screen


# ── recording and leaving ───────────────────────────────────────────────────────────────


async def name_file(d, name):
    """Ask for a recording to a file; two Enters answer once."""
    await d.press("r")
    d.app.screen.query_one("Input").value = str(name)
    await d.press_together("enter", "enter")


async def test_r_asks_for_a_file_and_records(tmp_path, d):
    target = tmp_path / "run.csv"
    await d.press("r", shows="gpudash-encdec-")
    await d.press(*"pqrR1z")  # they are text there
    assert "pqrR1z" in d.text()
    await d.press("escape")
    assert [call[0] for call in d.engine.calls] == ["start"]
    await name_file(d, "  ")
    assert "file name" in d.notices()[0]
    await name_file(d, target)
    assert d.engine.calls_of("record") == [(target, False)]
    d.engine.refuse_record = "cannot write [x]/run.csv: permission denied"
    await name_file(d, target)
    assert d.notices() == ["cannot write [x]/run.csv: permission denied"]
    assert d.app.screen is d.app.main_screen
    await d.show(changed(training(), recording=recording(str(target))))
    assert "● REC" in d.lines()[0]
    await d.press("r")
    assert d.engine.calls_of("stop_recording") == [()]


async def test_an_existing_file_is_replaced_only_when_confirmed(tmp_path, d):
    target = tmp_path / "old.csv"
    target.touch()
    for answer, calls in (("n", [(target, False)]), ("y", [(target, False), (target, True)])):
        d.engine.calls.clear()
        await name_file(d, target)
        assert isinstance(d.app.screen, AskKey)
        assert "exists. Replace it?" in d.text()
        assert "--force" not in d.text()
        await d.press(answer)
        assert d.engine.calls_of("record") == calls
    assert d.notices() == []


async def test_q_leaves_at_once_without_a_recording(d):
    await d.pilot.press("q")
    assert d.has_left


@pytest.mark.parametrize("opened", [(), ("question_mark",), ("down", "enter")])
@showing(RECORDED)
async def test_ctrl_c_completes_the_file_and_leaves_from_anywhere(opened, d):
    await d.press(*opened)
    await d.pilot.press("ctrl+c")
    assert d.has_left
    assert d.engine.calls_of("stop_recording") == [()]
