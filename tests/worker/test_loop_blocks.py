"""Blocks in the real loop: their order, the return to the baseline, changes and failures."""

import os
import time
from collections.abc import Callable, Mapping
from errno import ENOMEM

import pytest
import torch
from msgspec.structs import replace

from gpudash.protocol.commands import Blocks, Change, Pause, Plan, Resume
from gpudash.protocol.envelope import Event
from gpudash.protocol.training import Progress, Refused, State, Timed
from tests.answers import blocks
from tests.worker.in_process import ENTRY, FITS_3, SETTINGS, STEP_S, FakeEntry, Run, stop_when, work
from workloads.levers import LeverError, Value

MIN_STEPS = 3
"""Of a block, unless said otherwise."""
FAILS_AFTER_S = 0.02


SIDES = {"pipelined": "on"}, {"batch_size": "3"}, {}
THREE = blocks(1, 1, *SIDES)


def reaches(run: Run, event: Event) -> bool:
    """Return whether this report has a step of the newest segment."""
    newest = max((changed.segment for changed in run.of("changed")), default=0)
    return isinstance(event, Progress) and any(step.segment == newest for step in event.steps)


stop_at_baseline = stop_when(
    lambda run, event: run.entered and run.entered[-1] is None and reaches(run, event)
)
"""Stop once the training goes on after the blocks."""


def when(
    condition: Callable[[Event], bool], *commands: object, then: Callable = stop_at_baseline
) -> Callable[[Run, Event], None]:
    """Send commands at the first event that fits; stop at the baseline."""
    left = list(commands)

    def react(run: Run, event: Event) -> None:
        while left and condition(event):
            run.send(left.pop(0))
        then(run, event)

    return react


def trains(event: Event) -> bool:
    return isinstance(event, Progress) and bool(event.steps)


def begins(number: int) -> Callable[[Event], bool]:
    return lambda event: (
        isinstance(event, State)
        and event.block == number
        and event.why is None
        and not event.answers
    )


def numbered(run: Run) -> None:
    """Check that no step was lost or counted twice."""
    numbers = [step.step for step in run.steps]
    assert numbers == list(range(1, len(numbers) + 1))
    assert run.of("finished")[0].after_step == numbers[-1] == run.training.trained_steps


def test_blocks_run_in_order_and_end_at_the_baseline():
    run = Run(ENTRY, stop_at_baseline).until_stopped(THREE)
    assert run.entered == [0, 1, 2, None]
    baseline = run._loop.training.settings
    assert [event.settings for event in run.of("changed")] == [
        baseline | {"pipelined": "on"},
        baseline | {"batch_size": "3"},  # the block's own change alone
        baseline,
        baseline,
    ]
    assert baseline["batch_size"] == SETTINGS["batch_size"]
    assert not run.of(Refused)
    numbered(run)
    for event in run.of("changed")[:3]:
        steps = [step for step in run.steps if step.segment == event.segment]
        assert len(steps) == event.warmup_steps + MIN_STEPS + 1, event.settings


@pytest.mark.parametrize("pipelined", ["off", "on"])
def test_a_block_from_the_loader_measures_whole_bursts(pipelined: str):
    loader = {"data": "loader", "num_workers": "2", "pipelined": pipelined}
    run = Run(ENTRY, stop_at_baseline, SETTINGS | loader).until_stopped(
        blocks(1, 1, {"batch_size": "3"}, {})
    )
    for event in run.of("changed")[:2]:
        steps = [step for step in run.steps if step.segment == event.segment]
        measured = len(steps) - event.warmup_steps - 1  # as analysis.blocks counts them
        assert measured == 4  # two bursts, though three steps were asked for


ENDS = [(Change(id=9, settings={"batch_size": "4"}), "4"), (Blocks(id=9, run=1, blocks=()), "2")]


@pytest.mark.parametrize(("command", "batch_size"), ENDS)
def test_a_change_or_no_more_blocks_end_them_at_the_baseline(
    command: Change | Blocks, batch_size: str
):
    run = Run(ENTRY, when(begins(0), command)).until_stopped(
        blocks(1, 1, {"pipelined": "on"}, *[{"batch_size": "3"}] * 50)
    )
    assert run.entered == [*range(len(run.entered) - 1), None]
    assert len(run.entered) < 50
    assert run.of("changed")[-1].settings["pipelined"] == "off"
    assert run.training.settings["batch_size"] == batch_size
    numbered(run)


