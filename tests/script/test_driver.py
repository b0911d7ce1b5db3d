"""What a dashboard gets from a script, and which commands the script obeys."""

import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from gpudash.instrument import flops
from gpudash.instrument import profiler as profiler_module
from gpudash.instrument.reporter import RECENT_STEPS
from gpudash.levers.offers import UNKNOWN
from gpudash.levers.training_objects import TrainingObjects
from gpudash.protocol.commands import (
    AnyCommand,
    Block,
    Blocks,
    Change,
    Memory,
    Pause,
    Profile,
    Rehearse,
    Resume,
    Slow,
    Stop,
)
from gpudash.protocol.envelope import Event
from gpudash.protocol.inspections import Profiled, Rehearsed
from gpudash.protocol.session import Notice
from gpudash.protocol.training import BlocksEnded, Hello, Offered, Progress, Refused, State, Timed
from gpudash.script import driver as driver_module
from gpudash.training.command_loop import CommandLoop
from tests.answers import answered_by, blocks
from tests.lives import name_of, turns
from tests.script.toy_script import Dashboard, Script, script
from tests.workloads.trainings import one_thread


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with one_thread():
        yield


def is_counting() -> bool:
    return torch._C._len_torch_dispatch_stack() > 0


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Script]:
    with script(tmp_path) as made:
        yield made


def path(folder: Path) -> Path:
    return folder / f"{os.getpid()}.sock"


def profile(number: int, where: str = "trace.json", steps: int = 3) -> Profile:
    return Profile(id=number, steps=steps, path=where)


