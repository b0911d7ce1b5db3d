"""Keys that start, pause, restart and record, against an engine that is slow or says no."""

import pytest
from msgspec.structs import replace as changed

from gpudash.errors import RecordingError
from gpudash.protocol.commands import Plan
from gpudash.snapshot import Snapshot
from gpudash.tui.app import Dashboard
from gpudash.tui.control import Control
from gpudash.tui.inbox import Inbox
from tests.tui.driving import showing, still, strips_of
from tests.tui.fake_engine import FakeEngine, recording, settings, training

PAUSED = changed(training(), state="paused", status="paused")
DEAD = ("failed", "finished", "stopped")


def running(engine=None, **values):
    """A control that has seen a worker run with these levers."""
    engine = engine or FakeEngine()
    control = Control(lambda: engine, engine.plan)
    control.begin(Inbox(knock=lambda: None))
    control.take(in_force(**values))
    return control


def in_force(requested=None, last_command=0, /, **values):
    """A snapshot of a worker with these active levers, which knows of so many requests."""
    shown = changed(training(), settings=settings(**values), last_command=last_command)
    return changed(shown, requested=requested or {})


def ask(control, **values):
    for name, value in values.items():
        control.levers.change(control.levers.lever(name), value)


@pytest.fixture
def control():
    return running()


def restarted(control):
    """The settings that a restart sends, which the snapshot then knows of."""
    control.restart()
    control.take(changed(control.snapshot, last_command=control.engine.requests))
    return control.engine.calls_of("restart")[-1][0].settings


# ── pause ───────────────────────────────────────────────────────────────────────────────


def pauses(engine):
    return [call[0] for call in engine.calls if call[0] in ("pause", "resume")]


def test_a_pause_that_was_asked_for_before_the_first_step_is_in_sight_and_taken_back():
    waits = Snapshot(workload="encdec", status="loading torch", pausing=True)
    d = still(snapshot=waits)
    assert "loading torch · pauses before the first step; space takes it back" in d.text()
    assert "space resume" in d.text()


async def test_quick_presses_of_space_go_on_and_one_behind_a_long_step_can_be_taken_back(d):
    await d.press("space", "space", "space")
    assert pauses(d.engine) == ["pause", "resume", "pause"]
    await d.show(PAUSED)
    await d.press("space", "space", "space")
    assert pauses(d.engine)[3:] == ["resume", "pause", "resume"]
    await d.show(training())
    d.engine.calls.clear()
    await d.press("space")
    await d.show(training(), last_command=0)  # the engine does not know of it yet
    await d.show(changed(training(), pausing=True))
    await d.press("space")
    assert pauses(d.engine) == ["pause", "resume"]


def test_a_pause_asked_of_a_dead_worker_is_forgotten(control):
    control.pause_or_resume()
    for state in ("failed", "training"):
        control.take(changed(training(), state=state))
    control.pause_or_resume()
    assert pauses(control.engine) == ["pause", "pause"]


# ── restart ─────────────────────────────────────────────────────────────────────────────


def asks(**values):
    return lambda control: ask(control, **values)


def takes(requested=None, last_command=0, /, state="training", pending=(), **active):
    """The worker has these active levers, and knows of so many requests."""
    shown = in_force(requested, last_command, **active)
    return lambda control: control.take(changed(shown, state=state, pending=dict(pending)))


SMALL, AUTO = {"model_scale": "small"}, {"model_scale": "auto"}
EIGHT, SIXTEEN, THIRTY_TWO, HUGE = ({"batch_size": n} for n in ("8", "16", "32", "4096"))


@pytest.mark.parametrize(
    ("what", "planned", "steps", "sent"),
    [
        ("the plan and not the resolved values", AUTO, [takes(**SMALL)], AUTO),
        ("what was changed and accepted on top", AUTO,
         [takes(**SMALL), asks(**THIRTY_TWO), takes(AUTO | THIRTY_TWO, 1, **SMALL, **THIRTY_TWO)],
         AUTO | THIRTY_TWO),
        ("the same the next time", AUTO,
         [takes(**SMALL), asks(**THIRTY_TWO), takes(AUTO | THIRTY_TWO, 1, **SMALL, **THIRTY_TWO),
          restarted], AUTO | THIRTY_TWO),
        ("what is asked for and not answered yet", {},
         [takes(pending={"data": "cached"}), asks(**THIRTY_TWO)], {"data": "cached"} | THIRTY_TWO),
        ("nothing that was refused", AUTO,
         [takes(**SMALL), asks(model_scale="full", batch_size="1048576"), takes(AUTO, 2, **SMALL)],
         AUTO),
        ("what the worker went back to for want of memory", EIGHT,
         [takes(**EIGHT), asks(**SIXTEEN), takes(SIXTEEN, 1, **SIXTEEN), asks(**HUGE),
          takes(HUGE, 2, **HUGE), takes(SIXTEEN, 2, **SIXTEEN)], SIXTEEN),
        ("a value that the worker resolves as it was asked for", {"model_scale": "full"},
         [takes(model_scale="full"), asks(**AUTO), takes({}, 1, pending=AUTO, model_scale="full"),
          takes(AUTO, 1, **SMALL)], AUTO),
        ("of values faster than they are made the last", {},
         [asks(**SIXTEEN), asks(**THIRTY_TWO), takes(SIXTEEN, 1, **SIXTEEN)], THIRTY_TWO),
        ("and it once it is made", {},
         [asks(**SIXTEEN), asks(**THIRTY_TWO), takes(THIRTY_TWO, 3, **THIRTY_TWO)], THIRTY_TWO),
        ("a value lowered after a failure", {"batch_size": "64"},
         [takes(batch_size="64"), asks(**HUGE), takes(HUGE, 1, **HUGE),
          takes(HUGE, 1, state="failed", **HUGE), asks(**SIXTEEN)], SIXTEEN),
    ],
)  # fmt: skip
def test_a_restart_sends(what, planned, steps, sent):
    control = running(FakeEngine(Plan(workload="encdec", settings=planned)))
    for step in steps:
        step(control)
    assert restarted(control) == sent, what


