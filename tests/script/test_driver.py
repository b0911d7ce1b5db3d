"""What a dashboard gets from a script, and which commands the script obeys."""

import math
import os
import time

import pytest
import torch

from gpudash.instrument import loader_workers
from gpudash.levers.offers import UNKNOWN
from gpudash.levers.training_objects import TrainingObjects
from gpudash.protocol.commands import (
    Block,
    Blocks,
    Change,
    Pause,
    Resume,
    Slow,
)
from gpudash.protocol.training import BlocksEnded, Hello, Offered, Progress, Refused, Timed
from gpudash.ranks.normalise import Normaliser
from gpudash.recording.intervals import Intervals
from gpudash.rendezvous import Rendezvous
from gpudash.script import driver as driver_module
from tests import waiting
from tests.lives import turns
from tests.script.toy_script import Dashboard, Script, connected, path, script
from tests.waiting import until
from tests.warm import python

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
    assert started.process.threads == torch.get_num_threads()
    assert all(isinstance(event, Progress) for event in rest)
    # the first steps too, though it came later
    assert [step.step for step in dashboard.reported] == list(range(1, len(dashboard.reported) + 1))
    assert started.at_s <= dashboard.reported[0].finished_s
    assert dashboard.of(Progress)[-1].total_samples == 4 * dashboard.reported[-1].step


def test_loader_workers_are_told_as_soon_as_they_start_and_once_they_have_ended(
    training, dashboard, monkeypatch
) -> None:
    monkeypatch.setattr(loader_workers, "pids", lambda: (7, 8))
    training.driver.loads()
    training.driver.loads()
    monkeypatch.setattr(loader_workers, "pids", tuple)
    training.until(lambda: len(dashboard.of("loads")) == 2)
    training.goes_on()
    states = [*dashboard.of("started"), *dashboard.of("loads")]
    assert [one.loader_pids for one in states] == [(), (7, 8), ()]
    assert {one.at_s for one in states} == {states[0].at_s}  # its life has taken no turn


def test_a_late_dashboard_is_told_the_loader_workers_that_there_are(
    training, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(loader_workers, "pids", lambda: (7, 8))
    training.driver.loads()
    assert connected(training, tmp_path).of("started")[0].loader_pids == (7, 8)


LOADS = """
from torch import nn, optim
from torch.utils.data import DataLoader
from gpudash.instrument import loader_workers
from tests.script.toy import watched
toy, told = watched(), []
toy.loads = lambda: told.append(loader_workers.pids())
model = nn.Linear(1, 1)
optimizer = optim.SGD(model.parameters(), 0.1)
for epoch in range(2):
    batches = iter(DataLoader([[0.0]] * 4, num_workers=2))
    print(len(told) == epoch + 1, told[-1] == tuple(one.pid for one in batches._workers))
    for batch in batches:
        model(batch[0].float()[:, None]).sum().backward()
        optimizer.step()
"""


def test_the_workers_of_a_loader_have_started_when_it_is_said_to_load() -> None:
    assert python("-c", LOADS).stdout == "True True\n" * 2


def test_later_findings_are_reported(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.of("started"))
    training.driver.found(training.levers.found._replace(backwards=4))
    training.until(lambda: len(dashboard.of(Offered)) == 2)
    assert "4 backward passes a step" in dashboard.of(Offered)[-1].found


def test_rows_have_all_steps_also_one_from_before_the_clock(training, tmp_path) -> None:
    training.steps = 1
    training.clock.count(1, 1, 4, None)
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: len(dashboard.reported) > 5)
    training.driver.close()
    waiting.until(lambda: dashboard.gone)
    normaliser, intervals = Normaliser(), Intervals(dashboard.of("started")[0].at_s)
    bodies = [normaliser.stamp(one.body) for one in dashboard.envelopes]
    rows = [row for body in bodies for row in intervals.fold(body)]
    rows += intervals.close(0.0)
    assert dashboard.of(Progress)[-1].total_steps == training.steps
    assert sum(row.steps for row in rows) == training.steps
    assert sum(row.samples for row in rows) == 4 * training.steps
    assert sum(row.ranks[0].untimed for row in rows) == 1


