"""Every key, by keyboard, mouse and palette, and the calls of the engine."""

import re
import threading

import msgspec
import pytest

from gpudash.protocol.commands import Plan
from gpudash.tui.app import Dashboard
from gpudash.tui.keys import GROUPS, KEYS, REPLAY_KEYS
from gpudash.tui.screens.chooser import Chooser
from gpudash.tui.screens.dialog import AskKey
from gpudash.tui.screens.keys import Help, keys_text
from gpudash.tui.screens.main import PANELS, MainScreen
from gpudash.tui.screens.replay import ReplayScreen
from tests.tui.comparisons import comparing
from tests.tui.driving import dashboard, strips_of
from tests.tui.fake_engine import FakeEngine, recording, result, settings, training


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


async def test_p_switches_pipelining_over_and_shows_it_as_pending():
    async with dashboard(snapshot=training()) as d:
        await d.press("p")
        assert d.engine.calls_of("change") == [({"pipelined": "off"},)]
        assert "on → off …" in d.text()


async def test_two_quick_presses_add_up_before_any_snapshot_confirms_them():
    async with dashboard(snapshot=training()) as d:
        await d.press("plus", "equals_sign")
        assert d.engine.calls_of("change") == [({"batch_size": "16"},), ({"batch_size": "32"},)]
        assert "8 → 32 …" in d.text()
        await d.press("minus")
        assert d.engine.calls_of("change")[-1] == ({"batch_size": "16"},)


async def test_p_twice_is_back_where_it_began():
    async with dashboard(snapshot=training()) as d:
        await d.press("p", "p")
        assert d.engine.calls_of("change") == [({"pipelined": "off"},), ({"pipelined": "on"},)]
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
        assert d.engine.calls_of("change") == []


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
        assert d.engine.calls_of("new_row") == [()]


async def test_capital_r_restarts_the_same_plan():
    plan = Plan(workload="encdec", settings={"pipelined": "on"}, device="cuda:1", steps=500)
    async with dashboard(engine=FakeEngine(plan), snapshot=training()) as d:
        await d.press("R")
        assert d.engine.calls_of("restart") == [(plan,)]


@pytest.mark.parametrize("state", ["failed", "finished", "stopped"])
async def test_without_a_worker_a_change_waits_for_the_restart(state):
    dead = msgspec.structs.replace(training(), state=state, status="out of memory.")
    async with dashboard(snapshot=dead) as d:
        assert "press R to restart" in d.text()
        await d.press("minus", "p")
        for _ in range(12):
            await d.show(dead)
        assert d.engine.calls_of("change") == []
        assert "press R to restart with" in d.text()
        assert "batch_size=4" in d.text()
        await d.press("space")
        assert d.engine.calls_of("pause") == []
        assert "press R" in d.notices()[-1]
        await d.press("R")
        ((plan,),) = d.engine.calls_of("restart")
        assert plan.settings == {"batch_size": "4", "pipelined": "off"}
        await d.press("p")
        await d.show(training())
        assert "batch_size=4" not in d.text()


@pytest.mark.parametrize("down", ["down", "j"])
async def test_arrows_go_through_the_levers_and_from_the_last_to_the_first(down):
    async with dashboard(snapshot=training()) as d:
        await d.press(*[down] * 3)
        assert f"{d.app.main_screen.levers.chosen.name}, with a new loader: " in d.text()
        await d.press(*["up"] * 4)
        assert "Seeds the weights" in d.text()
        await d.press("k", down, down)
        assert d.app.main_screen.levers.chosen.name == d.app.main_screen.headline.first.lever


async def test_arrows_right_and_left_step_through_a_choice():
    async with dashboard(snapshot=training()) as d:
        await d.choose("data")
        await d.press("right", "left", "l", "h")
        assert d.engine.calls_of("change") == [({"data": "cached"},), ({"data": "loader"},)] * 2


