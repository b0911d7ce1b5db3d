"""Several processes train what one would of all their samples."""

import faulthandler
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed

from tests.waiting import PATIENCE_S
from tests.workloads.trainings import CPU, assert_same, processes, train, weights
from workloads import CATALOGUE, find_workload
from workloads.batches import Consecutive
from workloads.levers import LeverError, find
from workloads.processes import ALONE, GradientOptions, Processes, check_gpus, pick_device
from workloads.standard_levers import PROCESSES
from workloads.training import Training

STEPS = 4
SMALL = {"num_workers": "0", "model_scale": "small"}
OTHERS = {"bucket_cap_mb": "1", "gradient_as_bucket_view": "on", "static_graph": "on"}
"""Averages in another way, not to another mean."""


def train_rank(
    rank: int, count: int, store: Path, workload: str, levers: dict[str, str], steps: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return a rank's losses and weights; the levers of averaging change half-way."""
    torch.set_num_threads(1)  # the parent's threads were not forked
    faulthandler.dump_traceback_later(PATIENCE_S / 2)  # say where it is then
    distributed.init_process_group(
        "gloo", f"file://{store}", timedelta(seconds=PATIENCE_S / 4), rank=rank, world_size=count
    )
    entry = find_workload(workload).of_processes()
    training = Training(entry, SMALL | levers, CPU, Processes(rank, count))
    losses = train(training, steps // 2)
    training.change(OTHERS)
    losses += train(training, steps - steps // 2)
    training.close()
    # the group outlives DDP: as its last owner DDP would keep the GIL and wait for gloo's threads,
    # which may need the GIL to free a tensor of Python's
    return losses, weights(training)


def together(folder: Path, workload: str, **levers: str) -> list[tuple[list, list]]:
    """Return what comes of two ranks."""
    each = [(rank, 2, folder / "store", workload, levers, STEPS) for rank in range(2)]
    with processes().Pool(2) as pool:
        return pool.starmap_async(train_rank, each, chunksize=1).get(timeout=PATIENCE_S)


def alone(workload: str, **levers: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    training = Training(CATALOGUE[workload], SMALL | levers, CPU)
    losses = train(training, STEPS)
    training.close()
    return losses, weights(training)


@pytest.mark.parametrize("workload", ["encdec", "augment"])
def test_two_processes_train_as_one_does_with_twice_the_batch(workload: str, tmp_path: Path):
    losses, trained = alone(workload, batch_size="8")
    (first, one), (second, other) = together(tmp_path, workload, batch_size="4", pipelined="on")
    assert_same(CPU, one, other)
    torch.testing.assert_close(one, trained, rtol=1e-4, atol=1e-6)
    mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
    torch.testing.assert_close(mean, losses, rtol=1e-4, atol=1e-6)


def test_a_loss_over_the_pixels_that_count_differs_by_how_many_each_process_has(tmp_path: Path):
    _, trained = alone("masked_loss", batch_size="8")
    (_, one), (_, other) = together(tmp_path, "masked_loss", batch_size="4")
    assert_same(CPU, one, other)
    torch.testing.assert_close(one, trained, rtol=1e-3, atol=1e-5)


def test_gradients_rounded_to_bf16_are_the_same_on_all_ranks_and_near_the_others(tmp_path: Path):
    _, trained = alone("encdec", batch_size="8")
    levers = {"batch_size": "4", "gradient_compression": "bf16"}
    (_, one), (_, other) = together(tmp_path, "encdec", **levers)
    assert_same(CPU, one, other)
    torch.testing.assert_close(one, trained, rtol=1e-2, atol=1e-4)


def test_processes_share_out_the_samples_that_one_would_take():
    shares = [iter(Consecutive(100, 2, 10, Processes(rank, 3))) for rank in range(3)]
    whole = iter(Consecutive(100, 6, 10))
    for _ in range(20):  # past the end, where it wraps
        assert [index for share in shares for index in next(share)] == next(whole)


def test_one_process_alone_has_no_levers_of_averaging():
    entry = CATALOGUE["encdec"]
    assert not {*PROCESSES} & {*entry.levers}
    assert GradientOptions.of({lever.name: lever.default_text for lever in entry.levers}) is None
    assert entry.of_processes().of_processes().levers == (*entry.levers, *PROCESSES)


def test_a_cuda_graph_is_refused_over_several_processes():
    entry = CATALOGUE["encdec"].of_processes()
    with pytest.raises(LeverError, match="cuda_graph=on: not with several processes"):
        Training(entry, SMALL | {"cuda_graph": "on"}, CPU, ALONE)


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(LeverError, match="--nproc 3 is not valid: torch sees 2 GPUs here"):
        check_gpus("auto", 3)
    check_gpus("cuda", 2)
    check_gpus("cpu", 3)


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert pick_device("cuda") == torch.device("cuda", 1)
    assert pick_device("cpu") == CPU
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert pick_device("auto") == CPU


class OwnClass:
    """A workload that wraps nothing."""

    model = torch.nn.Linear(1, 1)

    def __init__(self, _values: Mapping, _device: torch.device) -> None:
        pass

    def configure(self, _values: Mapping) -> None:
        pass

    @staticmethod
    def refusal(_values: Mapping, _device: torch.device) -> None:
        return None

    @staticmethod
    def host_bytes(_values: Mapping, _device: torch.device) -> tuple[int, int]:
        return 0, 0


def test_a_class_that_averages_nothing_is_refused(monkeypatch: pytest.MonkeyPatch):
    entry = CATALOGUE["encdec"].of_processes()
    monkeypatch.setattr(entry, "build", lambda: OwnClass, raising=False)
    monkeypatch.setattr(distributed, "barrier", lambda: None)
    with pytest.raises(LeverError, match="averages no gradients"):
        Training(entry, SMALL, CPU, Processes(1, 2))


def test_of_several_processes_the_batch_is_named_as_that_of_each_and_of_all(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(distributed, "barrier", lambda: None)
    monkeypatch.setattr(GradientOptions, "averaged", lambda _self, module, _device: module)
    training = Training(CATALOGUE["masked_loss"].of_processes(), SMALL, CPU, Processes(1, 3))
    note = training.notes["batch_size"]
    assert note.startswith("batch_size=16: of each of 3 processes, 48 samples in a step; each ")
    training.close()


def test_levers_of_averaging_take_what_ddp_takes():
    assert find(PROCESSES, "bucket_cap_mb").default_text == "25"
    with pytest.raises(LeverError, match="a whole number from 1 to 4096"):
        find(PROCESSES, "bucket_cap_mb").canonical("0")
