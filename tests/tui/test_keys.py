"""Every key, by keyboard, mouse and palette, and what the engine is told."""

import threading

import msgspec
import pytest

from gpudash.protocol import Plan
from gpudash.tui.keys import KEYS
from gpudash.tui.screens.dialog import AskChoice, AskText, Confirm
from gpudash.tui.screens.help import Help
from tests.tui.driving import dashboard
from tests.tui.fake_engine import FakeEngine, recording, settings, training


async def test_the_engine_is_opened_and_started_once_on_the_main_thread_after_the_first_paint():
    painted = []

    class Watched(FakeEngine):
        def start(self, listener):
            super().start(listener)
            painted.append("throughput" in driver_text())

    engine = Watched()
    from gpudash.tui.app import Dashboard

    def open_engine():
        painted.append("throughput" in driver_text())
        return engine

    app = Dashboard(open_engine, engine.plan)

    def driver_text():
        return "\n".join(s.text for s in app.screen._compositor.render_strips())

    async with app.run_test(size=(120, 40)) as pilot:
        while engine.listener is None:
            await pilot.pause(0.01)
    assert engine.told("start") == [()]
    assert engine.started_on is threading.main_thread()
    assert painted == [True, True]  # once opened, once started


async def test_p_switches_pipelining_over_and_shows_it_as_pending():
    async with dashboard(snapshot=training()) as d:
        await d.press("p")
        assert d.engine.told("change") == [({"pipelined": "off"},)]
        assert "on → off …" in d.text()


async def test_two_quick_presses_add_up_before_any_snapshot_confirms_them():
    async with dashboard(snapshot=training()) as d:
        await d.press("plus", "equals_sign")
        assert d.engine.told("change") == [({"batch_size": "16"},), ({"batch_size": "32"},)]
        assert "8 → 32 …" in d.text()
        await d.press("minus")
        assert d.engine.told("change")[-1] == ({"batch_size": "16"},)


async def test_p_twice_is_back_where_it_began():
    async with dashboard(snapshot=training()) as d:
        await d.press("p", "p")
        assert d.engine.told("change") == [({"pipelined": "off"},), ({"pipelined": "on"},)]
        assert "…" not in "".join(line for line in d.lines() if "pipelined  " in line)


async def test_a_refused_change_is_not_pending_any_more():
    async with dashboard(snapshot=training()) as d:
        await d.press("plus")
        assert "8 → 16 …" in d.text()
        await d.show(training())
        assert "8 → 16 …" not in d.text()
        await d.press("plus")
        await d.show(training(), last_command=1)  # made before the second press was heard of
        assert "8 → 16 …" in d.text()
        await d.show(training(), last_command=2)
        assert "8 → 16 …" not in d.text()


async def test_at_its_bound_the_batch_size_stays():
    snapshot = msgspec.structs.replace(training(), settings=settings(batch_size="1"))
    async with dashboard(snapshot=snapshot) as d:
        await d.press("minus")
        assert d.engine.told("change") == []


async def test_space_pauses_and_resumes():
    async with dashboard(snapshot=training()) as d:
        await d.press("space")
        await d.show(msgspec.structs.replace(training(), state="paused", status="paused"))
        assert "resume" in d.lines()[-1]
        await d.press("space")
        assert [call[0] for call in d.engine.calls[1:]] == ["pause", "resume"]


async def test_n_begins_a_new_row():
    async with dashboard(snapshot=training()) as d:
        await d.press("n")
        assert d.engine.told("new_row") == [()]


async def test_capital_r_restarts_the_same_plan():
    plan = Plan(workload="encdec", settings={"pipelined": "on"}, device="cuda:1", steps=500)
    async with dashboard(engine=FakeEngine(plan), snapshot=training()) as d:
        await d.press("R")
        assert d.engine.told("restart") == [(plan,)]