async def test_enter_opens_the_values_and_sets_the_one_chosen():
    async with dashboard(snapshot=training()) as d:
        await d.choose("data")
        await d.press("enter")
        assert isinstance(d.app.screen, Chooser)
        assert re.search(r"loader +now", d.text())
        await d.press("down", "down", "enter")
        assert d.engine.calls_of("change") == [({"data": "resident"},)]


async def test_any_number_can_be_typed_and_a_bad_one_gets_the_levers_own_words():
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        await d.press("enter")
        await d.type("0")
        await d.press("enter")
        assert "0 is not valid: a whole number from 1 to" in d.text()
        assert d.engine.calls_of("change") == []
        await d.press("backspace", *"24", "enter")
        assert d.engine.calls_of("change") == [({"batch_size": "24"},)]


async def test_keys_typed_into_a_dialog_are_text_and_escape_changes_nothing():
    async with dashboard(snapshot=training()) as d:
        await d.press("r")
        await d.type("pqrR1z")
        assert "pqrR1z" in d.text()
        await d.press("escape")
        assert [call[0] for call in d.engine.calls] == ["start"]
        assert d.app.screen is d.app.main_screen


async def test_w_lists_the_workloads_and_another_one_starts_fresh():
    async with dashboard(snapshot=training()) as d:
        await d.press("w")
        assert "● encdec · Image segmentation" in d.text()
        begun, below = (one for one in d.lines() if "frozen convol" in one or "encoder," in one)
        assert below.index("encoder,") == begun.index("encdec") + 2  # set in, below its name
        await d.press("enter")
        assert d.engine.calls_of("restart") == []
        d.app.control.start_workload("encdec")
        ((plan,),) = d.engine.calls_of("restart")
        assert plan.settings == {}


async def test_a_held_key_says_only_once_that_it_can_do_nothing():
    async with dashboard(snapshot=training()) as d:
        await d.press_together(*"uuu")
        assert d.notices() == ["there is no lever change to undo"]


# ── undo ────────────────────────────────────────────────────────────────────────────────


async def test_on_a_cpu_the_key_for_pipelining_is_grey_and_says_that_it_does_nothing():
    async with dashboard(snapshot=training(on_gpu=False)) as d:
        footer = d.footer()
        assert footer["pipelining"]["p"] == "dim"
        await d.press("p")
        assert d.engine.calls_of("change") == [({"pipelined": "off"},)]
        assert d.notices() == ["pipelined needs a GPU: it does nothing here"]
        await d.show(training())
        d.app.clear_notifications()
        await d.press("p")
        assert d.notices() == []


async def test_u_undoes_the_last_change_and_capital_u_makes_it_again():
    async with dashboard(snapshot=training()) as d:
        await d.press("plus")
        assert "u sets batch_size=8" in d.text()
        await d.press("u")
        assert "U sets batch_size=16" in d.text()
        await d.press("U")
        values = [change["batch_size"] for (change,) in d.engine.calls_of("change")]
        assert values == ["16", "8", "16"]


@pytest.mark.parametrize("key", ["u", "U"])
async def test_without_a_change_there_is_nothing_to_undo_or_redo(key):
    async with dashboard(snapshot=training()) as d:
        await d.press(key)
        assert "there is no" in d.notices()[0]
        assert d.engine.calls_of("change") == []


# ── A/B ─────────────────────────────────────────────────────────────────────────────────

CONCLUDED = comparing(40, verdict="pipelined=off is 6.4 % slower", low=-0.07, high=-0.06)


async def test_x_compares_what_the_answer_proposes():
    async with dashboard(snapshot=training()) as d:
        proposed = d.app.main_screen.headline.tries[0]
        await d.press("x")
        ((question,),) = d.engine.calls_of("compare")
        assert (question.lever, question.b) == (proposed.lever, proposed.value)


async def test_e_shows_the_rules_of_the_answer_until_e_and_the_help_above_them():
    async with dashboard(snapshot=training()) as d:
        await d.press("e")
        assert "why: GPU-bound" in d.text()
        await d.press("question_mark")
        assert "gpudash · keys" in d.text()
        await d.press("question_mark")
        assert "why: GPU-bound" in d.text()
        await d.press("e")
        assert d.app.screen is d.app.main_screen