def test_a_first_step_that_was_declared_begins_when_it_was(tmp_path) -> None:
    training = Script(tmp_path)
    training.first_began_s = 12.5
    training.begin()
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: dashboard.of("started"))
    training.driver.close()
    assert dashboard.of("started")[0].process.ready_s == 12.5


def test_a_late_dashboard_gets_the_steps_from_then_on(training, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(driver_module, "MOST_KEPT", 0)
    training.until(lambda: not training.active)
    training.goes_on()
    unseen = training.steps
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: len(dashboard.reported) > 5)
    assert dashboard.reported[0].step > unseen
    assert dashboard.reported[0].finished_s >= dashboard.of("started")[0].at_s
    assert dashboard.of(Progress)[-1].total_steps == dashboard.reported[-1].step
    assert (
        dashboard.of(Progress)[-1].total_samples is None
    )  # samples of the first steps were not counted


def test_an_evaluation_is_reported_as_such(training, dashboard) -> None:
    training.driver.aside("evaluation")
    heard = len(dashboard.of(Progress))
    until(lambda: training.driver.idle() or len(dashboard.of(Progress)) >= heard + 2)
    training.driver.aside(None)
    training.until(lambda: dashboard.of("resumed"))
    (paused,), (resumed,) = dashboard.of("paused"), dashboard.of("resumed")
    assert (paused.why, paused.answers, resumed.answers) == ("evaluation", (), ())
    assert paused.at_s < resumed.at_s


def test_a_checkpoint_after_an_evaluation_begins_where_that_ends(training, dashboard) -> None:
    for why in ("evaluation", "checkpoint", None):
        training.driver.aside(why)
        time.sleep(0.001)
    training.until(lambda: len(dashboard.of("resumed")) == 2)
    (evaluation, checkpoint), (between, _) = dashboard.of("paused"), dashboard.of("resumed")
    assert evaluation.at_s < between.at_s == checkpoint.at_s


def test_settings_that_change_with_new_findings_are_reported(training, dashboard) -> None:
    update = training.levers.update

    def to_another_loader(found: TrainingObjects) -> None:
        update(found)
        training.levers.settings = training.levers.settings | {"precision": "bf16"}

    training.levers.update = to_another_loader
    training.driver.found(training.levers.found)
    training.driver.found(training.levers.found)
    changed = training.first(dashboard, "changed")
    assert (changed.changes, changed.answers, changed.requested) == ({"precision": "bf16"}, (), {})
    assert len(dashboard.of(Offered)) == 1  # the findings line and the offers did not change
    training.until(lambda: dashboard.reported[-1].step > changed.after_step)
    for step in dashboard.reported:
        assert step.segment == (step.step > changed.after_step)


def test_a_dashboard_that_connects_during_a_checkpoint_is_informed(training, tmp_path) -> None:
    training.step()
    training.driver.aside("checkpoint")
    dashboard = Dashboard(path(tmp_path))
    until(lambda: training.driver.idle() or dashboard.of("paused"))
    first = turns(one.body for one in dashboard.envelopes[:4])
    assert [name for name, _ in first] == ["Hello", "Offered", "started", "paused"]
    assert dashboard.of("paused")[0].why == "checkpoint"


def test_the_last_steps_are_reported_at_the_end(training, dashboard, tmp_path) -> None:
    for _ in range(5):
        training.step()
    training.driver.close()
    training.driver.close()
    until(lambda: dashboard.gone)
    assert dashboard.reported[-1].step == training.steps
    losses = [one for one in dashboard.of(Progress) if one.loss is not None]
    assert (losses[-1].loss_step, losses[-1].loss) == (training.steps, training.newest_loss)
    assert not path(tmp_path).exists()


@pytest.mark.parametrize("untimed", [0, 3])
def test_steps_that_were_not_timed_count(training, dashboard, untimed) -> None:
    training.steps, training.samples = training.steps + untimed, 1234
    training.driver.close()
    until(lambda: dashboard.gone)
    last = dashboard.of(Progress)[-1]
    assert (last.total_steps, last.total_samples) == (training.steps, 1234)


# ── commands ────────────────────────────────────────────────────────────────────────────