@pytest.mark.parametrize("state", ["failed", "finished", "stopped"])
async def test_without_a_worker_a_change_waits_for_the_restart(state):
    dead = msgspec.structs.replace(training(), state=state, status="out of memory.")
    async with dashboard(snapshot=dead) as d:
        assert "press R to restart" in d.text()
        await d.press("minus", "p")
        for _ in range(12):
            await d.show(dead)
        assert d.engine.told("change") == []
        assert "press R to restart with" in d.text()
        assert "batch_size=4" in d.text()
        await d.press("space")
        assert d.engine.told("pause") == []
        assert "press R" in d.notices()[-1]
        await d.press("R")
        ((plan,),) = d.engine.told("restart")
        assert plan.settings == {"batch_size": "4", "pipelined": "off"}
        await d.press("p")
        await d.show(training())
        assert "batch_size=4" not in d.text()


async def test_tab_arrows_and_enter_change_a_switch():
    async with dashboard(snapshot=training()) as d:
        await d.press("tab", "down", "down")  # pin_memory
        assert "page-locked" in d.text()
        await d.press("enter")
        assert d.engine.told("change") == [({"pin_memory": "on"},)]
        await d.press("up", "shift+tab", "shift+tab", "shift+tab")
        assert "Seeds the weights" in d.text()


async def test_arrows_right_and_left_step_through_a_choice():
    async with dashboard(snapshot=training()) as d:
        await d.choose("data")
        await d.press("right", "left")
        assert d.engine.told("change") == [({"data": "cached"},), ({"data": "loader"},)]


async def test_enter_on_a_choice_opens_a_list():
    async with dashboard(snapshot=training()) as d:
        await d.choose("data")
        await d.press("enter")
        assert isinstance(d.app.screen, AskChoice)
        assert "● loader" in d.text()
        await d.press("down", "down", "enter")
        assert d.engine.told("change") == [({"data": "resident"},)]


async def test_any_number_can_be_typed_and_a_bad_one_gets_the_levers_own_words():
    async with dashboard(snapshot=training()) as d:
        await d.press("down", "enter")
        assert isinstance(d.app.screen, AskText)
        await d.type("0")
        await d.press("enter")
        (notice,) = d.notices()
        assert notice == (
            "lever batch_size: '0' is not valid; valid: a whole number from 1 to 1048576"
        )
        assert d.engine.told("change") == []
        await d.press("enter")
        await d.type("24")
        await d.press("enter")
        assert d.engine.told("change") == [({"batch_size": "24"},)]


async def test_keys_typed_into_a_dialog_are_text_and_escape_changes_nothing():
    async with dashboard(snapshot=training()) as d:
        await d.press("down", "enter")
        await d.type("pqrR")
        await d.press("escape")
        assert [call[0] for call in d.engine.calls] == ["start"]
        assert d.app.screen is d.app._main


async def test_w_lists_the_workloads_and_another_one_starts_fresh():
    async with dashboard(snapshot=training()) as d:
        await d.press("w")
        assert "● encdec · Image segmentation" in d.text()
        await d.press("enter")
        assert d.engine.told("restart") == []
        d.app.control.start_workload("encdec")
        ((plan,),) = d.engine.told("restart")
        assert plan.settings == {}


async def test_g_shows_every_value_and_hides_it_again():
    async with dashboard(snapshot=training()) as d:
        assert "tensor cores active" not in d.text()
        await d.press("g")
        text = d.text()
        for value in ("tensor cores active", "17 %", "412 W", "51 °C", "1,980 MHz", "140.4 GiB"):
            assert value in text
        await d.press("g")
        assert "tensor cores active" not in d.text()


async def test_the_device_panel_says_why_nothing_is_read():
    async with dashboard(snapshot=training(on_gpu=False)) as d:
        await d.press("g")
        assert "No GPU is read: the NVIDIA driver" in d.text()


async def test_help_lists_every_key():
    async with dashboard(size=(120, 50), snapshot=training()) as d:
        await d.press("question_mark")
        assert isinstance(d.app.screen, Help)
        text = d.text()
        for key in KEYS:
            assert key.help in text
        await d.press("escape")
        assert d.app.screen is d.app._main


async def test_no_key_of_a_later_issue_is_bound():
    taken = {name for key in KEYS for name in key.keys.split(",")}
    assert not taken & {"t", "d"}