async def test_a_verdict_is_kept_taken_back_and_asked_for_anew_by_keys_of_its_tab():
    shown = msgspec.structs.replace(CONCLUDED, settings=settings(pipelined="on"))
    async with dashboard(snapshot=shown) as d:
        await d.press("5", "right", "enter")
        assert d.engine.calls_of("change") == [({"pipelined": "off"},)]
        await d.press("o")
        assert d.engine.calls_of("change")[1:] == [({"pipelined": "on"},)]
        await d.press("m")
        ((question, goes_on),) = d.engine.calls_of("compare")
        assert (question.a, question.b, question.pairs, goes_on) == ("on", "off", 80, True)


@pytest.mark.parametrize("key", ["m", "o"])
async def test_without_a_verdict_its_keys_say_so_and_ask_nothing(key):
    async with dashboard(snapshot=training()) as d:
        calls = len(d.engine.calls)
        await d.press(key)
        assert d.notices() == ["no A/B has been run here"]
        assert len(d.engine.calls) == calls


async def test_a_with_the_focus_elsewhere_compares_the_lever_chosen_last():
    async with dashboard(snapshot=CONCLUDED) as d:
        await d.choose("pin_memory")
        await d.press("5", "right", "a")
        ((question,),) = d.engine.calls_of("compare")
        assert question.lever == "pin_memory"


async def test_enter_on_a_row_puts_its_levers_in_force():
    rows = (result(1, "off", 276.4, settings=settings(pipelined="off")), *training().results[1:])
    async with dashboard(snapshot=msgspec.structs.replace(training(), results=rows)) as d:
        await d.press("5", "up", "enter")
        assert d.engine.calls_of("change") == [({"pipelined": "off"},)]


# ── copying ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("keys", "copied"),
    [
        (("y",), "fused_optimizer=off"),
        (("down", "y"), "data=loader"),
        (("5", "y"), "2366 samples/s"),
        (("5", "right", "y"), "pipelined=off is 6.4 % slower"),
        (("5", "right", "y"), "\ngpudash ab encdec --lever pipelined=onoff"),
    ],
)
async def test_y_copies_what_the_focus_is_on_and_a_verdict_with_its_command(keys, copied):
    async with dashboard(snapshot=CONCLUDED) as d:
        await d.press(*keys)
        assert copied in d.app.clipboard.replace(",", "")
        assert d.notices() == [f"copied: {d.app.clipboard}"]


async def test_capital_y_writes_the_card_of_an_ab_and_again_a_newer_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with dashboard(snapshot=CONCLUDED) as d:
        for _ in range(2):
            await d.press("Y")
            (notice,) = d.notices()
            assert notice == "written: gpudash-pipelined-on-off.svg and gpudash-pipelined-on-off.md"
        assert len(list(tmp_path.iterdir())) == 2
        assert (
            "gpudash ab encdec --lever pipelined=on,off" in next(tmp_path.glob("*.md")).read_text()
        )


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (training(), "no A/B has been run here"),
        (comparing(9), "the A/B has no verdict yet"),
        (comparing(3, failure="ended"), "the A/B has no verdict: there is nothing to show"),
    ],
)
async def test_without_a_verdict_there_is_no_card(tmp_path, monkeypatch, snapshot, said):
    monkeypatch.chdir(tmp_path)
    async with dashboard(snapshot=snapshot) as d:
        await d.press("Y")
        assert d.notices() == [said]
        assert not list(tmp_path.iterdir())


async def test_a_card_that_cannot_be_written_says_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpudash-pipelined-on-off.svg").mkdir()
    async with dashboard(snapshot=CONCLUDED) as d:
        await d.press("Y")
        (notice,) = d.notices()
        assert notice.startswith("cannot record to gpudash-pipelined-on-off.svg")


async def test_without_an_ab_there_is_no_command_to_copy():
    async with dashboard(snapshot=training()) as d:
        await d.press("S")
        assert d.app.clipboard == ""
        assert d.notices() == ["no A/B has been run here"]


