"""The instrument in a minimal loop."""

import math

import pytest
import torch

from gpudash.instrument.reporter import Reports, instruments
from gpudash.protocol import Event, Phase, Progress, Step

PHASES = tuple(
    Phase(name=name, label=name, lane="train")
    for name in ("data wait", "forward", "backward", "optimizer")
)
BATCHES = tuple(torch.ones(4, 3) * number for number in range(6))


def train(phases_every_s: float) -> tuple[list[Event], float]:
    """Train on the batches as a script does; return the reports and the last loss."""
    heard: list[Event] = []
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


def steps(heard: list[Event]) -> list[Step]:
    return [step for event in heard if isinstance(event, Progress) for step in event.steps]


def test_every_step_of_a_plain_loop_is_reported_with_its_phases() -> None:
    heard, _ = train(phases_every_s=0.0)
    reported = steps(heard)
    assert [step.step for step in reported] == list(range(1, len(BATCHES) + 1))
    for step in reported:
        assert step.phases_ms["forward"] > 0
        assert step.phases_ms["backward"] > 0
        assert step.phases_ms["optimizer"] > 0  # until the iteration's end: nothing marks it
        # the rest is the wait for the batch, a phase like the others
        named_ms = sum(ms for name, ms in step.phases_ms.items() if name != "data wait")
        assert named_ms < step.device_ms <= step.step_ms


def test_steps_without_phases_are_timed_too() -> None:
    heard, _ = train(phases_every_s=math.inf)  # in the first two steps alone
    _, _, *others = steps(heard)
    assert len(others) == len(BATCHES) - 2
    assert all(step.step_ms > 0 and step.device_ms is None for step in others)


def test_totals_and_the_last_loss_are_those_of_the_loop() -> None:
    (*_, last), loss = train(phases_every_s=math.inf)
    assert isinstance(last, Progress)
    assert (last.total_steps, last.total_samples) == (6, 24)
    assert (last.loss_step, last.loss) == (6, pytest.approx(loss))
