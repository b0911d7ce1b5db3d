"""The instrument in a minimal loop."""

import math

import pytest
import torch

from gpudash.instrument.reporter import Reports, instruments
from gpudash.instrument.wire import FinishedStep, StepReport
from gpudash.metrics import phases_ms
from gpudash.protocol.training import Phase

PHASES = tuple(
    Phase(name=name, label=name, lane="train")
    for name in ("data wait", "forward", "backward", "optimizer")
)
BATCHES = tuple(torch.ones(4, 3) * number for number in range(6))


def train(phases_every_s: float) -> tuple[list[StepReport], float]:
    """Train on the batches as a script does; return the reports and the last loss."""
    heard: list[StepReport] = []
    clock, losses = instruments(torch.device("cpu"), PHASES, phases_every_s)
    reports = Reports(clock, losses, lambda: ({}, 0), lambda: None, heard.append)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(BATCHES)
    for step in range(1, len(BATCHES) + 1):
        mark = clock.begin()
        mark("data wait")
        batch = next(batches)
        mark("forward")
        loss = model(batch).square().mean()
        mark("backward")
        loss.backward()
        mark("optimizer")
        optimizer.step()
        optimizer.zero_grad()
        clock.end(step, samples=len(batch), loss=loss.detach())
    reports.send_last()
    return heard, float(loss.detach())


def steps(heard: list[StepReport]) -> list[FinishedStep]:
    return [step for report in heard for step in report.steps]


def test_every_step_of_a_plain_loop_is_reported_with_its_phases() -> None:
    heard, _ = train(phases_every_s=0.0)
    reported = steps(heard)
    assert [step.step for step in reported] == list(range(1, len(BATCHES) + 1))
    for step in reported:
        phases = phases_ms(step.values)
        assert phases["forward"] > 0
        assert phases["backward"] > 0
        assert phases["optimizer"] > 0  # until the iteration's end: nothing marks it
        # the rest is the wait for the batch, a phase like the others
        named_ms = sum(ms for name, ms in phases.items() if name != "data wait")
        assert named_ms < step.values["device_ms"] <= step.step_ms


def test_steps_without_phases_are_timed_too() -> None:
    heard, _ = train(phases_every_s=math.inf)  # in the first two steps alone
    _, _, *others = steps(heard)
    assert len(others) == len(BATCHES) - 2
    assert all(step.step_ms > 0 and "device_ms" not in step.values for step in others)


def test_totals_and_the_last_loss_are_those_of_the_loop() -> None:
    (*_, last), loss = train(phases_every_s=math.inf)
    assert (last.total_steps, last.total_samples) == (6, 24)
    assert (last.loss_step, last.loss) == (6, pytest.approx(loss))
