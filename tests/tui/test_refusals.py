"""A key that can do nothing now says why, and asks nothing of the run."""

import pytest
from msgspec.structs import replace as changed

from gpudash.availability import COMPARED, INSTEAD, RECORDED, WHY_NOT
from gpudash.protocol.session import SlowingShown
from gpudash.snapshot import ENDED
from gpudash.tui.keys import KEYS
from tests.tui import scripts
from tests.tui.comparisons import CONCLUDED, compared, comparing
from tests.tui.driving import showing
from tests.tui.fake_engine import result, settings, training
from tests.tui.test_replay import PLAYBACK, FakePlayer

ABLE = (*training().can, "profile", "memory")
RUNS = changed(training(), can=ABLE)
NEW = changed(RUNS, steps_since_break=0)
"""Without an answer so far."""
PROVEN_BY = SlowingShown(delay_ms=0.5, slopes=(), rounds=3)


@pytest.fixture
def refused(d):
    """A function that shows the dashboard a snapshot and presses keys that are refused."""

    async def refused(snapshot, why, *keys, lever="", tab=""):
        await d.show(snapshot)
        d.app.main_screen.pane.open("history")
        if tab:
            d.app.main_screen.open_tab(tab)
        else:
            await d.press("1")
        if lever:
            d.choose(lever)
        for key in keys:
            await d.is_refused(key, why=why)

    return refused


@showing(None)
async def test_what_needs_an_answer_or_a_verdict_that_is_not_there(d, refused):
    free = "the answer proposes no lever now; press a to compare the one under the cursor"
    none, early = "no A/B has been run here", "the A/B has no verdict yet"
    never = "the A/B has no verdict: there is nothing to"
    failure = "lever batch_size: 4096 runs out of memory"
    failed = compared(3, lever="batch_size", a="8", b="4096", failure=failure)
    await refused(NEW, "there is no answer yet that could be proven", "E")
    await refused(NEW, free, "x")
    await refused(RUNS, none, "m", "o", "S", "Y")
    await refused(comparing(9), early, "m", "o", "Y")
    await refused(comparing(9), early, "enter", tab="ab")
    await refused(changed(RUNS, comparison=failed), f"{never} keep", "enter", tab="ab")
    await refused(changed(RUNS, comparison=failed), f"{never} show", "Y")
    assert d.app.clipboard == ""


async def test_there_is_no_change_to_undo_and_batch_size_1_is_not_halved(d, refused):
    for key, way in (("u", "undo"), ("U", "redo")):
        await refused(RUNS, f"there is no lever change to {way}", key)
    await d.show(changed(RUNS, settings=settings(batch_size="1")))
    await d.press("minus")
    assert d.engine.calls_of("change") == []


async def test_during_an_a_b_no_lever_is_changed_and_no_other_begins(d, refused):
    row = result(3, "batch_size=32", 400.0, settings=settings(pipelined="off", batch_size="32"))
    runs = changed(comparing(), results=(row,), can=ABLE)
    busy = "an A/B is running; a ends it"
    await d.show(RUNS)
    await d.press("plus")  # which could be undone
    await refused(runs, busy, "p", "plus", "minus", "u", "U", "right", "left", "enter")
    await refused(runs, busy, "x", "E", "T", "t")
    await refused(runs, busy, "enter", tab="history")
    proving = changed(training(), slowing=PROVEN_BY)
    await refused(proving, "a proof by slowing is running; a ends it", "E")


async def test_where_nothing_trains(refused):
    for state in ("paused", "starting", "switching"):
        shown = changed(RUNS, state=state, status=state)
        needs = f"an A/B needs a running training; it is {state}"
        await refused(shown, needs, "a", "x", lever="pipelined")
        await refused(shown, needs, "a", lever="batch_size")
    paused = changed(RUNS, state="paused", status="paused")
    await refused(paused, "the training is paused; space resumes it", "t")
    for state in ENDED:
        dead = changed(RUNS, state=state)
        await refused(dead, "nothing is running to compare; press R first", "a")
        await refused(dead, "nothing is running to record; press R first", "r")
        await refused(dead, "nothing is running to profile; press R first", "t")
        await refused(dead, "nothing is running; press R to restart", "space")
        await refused(dead, "nothing is running", "M")
        await refused(dead, "the training has ended: a new row would stay empty", "n")


