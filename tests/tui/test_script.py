"""The dashboard of a user's script: its levers, its output, and its end."""

import pytest

from gpudash.protocol.commands import Plan
from gpudash.snapshot import ASIDES
from gpudash.tui.bars import footer
from gpudash.tui.screens.chooser import Chooser
from gpudash.tui.screens.dialog import AskKey, AskText
from gpudash.tui.screens.recipe import TakeHome
from tests.diagnosis.trainings import ask
from tests.tui import scripts
from tests.tui.comparisons import compared
from tests.tui.driving import dashboard
from tests.tui.fake_engine import FakeEngine, recording
from tests.tui.fake_engine import training as own_training
from tests.tui.scenes import changed

PLAN = Plan(workload="train.py", settings={})
BATCH = "batch_size: the script sets its batch size itself"


def script(snapshot=None, size=(120, 40), **options):
    """The dashboard of a script."""
    return dashboard(size, FakeEngine(PLAN), snapshot or scripts.training(), **options)


def asked(d):
    """The question that stands on the screen; None where none does."""
    if not isinstance(d.app.screen, AskKey):
        return None
    return str(d.app.screen.query_one(".dialog-title").content)


# ── levers ──────────────────────────────────────────────────────────────────────────────


async def test_the_levers_are_those_that_the_training_offers():
    async with script() as d:
        assert [lever.name for lever in d.app.control.levers.all] == [
            offer.name for offer in scripts.OFFERS
        ]
        await d.choose("fused_optimizer")
        await d.press("right")
        assert d.engine.calls_of("change") == [({"fused_optimizer": "fused"},)]


async def test_a_refused_lever_says_why_and_is_neither_set_nor_chosen_nor_compared():
    async with script() as d:
        await d.choose("num_workers")
        assert "the script has no DataLoader" in d.text()
        for key in ("enter", "right", "a"):
            await d.press(key)
            assert d.app.screen is d.app.main_screen
        assert set(d.notices()) == {f"num_workers: {scripts.NO_LOADER}"}
        assert not d.engine.requests


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("plus", BATCH),
        ("minus", BATCH),
        ("p", "pipelined: only a workload of gpudash's own has it"),
        ("w", "train.py is not ours to restart"),
        ("R", "train.py is not ours to restart"),
    ],
)
async def test_a_key_that_a_script_has_no_use_for_is_grey_and_says_why(key, why):
    async with script() as d:
        await d.press(key)
        assert d.notices() == [why]
        assert not d.engine.requests
        shown = {"plus": "+", "minus": "-"}.get(key, key)
        buttons = dict(cell.parts[0] for cell in footer(d.app.control.snapshot))
        assert buttons[shown] == "dim"


async def test_a_line_is_typed_for_a_script_that_runs_alone():
    async with script() as d:
        d.app.main_screen.open_tab("output")
        await d.press("5")
        assert "type a line" in d.text()
        await d.show(changed(d.app.control.snapshot, state="finished"))
        assert "type a line" not in d.text()


async def test_the_palette_offers_the_values_that_can_be_set_and_no_others():
    async with script() as d:
        titles = [one.title for one in d.app.get_system_commands(d.app.screen)]
        assert "Levers · precision=bf16" in titles
        assert not any("num_workers=" in title or "batch_size=" in title for title in titles)


async def test_what_a_script_is_called_is_no_markup_in_the_palette():
    named = changed(scripts.training(), workload="[Old] [/x].py", state="finished")
    async with script(named) as d:
        await d.press("colon")
        await d.type("pipelining")
        await d.until("[Old] [/x].py has ended")


async def test_a_script_that_has_not_imported_torch_waits_for_it():
    async with script(scripts.starting("train.py runs; torch is not imported so far")) as d:
        assert "◌ torch" in d.text()


async def test_before_the_first_step_no_lever_is_known_and_the_panel_says_so():
    async with script(scripts.starting("torch is imported; no training step so far")) as d:
        assert "levers are known from the first" in d.text()
        assert "✓ torch" in d.text()
        assert "torch is imported; no training step so far" in d.text()
        await d.press("p")
        assert d.notices() == ["levers are known from the first training step on"]


@pytest.mark.parametrize("key", ["space", "t", "M"])
async def test_what_only_a_training_can_do_is_not_asked_of_a_script_before_its_first_step(key):
    async with script(scripts.starting()) as d:
        calls = len(d.engine.calls)
        await d.press(key)
        assert d.notices() == ["train.py has trained no step so far"]
        assert len(d.engine.calls) == calls


@pytest.mark.parametrize("key", ["enter", "right", "a", "c"])
async def test_a_key_for_the_lever_under_the_cursor_says_why_there_is_none(key):
    async with script(scripts.starting()) as d:
        await d.press("1", key)
        assert d.notices() == ["levers are known from the first training step on"]