LONG = blocks(1, 1, {"precision": "bf16"}, {}, min_steps=10**6)
CASES: dict[str, tuple[list[AnyCommand], dict[int, type[Event] | str | None]]] = {
    "changes": (
        [Change(id=1, settings={"precision": "bf16"}), Change(id=2, settings={"precision": "?"})],
        {1: "changed", 2: "changed"},
    ),
    "what there is not": ([Change(id=1, settings={"batch": "2"})], {1: Refused}),
    "a change to what is": ([Change(id=1, settings={"precision": "fp32"})], {1: Refused}),
    "what does not work": ([Change(id=1, settings={"precision": "impossible"})], {1: Refused}),
    "a rehearsal": (
        [Change(id=1, settings={"compile": "on"}), Change(id=2, settings={"compile": "off"})],
        {1: "changed", 2: "changed"},
    ),
    "a rehearsal under pause": (
        [Pause(id=1), Change(id=2, settings={"compile": "on"}), Resume(id=3)],
        {1: "paused", 2: "changed", 3: "resumed"},
    ),
    "a pause during a rehearsal": (
        [Change(id=1, settings={"compile": "on"}), Pause(id=2), Resume(id=3), Resume(id=4)],
        {1: "changed", 2: "paused", 3: "resumed", 4: "resumed"},
    ),
    "pausing twice": (
        [Pause(id=1), Pause(id=2), Resume(id=3)],
        {1: "paused", 2: "paused", 3: "resumed"},
    ),
    "going on twice": (
        [Resume(id=1), Pause(id=2), Resume(id=3), Resume(id=4)],
        {1: "resumed", 2: "paused", 3: "resumed", 4: "resumed"},
    ),
    "under pause": (
        [
            Pause(id=1),
            Change(id=2, settings={"precision": "bf16"}),
            Change(id=3, settings={"x": ""}),
            Resume(id=4),
        ],
        {1: "paused", 2: "changed", 3: Refused, 4: "resumed"},
    ),
    "blocks": ([blocks(1, 1, {"precision": "bf16"}, {})], {1: BlocksEnded}),
    "blocks that are rehearsed": (
        [blocks(1, 1, {"compile": "on"}, {}, {"compile": "on"})],
        {1: BlocksEnded},
    ),
    "blocks that cannot be": (
        [blocks(1, 1, {"precision": "impossible"}, {"precision": "unknown"}, {})],
        {1: BlocksEnded},
    ),
    "other blocks of the run": ([LONG, blocks(2, 1)], {1: BlocksEnded, 2: BlocksEnded}),
    "another run": ([LONG, blocks(2, 2, {})], {1: BlocksEnded, 2: BlocksEnded}),
    "a run that has ended": ([LONG, blocks(2, 1), blocks(3, 1, {})], dict.fromkeys((1, 2, 3))),
    "nothing to end": ([blocks(1, 1)], {1: BlocksEnded}),
    "a change in blocks": (
        [LONG, Change(id=2, settings={"precision": "tf32"})],
        {1: BlocksEnded, 2: "changed"},
    ),
    "a rehearsal in blocks": (
        [LONG, Change(id=2, settings={"compile": "on"}), blocks(3, 2, {})],
        {1: BlocksEnded, 2: "changed", 3: BlocksEnded},
    ),
    "refusals in blocks": (
        [
            LONG,
            Change(id=2, settings={"precision": "unknown"}),
            Change(id=3, settings={"precision": "impossible"}),
            blocks(4, 1),
        ],
        {1: BlocksEnded, 2: Refused, 3: Refused, 4: BlocksEnded},
    ),
    "another run back to what needs a rehearsal": (
        [
            Change(id=1, settings={"compile": "on"}),
            blocks(2, 1, {"compile": "off"}, min_steps=10**6),
            blocks(3, 2, {}),
        ],
        {1: "changed", 2: BlocksEnded, 3: BlocksEnded},
    ),
    "a pause in blocks": (
        [LONG, Pause(id=2), Resume(id=3), Pause(id=4), blocks(5, 1), Resume(id=6)],
        dict.fromkeys(range(1, 7)),
    ),
    "profiles": ([profile(1), profile(2)], {1: Profiled, 2: Profiled}),
    "a profile in blocks": (
        [LONG, profile(2), blocks(3, 1)],
        {1: BlocksEnded, 2: Refused, 3: BlocksEnded},
    ),
    "a profile under pause": (
        [Pause(id=1), profile(2), Resume(id=3)],
        {1: "paused", 2: Refused, 3: "resumed"},
    ),
    "a profile during a rehearsal": (
        [Change(id=1, settings={"compile": "on"}), profile(2)],
        {1: "changed", 2: Profiled},
    ),
    "a change in a profile": (
        [profile(1), Change(id=2, settings={"precision": "bf16"}), Pause(id=3), Resume(id=4)],
        {1: Profiled, 2: "changed", 3: "paused", 4: "resumed"},
    ),
    "a profile that cannot be written": ([profile(1, "/none/trace.json")], {1: Refused}),
    "who owns memory, on a CPU": ([Memory(id=1)], {1: Refused}),
    "levers timed on a batch": ([Rehearse(id=1), blocks(2, 1)], {1: Rehearsed, 2: BlocksEnded}),
    "levers timed beside an A/B": ([blocks(1, 1), Rehearse(id=2)], {1: BlocksEnded, 2: Rehearsed}),
    "a stop": ([Stop(id=1), blocks(2, 1)], {1: Refused, 2: BlocksEnded}),
}


@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
@pytest.mark.parametrize("case", CASES)
def test_every_command_gets_one_answer_with_its_id(
    case: str, training, tmp_path, monkeypatch, *, together: bool
) -> None:
    commands, expected = CASES[case]
    left = list(commands)

    def react(dashboard: Dashboard, event: Event) -> None:
        if isinstance(event, Progress) and left:
            now = list(left) if together else left[:1]
            del left[: len(now)]
            dashboard.send(*now)

    monkeypatch.chdir(tmp_path)  # where traces go
    dashboard = Dashboard(path(tmp_path), react)
    training.until(lambda: not left and expected.keys() <= answered(dashboard).keys())
    training.until(lambda until=training.steps + 20: training.steps > until)
    answers = answered(dashboard)
    assert answers.keys() == expected.keys()
    assert all(len(names) == 1 for names in answers.values()), answers
    for number, kind in expected.items():
        assert kind is None or answers[number] == [name_of(kind)], answers[number]
    assert not training.root.keeps_calls
    assert training.root.newest is None


def answered(dashboard: Dashboard) -> dict[int, list[str]]:
    """Return what answers each command."""
    return answered_by(envelope.body for envelope in list(dashboard.envelopes))


# ── reports ─────────────────────────────────────────────────────────────────────────────