def test_a_change_holds_from_its_segment_on_and_an_unknown_value_is_no_setting(
    training, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    training.levers.settings["batch_size"] = UNKNOWN
    dashboard = connected(training, tmp_path)
    dashboard.send(Change(id=1, settings={"precision": "bf16"}))
    changed = training.first(dashboard, "changed")
    training.until(lambda: dashboard.reported[-1].step > changed.after_step + 3)
    assert [set(one.settings) for one in (*dashboard.of("started"), changed)] == [
        {"precision", "compile"}
    ] * 2
    assert changed.settings["precision"] == "bf16"
    assert (changed.requested, changed.warmup_steps) == ({"precision": "bf16"}, 2)
    assert changed.took_ms >= 0
    for step in dashboard.reported:
        assert step.segment == (step.step > changed.after_step)
    assert {envelope.rank for envelope in dashboard.envelopes} == {3}  # as the environment says


def test_a_rehearsal_waits_for_one_step(training, dashboard) -> None:
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
    dashboard = connected(training, tmp_path)
    dashboard.send(Change(id=1, settings={"precision": "bf16"}))
    border = training.driver.border

    def after_a_hook(step: int) -> None:
        training.driver.idle()
        border(step)

    training.driver.border = after_a_hook
    training.until(lambda: dashboard.of("changed"), pace_s=0.02)


@pytest.mark.parametrize(("world_size", "communicates"), [(1, False), (2, True)])
def test_several_ranks_report_node_and_communication_and_none_can_be_paused(
    tmp_path, world_size, communicates
) -> None:
    with script(tmp_path, world_size=world_size) as training:
        dashboard = Dashboard(path(tmp_path))
        started = training.first(dashboard, "started").process
        assert started.world_size == world_size
        assert bool(started.node) is communicates
        assert ("communication" in {phase.name for phase in started.phases}) is communicates
        dashboard.send(Pause(id=1), Resume(id=2))
        answer = training.first(dashboard, Refused if communicates else "paused")
        assert answer.answers == (1,)


def test_the_bytes_of_a_steps_collectives_are_reported(training, tmp_path) -> None:
    dashboard = Dashboard(path(tmp_path))
    training.until(lambda: any(one.values for one in dashboard.of(Progress)))
    told = [one.values["collective_mib"] for one in dashboard.of(Progress) if one.values]
    assert {*told} == {2.0}


def test_the_cost_of_the_instruments_is_timed_with_and_without_them(training, dashboard) -> None:
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
    assert training.active_in[begins[1] : begins[2]] == [False] * found[1].steps
    seen = {step.step for step in dashboard.reported}
    assert seen == set(range(1, max(seen) + 1)) - set(range(begins[1] + 1, begins[2] + 1))
    assert training.active


def test_each_step_of_a_proofs_blocks_is_met_however_short(training, dashboard) -> None:
    """Short steps are only counted on a GPU, and no delay reaches those."""
    proof = [
        Block(number=i, changes={}, min_steps=10**6, min_s=0.0, slow=Slow(part="host", ms=ms))
        for i, ms in enumerate((0.0, 0.1))
    ]
    dashboard.send(Blocks(id=1, run=1, blocks=tuple(proof)))
    training.until(lambda: training.closely_until == math.inf)
    dashboard.send(Blocks(id=2, run=1, blocks=()))
    training.until(lambda: dashboard.of(BlocksEnded))
    assert training.closely_until < training.steps + 10


@pytest.mark.parametrize(
    ("asked", "step"), [({"precision": "bf16"}, 1), ({"precision": "bf16", "compile": "on"}, 2)]
)
def test_a_run_begins_with_the_settings_that_were_asked_for(tmp_path, asked, step) -> None:
    Rendezvous(tmp_path).begin_with(asked)
    with script(tmp_path) as training:
        dashboard = Dashboard(path(tmp_path))
        while not training.levers.entered:
            training.step()
        assert training.steps == step  # however late the dashboard is met
        assert training.first(dashboard, "started").settings == training.levers.settings
        training.until(lambda: len(dashboard.reported) > 5)
        assert [one.segment for one in dashboard.reported[:4]] == [0] * step + [1] * (4 - step)


def test_settings_with_which_a_run_cannot_begin_are_refused(tmp_path) -> None:
    Rendezvous(tmp_path).begin_with({"precision": "unknown"})
    with script(tmp_path) as training:
        refused = training.first(Dashboard(path(tmp_path)), Refused)
        assert (refused.answers, refused.reason) == ((), "there is no such value")
        assert training.levers.entered == []
