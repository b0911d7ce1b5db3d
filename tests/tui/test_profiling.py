"""How a profile is asked for, read and summed up, and when its screen opens."""

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from gpudash.errors import UsageError
from gpudash.tui.keys import PROFILED_STEPS
from gpudash.tui.screens.timeline import TimelineScreen
from tests.tui.driving import showing
from tests.tui.fake_engine import recording, training
from tests.tui.traces import SUMMARY, profiled, shown, training_trace

RUNNING = changed(training(), can=(*training().can, "profile"))


@pytest.fixture
def traces(monkeypatch, tmp_path):
    """Traces by their path; what is not here cannot be read."""
    known = {}

    def load(path: Path):
        if path not in known:
            raise UsageError(f"{path} is no trace of torch.profiler")
        assert threading.current_thread() is not threading.main_thread()
        return changed(shown(known[path]), path=path, summary=None)

    def summary(_trace):
        assert threading.current_thread() is not threading.main_thread()
        return SUMMARY

    monkeypatch.setattr("gpudash.tui.profiles.load", load)
    monkeypatch.setattr("gpudash.tui.profiles.summarise", summary)
    monkeypatch.setattr("gpudash.tui.profiles.folder", lambda: tmp_path / "traces")
    return known


def is_open(d):
    return isinstance(d.app.screen, TimelineScreen)


async def until(d, predicate):
    while not predicate():
        await d.pilot.pause(0.01)
    await d.settle()


async def until_open(d):
    await until(d, lambda: is_open(d))


async def asked(d) -> Path:
    """The path that the engine was given."""
    while not d.engine.calls_of("profile"):
        await d.pilot.pause(0.01)
    steps, path = d.engine.calls_of("profile")[-1]
    assert steps == PROFILED_STEPS
    return path


FIRST, SECOND = Path("/traces/trace.json"), Path("/traces/second.json")
SHOWN = changed(RUNNING, profile=profiled())


@showing(changed(RUNNING, can=(*RUNNING.can, "memory")))
async def test_t_traces_some_steps_and_shows_them_when_they_are_there(traces, tmp_path, d):
    folder = tmp_path / "traces"
    folder.mkdir()
    for number in range(9):
        (folder / f"encdec-{number}.json").write_text("{}")
    await d.press("t")
    path = await asked(d)
    assert path.parent == folder
    assert len(list(folder.iterdir())) == 4  # the newest are kept
    await d.is_refused("t", why="a profile is being made")
    await d.is_refused("M", why="a profile is being made: ask for memory afterwards")
    await d.show(changed(RUNNING, profiling=True, status="profiling", doing="profile"))
    assert d.lines()[-2].startswith(f" profiling {PROFILED_STEPS} steps …")
    assert d.lines()[-2].count("profiling") == 1
    traces[path] = training_trace()
    await d.show(changed(RUNNING, profile=profiled(path=str(path))))
    await until_open(d)
    assert "10,341" in d.text()
    await d.press("escape", hides="profiling")
    await d.press("t")
    assert is_open(d)
    assert len(d.engine.calls_of("profile")) == 1


@showing(RUNNING)
async def test_a_refused_profile_can_be_asked_for_again_and_none_opens_above_a_dialog(
    traces, tmp_path, d
):
    await d.press("t")
    await asked(d)
    await d.show(RUNNING)
    assert not is_open(d)
    assert "profiling" not in d.text()
    recorded = changed(RUNNING, recording=recording(str(tmp_path / "run.csv")))
    d.engine.calls.clear()
    await d.show(recorded)
    await d.press("t")
    path = await asked(d)
    assert path.parent == tmp_path  # beside the recording
    assert path.name.startswith("run-profile-")
    traces[path] = training_trace()
    await d.press("slash")  # above a dialog it does not open
    await d.show(changed(recorded, profile=profiled(path=str(path))))
    await until(d, d.notices)
    assert d.notices() == ["the profile is there; t shows it"]
    assert not is_open(d)


@showing(SHOWN)
async def test_a_trace_that_cannot_be_read_is_a_line_of_the_status(traces, d):
    await d.press("t")
    await d.until("/traces/trace.json is no trace of torch.profiler")
    assert not is_open(d)
    traces[FIRST] = training_trace()  # that of a run that has ended is still shown
    await d.show(changed(SHOWN, state="finished", status="finished"))
    await d.press("t")
    await until_open(d)
    await d.press("T")
    assert d.notices() == ["nothing is running to profile; press R first"]


@showing(SHOWN)
async def test_a_new_profile_takes_the_place_of_the_one_shown_and_knows_it(traces, d):
    traces[FIRST], traces[SECOND] = training_trace(3), training_trace(2)
    await d.press("t")
    await until_open(d)
    await d.press("T")
    await asked(d)
    await d.show(changed(SHOWN, profiling=True), shows=f"profiling {PROFILED_STEPS} steps …")
    await d.show(changed(SHOWN, profile=profiled(2, str(SECOND), steps=3)))
    await d.until("2 steps")
    assert d.notices() == [f"the profile ended early: it has 3 of {PROFILED_STEPS} steps"]
    await until(d, lambda: d.app.screen.shown.before == SUMMARY)
    await d.press("escape")
    assert d.app.screen is d.app.main_screen


@showing(SHOWN)
async def test_the_timeline_does_not_wait_for_the_summary(traces, monkeypatch, d):
    is_asked_for = threading.Event()
    monkeypatch.setattr(
        "gpudash.tui.profiles.summarise", lambda _trace: is_asked_for.wait(60) and SUMMARY
    )
    traces[FIRST] = training_trace()
    await d.press("t")
    await until_open(d)
    assert "stream 7" in d.text()
    for key in ("s", "c"):
        await d.press(key, shows="the trace is being summed up …")
    is_asked_for.set()
    await d.until("one step, mean of 3")
    assert d.notices() == []


MADE = changed(SHOWN, profile_of=(RUNNING.workload, RUNNING.settings))


@showing(changed(MADE, settings={**RUNNING.settings, "batch_size": "4"}))
async def test_the_answer_rests_on_a_profile_only_with_the_settings_that_it_was_made_with(
    traces, d
):
    traces[FIRST] = training_trace()  # the settings changed as soon as it was there
    await d.press("t")
    await until_open(d)
    await until(d, lambda: d.engine.calls_of("deepen"))
    assert d.engine.calls_of("deepen") == [(RUNNING.workload, RUNNING.settings)]


@showing(RUNNING)
async def test_the_pane_says_what_there_is_and_enter_shows_it(traces, d):
    traces[FIRST] = training_trace()
    d.app.main_screen.open_tab("profile")
    await d.settle()
    assert "no profile of this run yet: t makes one" in d.text()
    await d.show(
        changed(RUNNING, profile=profiled(steps=3)),
        shows="steps 10,340 to 10,342 were traced: t shows the profile",
    )
    await d.press("enter")
    await until_open(d)