NEEDS = {
    "levers": ("p", "plus", "enter", "right"),
    "restart": ("w", "R"),
    "pause": ("space",),
    "record": ("r",),
    "blocks": ("a",),
    "profile": ("t",),
    "memory": ("M",),
}


async def test_what_the_source_of_the_run_does_not_accept(refused):
    assert {key.needs for key in KEYS} == {None, *NEEDS}
    for ability, keys in NEEDS.items():
        await refused(changed(training(), can=()), WHY_NOT[ability], *keys)


@showing(None, player=FakePlayer())
async def test_what_a_recording_cannot_obey(refused):
    judged = changed(CONCLUDED, can=(), playback=PLAYBACK, verdicts=(CONCLUDED.comparison,))
    running = changed(comparing(9), can=(), playback=PLAYBACK)
    why = f"{RECORDED}; {INSTEAD}"
    await refused(judged, why, "p", "plus", "r", "R", "w", "u", "a", "x", "enter")
    await refused(judged, why, "o", "m", "enter", tab="ab")
    await refused(judged, why, "enter", tab="history")
    await refused(running, why, "a", tab="ab")


@showing(None)
async def test_two_trainings_that_are_compared_take_no_request_but_their_verdict_is_written(
    d, refused, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    of_starts = {"lever": "version", "a": "main", "b": "HEAD", "samples_per_s": (80.0, 84.0)}
    running = changed(comparing(5, **of_starts), can=(), levers=())
    judged = changed(running, comparison=changed(running.comparison, verdict="HEAD is faster"))
    every = sorted({key.keys.partition(",")[0] for key in KEYS if key.needs} - {"o", "m"})
    for shown in (running, judged, changed(judged, state="finished")):
        await refused(shown, COMPARED, *every, "n", "c", "e", "S", "enter")
        await refused(shown, COMPARED, "o", "m", "c", "S", "enter", tab="ab")
    assert {"sets HEAD", "new starts"}.isdisjoint(d.footer())
    await d.press("y", "Y")
    (notice,) = d.notices()
    assert notice.startswith("written: gpudash-version-main-HEAD.svg")
    assert d.app.clipboard.splitlines()[0] == "HEAD is faster"


# ── a user's script ─────────────────────────────────────────────────────────────────────

BATCH = "batch_size: the script sets its batch size itself"
OURS = "train.py is not ours to restart"
LATER = "levers are known from the first training step on"


@showing(scripts.training())
async def test_what_a_script_has_no_use_for(d, refused):
    shown = scripts.training()
    await refused(shown, BATCH, "plus", "minus")
    await refused(shown, "pipelined: only a workload of gpudash's own has it", "p")
    await refused(shown, OURS, "w", "R")
    why = f"num_workers: {scripts.NO_LOADER}"
    await refused(shown, why, "enter", "right", "a", lever="num_workers")
    assert "the script has no DataLoader" in d.text()
    mute = scripts.training(can=("levers", "blocks", "pause", "leave"))
    await refused(mute, "nothing can be typed into this run", "enter", tab="output")


@showing(scripts.training())
async def test_what_a_script_cannot_do_before_its_first_step(refused):
    shown = scripts.starting("torch is imported; no training step so far")
    ab = compared(lever="fused_optimizer", a="script", b="fused", failure="it ended")
    await refused(shown, LATER, "p", "enter", "right", "a", "c")
    await refused(shown, "train.py has trained no step so far", "space", "t", "M")
    await refused(shown, "there is nothing to copy", "y")
    # it starts again: its last A/B is of a lever that is not known yet
    await refused(changed(shown, comparison=ab), LATER, "c", tab="ab")


@showing(scripts.training())
async def test_what_several_processes_do_not_do(d, refused):
    waits = "several ranks are not paused: in a pause their collectives would time out"
    await refused(scripts.of_ranks(2), "precision: 2 processes train together", "right")
    await refused(scripts.of_ranks(2), waits, "space")
    assert "2 processes train" in d.text()
    assert "2 ranks" in d.text()
