"""The dashboard of a user's script: its levers, its output, and its end."""

from gpudash.snapshot import ASIDES
from gpudash.tui.bars import footer
from gpudash.tui.panels import View
from gpudash.tui.screens.dialog import AskKey, AskText
from gpudash.tui.screens.recipe import TakeHome
from tests.diagnosis.trainings import ask
from tests.tui import scripts
from tests.tui.comparisons import compared
from tests.tui.driving import dashboard, showing, still
from tests.tui.scenes import changed


def asked(d):
    """The question that stands on the screen; None where none does."""
    if not isinstance(d.app.screen, AskKey):
        return None
    return str(d.app.screen.query_one(".dialog-title").content)


# ── levers ──────────────────────────────────────────────────────────────────────────────


@showing(scripts.training())
async def test_the_levers_are_those_that_the_training_offers_with_values_that_can_be_set(d):
    assert [lever.name for lever in d.app.control.levers.all] == [
        offer.name for offer in scripts.OFFERS
    ]
    titles = [one.title for one in d.app.get_system_commands(d.app.screen)]
    assert "Levers · precision=bf16" in titles
    assert not any("num_workers=" in title or "batch_size=" in title for title in titles)
    rows = d.app.control.levers.rows()
    await d.show(scripts.training(total_steps=377))  # with the same offers
    assert d.app.control.levers.rows() == rows
    d.choose("fused_optimizer")  # it keeps the numbers: nobody is asked
    await d.press("right")
    assert d.engine.calls_of("change") == [({"fused_optimizer": "fused"},)]
    assert asked(d) is None


def test_a_key_that_a_script_has_no_use_for_is_grey():
    buttons = dict(cell.parts[0] for cell in footer(scripts.training()))
    assert {buttons[key] for key in "+-pwR"} == {"dim"}


@showing(changed(scripts.training(), workload="[Old] [/x].py", state="finished"))
async def test_what_a_script_is_called_is_no_markup_in_the_palette(d):
    await d.press("colon", *"pipelining")
    await d.until("[Old] [/x].py has ended")


def test_what_is_proposed_is_what_can_be_moved():
    snapshot = scripts.training()
    proposed = {one.lever for one in ask(snapshot).tries}
    assert proposed == {"precision", "compile", "fused_optimizer"}
    refused = tuple(changed(offer, refusal="no") for offer in scripts.OFFERS)
    assert ask(changed(snapshot, levers=refused)).tries == ()


@showing(scripts.training())
async def test_values_that_only_a_script_has_have_lines_or_a_reason_why_there_are_none(d):
    await d.press("c")
    assert isinstance(d.app.screen, TakeHome)
    await d.press("escape")
    d.choose("fused_optimizer")
    await d.press("c")  # it begins with the value that the answer proposes
    for line in ("fused=True)", "foreach=True)", "foreach=False)"):
        assert f"+optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, {line}" in d.text()
        await d.press("right")


UNKNOWN = changed(scripts.OFFERS[1], kind="choice", default="unknown", choices=("unknown",))


@showing(changed(scripts.training(), levers=(UNKNOWN,), settings={}))
async def test_lines_for_a_value_that_nobody_knows_are_said_to_be_missing(d):
    await d.press("c", shows="No lines are written for compile=unknown.")


# ── other numbers ───────────────────────────────────────────────────────────────────────


@showing(scripts.training())
async def test_before_the_numbers_change_the_user_is_asked_once(d):
    for keys in [("right",), ("enter", "down", "enter"), ("x",)]:
        d.app.control.levers.agreed = False  # as after an attach to a run that is known already
        await d.show(scripts.training())
        d.engine.calls.clear()
        await d.press("1")
        d.choose("precision")
        await d.press(*keys)
        assert "computes other numbers: the weights of train.py will differ" in asked(d)
        await d.press("n")
        assert d.engine.calls == []
        await d.press(*keys, "y")
        assert len(d.engine.calls) == 1
        if d.app.control.comparing:
            assert d.app.main_screen.pane.tab == "ab"
            await d.press("a")  # ends it: no lever can be changed during an A/B
        await d.press("1")
        d.choose("compile")
        await d.press("right")
        assert asked(d) is None
        assert d.engine.calls_of("change")[-1] == ({"compile": "on"},)


@showing(scripts.training())
async def test_an_enter_that_is_held_does_not_answer_but_the_mouse_does_and_redoing_asks_too(d):
    await d.press("enter", "down")
    await d.press_together(*["enter"] * 5)
    assert asked(d) is not None
    assert not d.engine.requests
    await d.click("y  change it")
    await d.press("u")
    d.app.control.levers.agreed = False
    await d.press("U")
    assert asked(d) is not None
    await d.press("y")
    changes = [settings["precision"] for (settings,) in d.engine.calls_of("change")]
    assert changes == ["tf32", "fp32", "tf32"]


# ── leaving ─────────────────────────────────────────────────────────────────────────────


@showing(scripts.training())
async def test_quitting_asks_whether_the_training_is_to_go_on_and_what_becomes_of_an_a_b(d):
    for pairs, becomes in ((21, "its verdict is kept"), (3, "too few for a verdict")):
        shown = scripts.training(comparison=compared(pairs))
        await d.show(shown)
        await d.press("q")
        assert "train.py is running" in asked(d)
        ends = f"Either way the A/B of pipelined ends after {pairs} of 40 pairs: {becomes}."
        assert ends in asked(d)
        await d.press("enter", "escape")
        assert d.app.screen is d.app.main_screen
    await d.press("q", "l")
    assert d.engine.calls_of("leave") == [()]
    assert not d.engine.calls_of("stop")
    assert d.has_left