@pytest.mark.parametrize("value", ["off", "on"])
def test_a_change_to_a_value_of_block_or_baseline_ends_the_blocks_too(value: str):
    """Whether it moves anything depends on the block in progress, which the user cannot know."""
    change = Change(id=9, settings={"pipelined": value})
    for first in ({"pipelined": "on"}, {}):
        run = Run(ENTRY, when(begins(0), change)).until_stopped(blocks(9, 1, first, min_steps=300))
        assert run.entered == [0, None]
        assert not run.of(Refused)
        assert run.training.settings["pipelined"] == value
        assert run.of("changed")[1].after_step < 300
        numbered(run)


def test_a_refused_change_leaves_the_comparison_running():
    change = Change(id=9, settings={"batch_size": "0"})
    run = Run(ENTRY, when(begins(0), change)).until_stopped(THREE)
    assert [event.changes for event in run.of(Refused)] == [change.settings]
    assert (run.entered, run.training.settings["batch_size"]) == ([0, 1, 2, None], "2")


@pytest.mark.parametrize("wall_clock", [None, "uninstrumented"])
def test_out_of_memory_ends_the_block_and_not_the_run(wall_clock: str | None):
    asked = blocks(1, 1, {"pipelined": "on"}, {"batch_size": "4"}, {}, wall_clock=wall_clock)
    run = Run(FITS_3, stop_at_baseline).until_stopped(asked)
    (refused,) = run.of(Refused)
    assert (refused.block, refused.changes["batch_size"]) == (1, "4")
    assert "out of memory" in refused.reason
    assert [number for number in run.entered if number is not None] == [0, 1, 2]
    assert [timed.block for timed in run.of(Timed)] == ([0, 2] if wall_clock else [])
    assert run.training.settings["batch_size"] == "2"
    assert run.training.settings["pipelined"] == "off"


def test_a_pause_within_a_block_is_not_measured():
    paused_s = 0.9

    def react(run: Run, event: Event) -> None:
        if begins(0)(event):
            run.send(Pause(id=2))
        paused = run.of("paused")
        resumed = isinstance(event, Progress) and paused and not run.of("resumed")
        if resumed and event.until_s > paused[0].at_s + paused_s:
            run.send(Resume(id=3))
        stop_at_baseline(run, event)

    # longer than a command's way, and than the delays of a busy machine
    long = {"min_steps": 20, "min_s": 0.3}
    asked = blocks(1, 1, *SIDES, wall_clock="instrumented", **long)
    run = Run(ENTRY, react).until_stopped(asked)
    assert run.entered == [0, 1, 2, None]
    (resumed,) = run.of("resumed")
    first = run.of("changed")[0]
    after = [s for s in run.steps if s.segment == first.segment and s.finished_s > resumed.at_s]
    assert len(after) > first.warmup_steps + 20  # a whole block after the pause
    numbered(run)
    timed_first = run.of(Timed)[0]
    assert timed_first.at_s - timed_first.seconds >= resumed.at_s
    assert timed_first.steps <= len(after)


def test_a_block_that_waits_begins_with_a_resume():
    def react(run: Run, event: Event) -> None:
        if isinstance(event, State) and event.phase == "paused":
            trained.append((event.block, run.training.trained_steps))
            run.send(Resume(id=10 + len(trained)))
        stop_at_baseline(run, event)

    trained: list[tuple[int | None, int]] = []
    asked = blocks(1, 1, {}, {})
    waiting = replace(asked, blocks=tuple(replace(one, waits=True) for one in asked.blocks))
    run = Run(ENTRY, react).until_stopped(waiting)
    assert run.entered == [0, 1, None]
    (first, before), (second, after) = trained
    assert (first, second) == (0, 1)
    assert after - before > MIN_STEPS
    for paused, resumed in zip(run.of("paused"), run.of("resumed"), strict=True):
        assert not [one for one in run.steps if paused.at_s < one.finished_s < resumed.at_s]


@pytest.mark.parametrize("wall_clock", ["instrumented", "uninstrumented"])
def test_a_block_timed_by_the_wall_clock_counts_its_steps_and_samples(wall_clock: str):
    asked = blocks(1, 1, *SIDES, wall_clock=wall_clock)
    run = Run(ENTRY, stop_at_baseline).until_stopped(asked)
    timed = run.of(Timed)
    assert [one.block for one in timed] == [0, 1, 2]
    for one, batch_size in zip(timed, (2, 3, 2), strict=True):
        assert one.steps > MIN_STEPS
        assert one.samples == one.steps * batch_size
        assert one.seconds >= one.steps * STEP_S
    totals = [(event.total_steps, event.total_samples) for event in run.of(Progress)]
    assert totals == sorted(totals)
    bare = timed if wall_clock == "uninstrumented" else []
    samples = sum(one.samples for one in (*bare, *run.steps))
    assert totals[-1] == (run.training.trained_steps, samples)
    assert len(run.steps) + sum(one.steps for one in bare) == run.training.trained_steps
    assert run.of("finished")[0].after_step == run.training.trained_steps