async def test_every_action_is_in_the_palette():
    async with dashboard(snapshot=training()) as d:
        commands = {c.title: c.callback for c in d.app.get_system_commands(d.app.screen)}
        assert "Theme" in commands
        for key in KEYS:
            if key.palette:
                assert key.help in commands
        commands[next(key.help for key in KEYS if key.action == "pipelining")]()
        await d.settle()
        assert d.engine.told("change") == [({"pipelined": "off"},)]


async def test_the_palette_opens_and_runs_a_command():
    async with dashboard(snapshot=training()) as d:
        await d.press("ctrl+p")
        await d.type("new")
        await d.until("New row of the results")
        await d.press("enter")
        while not d.engine.told("new_row"):
            await d.pilot.pause(0.02)
        assert d.app.screen is d.app._main


@pytest.mark.parametrize("size", [(30, 3), (5, 2)])
@pytest.mark.parametrize("key", ["pageup", "pagedown"])
async def test_the_palette_is_not_opened_where_it_has_no_room(size, key):
    async with dashboard(size=size, snapshot=training()) as d:
        await d.press("ctrl+p", key)
        assert d.app.screen is d.app._main


async def test_a_theme_repaints_what_is_painted():
    async with dashboard(snapshot=training()) as d:
        before = d.app._main.query_one("#throughput").render_line(0)
        d.app.theme = "textual-light"
        await d.settle()
        after = d.app._main.query_one("#throughput").render_line(0)
        assert before.text == after.text
        assert before != after


# ── keys that arrive together ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("presses", [2, 3, 8])
async def test_a_dialog_answers_the_first_of_several_enters_alone(presses):
    async with dashboard(snapshot=training()) as d:
        await d.press("down", "enter")
        await d.type("24")
        await d.press_together(*["enter"] * presses)
        assert d.engine.told("change") == [({"batch_size": "24"},)]
        assert d.app.screen is d.app._main