async def test_a_held_key_restarts_once_until_the_run_is_there_again(d):
    starting = changed(training(), state="starting", worker_pid=None)
    for before in ("training", *DEAD):
        await d.show(changed(training(), state=before))
        d.engine.calls.clear()
        await d.press_together(*"RRR")
        await d.show(starting)
        await d.press("R")
        assert len(d.engine.calls_of("restart")) == 1
        assert set(d.notices()) == {"the training is starting"}
        await d.show(changed(training(), worker_pid=4243))
        await d.press("R")
        await d.show(starting)
        await d.show(changed(starting, state="failed"))
        await d.press("R")
        assert len(d.engine.calls_of("restart")) == 3
        d.app.clear_notifications()


def test_a_restart_after_choosing_a_workload_is_of_that_workload(control):
    ask(control, batch_size="32")
    control.start_workload("encdec")
    control.plan = changed(control.plan, workload="other")
    last = control.engine.requests
    control.take(changed(training(), pending={"batch_size": "32"}, last_command=last))
    assert restarted(control) == {}
    assert control.engine.calls_of("restart")[-1][0].workload == "other"


# ── a worker that cannot be started ─────────────────────────────────────────────────────


async def test_a_failed_start_is_shown_and_can_be_tried_again():
    engine = FakeEngine()
    engine.refuse_worker = "cannot start the training process: no more processes"
    app = Dashboard(lambda: engine, engine.plan)
    async with app.run_test(size=(120, 40)) as pilot:
        text = ""
        while "cannot start" not in text:
            await pilot.pause(0.01)
            text = "\n".join(strip.text for strip in strips_of(app))
        assert f"{engine.refuse_worker} · change a setting and press R" in text
        await pilot.press("minus", "R")
        await pilot.pause()
        assert engine.calls_of("start") == [(), ()]
        engine.refuse_worker = None
        await pilot.press("R")
        await pilot.pause()
        assert engine.calls_of("start") == [(), (), ()]
        assert engine.plan.settings == {"batch_size": "4"}
        assert engine.listener is app.inbox


async def test_an_impossible_restart_says_why_and_keeps_the_requests(d):
    d.engine.refuse_worker = "cannot start the training process: no more processes"
    for state, kept in (("training", "8 → 16 …"), ("failed", "8 → 32 …")):
        await d.show(changed(training(), state=state))
        await d.press("plus", "R")
        assert d.notices() == [d.engine.refuse_worker]
        assert kept in d.text()
        d.app.clear_notifications()


# ── recording ───────────────────────────────────────────────────────────────────────────


RECORDING = changed(training(), recording=recording("/data/run.csv"))


async def test_a_run_that_ends_while_a_file_is_named_is_not_recorded(d):
    for state in DEAD:
        await d.show(training())
        await d.press("r")
        await d.show(changed(training(), state=state))
        await d.press("enter")
        assert d.engine.calls_of("record") == []
        assert d.notices() == ["nothing is running to record; press R first"]
        d.app.clear_notifications()


@showing(RECORDING)
async def test_the_end_of_a_recording_is_announced_once_when_it_is_complete(d):
    await d.press("r")
    assert d.engine.calls_of("stop_recording") == [()]
    assert d.notices() == []
    for _ in range(2):
        await d.show(training())
        assert d.notices() == ["recording complete: /data/run.csv"]


def test_a_recording_that_ends_with_the_run_is_announced_unless_it_failed_or_has_no_row(control):
    done, finished = "recording complete: /data/run.csv", changed(training(), state="finished")
    control.take(RECORDING)
    assert control.take(finished) == done
    control.take(RECORDING)
    control.engine.sink_failures["recording"] = RecordingError("the recording ended: disk full")
    assert control.take(training()) is None
    control.take(RECORDING)
    assert control.take(finished) == done
    control.take(changed(RECORDING, state="starting", recording=recording("/data/run.csv", 0)))
    assert control.take(changed(training(), state="failed")) is None
