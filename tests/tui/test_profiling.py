"""How a profile is asked for, read and summed up, and when its screen opens."""

import threading
from pathlib import Path

import msgspec
import pytest

from gpudash.errors import UsageError
from gpudash.tui.keys import PROFILED_STEPS
from gpudash.tui.screens.timeline import TimelineScreen
from tests.tui.driving import dashboard, showing
from tests.tui.fake_engine import recording, training
from tests.tui.traces import SUMMARY, profiled, shown, training_trace

changed = msgspec.structs.replace
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


@showing(RUNNING)
async def test_t_traces_some_steps_and_shows_them_when_they_are_there(traces, tmp_path, d):
    await d.press("t")
    path = await asked(d)
    assert path.parent == tmp_path / "traces"
    await d.show(changed(RUNNING, profiling=True, status="profiling"))
    assert d.lines()[-2].startswith(f" profiling {PROFILED_STEPS} steps …")
    assert d.lines()[-2].count("profiling") == 1
    traces[path] = training_trace()
    await d.show(changed(RUNNING, profile=profiled(path=str(path))))
    await until_open(d)
    assert "10,341" in d.text()
    await d.press("escape")
    assert "profiling" not in d.text()
    await d.press("t")
    assert is_open(d)
    assert len(d.engine.calls_of("profile")) == 1


@showing(RUNNING)
async def test_a_profile_that_ended_early_says_how_many_of_the_steps_it_has(traces, d):
    await d.press("t")
    path = await asked(d)
    traces[path] = training_trace()
    await d.show(changed(RUNNING, profile=profiled(path=str(path), steps=3)))
    await until_open(d)
    assert d.notices() == [f"the profile ended early: it has 3 of {PROFILED_STEPS} steps"]


async def test_asking_for_memory_does_not_end_a_profile(traces):
    snapshot = changed(RUNNING, can=(*RUNNING.can, "memory"))
    async with dashboard(snapshot=snapshot) as d:
        await d.press("t")
        await asked(d)
        await d.press("M")
        assert d.notices() == ["a profile is being made: ask for memory afterwards"]
        assert d.engine.calls_of("memory_owners") == []


@showing(RUNNING)
async def test_asking_twice_is_asking_once(traces, d):
    await d.press("t")
    await asked(d)
    await d.press("t")
    assert d.notices() == ["a profile is being made"]
    assert len(d.engine.calls_of("profile")) == 1


@showing(RUNNING)
async def test_a_profile_that_is_refused_can_be_asked_for_again(traces, d):
    await d.press("t")
    await asked(d)
    await d.show(RUNNING)
    assert not is_open(d)
    assert "profiling" not in d.text()
    d.engine.calls.clear()
    await d.press("t")
    await asked(d)


@showing(changed(RUNNING, profile=profiled()))
async def test_a_trace_that_cannot_be_read_is_a_line_of_the_status(traces, d):
    await d.press("t")
    await d.until("/traces/trace.json is no trace of torch.profiler")
    assert not is_open(d)


async def test_a_profile_of_a_run_that_has_ended_is_still_shown(traces):
    traces[Path("/traces/trace.json")] = training_trace()
    ended = changed(RUNNING, state="finished", status="finished", profile=profiled())
    async with dashboard(snapshot=ended) as d:
        await d.press("t")
        await until_open(d)
        await d.press("T")
        assert d.notices() == ["nothing is running to profile; press R first"]


async def test_a_new_profile_takes_the_place_of_the_one_shown_and_knows_it(traces):
    first, second = Path("/traces/trace.json"), Path("/traces/second.json")
    traces[first], traces[second] = training_trace(3), training_trace(2)
    snapshot = changed(RUNNING, profile=profiled())
    async with dashboard(snapshot=snapshot) as d:
        await d.press("t")
        await until_open(d)
        await d.press("T")
        await asked(d)
        await d.show(changed(snapshot, profiling=True))
        assert f"profiling {PROFILED_STEPS} steps …" in d.text()
        await d.show(changed(snapshot, profile=profiled(2, str(second))))
        await d.until("2 steps")
        await until(d, lambda: d.app.screen.shown.before == SUMMARY)
        await d.press("escape")
        assert d.app.screen is d.app.main_screen


@pytest.mark.parametrize("key", ["s", "c"])
async def test_the_timeline_does_not_wait_for_the_summary(traces, monkeypatch, key):
    is_asked_for = threading.Event()
    monkeypatch.setattr(
        "gpudash.tui.profiles.summarise", lambda _trace: is_asked_for.wait(60) and SUMMARY
    )
    traces[Path("/traces/trace.json")] = training_trace()
    async with dashboard(snapshot=changed(RUNNING, profile=profiled())) as d:
        await d.press("t")
        await until_open(d)
        assert "stream 7" in d.text()
        await d.press(key)
        assert "the trace is being summed up …" in d.text()
        is_asked_for.set()
        await d.until("step" if key == "s" else "one step, mean of 3")
        assert d.notices() == []


async def test_the_answer_rests_on_a_profile_only_with_the_settings_that_it_was_made_with(traces):
    traces[Path("/traces/trace.json")] = training_trace()
    made = changed(
        RUNNING,
        profile=profiled(),
        profile_of=(RUNNING.workload, RUNNING.settings),
    )
    others = changed(made, settings={**RUNNING.settings, "batch_size": "4"})
    async with dashboard(snapshot=others) as d:  # changed as soon as it was there
        await d.press("t")
        await until_open(d)
        await until(d, lambda: d.engine.calls_of("deepen"))
    assert d.engine.calls_of("deepen") == [(RUNNING.workload, RUNNING.settings)]


@showing(RUNNING)
async def test_a_profile_does_not_open_above_a_dialog(traces, d):
    await d.press("t")
    path = await asked(d)
    traces[path] = training_trace()
    await d.press("slash")
    await d.show(changed(RUNNING, profile=profiled(path=str(path))))
    while not d.notices():
        await d.pilot.pause(0.01)
    assert d.notices() == ["the profile is there; t shows it"]
    assert not is_open(d)


async def test_a_trace_goes_beside_the_recording(traces, tmp_path):
    snapshot = changed(RUNNING, recording=recording(str(tmp_path / "run.csv")))
    async with dashboard(snapshot=snapshot) as d:
        await d.press("t")
        path = await asked(d)
        assert path.parent == tmp_path
        assert path.name.startswith("run-profile-")


async def test_the_newest_traces_are_kept(traces, tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    for number in range(9):
        (folder / f"encdec-{number}.json").write_text("{}")
    async with dashboard(snapshot=RUNNING) as d:
        await d.press("t")
        await asked(d)
    assert len(list(folder.iterdir())) == 4


@showing(RUNNING)
async def test_the_pane_says_what_there_is_and_enter_shows_it(traces, d):
    traces[Path("/traces/trace.json")] = training_trace()
    d.app.main_screen.open_tab("profile")
    await d.settle()
    assert "no profile of this run yet: t makes one" in d.text()
    await d.show(changed(RUNNING, profile=profiled(steps=3)))
    assert "steps 10,340 to 10,342 were traced: t shows the profile" in d.text()
    await d.press("enter")
    await until_open(d)
