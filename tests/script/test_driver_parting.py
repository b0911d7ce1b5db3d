"""How a dashboard and a script part: it goes, gpudash fails, or a child is forked."""

import os
import signal
import socket
import sys
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from gpudash.protocol.commands import (
    Change,
    Pause,
    Resume,
)
from gpudash.protocol.envelope import Event
from gpudash.protocol.session import Notice
from gpudash.protocol.training import BlocksEnded, State
from gpudash.script import driver as driver_module
from gpudash.training.command_loop import CommandLoop
from tests.answers import blocks
from tests.script.toy_script import Dashboard, answered, connected, path, script

LONG = blocks(1, 1, {"precision": "bf16"}, {}, min_steps=10**6)


def test_blocks_end_with_their_dashboard_and_changed_levers_stay(
    training, dashboard, tmp_path
) -> None:
    dashboard.send(
        Change(id=1, settings={"precision": "tf32"}),
        replace(LONG, id=2),
    )
    training.until(lambda: training.levers.settings["precision"] == "bf16")
    dashboard.die()
    training.until(lambda: not training.active)
    assert training.levers.settings["precision"] == "tf32"
    other = connected(training, tmp_path)
    started = other.of("started")[0]
    assert (started.settings["precision"], started.requested) == ("tf32", {"precision": "tf32"})
    assert {step.segment for step in other.reported} == {started.segment}
    # its runs are counted anew
    other.send(blocks(1, 1, {"precision": "bf16"}))
    training.until(lambda: other.of(BlocksEnded))
    assert other.of(BlocksEnded)[0].why == "no block is left"


def test_going_back_from_blocks_is_rehearsed_even_without_a_dashboard(training, dashboard) -> None:
    run = blocks(2, 1, {"compile": "off"}, min_steps=10**6)
    dashboard.send(Change(id=1, settings={"compile": "on"}), run)
    training.until(
        lambda: dashboard.of("changed")[-1:] and training.levers.settings["compile"] == "off"
    )
    dashboard.die()
    training.until(lambda: not training.active)
    assert training.levers.settings["compile"] == "on"
    assert not training.root.keeps_calls


def test_a_pause_ends_with_its_dashboard(training, tmp_path) -> None:
    def react(dashboard: Dashboard, event: Event) -> None:
        if isinstance(event, State) and event.why == "asked":
            dashboard.die()

    dashboard = Dashboard(path(tmp_path), react)
    training.until(lambda: dashboard.reported)
    dashboard.send(Pause(id=1))
    training.until(lambda: not training.active)
    assert dashboard.of("paused")


class PreemptedError(Exception):
    pass


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        (Mock(side_effect=KeyboardInterrupt), KeyboardInterrupt),
        (lambda _: signal.raise_signal(signal.SIGUSR1), PreemptedError),
    ],
)
def test_what_an_interrupt_or_a_signal_handler_raises_in_a_pause_reaches_the_script(
    training, dashboard, monkeypatch, rest, error
) -> None:
    before = signal.signal(signal.SIGUSR1, Mock(side_effect=PreemptedError))
    monkeypatch.setattr(CommandLoop, "rest", rest)
    dashboard.send(Pause(id=1))
    with pytest.raises(error):
        training.until(lambda: False)
    signal.signal(signal.SIGUSR1, before)
    monkeypatch.undo()
    dashboard.send(Resume(id=2))
    training.until(lambda: 2 in answered(dashboard))  # the script is still measured


def test_another_dashboard_is_turned_away_until_the_first_has_gone(training, tmp_path) -> None:
    first = connected(training, tmp_path)
    second = Dashboard(path(tmp_path))
    training.until(lambda: second.gone)
    assert not second.envelopes
    first.die()
    connected(training, tmp_path)  # it may come before the first was seen to go


def test_a_dashboard_that_reads_nothing_delays_no_step_and_may_reconnect(
    training, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("gpudash.instrument.endpoint.MOST_BYTES", 1 << 12)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 10)
        silent.connect(str(path(tmp_path)))
        training.until(lambda: training.steps > 5)
        monkeypatch.setattr(driver_module, "DUE_EVERY_S", 0.0)
        monkeypatch.setattr("gpudash.instrument.reporter.REPORT_EVERY_S", 0.0)
        training.until(lambda: not training.active, pace_s=0.0)
    monkeypatch.undo()
    connected(training, tmp_path)


# ── failures ────────────────────────────────────────────────────────────────────────────


def stopped(training, dashboard, why) -> None:
    """Check that gpudash says so, puts the levers back and measures nothing more."""
    training.until(lambda: dashboard.gone)
    (notice,) = dashboard.of(Notice)
    assert notice.text == f"gpudash stopped measuring: {why}; the training goes on"
    assert (training.levers.settings["precision"], training.active) == ("fp32", False)


def test_a_failure_of_gpudash_ends_measuring_and_not_the_training(
    training, dashboard, tmp_path
) -> None:
    dashboard.send(LONG)
    training.until(lambda: training.levers.settings["precision"] == "bf16")
    training.levers.fails = ValueError
    dashboard.send(Change(id=2, settings={"precision": "tf32"}))
    stopped(training, dashboard, "ValueError: out of order")
    assert 1 in answered(dashboard)
    training.goes_on()
    assert not path(tmp_path).exists()


def test_a_missing_run_directory_does_not_harm_the_script(tmp_path) -> None:
    with script(tmp_path / "nowhere") as training:
        training.until(lambda: training.steps == 5)
        assert not training.active


def test_after_a_hook_failed_levers_are_put_back_at_the_next_border(training, dashboard) -> None:
    dashboard.send(Change(id=1, settings={"precision": "bf16"}))
    training.until(lambda: dashboard.of("changed"))
    training.driver.failed("forward", RuntimeError("odd\nmodel"))
    training.driver.failed("backward", RuntimeError("odder"))
    assert training.levers.settings["precision"] == "bf16"  # in the middle of a step
    training.step()
    stopped(training, dashboard, "its hook on forward failed: RuntimeError: odd")


# ── children ────────────────────────────────────────────────────────────────────────────


def test_a_forked_child_leaves_the_dashboard_to_its_parent(training, dashboard, tmp_path) -> None:
    child = os.fork()
    if not child:  # a loader worker, or one that trains itself
        code = 1
        try:
            training.driver.forget()  # as after every fork
            training.driver.idle()
            # not a whole step: where there is a GPU, autograd refuses to work in a forked child
            training.driver.border(training.steps)
            quiet = not training.active and not path(tmp_path).exists()
            training.begin()
            heard = path(tmp_path).exists()
            training.driver.close()
            code = not (quiet and heard and not path(tmp_path).exists())
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert path(tmp_path).exists()
    heard = len(dashboard.reported)
    training.until(lambda: len(dashboard.reported) > heard + 10)
    steps = [step.step for step in dashboard.reported]
    assert steps == sorted(set(steps))
    dashboard.die()
    training.until(lambda: not training.active)


def test_a_script_that_has_emptied_its_arguments_is_watched(training, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [])
    connected(training, tmp_path)
