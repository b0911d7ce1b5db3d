"""Whatever the schedule and whenever the levers move, the same batches train the same weights."""

import errno
import gc
import weakref
from multiprocessing.process import BaseProcess
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from tests.workloads.trainings import (
    CPU,
    CUDA,
    DEVICES,
    Make,
    assert_same,
    needs_cuda,
    train,
    weights,
)
from workloads import CATALOGUE
from workloads.levers import LeverError
from workloads.schedule import side_stream
from workloads.training import pick_device

MAKES = ("encdec", {})
pytestmark = pytest.mark.usefixtures("deterministic")

ENTRY = CATALOGUE["encdec"]


@pytest.mark.parametrize("device", DEVICES)
def test_switching_back_and_forth_changes_no_number(make: Make, device: torch.device) -> None:
    serial, switched = make(device), make(device)
    losses = []
    for value in ("on", "off", "on"):
        losses += train(switched, 2)
        switched.change({"pipelined": value})
    losses += train(switched, 2)
    assert_same(device, losses, train(serial, 8))
    assert_same(device, weights(switched), weights(serial))


@needs_cuda
def test_training_goes_before_preparation_where_both_could_run(make: Make) -> None:
    make(CUDA)
    first = torch.cuda.current_stream()
    side = side_stream(CUDA)
    assert first.priority < side.priority  # lower numbers go first
    make(CUDA)
    assert torch.cuda.current_stream() == first  # or two trainings would not be ordered


@pytest.mark.parametrize("device", DEVICES)
def test_a_new_batch_size_goes_on_in_the_data_with_the_weights(
    make: Make, device: torch.device
) -> None:
    serial, streams = make(device), make(device, pipelined="on")
    for training in (serial, streams):
        before = train(training, 3)
        kept = weights(training)
        training.change({"batch_size": "4"})
        assert_same(device, weights(training), kept)
        training.losses = before + train(training, 3)  # type: ignore[attr-defined]
    assert_same(device, streams.losses, serial.losses)  # type: ignore[attr-defined]
    assert_same(device, weights(streams), weights(serial))


def test_the_data_order_is_the_same_whoever_loads_it(make: Make) -> None:
    alone, workers = make(num_workers="0"), make(num_workers="2")
    assert_same(CPU, train(workers, 3), train(alone, 3))
    workers.change({"num_workers": "1"})
    assert_same(CPU, train(workers, 3), train(alone, 3))


def test_another_seed_means_other_weights_and_a_new_start(make: Make) -> None:
    changed, fresh = make(), make(seed="1")
    train(changed, 2)
    changed.change({"seed": "1"})
    assert_same(CPU, train(changed, 2), train(fresh, 2))


def test_the_frozen_encoder_stays_as_it_was(make: Make) -> None:
    training = make(pipelined="on")
    encoder = training._workload.encoder
    before = [p.clone() for p in encoder.parameters()]
    train(training, 3)
    assert not encoder.training
    assert_same(CPU, list(encoder.parameters()), before)


