"""What the tests of the workloads share: small trainings, and what came of them."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import BaseContext

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.warm import START
from workloads import CATALOGUE
from workloads.training import Training

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = [pytest.param(CPU, id="cpu"), pytest.param(CUDA, id="cuda", marks=needs_cuda)]
COUNT = 24
"""JPEG files that tests read, instead of thousands."""
Make = Callable[..., Training]


def making(workload: str, **levers: str) -> Iterator[Make]:
    """Yield what builds small trainings of a workload; close them all afterwards."""
    made: list[Training] = []
    small = {"batch_size": "2", "num_workers": "0", "model_scale": "small"} | levers

    def build(device: torch.device = CPU, **levers: str) -> Training:
        made.append(Training(CATALOGUE[workload], small | levers, device))
        return made[-1]

    yield build
    for training in made:
        training.close()


def train(training: Training, steps: int) -> list[Tensor]:
    """Train on exactly `steps` more batches and return their losses."""
    trained = [*(training.step() for _ in range(steps)), training.drain()]
    training.synchronize()
    return [step.loss.cpu() for step in trained if step]


def weights(training: Training) -> list[Tensor]:
    return [p.detach().cpu().clone() for p in training._workload.model.parameters()]


def assert_same(device: torch.device, ours: list[Tensor], theirs: list[Tensor]) -> None:
    """Bitwise on a CPU; on a GPU within what its nondeterministic kernels leave."""
    exact = {"rtol": 0.0, "atol": 0.0} if device.type == "cpu" else {"rtol": 1e-4, "atol": 1e-6}
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, **exact)


def processes() -> BaseContext:
    """Return what starts processes that train. Autograd's threads for a GPU survive no fork."""
    return START if torch.cuda.is_available() else multiprocessing.get_context("fork")


class Operators(TorchDispatchMode):
    """Notes the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@contextmanager
def never_waiting() -> Iterator[None]:
    """Fail where the host waits for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Equal work in equal order gives equal bits, on a GPU too."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