async def test_a_script_that_starts_again_has_no_lever_of_the_last_ab_to_show_the_code_of():
    shown = compared(lever="fused_optimizer", a="script", b="fused", failure="it ended")
    async with script(changed(scripts.starting(), comparison=shown)) as d:
        d.app.main_screen.open_tab("ab")
        await d.press("5", "c")
        assert d.notices() == ["levers are known from the first training step on"]


async def test_without_anything_to_copy_a_notice_says_so():
    async with script(scripts.starting()) as d:
        await d.press("y")
        assert d.notices() == ["there is nothing to copy"]


async def test_where_several_processes_train_every_lever_is_refused():
    async with script(scripts.of_ranks(2)) as d:
        await d.press("right")
        assert d.notices() == ["precision: 2 processes train together"]
        assert "2 processes train" in d.text()
        assert "2 ranks" in d.text()


async def test_where_several_processes_train_a_pause_is_refused():
    async with script(scripts.of_ranks(2)) as d:
        await d.press("space")
        assert d.engine.calls_of("pause") == []
        assert d.notices() == [
            "several ranks are not paused: in a pause their collectives would time out"
        ]


def test_what_is_proposed_is_what_can_be_moved():
    snapshot = scripts.training()
    proposed = {one.lever for one in ask(snapshot).tries}
    assert proposed == {"precision", "compile", "fused_optimizer"}
    refused = tuple(changed(offer, refusal="no") for offer in scripts.OFFERS)
    assert ask(changed(snapshot, levers=refused)).tries == ()


async def test_values_that_only_a_script_has_have_lines_or_a_reason_why_there_are_none():
    async with script() as d:
        await d.press("c")
        assert isinstance(d.app.screen, TakeHome)
        await d.press("escape")
        await d.choose("fused_optimizer")
        await d.press("c")  # it begins with the value that the answer proposes
        for line in ("fused=True)", "foreach=True)", "foreach=False)"):
            assert f"+optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, {line}" in d.text()
            await d.press("right")


async def test_lines_for_a_value_that_nobody_knows_are_said_to_be_missing():
    (compiled,) = (one for one in scripts.OFFERS if one.name == "compile")
    unknown = changed(compiled, kind="choice", default="unknown", choices=("unknown",))
    async with script(changed(scripts.training(), levers=(unknown,), settings={})) as d:
        await d.press("c")
        assert "No lines are written for compile=unknown." in d.text()


async def test_levers_are_not_painted_anew_by_the_same_offers():
    async with script() as d:
        rows = d.app.control.levers.rows()
        await d.show(scripts.training(total_steps=377))
        assert d.app.control.levers.rows() == rows


# ── other numbers ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("keys", [("right",), ("enter", "down", "enter"), ("x",)])
async def test_before_the_numbers_change_the_user_is_asked_once(keys):
    async with script() as d:
        await d.press(*keys)
        assert "computes other numbers: the weights of train.py will differ" in asked(d)
        assert not d.engine.requests
        await d.press("n")
        assert not d.engine.requests
        await d.press(*keys, "y")
        assert d.engine.requests == 1
        if d.app.control.comparing:
            await d.press("a")  # ends it: no lever can be changed during an A/B
        await d.press("1")
        await d.choose("compile")
        await d.press("right")
        assert asked(d) is None
        assert d.engine.calls_of("change")[-1] == ({"compile": "on"},)


async def test_an_enter_that_is_held_does_not_answer():
    async with script() as d:
        await d.press("enter", "down")
        await d.press_together(*["enter"] * 5)
        assert asked(d) is not None
        assert not d.engine.requests


async def test_the_question_can_be_answered_with_the_mouse():
    async with script() as d:
        await d.press("right")
        await d.click("y  change it")
        assert d.engine.calls_of("change") == [({"precision": "tf32"},)]


async def test_redoing_what_changes_the_numbers_asks_as_well():
    async with script() as d:
        await d.press("right", "y")
        await d.press("u")
        d.app.control.levers.agreed = False  # as after an attach to a run that is known already
        await d.press("U")
        assert asked(d) is not None
        await d.press("y")
        changes = [settings["precision"] for (settings,) in d.engine.calls_of("change")]
        assert changes == ["tf32", "fp32", "tf32"]


async def test_a_lever_that_keeps_the_numbers_needs_no_confirmation():
    async with script() as d:
        await d.choose("fused_optimizer")
        await d.press("right")
        assert asked(d) is None
        assert d.engine.requests == 1


async def test_a_confirmed_ab_opens_its_tab():
    async with script() as d:
        await d.press("x", "y")
        assert d.app.main_screen.pane.tab == "ab"
        assert d.engine.calls_of("compare")[0][0].b == "bf16"