def test_a_run_that_ends_within_an_uninstrumented_block_counts_its_steps():
    plan = Plan(workload="fake", settings={}, steps=200)
    endless = blocks(9, 1, {}, min_steps=1000, wall_clock="uninstrumented")
    run = Run(ENTRY, when(trains, endless), plan=plan)
    run.until_stopped()
    assert run.of("finished")[0].after_step == run.training.trained_steps == 200
    assert run.of(Progress)[-1].total_samples == 400


@pytest.mark.parametrize(
    ("error", "why", "within_block"),
    [
        (LeverError("the files are gone"), "the files are gone", False),
        (LeverError("the files are gone"), "the files are gone", True),
        (KeyError("size"), "fake failed: KeyError: 'size'", False),
        (RuntimeError("shapes differ"), "fake failed: RuntimeError: shapes differ", False),
        (OSError(ENOMEM, os.strerror(ENOMEM)), "out of memory with batch_size=4", False),
    ],
    ids=["a refusal", "in a block", "the user's error", "torch's error", "the system's memory"],
)
def test_a_change_that_fails_while_built_is_refused(
    error: Exception, why: str, *, within_block: bool
):
    def fail(values: Mapping[str, Value]) -> None:
        if values["batch_size"] == 4:
            time.sleep(FAILS_AFTER_S)
            raise error

    entry = FakeEntry(during={"forward": work}, building=fail)
    command = (
        blocks(1, 1, {"batch_size": "4"}, {"pipelined": "on"})
        if within_block
        else Change(id=9, settings={"batch_size": "4"})
    )

    def over(run: Run, event: Event) -> object:
        blocks_are_over = run.entered.count(None) == 2 or not within_block
        return run.of(Refused) and blocks_are_over and reaches(run, event)

    run = Run(entry, when(trains, command, then=stop_when(over))).until_stopped()
    (refused,) = run.of(Refused)
    assert refused.reason == f"{why}: went back to batch_size=2"
    assert refused.block == (0 if within_block else None)
    assert run.entered == ([None, 1, None] if within_block else [None])
    assert run.of("changed")[0].took_ms >= FAILS_AFTER_S * 1e3  # the attempt is part of it
    assert run.training.settings["batch_size"] == "2"
    numbered(run)


def test_a_change_that_fails_while_checked_is_refused(monkeypatch: pytest.MonkeyPatch):
    def refusal(values: Mapping[str, Value], _device: torch.device) -> None:
        if values["batch_size"] == 4:
            raise KeyError("size")

    command = Change(id=9, settings={"batch_size": "4"})
    run = Run(ENTRY, stop_when(lambda _run, event: isinstance(event, Refused)))
    monkeypatch.setattr(run.training._kind, "refusal", staticmethod(refusal))
    (refused,) = run.until_stopped(command).of(Refused)
    assert (refused.answers, refused.reason) == ((9,), "fake failed: KeyError: 'size'")


def test_a_step_trained_before_the_next_batch_did_not_fit_counts():
    """On two streams the weights are updated by then: the batch must not be trained on again."""
    trained: list[Value] = []
    failed: list[Value] = []

    def train(values: Mapping[str, Value]) -> None:
        trained.append(values["batch_size"])
        work(values)

    def prepare(values: Mapping[str, Value]) -> None:
        if trained.count(4) == 1 and not failed:
            failed.append(values["batch_size"])
            raise torch.OutOfMemoryError("CUDA out of memory")

    def bigger_at_first(run: Run, event: Event) -> None:
        if trains(event) and not run.entered:
            run.send(Change(id=9, settings={"batch_size": "4"}))
        if failed and run.of(Refused) and reaches(run, event):
            run.stop()

    entry = FakeEntry(during={"prepare": prepare, "forward": train})
    run = Run(entry, bigger_at_first, SETTINGS | {"pipelined": "on"}).until_stopped()
    assert run.training.trained_steps == len(trained)
    assert run.of("finished")[0].after_step == len(trained)
    totals = [event.total_steps for event in run.of(Progress)]
    assert totals == sorted(totals)


def test_the_last_loss_is_the_last_steps():
    run = Run(ENTRY, stop_when(lambda _run, event: trains(event)))
    reports = run.until_stopped().of(Progress)
    *_, loss_step = (one.loss_step for one in reports if one.loss is not None)
    assert loss_step == reports[-1].total_steps == run.training.trained_steps