@pytest.mark.parametrize("opening", ["w", "r", "question_mark"])
async def test_two_enters_close_a_dialog_once(opening, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with dashboard(snapshot=training()) as d:
        await d.press(opening)
        await d.press_together("enter", "enter")
        assert d.app.screen is d.app._main
        assert len(d.engine.told("record")) == (opening == "r")


async def test_two_enters_on_an_existing_file_leave_the_question_open(tmp_path):
    target = tmp_path / "old.csv"
    target.touch()
    async with dashboard(snapshot=training()) as d:
        await d.press("r")
        d.app.screen.query_one("Input").value = str(target)
        await d.press_together("enter", "enter")
        assert isinstance(d.app.screen, Confirm)
        assert d.engine.told("record") == [(target, False)]


@pytest.mark.parametrize("answer", ["enter", "y"])
async def test_leaving_is_answered_once(answer):
    snapshot = msgspec.structs.replace(training(), recording=recording())
    async with dashboard(snapshot=snapshot) as d:
        await d.press("q")
        await d.press_together(answer, answer)
        assert d.app._exit == (answer == "y")
        assert len(d.engine.told("stop_recording")) == (answer == "y")


@pytest.mark.parametrize("key", ["enter", "w", "r", "question_mark", "ctrl+q"])
async def test_a_held_key_opens_one_dialog_at_a_time(key):
    snapshot = training()
    if key == "ctrl+q":
        snapshot = msgspec.structs.replace(snapshot, recording=recording())
    async with dashboard(snapshot=snapshot) as d:
        await d.press("down")
        for _ in range(8):
            await d.press_together(*[key] * 5)
            assert len(d.app.screen_stack) <= 2


# ── mouse ───────────────────────────────────────────────────────────────────────────────


async def test_footer_keys_are_buttons():
    async with dashboard(snapshot=training()) as d:
        await d.click("p pipeline", nth=-1)
        await d.click("+ batch")
        await d.click("n row")
        assert [c[0] for c in d.engine.calls[1:]] == ["change", "change", "new_row"]
        assert d.engine.told("change")[1] == ({"batch_size": "16"},)


async def test_a_click_on_a_lever_changes_it():
    async with dashboard(snapshot=training()) as d:
        await d.click("pin_memory")
        assert d.engine.told("change") == [({"pin_memory": "on"},)]


async def test_two_clicks_on_a_lever_open_one_dialog():
    async with dashboard(snapshot=training()) as d:
        await d.click("batch_size  ", times=2)
        assert len(d.app.screen_stack) == 2


@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
async def test_tabs_of_a_small_terminal_can_be_clicked(size):
    async with dashboard(size=size, snapshot=training()) as d:
        await d.click("levers")
        assert "num_workers" in d.text()
        await d.click("pipelined  ")
        assert d.engine.told("change") == [({"pipelined": "off"},)]
        d.engine.log("hello from the worker")
        await d.click("log")
        assert "hello from the worker" in d.text()
        await d.click("results")
        assert "configuration" in d.text()


# ── recording and leaving ───────────────────────────────────────────────────────────────


async def test_r_asks_for_a_file_and_records(tmp_path):
    target = tmp_path / "run.csv"
    async with dashboard(snapshot=training()) as d:
        await d.press("r")
        assert "gpudash-encdec-" in d.text()
        d.app.screen.query_one("Input").value = str(target)
        await d.press("enter")
        assert d.engine.told("record") == [(target, False)]
        await d.show(msgspec.structs.replace(training(), recording=recording(str(target))))
        assert "● REC" in d.lines()[0]
        await d.press("r")
        assert d.engine.told("stop_recording") == [()]


async def test_an_existing_file_is_replaced_only_when_confirmed(tmp_path):
    target = tmp_path / "old.csv"
    target.touch()
    async with dashboard(snapshot=training()) as d:
        for answer, told in (("enter", [(target, False)]), ("y", [(target, False)] * 2)):
            await d.press("r")
            d.app.screen.query_one("Input").value = str(target)
            await d.press("enter")
            assert isinstance(d.app.screen, Confirm)
            assert "exists. Replace it?" in d.text()
            assert "--force" not in d.text()
            await d.press(answer)
            if answer == "enter":
                assert d.engine.told("record") == told
            else:
                assert d.engine.told("record") == [*told, (target, True)]
        assert d.notices() == []


async def test_a_file_that_cannot_be_made_is_a_notice(tmp_path):
    async with dashboard(snapshot=training()) as d:
        d.engine.refuse_record = "cannot write [x]/run.csv: permission denied"
        await d.press("r", "enter")
        assert d.notices() == ["cannot write [x]/run.csv: permission denied"]
        assert d.app.screen is d.app._main


async def test_an_empty_file_name_is_refused():
    async with dashboard(snapshot=training()) as d:
        await d.press("r")
        d.app.screen.query_one("Input").value = "  "
        await d.press("enter")
        assert d.engine.told("record") == []
        assert "file name" in d.notices()[0]


async def test_q_leaves_at_once_without_a_recording():
    async with dashboard(snapshot=training()) as d:
        await d.pilot.press("q")
        assert d.app._exit


async def test_q_asks_while_recording():
    snapshot = msgspec.structs.replace(training(), recording=recording())
    async with dashboard(snapshot=snapshot) as d:
        await d.press("q")
        assert "270 rows" in d.text()
        await d.press("escape")
        assert not d.app._exit
        assert d.engine.told("stop_recording") == []
        await d.press("q")
        await d.pilot.press("y")
        await d.pilot.pause()
        assert d.app._exit
        assert d.engine.told("stop_recording") == [()]


@pytest.mark.parametrize("opened", [(), ("question_mark",), ("down", "enter")])
async def test_ctrl_c_completes_the_file_and_leaves_from_anywhere(opened):
    snapshot = msgspec.structs.replace(training(), recording=recording())
    async with dashboard(snapshot=snapshot) as d:
        await d.press(*opened)
        await d.pilot.press("ctrl+c")
        assert d.app._exit
        assert d.engine.told("stop_recording") == [()]