# ── leaving ─────────────────────────────────────────────────────────────────────────────


async def test_quitting_asks_whether_the_training_is_to_go_on():
    async with script() as d:
        await d.press("q")
        assert "train.py is running" in asked(d)
        await d.press("enter", "escape")
        assert d.app.screen is d.app.main_screen
        await d.press("q", "l")
        assert d.engine.calls_of("leave") == [()]
        assert not d.engine.calls_of("stop")
        assert d.has_left


@pytest.mark.parametrize(
    ("pairs", "recorded", "becomes"),
    [
        (21, True, "the recording keeps its verdict"),
        (21, False, "its verdict so far is left on the terminal"),
        (3, True, "too few pairs for a verdict"),
    ],
)
async def test_quitting_says_that_an_a_b_ends_and_what_becomes_of_it(pairs, recorded, becomes):
    status = recording() if recorded else None
    snapshot = changed(scripts.training(), comparison=compared(pairs), recording=status)
    async with script(snapshot) as d:
        await d.press("q")
        ends = f"Either way the A/B of pipelined ends after {pairs} of 40 pairs: {becomes}."
        assert ends in asked(d)


async def test_a_training_that_is_stopped_is_waited_for():
    async with script() as d:
        await d.press("q", "s")
        assert d.engine.calls_of("stop") == [()]
        assert "train.py is ending; q again leaves it" in d.text()
        assert not d.has_left
        await d.show(scripts.training(state="finished", status="train.py was interrupted"))
        assert d.has_left
        assert not d.engine.calls_of("leave")


async def test_a_training_that_does_not_stop_is_left():
    async with script() as d:
        await d.press("q", "s", "q")
        assert d.engine.calls_of("leave") == [()]
        assert d.has_left


async def test_ctrl_c_reaches_the_script_first_and_then_asks():
    async with script() as d:
        await d.press("ctrl+c")
        assert d.engine.calls_of("stop") == [()]
        assert d.notices() == ["train.py was sent Ctrl-C; ^c again asks to quit"]
        assert not d.has_left
        await d.press("ctrl+c")
        assert "train.py is running" in asked(d)
        assert "by SIGTERM this time" in d.text()
        assert d.engine.calls_of("stop") == [()]


async def test_after_the_end_of_a_script_a_verdict_offers_its_copies_alone():
    verdict = compared(40, verdict="num_workers=2 is 82.3 % faster [47.7, 125.1]", b="2")
    async with script(scripts.training(comparison=verdict)) as d:
        d.app.main_screen.open_tab("ab")
        await d.until("sets 2")
        await d.show(scripts.training(state="finished", comparison=verdict))
        await d.until("train.py has ended")
        assert "copy the verdict" in d.text()
        assert "sets 2" not in d.text()
        assert "back to off" not in d.text()


async def test_the_end_of_a_script_keeps_the_dashboard_open_and_ctrl_c_then_quits():
    async with script() as d:
        await d.press("ctrl+c")
        await d.show(scripts.training(state="failed", status="train.py: exit code 130"))
        assert not d.has_left
        assert "train.py: exit code 130" in d.text()
        await d.press("right")
        assert "train.py has ended" in d.notices()
        await d.press("n")
        assert "train.py has ended: a new row would stay empty" in d.notices()
        assert d.engine.calls_of("new_row") == []
        (new_row,) = (one for one in footer(d.app.control.snapshot) if one.action == "new_row")
        assert new_row.parts[0] == ("n", "dim")
        await d.press("ctrl+c")
        assert d.has_left
        assert not d.engine.calls_of("leave")


async def test_a_signal_leaves_the_script_running():
    async with script() as d:
        d.app.leave_soon()
        await d.settle()
        assert d.engine.calls_of("leave") == [()]


async def test_a_training_of_our_own_is_not_asked_about():
    async with dashboard(snapshot=own_training()) as d:
        await d.press("q")
        assert d.has_left
        assert not d.engine.calls_of("leave")


# ── what it prints ──────────────────────────────────────────────────────────────────────


async def test_what_a_script_prints_has_a_tab_of_its_own():
    async with script() as d:
        d.engine.print("epoch 1", "10 %")
        d.engine.print("20 %", replaces=1)
        await d.settle()
        assert "⁵output" in d.text()
        assert "epoch 1" in d.text()
        assert "10 %" not in d.text()
        d.engine.print("epoch 1 done", replaces=2)
        await d.settle()
        assert "20 %" not in d.text()
        assert list(d.app.main_screen.pane.lines["output"]) == ["epoch 1 done"]
        assert not any("epoch" in line for line in d.app.main_screen.pane.lines["log"])