def test_the_full_model_is_the_sources_and_going_back_from_it_rebuilds_the_small_one(
    make: Make,
) -> None:
    training, fresh = make(batch_size="1"), make(batch_size="1")
    before = dict(training.settings)
    training.change({"model_scale": "full"})
    workload = training._workload
    convolutions = [m for m in workload.encoder if isinstance(m, torch.nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [16 << i for i in range(9)]
    image, target = workload.samples({})[0]
    assert image.shape == (3, 256, 256)
    assert target.shape == (256, 256)
    features = workload.encoder(image[None])
    assert features.shape == (1, 4096, 1, 1)
    assert workload.model(features).shape == (1, 10, 256, 256)
    training.recover(before)
    assert training.settings == before
    assert_same(CPU, weights(training), weights(fresh))


def test_a_cpu_says_what_it_chose_and_that_it_has_no_streams(make: Make) -> None:
    training = make(model_scale="auto", precision="auto", pipelined="on")
    assert training.settings["model_scale"] == "small"
    for said in ("model_scale=small", "no streams", "precision=fp32: chosen for the CPU"):
        assert any(said in note for note in training.notes.values())
    training.change({"precision": "bf16"})
    assert not any("precision" in note for note in training.notes.values())


def test_loader_workers_that_cannot_all_begin_are_refused_and_none_is_left(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = BaseProcess.start, []

    def fail_at_the_third(process: BaseProcess) -> None:
        if len(begun) == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        begun.append(process)
        begin(process)

    training = make()
    monkeypatch.setattr(BaseProcess, "start", fail_at_the_third)
    with pytest.raises(LeverError, match=r"num_workers=4: .*Too many open files"):
        training.change({"num_workers": "4"})
    for process in begun:
        process.join(30)
        assert process.exitcode is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": "1000000", "model_scale": "full"}, "GiB are available"),
        ({"batch_size": "0"}, "whole number"),
        ({"nonsense": "1"}, "unknown lever"),
        ({"batch_size": "2"}, "nothing changes"),
    ],
)
def test_a_refused_change_leaves_everything_as_it_was(
    make: Make, changes: dict[str, str], message: str
) -> None:
    training, untouched = make(), make()
    train(training, 1)
    before = dict(training.settings)
    with pytest.raises(LeverError, match=message):
        training.check(changes)
    assert training.settings == before
    train(untouched, 1)
    assert_same(CPU, train(training, 2), train(untouched, 2))


def test_a_failed_step_is_taken_again_after_recovery(make: Make) -> None:
    training, untouched = make(), make()
    losses = train(training, 2)
    before = dict(training.settings)
    training.change({"batch_size": "4"})
    training._batches.__next__()  # the batch on which the step failed
    training.recover(before)
    assert_same(CPU, losses + train(training, 2), train(untouched, 4))


def test_recovery_lets_go_of_what_a_failed_backward_pass_held(make: Make) -> None:
    class Holds(torch.autograd.Function):
        held: weakref.ref[Tensor]

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.activation = torch.zeros(1)
            Holds.held = getattr(Holds, "held", weakref.ref(ctx.activation))  # the first one's
            return x * 1

        @staticmethod
        def backward(_ctx: Any, gradient: Tensor) -> Tensor:
            return gradient

    class Fails(Holds):
        backward = staticmethod(Mock(side_effect=MemoryError))

    def fail() -> None:
        x = torch.ones((), requires_grad=True)
        (Holds.apply(x) + Fails.apply(x)).backward()  # the newer branch comes first

    training = make()
    with pytest.raises(MemoryError):
        fail()
    gc.collect()
    assert Holds.held() is not None
    training.recover(training.settings)
    assert Holds.held() is None


def test_going_back_from_a_model_that_cannot_be_configured_rebuilds_the_one_before(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, fresh = make(batch_size="1"), make(batch_size="1")
    before = dict(training.settings)
    kind = type(training._workload)
    configure = kind.configure

    def refuse(workload: Any, values: Any) -> None:
        if values["seed"]:
            raise LeverError("not this model")
        configure(workload, values)

    monkeypatch.setattr(kind, "configure", refuse)
    with pytest.raises(LeverError):
        training.change({"seed": "1"})
    training.recover(before)
    assert_same(CPU, weights(training), weights(fresh))


def test_a_model_that_cannot_be_built_leaves_the_old_one_and_its_weights(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, untouched = make(), make()
    losses = train(training, 2)
    before = dict(training.settings)
    monkeypatch.setattr(training, "_make_workload", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        training.change({"seed": "1"})
    training.recover(before)
    assert_same(CPU, losses + train(training, 2), train(untouched, 4))


def test_memory_held_now_does_not_count_against_a_change(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = make(data="cached")
    held = sum(training._host_bytes(training.settings))
    monkeypatch.setattr("workloads.training.available_host_bytes", lambda: held // 2)
    training.change({"pipelined": "on"})  # takes nothing
    training.change({"batch_size": "3"})  # takes half as much again, in place of what is held
    with pytest.raises(LeverError, match="GiB are available"):
        training.change({"batch_size": "16"})


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "cuda:", "cuda:-1", "cuda:x", ""])
def test_an_unknown_device_is_answered_with_the_known_ones(name: str) -> None:
    with pytest.raises(LeverError, match="valid: auto, cpu"):
        pick_device(name)