def test_a_dashboard_gets_a_description_and_then_every_step(training, tmp_path) -> None:
    for _ in range(10):
        training.step()
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: len(dashboard.reported) > 50)
    hello, offered, started, *rest = [envelope.body for envelope in dashboard.envelopes]
    assert (type(hello), hello.pid) == (Hello, os.getpid())
    assert (type(offered), [one.name for one in offered.levers]) == (
        Offered,
        ["precision", "compile"],
    )
    assert (started.phase, started.settings) == (
        "training",
        {"precision": "fp32", "compile": "off"},
    )
    assert all(isinstance(event, Progress) for event in rest)
    # the first steps too, though it came later
    assert [step.step for step in dashboard.reported] == list(range(1, len(dashboard.reported) + 1))
    assert started.at_s <= dashboard.reported[0].finished_s
    assert dashboard.of(Progress)[-1].total_samples == 4 * dashboard.reported[-1].step


def test_later_findings_are_reported(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.of("started"))
    training.driver.found(training.levers.found._replace(backwards=4))
    training.until(lambda: len(dashboard.of(Offered)) == 2)
    assert "4 backward passes a step" in dashboard.of(Offered)[-1].found


def test_without_a_dashboard_only_the_first_seconds_are_measured(training, monkeypatch) -> None:
    training.until(lambda: training.steps == 3)
    assert training.active
    monkeypatch.setattr(driver_module, "EXPECTED_S", 0.0)
    training.until(lambda: not training.active)


def test_a_late_dashboard_gets_the_steps_from_then_on(training, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(driver_module, "EXPECTED_S", 0.0)
    training.until(lambda: not training.active)
    training.until(lambda until=training.steps + 20: training.steps > until)
    unseen = training.steps
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: len(dashboard.reported) > 5)
    assert dashboard.reported[0].step > unseen
    assert dashboard.reported[0].finished_s >= dashboard.of("started")[0].at_s
    assert dashboard.of(Progress)[-1].total_steps == dashboard.reported[-1].step
    assert (
        dashboard.of(Progress)[-1].total_samples is None
    )  # samples of the first steps were not counted