# ── help and palette ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("keys", [KEYS, REPLAY_KEYS], ids=["run", "replay"])
@pytest.mark.parametrize("panel", ["", *PANELS, "ab"])
def test_help_lists_every_key_once_in_groups_those_of_the_panel_first(keys, panel):
    lines = keys_text(keys, panel).split("\n")
    for key in keys:
        assert lines.count(f"{key.shown:>7}  {key.help}") == 1
    own = [key for key in keys if panel in key.panels]
    assert (lines[0] == "Here") == bool(own)
    assert lines[1 : len(own) + 1] == [f"{key.shown:>7}  {key.help}" for key in own] or not own
    assert [line for line in lines if line in GROUPS.values()] == list(GROUPS.values())


@pytest.mark.parametrize("keys", [KEYS, REPLAY_KEYS], ids=["run", "replay"])
def test_a_line_of_help_fits_in_80_columns(keys):
    inside = 80 - 2 - 2 - 2  # border, padding, scroll bar
    assert max(map(len, keys_text(keys).split("\n"))) <= inside


@pytest.mark.parametrize("closing", ["escape", "question_mark", "q", "enter"])
async def test_help_opens_with_the_keys_of_the_focused_panel_and_closes(closing):
    async with dashboard(snapshot=training()) as d:
        await d.press("2", "question_mark")
        assert isinstance(d.app.screen, Help)
        text = d.text()
        assert text.index("Here") < text.index("Charts: the whole run") < text.index("Run")
        await d.press(closing)
        assert d.app.screen is d.app.main_screen


@pytest.mark.parametrize("keys", [KEYS, REPLAY_KEYS], ids=["run", "replay"])
def test_no_key_has_two_meanings(keys):
    names = [name for key in keys for name in key.keys.split(",")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("screen", "keys"), [(MainScreen, KEYS), (ReplayScreen, REPLAY_KEYS)])
def test_every_key_has_an_action_of_the_dashboards_own(screen, keys):
    for key in keys:
        name = key.action.partition("(")[0]
        owner = screen if name.startswith("screen.") else Dashboard
        method = getattr(owner, f"action_{name.removeprefix('screen.')}")
        assert method.__module__.startswith("gpudash"), name


async def test_every_lever_value_and_every_action_is_in_the_palette_in_groups():
    async with dashboard(snapshot=training()) as d:
        titles = [command.title for command in d.app.get_system_commands(d.app.screen)]
        assert titles[-1] == "Theme"
        for key in KEYS:
            assert (f"{GROUPS[key.group]} · {key.help}" in titles) == key.palette
        for lever in d.app.control.levers.all:
            others = {*lever.values, lever.default_text} - {d.app.control.levers.value(lever)}
            assert {f"Levers · {lever.name}={value}" for value in others} <= {*titles}
        groups = [title.partition(" · ")[0] for title in titles]
        assert [*dict.fromkeys(groups)] == [
            "Levers",
            *(title for group, title in GROUPS.items() if {group} & {k.group for k in IN_PALETTE}),
            "Theme",
        ]


IN_PALETTE = [key for key in KEYS if key.palette]


async def test_above_a_dialog_the_palette_leaves_out_what_only_the_main_screen_can_do():
    async with dashboard(snapshot=training()) as d:
        await d.press("enter")
        assert d.app.screen is not d.app.main_screen
        titles = [command.title for command in d.app.get_system_commands(d.app.screen)]
        for key in IN_PALETTE:
            works = not key.action.startswith("screen.")
            assert (f"{GROUPS[key.group]} · {key.help}" in titles) == works


@pytest.mark.parametrize(
    ("title", "change"),
    [
        ("Run · Pipelining on or off", {"pipelined": "off"}),
        ("Levers · batch_size=32", {"batch_size": "32"}),
    ],
)
async def test_a_command_of_the_palette_does_what_its_key_does(title, change):
    async with dashboard(snapshot=training()) as d:
        commands = {c.title: c.callback for c in d.app.get_system_commands(d.app.screen)}
        next(run for name, run in commands.items() if name.startswith(title))()
        await d.settle()
        assert d.engine.calls_of("change") == [(change,)]


