"""Owners of device memory are recorded for two steps and reported once, and recording ends."""

import time
from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from gpudash.instrument import memory_history
from gpudash.instrument.memory_history import END_S, STEPS, MemoryHistory, observe, uses
from gpudash.instrument.owners import MIB
from gpudash.protocol.commands import Memory
from gpudash.protocol.envelope import Event
from gpudash.protocol.training import Refused
from tests.instrument.test_owners import alloc, frame, free, snapshot
from tests.workloads.trainings import CUDA, needs_cuda

LINE = frame("/home/train.py", 42)
RECORDED = snapshot(alloc(1, 3 * MIB, LINE), free(1, 3 * MIB))


class Allocator:
    """A double of the recording part of torch's allocator."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.recording = False
        self.snapshot = Mock(return_value=RECORDED)
        memory = torch.cuda.memory
        patch.setattr(memory, "_record_memory_history", self._record)
        patch.setattr(memory, "_snapshot", self.snapshot)
        patch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: self.recording)

    def _record(self, enabled: str | None, **_how: object) -> None:
        self.recording = enabled is not None


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    return Allocator(monkeypatch)


@pytest.fixture
def said() -> list[Event]:
    return []


@pytest.fixture
def asked(said: list[Event]) -> MemoryHistory:
    return history(said)


def history(said: list[Event], device: torch.device = CUDA) -> MemoryHistory:
    return MemoryHistory(device, lambda: ((), ()), said.append)


def test_two_steps_are_recorded_and_then_all_requests_are_answered_at_once(
    allocator: Allocator, asked: MemoryHistory, said: list[Event]
):
    asked.ask(Memory(id=7), 100)
    asked.ask(Memory(id=8), 100)
    assert allocator.recording
    assert not asked.turn(100 + STEPS - 1)
    assert asked.turn(100 + STEPS)
    (reported,) = said
    assert (reported.answers, reported.peak_mib) == ((7, 8), 3.0)
    assert [(one.file, one.line, one.mib) for one in reported.owners] == [
        ("/home/train.py", 42, 3.0)
    ]
    assert not allocator.recording
    assert not asked.turn(200)


def test_steps_with_enough_memory_are_not_reported(
    allocator: Allocator, asked: MemoryHistory, said: list[Event]
):
    asked.watch(5)
    assert allocator.recording
    asked.turn(5)
    assert said == []
    assert not allocator.recording


def test_if_memory_runs_out_the_recording_so_far_is_reported(
    allocator: Allocator, asked: MemoryHistory, said: list[Event]
):
    asked.watch(5)
    owners = asked.report()
    assert said == [owners]
    assert owners.answers == ()
    assert asked.report() is None


@pytest.mark.parametrize(
    ("device", "recording", "reason"),
    [
        (
            torch.device("cpu"),
            False,
            "this needs a GPU: it lists what holds GPU memory",
        ),
        (CUDA, True, "the script records its memory history itself"),
    ],
)
def test_a_recording_that_is_not_possible_is_refused(
    allocator: Allocator, device: torch.device, *, recording: bool, reason: str
):
    allocator.recording = recording
    said: list[Event] = []
    asked = history(said, device)
    asked.ask(Memory(id=7), 0)
    asked.watch(5)
    assert [(one.answers, one.kind, one.reason) for one in said if isinstance(one, Refused)] == [
        ((7,), "no_memory_owners", reason)
    ]
    assert not asked.is_on
    assert allocator.recording is recording


def test_a_failing_snapshot_is_answered_and_recording_is_off(
    allocator: Allocator, asked: MemoryHistory, said: list[Event]
):
    asked.ask(Memory(id=7), 0)
    allocator.snapshot.side_effect = RuntimeError("no snapshots from this allocator")
    assert asked.turn(STEPS)
    (reported,) = said
    assert reported.reason == "torch could not tell: no snapshots from this allocator"
    assert not allocator.recording


def test_open_requests_are_answered_when_the_training_ends(
    allocator: Allocator, asked: MemoryHistory, said: list[Event]
):
    asked.ask(Memory(id=7), 0)
    asked.stop("the training ended")
    asked.stop("the training ended")
    assert [(one.answers, one.reason) for one in said if isinstance(one, Refused)] == [
        ((7,), "the training ended")
    ]
    assert not allocator.recording


def test_weights_gradients_and_the_optimizers_state_are_known_by_their_addresses():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    found = uses([model], [optimizer])
    weight = model[0].weight
    assert found[weight.data_ptr()] == "weights"
    assert found[model[1].running_mean.data_ptr()] == "weights"
    assert found[weight.grad.data_ptr()] == "gradients"
    assert found[optimizer.state[weight]["exp_avg"].data_ptr()] == "optimizer state"


HELD = snapshot(held={1: 3 * MIB})


def test_a_training_that_ends_out_of_memory_reports_holders_and_the_failed_request(
    allocator: Allocator, asked: MemoryHistory, said: list[Event]
):
    allocator.snapshot.return_value = HELD
    asked.ran_out(5 * MIB)
    asked.ran_out(9 * MIB)  # within a second
    assert said == []
    asked.report_shortage()
    (reported,) = said
    assert (reported.answers, reported.peak_mib) == ((), 8.0)
    here, before = reported.owners
    assert (here.file, here.mib) == (__file__, 5.0)
    assert (before.use, before.mib) == ("from before", 3.0)


def test_memory_that_ran_out_long_ago_is_not_reported_at_the_end(
    allocator: Allocator, monkeypatch: pytest.MonkeyPatch, asked: MemoryHistory, said: list[Event]
):
    asked.report_shortage()
    asked.ran_out(5 * MIB)
    now_s = time.monotonic()
    monkeypatch.setattr(memory_history.time, "monotonic", lambda: now_s + END_S)
    asked.report_shortage()
    assert said == []


def test_a_failing_look_at_memory_raises_nothing_into_the_script(
    allocator: Allocator, asked: MemoryHistory, said: list[Event]
):
    allocator.snapshot.side_effect = RuntimeError("no snapshots from this allocator")
    asked.ran_out(5 * MIB)
    asked.report_shortage()
    assert said == []


def test_only_a_gpus_allocator_is_observed_and_reports_the_bytes_requested(
    monkeypatch: pytest.MonkeyPatch,
):
    observers: list[Callable[..., object]] = []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", observers.append)
    failed: list[int] = []
    observe(torch.device("cpu"), failed.append)
    assert observers == []
    observe(CUDA, failed.append)
    (observer,) = observers
    observer(0, 5, 100, 1)
    assert failed == [5]


@needs_cuda
def test_on_a_gpu_a_request_that_fails_is_noted_with_its_line(
    asked: MemoryHistory, said: list[Event]
):
    observe(CUDA, asked.ran_out)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 45, dtype=torch.uint8, device=CUDA)
    asked.report_shortage()
    (reported,) = said
    assert reported.owners[0].file == __file__
    assert reported.owners[0].mib >= (1 << 45) / MIB


@needs_cuda
def test_on_a_gpu_the_line_that_allocates_most_is_found_with_its_size():
    model = nn.Linear(1024, 1024, device=CUDA)
    optimizer = torch.optim.AdamW(model.parameters())
    said: list[Event] = []
    asked = MemoryHistory(CUDA, lambda: ([model], [optimizer]), said.append)
    asked.ask(Memory(id=7), 0)
    for step in range(1, 1 + STEPS):
        large = torch.ones(64 * 1024, 1024, device=CUDA)
        model(large).sum().backward()
        optimizer.step()
        del large
        assert asked.turn(step) is (step == STEPS)
    (reported,) = said
    here = next(one for one in reported.owners if one.file == __file__ and one.mib >= 256.0)
    assert here.use in ("activations", "other")
    by_use = {use: sum(o.mib for o in reported.owners if o.use == use) for use in ("weights",)}
    assert by_use["weights"] == pytest.approx(4.0, rel=0.01)
    assert {"gradients", "optimizer state"} <= {one.use for one in reported.owners}
    assert not torch._C._cuda_isHistoryEnabled()