async def test_more_lines_than_were_printed_can_be_replaced():
    async with script() as d:
        d.engine.print("one", replaces=7)
        await d.settle()
        assert list(d.app.main_screen.pane.lines["output"]) == ["one"]


async def test_a_workload_of_our_own_has_no_output_tab():
    async with dashboard(snapshot=own_training()) as d:
        assert "output" not in d.app.main_screen.pane.tabs
        assert "ranks" not in d.app.main_screen.pane.tabs


async def test_a_line_can_be_typed_for_the_script():
    async with script() as d:
        await d.press("5", "enter")
        assert isinstance(d.app.screen, AskText)
        await d.type("yes")
        await d.press("enter")
        assert d.engine.calls_of("type") == [("yes\n",)]


async def test_an_enter_that_is_held_types_nothing_and_a_space_is_an_empty_line():
    async with script() as d:
        await d.press("5")
        await d.press_together(*["enter"] * 4)
        assert not d.engine.calls_of("type")
        if d.app.screen is d.app.main_screen:
            await d.press("enter")
        await d.press("space", "enter")
        assert d.engine.calls_of("type") == [("\n",)]


async def test_where_nothing_can_be_typed_enter_says_so():
    async with script(scripts.training(can=("levers", "blocks", "pause", "leave"))) as d:
        await d.press("5", "enter")
        assert d.notices() == ["nothing can be typed into this run"]


# ── what was found, and what it does ────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_what_was_found_is_on_the_screen_and_once_in_the_log(size):
    async with script(size=size) as d:
        assert scripts.FOUND in d.lines()[-2]
        await d.show(scripts.training(total_steps=400))
        assert list(d.app.main_screen.pane.lines["log"]) == [f"found: {scripts.FOUND}"]


@pytest.mark.parametrize("doing", ASIDES.values())
@pytest.mark.parametrize("state", ["training", "paused"])
async def test_what_a_training_does_between_steps_is_no_pause_of_the_users(doing, state):
    async with script() as d:
        await d.show(scripts.training(state=state, status=doing))
        header, status, footer_line = d.lines()[0], d.lines()[-2], d.lines()[-1]
        assert f"◌ {doing}" in header
        assert doing in status
        assert doing in d.lines()[1]
        assert "resume" not in status + footer_line
        await d.press("space")
        assert d.engine.calls_of("pause") == [()]
        await d.press("a")
        assert d.notices() == [f"an A/B needs a running training; it is {doing}"]


async def test_a_pause_that_was_asked_for_is_ended_by_its_key():
    async with script() as d:
        await d.show(scripts.training(state="paused", status="paused"))
        assert "space resumes" in d.lines()[-2]
        await d.press("space")
        assert d.engine.calls_of("resume") == [()]


async def test_a_script_that_ends_without_a_step_says_so():
    async with script(scripts.ended()) as d:
        assert "no training step was seen" in d.text()
        assert "train.py ended with exit code 0" in d.text()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_the_answer_says_why_a_script_has_failed(size):
    why = "train.py exited with 3: RuntimeError: no space left – its loader is new"
    async with script(scripts.ended(state="failed", status=why, total_steps=3), size=size) as d:
        above = "\n".join(d.lines()[:7])
        assert "train.py exited with 3" in above
        assert "RuntimeError: no space left" in above
        assert "its loader" not in above


async def test_each_of_several_processes_has_a_row():
    async with script(scripts.of_ranks(3), size=(200, 50)) as d:
        d.app.main_screen.open_tab("ranks")
        await d.settle()
        rows = [line for line in d.lines() if "5001" in line]
        assert len(rows) == 1
        assert "106" in rows[0]
        assert "–" in rows[0]  # no loader was seen there
        assert "⁵ranks 3" in d.text()


@pytest.mark.parametrize("size", [(20, 5), (60, 16), (80, 24), (400, 120)])
async def test_no_size_raises(size):
    async with script(scripts.of_ranks(8), size=size) as d:
        d.engine.print(*scripts.PRINTED)
        for key in ("5", "v", "v", "q", "escape", "1", "right"):
            await d.press(key)


async def test_a_choice_of_an_offer_can_be_made():
    async with script() as d:
        await d.press("enter")
        assert isinstance(d.app.screen, Chooser)
        await d.press("down", "down", "enter", "y")
        assert d.engine.calls_of("change") == [({"precision": "bf16"},)]


# ── what is in sight first ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("size", "focus"), [((60, 16), "pane"), ((80, 24), "levers"), ((120, 40), "levers")]
)
async def test_what_it_prints_is_in_sight_from_the_start_for_it_may_ask_something(size, focus):
    async with script(size=size) as d:
        assert d.app.main_screen.view.keys_of == focus
        d.app.main_screen.pane.print(["How many epochs?"], 0)
        await d.settle()
        assert "How many epochs?" in d.text()