@pytest.mark.parametrize("opening", ["ctrl+p", "colon"])
async def test_the_palette_opens_and_runs_a_command(opening):
    async with dashboard(snapshot=training()) as d:
        await d.press(opening)
        await d.type("new")
        await d.until("New row of the history")
        await d.press("enter")
        while not d.engine.calls_of("new_row"):
            await d.pilot.pause(0.02)
        assert d.app.screen is d.app.main_screen


@pytest.mark.parametrize("size", [(30, 3), (5, 2)])
@pytest.mark.parametrize("key", ["pageup", "pagedown"])
async def test_the_palette_is_not_opened_where_it_has_no_room(size, key):
    async with dashboard(size=size, snapshot=training()) as d:
        await d.press("ctrl+p", key)
        assert d.app.screen is d.app.main_screen


async def test_a_theme_repaints_what_is_painted():
    async with dashboard(snapshot=training()) as d:
        before = d.app.main_screen.query_one("#throughput").render_line(0)
        d.app.theme = "textual-light"
        await d.settle()
        after = d.app.main_screen.query_one("#throughput").render_line(0)
        assert before.text == after.text
        assert before != after


# ── keys that arrive together ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("presses", [2, 3, 8])
async def test_a_dialog_answers_the_first_of_several_enters_alone(presses):
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        await d.press("enter", *"24")
        await d.press_together(*["enter"] * presses)
        assert d.engine.calls_of("change") == [({"batch_size": "24"},)]