def test_an_evaluation_is_reported_as_such(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    training.driver.aside("evaluation")
    heard = len(dashboard.of(Progress))
    deadline_s = time.monotonic() + 10
    while len(dashboard.of(Progress)) < heard + 2 and time.monotonic() < deadline_s:
        training.driver.idle()  # reports leave though no step ends
    training.driver.aside(None)
    training.until(lambda: dashboard.of("resumed"))
    (paused,), (resumed,) = dashboard.of("paused"), dashboard.of("resumed")
    assert (paused.why, paused.answers, resumed.answers) == ("evaluation", (), ())
    assert paused.at_s < resumed.at_s
    assert len(dashboard.of(Progress)) >= heard + 2


def test_a_checkpoint_after_an_evaluation_begins_where_that_ends(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    for why in ("evaluation", "checkpoint", None):
        training.driver.aside(why)
        time.sleep(0.001)
    training.until(lambda: len(dashboard.of("resumed")) == 2)
    (evaluation, checkpoint), (between, _) = dashboard.of("paused"), dashboard.of("resumed")
    assert evaluation.at_s < between.at_s == checkpoint.at_s


def test_settings_that_change_with_new_findings_are_reported(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    update = training.levers.update

    def to_another_loader(found: TrainingObjects) -> None:
        update(found)
        training.levers.settings = training.levers.settings | {"precision": "bf16"}

    training.levers.update = to_another_loader
    training.driver.found(training.levers.found)
    training.driver.found(training.levers.found)
    training.until(lambda: dashboard.of("changed"))
    (changed,) = dashboard.of("changed")
    assert (changed.changes, changed.answers, changed.requested) == ({"precision": "bf16"}, (), {})
    assert len(dashboard.of(Offered)) == 1  # the findings line and the offers did not change
    training.until(lambda: dashboard.reported[-1].step > changed.after_step)
    for step in dashboard.reported:
        assert step.segment == (step.step > changed.after_step)


def test_a_dashboard_that_connects_during_a_checkpoint_is_informed(training, tmp_path) -> None:
    training.step()
    training.driver.aside("checkpoint")
    dashboard = Dashboard(path(tmp_path))
    deadline_s = time.monotonic() + 10
    while not dashboard.of("paused") and time.monotonic() < deadline_s:
        training.driver.idle()
    first = turns(one.body for one in dashboard.envelopes[:4])
    assert [name for name, _ in first] == ["Hello", "Offered", "started", "paused"]
    assert dashboard.of("paused")[0].why == "checkpoint"


def test_the_last_steps_are_reported_at_the_end(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    for _ in range(5):
        training.step()
    training.driver.close()
    training.driver.close()
    deadline_s = time.monotonic() + 10
    while not dashboard.gone and time.monotonic() < deadline_s:
        time.sleep(0.001)
    assert dashboard.reported[-1].step == training.steps
    losses = [one for one in dashboard.of(Progress) if one.loss is not None]
    assert (losses[-1].loss_step, losses[-1].loss) == (training.steps, training.newest_loss)
    assert not path(tmp_path).exists()


@pytest.mark.parametrize("untimed", [0, 3])
def test_steps_that_were_not_timed_count(training, tmp_path, untimed) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    training.steps, training.samples = training.steps + untimed, 1234
    training.driver.close()
    deadline_s = time.monotonic() + 10
    while not dashboard.gone and time.monotonic() < deadline_s:
        time.sleep(0.001)
    last = dashboard.of(Progress)[-1]
    assert (last.total_steps, last.total_samples) == (training.steps, 1234)


# ── commands ────────────────────────────────────────────────────────────────────────────


def test_a_change_holds_from_its_segment_on(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(Change(id=1, settings={"precision": "bf16"}))
    training.until(lambda: dashboard.of("changed"))
    (changed,) = dashboard.of("changed")
    training.until(lambda: dashboard.reported[-1].step > changed.after_step + 3)
    assert changed.settings == {"precision": "bf16", "compile": "off"}
    assert (changed.requested, changed.warmup_steps) == ({"precision": "bf16"}, 2)
    assert changed.took_ms >= 0
    for step in dashboard.reported:
        assert step.segment == (step.step > changed.after_step)


def test_an_unknown_value_is_no_setting(training, tmp_path) -> None:
    training.levers.settings["batch_size"] = UNKNOWN
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(Change(id=1, settings={"precision": "bf16"}))
    training.until(lambda: dashboard.of("changed"))
    settings = (*dashboard.of("started"), *dashboard.of("changed"))
    assert [set(one.settings) for one in settings] == [{"precision", "compile"}] * 2


def test_a_rehearsal_waits_for_one_step(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(Change(id=1, settings={"compile": "on"}))
    training.until(lambda: training.root.keeps_calls)
    before = training.steps
    training.step()
    assert training.levers.settings["compile"] == "on"
    training.until(lambda: dashboard.of("changed"))
    assert dashboard.of("changed")[0].after_step == before + 1


def test_commands_are_obeyed_even_if_a_hook_always_comes_just_before_the_border(
    training, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(driver_module, "DUE_EVERY_S", 0.01)
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(Change(id=1, settings={"precision": "bf16"}))
    border = training.driver.border

    def after_a_hook(step: int) -> None:
        training.driver.idle()
        border(step)

    training.driver.border = after_a_hook
    training.until(lambda: dashboard.of("changed"), pace_s=0.02)


def test_a_change_ends_a_run_of_blocks(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(LONG, Change(id=2, settings={"precision": "tf32"}))
    training.until(lambda: dashboard.of(BlocksEnded))
    changed = dashboard.of("changed")[-1]
    assert (changed.answers, changed.run, changed.block) == ((2,), None, None)


def test_another_run_of_blocks_waits_until_going_back_is_rehearsed(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    long = blocks(2, 1, {"compile": "off"}, min_steps=10**6)
    dashboard.send(Change(id=1, settings={"compile": "on"}), long, blocks(3, 2, {}))
    training.until(lambda: len(dashboard.of(BlocksEnded)) == 2)
    reasons = [ended.why for ended in dashboard.of(BlocksEnded)]
    assert reasons == ["other blocks began", "no block is left"]


def test_blocks_change_levers_and_change_them_back(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(blocks(1, 7, {"precision": "bf16"}, {}, {"precision": "bf16"}))
    training.until(lambda: dashboard.of(BlocksEnded))
    changes = dashboard.of("changed")
    assert [(one.run, one.block) for one in changes] == [
        (7, 0),
        (7, 1),
        (7, 2),
        (None, None),
    ]
    values = [one.settings["precision"] for one in changes]
    assert values == ["bf16", "fp32", "bf16", "fp32"]
    assert {one.requested.get("precision") for one in changes} == {None}
    lengths = [b.after_step - a.after_step for a, b in pairwise(changes)]
    assert lengths == [2 + 3 + 1] * 3  # warm-up, those measured, the last


def test_one_of_several_ranks_cannot_be_paused(tmp_path) -> None:
    with script(tmp_path, world_size=2) as training:
        dashboard = Dashboard(path(tmp_path))
        training.until(lambda: dashboard.reported)
        dashboard.send(Pause(id=1))
        training.until(lambda: dashboard.of(Refused))
        assert "pause" not in dashboard.of(Hello)[0].can
        assert dashboard.of(Refused)[0].answers == (1,)


@pytest.mark.parametrize(("world_size", "communicates"), [(1, False), (2, True)])
def test_several_ranks_report_their_node_and_a_communication_phase(
    tmp_path, world_size, communicates
) -> None:
    with script(tmp_path, world_size=world_size) as training:
        dashboard = Dashboard(path(tmp_path))
        training.until(lambda: dashboard.of("started"))
        (state,) = dashboard.of("started")
        started = state.process
        assert started.world_size == world_size
        assert bool(started.node) is communicates
        assert ("communication" in {phase.name for phase in started.phases}) is communicates


def test_the_bytes_of_a_steps_collectives_are_reported(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: any(one.values for one in dashboard.of(Progress)))
    told = [one.values["collective_mib"] for one in dashboard.of(Progress) if one.values]
    assert {*told} == {2.0}


def test_the_rank_comes_from_the_environment(training, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "3")
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    assert {envelope.rank for envelope in dashboard.envelopes} == {3}


def test_the_cost_of_the_instruments_is_timed_with_and_without_them(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    sides = ("instrumented", "uninstrumented", "instrumented")
    timed = [
        Block(number=i, changes={}, min_steps=20, min_s=0.0, wall_clock=side)
        for i, side in enumerate(sides)
    ]
    dashboard.send(Blocks(id=1, run=1, blocks=tuple(timed)))
    training.until(lambda: dashboard.of(BlocksEnded))
    training.until(lambda: dashboard.reported[-1].step > dashboard.of("changed")[-1].after_step)
    found = dashboard.of(Timed)
    assert [one.block for one in found] == [0, 1, 2]
    assert all(one.seconds > 0 and one.samples is None for one in found)
    begins = [one.after_step for one in dashboard.of("changed")]
    without = training.active_in[begins[1] : begins[2]]
    assert without == [False] * found[1].steps
    seen = {step.step for step in dashboard.reported}
    assert seen == set(range(1, max(seen) + 1)) - set(range(begins[1] + 1, begins[2] + 1))
    assert training.active


def test_each_step_of_a_proofs_blocks_is_met_however_short(training, tmp_path) -> None:
    """Short steps are only counted on a GPU, and no delay reaches those."""
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    proof = [
        Block(number=i, changes={}, min_steps=10**6, min_s=0.0, slow=Slow(part="host", ms=ms))
        for i, ms in enumerate((0.0, 0.1))
    ]
    dashboard.send(Blocks(id=1, run=1, blocks=tuple(proof)))
    training.until(lambda: training.closely_until == math.inf)
    dashboard.send(Blocks(id=2, run=1, blocks=()))
    training.until(lambda: dashboard.of(BlocksEnded))
    assert training.closely_until < training.steps + 10


# ── dashboards that go ──────────────────────────────────────────────────────────────────


def test_blocks_end_with_their_dashboard_and_changed_levers_stay(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(
        Change(id=1, settings={"precision": "tf32"}),
        replace(LONG, id=2),
    )
    training.until(lambda: training.levers.settings["precision"] == "bf16")
    dashboard.die()
    training.until(lambda: not training.active)
    assert training.levers.settings["precision"] == "tf32"
    other = Dashboard(path(tmp_path))
    training.until(lambda: other.reported)
    started = other.of("started")[0]
    assert started.settings["precision"] == "tf32"
    assert started.requested == {"precision": "tf32"}
    assert {step.segment for step in other.reported} == {started.segment}
    # its runs are counted anew
    other.send(blocks(1, 1, {"precision": "bf16"}))
    training.until(lambda: other.of(BlocksEnded))
    assert other.of(BlocksEnded)[0].why == "no block is left"


def test_going_back_from_blocks_is_rehearsed_even_without_a_dashboard(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
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


def test_an_interrupt_passes_through_a_pause(training, tmp_path, monkeypatch) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(Pause(id=1), Resume(id=2))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpudash.training.command_loop.CommandLoop.rest", interrupted)
    dashboard.send(Pause(id=3))
    with pytest.raises(KeyboardInterrupt):
        training.until(lambda: False)
    monkeypatch.undo()
    dashboard.send(Resume(id=4))
    training.until(lambda: 4 in answered(dashboard))  # the script is still measured


def test_another_dashboard_is_turned_away_until_the_first_has_gone(training, tmp_path) -> None:
    first = Dashboard(path(tmp_path))
    training.until(lambda: first.reported)
    second = Dashboard(path(tmp_path))
    training.until(lambda: second.gone)
    assert not second.envelopes
    first.die()
    third = Dashboard(path(tmp_path))  # it may come before the first was seen to go
    training.until(lambda: third.reported)


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
    again = Dashboard(path(tmp_path))
    training.until(lambda: again.reported)


# ── failures ────────────────────────────────────────────────────────────────────────────


def test_a_failure_of_gpudash_ends_measuring_and_not_the_training(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(LONG)
    training.until(lambda: training.levers.settings["precision"] == "bf16")
    training.levers.fails = ValueError
    dashboard.send(Change(id=2, settings={"precision": "tf32"}))
    training.until(lambda: dashboard.gone)
    (notice,) = dashboard.of(Notice)
    assert notice.text == (
        "gpudash stopped measuring: ValueError: out of order; the training goes on"
    )
    assert 1 in answered(dashboard)
    assert training.levers.settings["precision"] == "fp32"
    assert not training.active
    training.until(lambda until=training.steps + 20: training.steps > until)
    assert not path(tmp_path).exists()


def test_a_missing_run_directory_does_not_harm_the_script(tmp_path) -> None:
    with script(tmp_path / "nowhere") as training:
        training.until(lambda: training.steps == 5)
        assert not training.active


def test_after_a_hook_failed_levers_are_put_back_at_the_next_border(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(Change(id=1, settings={"precision": "bf16"}))
    training.until(lambda: dashboard.of("changed"))
    training.driver.failed("forward", RuntimeError("odd\nmodel"))
    training.driver.failed("backward", RuntimeError("odder"))
    assert training.levers.settings["precision"] == "bf16"  # in the middle of a step
    training.step()
    training.until(lambda: dashboard.gone)
    (notice,) = dashboard.of(Notice)
    assert notice.text == (
        "gpudash stopped measuring: its hook on forward failed: RuntimeError: odd; "
        "the training goes on"
    )
    assert training.levers.settings["precision"] == "fp32"
    assert not training.active


# ── children ────────────────────────────────────────────────────────────────────────────


def test_a_forked_child_leaves_the_dashboard_to_its_parent(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
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


class PreemptedError(Exception):
    pass


def _preempt(*_: object) -> None:
    raise PreemptedError


def test_what_a_signal_handler_raises_in_a_pause_reaches_the_script(
    training, tmp_path, monkeypatch
) -> None:
    before = signal.signal(signal.SIGUSR1, _preempt)
    monkeypatch.setattr(CommandLoop, "rest", lambda _: signal.raise_signal(signal.SIGUSR1))
    dashboard = Dashboard(path(tmp_path))
    dashboard.send(Pause(id=1))
    try:
        with pytest.raises(PreemptedError):
            training.until(lambda: False)
    finally:
        signal.signal(signal.SIGUSR1, before)
    dashboard.send(Resume(id=2))
    monkeypatch.undo()
    training.until(lambda: dashboard.of("resumed"))  # gpudash still works


def test_a_script_that_has_emptied_its_arguments_is_watched(training, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [])
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)


# ── profiles ────────────────────────────────────────────────────────────────────────────


def test_profiled_steps_are_counted_but_not_timed(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: len(dashboard.reported) > RECENT_STEPS)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=5))
    training.until(lambda: dashboard.of(Profiled))
    (found,) = dashboard.of(Profiled)
    last = found.first_step + 4
    training.until(lambda: dashboard.reported[-1].step > last + 2)
    traced = range(found.first_step, last + 1)
    assert (found.answers, found.steps, found.precision) == ((1,), 5, "fp32")
    assert found.weights.mib > 0
    before_ms = [one.step_ms for one in dashboard.reported if one.step < found.first_step]
    assert min(before_ms) <= found.untraced_step_ms <= max(before_ms)
    assert [one.step for one in dashboard.reported if one.step in traced] == []
    first = next(one for one in dashboard.reported if one.step > last)
    assert first.step == last + 1
    assert first.finished_s - first.step_ms / 1e3 >= found.at_s
    assert {one.segment for one in dashboard.reported} == {0}
    assert dashboard.of(Progress)[-1].total_steps == dashboard.reported[-1].step
    assert dashboard.of(Progress)[-1].total_samples == 4 * dashboard.reported[-1].step
    (paused,), (resumed,) = dashboard.of("paused"), dashboard.of("resumed")
    assert (paused.why, paused.after_step < found.first_step) == ("profile", True)
    assert paused.at_s < resumed.at_s
    names = {
        one.get("name") for one in json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]
    }
    assert {f"ProfilerStep#{step}" for step in traced} <= names


def test_a_command_ends_a_profile_early(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=10**6))
    training.until(torch.autograd._profiler_enabled)
    dashboard.send(Change(id=2, settings={"precision": "bf16"}))
    training.until(lambda: dashboard.of("changed"))
    assert 1 <= dashboard.of(Profiled)[0].steps < 10**6


def test_a_profile_ends_with_its_dashboard(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=10**6))
    training.until(torch.autograd._profiler_enabled)
    dashboard.die()
    training.until(lambda: not torch.autograd._profiler_enabled())
    assert not list(tmp_path.glob("*trace*"))


def test_a_step_that_does_not_end_makes_its_profile_end(training, tmp_path, monkeypatch) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json")))
    training.until(torch.autograd._profiler_enabled)
    monkeypatch.setattr(profiler_module, "PROFILE_LIMIT_S", 0.0)
    deadline_s = time.monotonic() + 10
    while not dashboard.of(Refused) + dashboard.of(Profiled) and time.monotonic() < deadline_s:
        training.driver.idle()
    assert dashboard.of(Refused)[0].kind == "no_profile"
    assert not torch.autograd._profiler_enabled()
    training.until(lambda until=training.steps + 5: training.steps > until)


def test_a_profile_is_refused_if_the_training_ends_in_it(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=500))
    training.until(torch.autograd._profiler_enabled)
    training.driver.close()
    assert not torch.autograd._profiler_enabled()
    training.until(lambda: dashboard.gone)
    (refused,) = dashboard.of(Refused)
    assert refused.answers == (1,)
    assert refused.reason == "the training ended before 500 steps were traced"
    assert not list(tmp_path.glob("*trace*"))


def test_a_failure_of_gpudash_ends_a_profile(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=10**6))
    training.until(torch.autograd._profiler_enabled)
    training.driver.failed("backward", ValueError("x"))
    assert not torch.autograd._profiler_enabled()
    training.until(lambda: dashboard.of("resumed"))
    assert dashboard.of(Refused)[0].answers == (1,)
    assert [one.why for one in dashboard.of("paused")] == ["profile"]


@pytest.mark.parametrize("at_work", [torch.autograd._profiler_enabled, is_counting])
def test_a_failure_on_another_thread_ends_a_profile_at_the_next_border(
    training, tmp_path, at_work, monkeypatch
) -> None:
    # by another test in this process: then no step would be counted
    monkeypatch.setattr(flops, "anything_compiled", lambda: False)
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.reported)
    dashboard.send(profile(1, str(tmp_path / "trace.json"), steps=10**6))
    training.until(at_work)
    failing = threading.Thread(target=training.driver.failed, args=("backward", ValueError("x")))
    failing.start()
    failing.join()
    assert at_work()
    training.step()
    assert not at_work()
    training.until(lambda: dashboard.gone)
    assert dashboard.of(Refused)[0].answers == (1,)
    assert not list(tmp_path.glob("*trace*"))