@showing(scripts.training())
async def test_ctrl_c_reaches_the_script_first_and_then_asks_and_its_end_is_waited_for(d):
    await d.press("ctrl+c")
    assert d.engine.calls_of("stop") == [()]
    assert d.notices() == ["train.py was sent Ctrl-C; ^c again asks to quit"]
    assert not d.has_left
    await d.press("ctrl+c")
    assert "train.py is running" in asked(d)
    assert "by SIGTERM this time" in d.text()
    assert d.engine.calls_of("stop") == [()]
    await d.press("s")
    assert d.engine.calls_of("stop") == [(), ()]
    assert "train.py is ending; q again leaves it" in d.text()
    assert not d.has_left
    await d.show(scripts.training(state="finished", status="train.py was interrupted"))
    assert d.has_left
    assert not d.engine.calls_of("leave")


@showing(scripts.training())
async def test_a_training_that_does_not_stop_is_left(d):
    await d.press("q", "s", "q")
    assert d.engine.calls_of("leave") == [()]
    assert d.has_left


def test_after_the_end_of_a_script_a_verdict_offers_its_copies_alone():
    verdict = compared(40, verdict="num_workers=2 is 82.3 % faster [47.7, 125.1]", b="2")
    d = still(snapshot=scripts.training(comparison=verdict), view=View(tab="ab", focus="pane"))
    assert "sets 2" in d.text()
    d.show(scripts.training(state="finished", comparison=verdict))
    assert "train.py has ended" in d.text()
    assert "Y card" in d.lines()[-1]
    assert "sets 2" not in d.text()
    assert "back to off" not in d.text()


@showing(scripts.training())
async def test_the_end_of_a_script_keeps_the_dashboard_open_and_ctrl_c_then_quits(d):
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


@showing(scripts.training())
async def test_a_signal_leaves_the_script_running(d):
    d.app.leave_soon()
    await d.settle()
    assert d.engine.calls_of("leave") == [()]


# ── what it prints ──────────────────────────────────────────────────────────────────────


@showing(scripts.training())
async def test_what_a_script_prints_has_a_tab_of_its_own(d):
    printed = d.app.main_screen.pane.lines["output"]
    d.engine.print("epoch 1", "10 %")
    d.engine.print("20 %", replaces=1)
    await d.settle()
    assert "⁵output" in d.text()
    assert "epoch 1" in d.text()
    assert "10 %" not in d.text()
    for line, replaces in (("epoch 1 done", 2), ("one", 7)):  # also more than were printed
        d.engine.print(line, replaces=replaces)
        await d.settle()
        assert "20 %" not in d.text()
        assert list(printed) == [line]
    assert not any("epoch" in line for line in d.app.main_screen.pane.lines["log"])


@showing(scripts.training())
async def test_a_line_can_be_typed_for_the_script_but_not_by_an_enter_that_is_held(d):
    await d.press("5", shows="⏎ type")
    await d.press("enter")
    assert isinstance(d.app.screen, AskText)
    await d.type("yes")
    await d.press("enter")
    await d.press_together(*["enter"] * 4)
    assert d.engine.calls_of("type") == [("yes\n",)]
    if d.app.screen is d.app.main_screen:
        await d.press("enter")
    await d.press("space", "enter")  # an empty line
    assert d.engine.calls_of("type")[1:] == [("\n",)]
    await d.show(changed(d.app.control.snapshot, state="finished"))
    assert d.footer()["screen.enter"]["⏎"] == "dim"


# ── what was found, and what it does ────────────────────────────────────────────────────


SIZES = [(80, 24), (120, 40), (200, 50)]


@showing(scripts.training())
async def test_what_was_found_is_on_the_screen_and_once_in_the_log_and_a_pause_is_the_users(d):
    for steps, size in enumerate(SIZES, 377):
        await d.resize(*size)
        assert scripts.FOUND in d.lines()[-2]
        await d.show(scripts.training(total_steps=steps))
    assert list(d.app.main_screen.pane.lines["log"]) == [f"found: {scripts.FOUND}"]
    # what a training does between steps is no pause of the user's
    for why, doing in ASIDES.items():
        d.engine.calls.clear()
        await d.show(scripts.training(status=doing, doing=why))
        header, status, footer_line = d.lines()[0], d.lines()[-2], d.lines()[-1]
        assert f"◌ {doing}" in header
        assert doing in status
        assert doing in d.lines()[1]
        assert "resume" not in status + footer_line
        await d.is_refused("a", why=f"an A/B needs a running training; it is {doing}")
        await d.press("space")
        assert d.engine.calls_of("pause") == [()]
    await d.show(scripts.training(state="paused", status="paused"))
    assert "space resumes" in d.lines()[-2]
    await d.press("space")
    assert d.engine.calls_of("resume") == [()]


def test_the_answer_says_why_a_script_has_failed_or_that_it_ended_without_a_step():
    d = still(snapshot=scripts.ended())
    assert "no training step was seen" in d.text()
    assert "train.py ended with exit code 0" in d.text()
    why = "train.py exited with 3: RuntimeError: no space left"
    for size in SIZES:
        d.resize(*size)
        ended = scripts.ended(state="failed", status=why, notice="its loader is new", total_steps=3)
        d.show(ended)
        above = "\n".join(d.lines()[:7])
        assert "train.py exited with 3" in above
        assert "RuntimeError: no space left" in above
        assert "its loader" not in above


# ── what is in sight first ──────────────────────────────────────────────────────────────


async def test_what_it_prints_is_in_sight_from_the_start_for_it_may_ask_something():
    for size, focus in (((60, 16), "output"), ((80, 24), "levers"), ((120, 40), "levers")):
        async with dashboard(size, snapshot=scripts.training()) as d:
            assert d.app.main_screen.view.keys_of == focus
            d.engine.print("How many epochs?")
            await d.settle()
            assert "How many epochs?" in d.text()