@pytest.mark.parametrize("opening", ["w", "r"])
async def test_two_enters_close_a_dialog_once(opening, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with dashboard(snapshot=training()) as d:
        await d.press(opening)
        await d.press_together("enter", "enter")
        assert d.app.screen is d.app.main_screen
        assert len(d.engine.calls_of("record")) == (opening == "r")


async def test_two_enters_on_an_existing_file_leave_the_question_open(tmp_path):
    target = tmp_path / "old.csv"
    target.touch()
    async with dashboard(snapshot=training()) as d:
        await d.press("r")
        d.app.screen.query_one("Input").value = str(target)
        await d.press_together("enter", "enter")
        assert isinstance(d.app.screen, AskKey)
        assert d.engine.calls_of("record") == [(target, False)]


@pytest.mark.parametrize("answer", ["enter", "y"])
async def test_leaving_is_answered_once(answer):
    snapshot = msgspec.structs.replace(training(), recording=recording())
    async with dashboard(snapshot=snapshot) as d:
        await d.press("q")
        await d.press_together(answer, answer)
        assert d.has_left == (answer == "y")
        assert len(d.engine.calls_of("stop_recording")) == (answer == "y")


@pytest.mark.parametrize("key", ["enter", "w", "r", "question_mark", "ctrl+q", "e", "slash"])
async def test_a_held_key_opens_one_dialog_at_a_time(key):
    snapshot = training()
    if key == "ctrl+q":
        snapshot = msgspec.structs.replace(snapshot, recording=recording())
    async with dashboard(snapshot=snapshot) as d:
        await d.press("down")
        for _ in range(2):  # of an odd number of presses: the dialog is open, or not, as they begin
            await d.press_together(*[key] * 5)
            assert len(d.app.screen_stack) <= 2


# ── mouse ───────────────────────────────────────────────────────────────────────────────


async def test_footer_keys_are_buttons():
    async with dashboard(size=(200, 50), snapshot=training()) as d:
        await d.click("p pipeline")
        await d.click("+ batch")
        await d.click("n new row")
        assert [c[0] for c in d.engine.calls[1:]] == ["change", "change", "new_row"]
        assert d.engine.calls_of("change")[1] == ({"batch_size": "16"},)


async def test_a_click_chooses_a_lever_and_a_second_one_opens_its_values():
    async with dashboard(snapshot=training()) as d:
        await d.click("pin_memory")
        assert d.app.main_screen.levers.chosen.name == "pin_memory"
        assert d.engine.calls_of("change") == []
        await d.click("pin_memory", times=2)
        assert len(d.app.screen_stack) == 2
        assert isinstance(d.app.screen, Chooser)


# ── recording and leaving ───────────────────────────────────────────────────────────────


async def test_r_asks_for_a_file_and_records(tmp_path):
    target = tmp_path / "run.csv"
    async with dashboard(snapshot=training()) as d:
        await d.press("r")
        assert "gpudash-encdec-" in d.text()
        d.app.screen.query_one("Input").value = str(target)
        await d.press("enter")
        assert d.engine.calls_of("record") == [(target, False)]
        await d.show(msgspec.structs.replace(training(), recording=recording(str(target))))
        assert "● REC" in d.lines()[0]
        await d.press("r")
        assert d.engine.calls_of("stop_recording") == [()]


async def test_an_existing_file_is_replaced_only_when_confirmed(tmp_path):
    target = tmp_path / "old.csv"
    target.touch()
    async with dashboard(snapshot=training()) as d:
        for answer, calls in (("n", [(target, False)]), ("y", [(target, False)] * 2)):
            await d.press("r")
            d.app.screen.query_one("Input").value = str(target)
            await d.press("enter")
            assert isinstance(d.app.screen, AskKey)
            assert "exists. Replace it?" in d.text()
            assert "--force" not in d.text()
            await d.press(answer)
            if answer == "n":
                assert d.engine.calls_of("record") == calls
            else:
                assert d.engine.calls_of("record") == [*calls, (target, True)]
        assert d.notices() == []


async def test_a_file_that_cannot_be_made_is_a_notice(tmp_path):
    async with dashboard(snapshot=training()) as d:
        d.engine.refuse_record = "cannot write [x]/run.csv: permission denied"
        await d.press("r", "enter")
        assert d.notices() == ["cannot write [x]/run.csv: permission denied"]
        assert d.app.screen is d.app.main_screen


async def test_an_empty_file_name_is_refused():
    async with dashboard(snapshot=training()) as d:
        await d.press("r")
        d.app.screen.query_one("Input").value = "  "
        await d.press("enter")
        assert d.engine.calls_of("record") == []
        assert "file name" in d.notices()[0]


async def test_q_leaves_at_once_without_a_recording():
    async with dashboard(snapshot=training()) as d:
        await d.pilot.press("q")
        assert d.has_left


async def test_q_asks_while_recording():
    snapshot = msgspec.structs.replace(training(), recording=recording())
    async with dashboard(snapshot=snapshot) as d:
        await d.press("q")
        assert "270 rows" in d.text()
        await d.press("escape")
        assert not d.has_left
        assert d.engine.calls_of("stop_recording") == []
        await d.press("q")
        await d.pilot.press("y")
        await d.pilot.pause()
        assert d.has_left
        assert d.engine.calls_of("stop_recording") == [()]


@pytest.mark.parametrize("opened", [(), ("question_mark",), ("down", "enter")])
async def test_ctrl_c_completes_the_file_and_leaves_from_anywhere(opened):
    snapshot = msgspec.structs.replace(training(), recording=recording())
    async with dashboard(snapshot=snapshot) as d:
        await d.press(*opened)
        await d.pilot.press("ctrl+c")
        assert d.has_left
        assert d.engine.calls_of("stop_recording") == [()]


@pytest.mark.parametrize("opening", ["r", "slash", "ctrl+p"])
async def test_backspace_within_one_write_acts_between_the_letters_around_it(opening):
    async with dashboard(snapshot=training()) as d:
        await d.press(opening)
        await d.press_together(*"zzq", "backspace", *"yx")
        assert "zzyx" in d.text()


async def test_backspace_within_one_write_acts_between_the_digits_around_it():
    async with dashboard(snapshot=training()) as d:
        await d.choose("batch_size")
        await d.press("enter")
        await d.press_together("1", "2", "backspace", "3")
        assert "batch_size = 13" in d.text()
