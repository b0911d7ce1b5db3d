"""The interface of a workload: a training step cut in two, G = train ∘ prepare.

`prepare` prepares a batch (copy, encode with a frozen encoder, augment, decode) and needs no
gradients. `train` trains on the prepared batch. As `prepare` does not depend on the weights that
`train` changes, a schedule may run `prepare` of batch n+1 beside `train` of batch n. A workload
defines what the halves do, and a schedule when they run.
"""

from collections.abc import Mapping, Sized
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from workloads.levers import Value

Batch: TypeAlias = tuple[Tensor, ...]
"""A batch from the loader, on the host (or on the device, with data=resident).

In a user's own workload it is any collated structure: also one tensor, a dict, or nested tuples and
dicts."""
Prepared: TypeAlias = tuple[Tensor, ...]
"""The result of `prepare`, on the device; in a user's own workload any structure, as above."""

Phase: TypeAlias = Literal["copy", "prepare", "forward", "backward", "optimizer", "graph", "idle"]
"""A phase of a step; `graph` is forward, backward and optimizer replayed as one CUDA graph."""


class Samples(Dataset[Batch], Sized):
    """A dataset of known length; sample i is the same every time."""

    transforms: tuple[str, ...] = ()
    """Names of the T transforms that a loader worker times, if any. Then the last tensor of each
    sample is (T+1,) float32: the milliseconds of each transform, and the number of unreadable
    samples skipped. The batch source removes it."""

    def collate(self, samples: list[Any]) -> Any:
        """Make a batch of samples; called in the loader workers."""
        return default_collate(samples)


class Mark(Protocol):
    """A callable that marks the border between two phases of a step.

    After `mark(phase)`, work enqueued on the current stream belongs to `phase`. `idle` ends a half.
    An instrument records an event or a time stamp here. It never waits for the device.
    """

    def __call__(self, phase: Phase, /) -> None:
        """Begin `phase`."""


def unmarked(_phase: Phase, /) -> None:
    """Do nothing: the mark of a loop without instruments."""


class Workload(Protocol):
    """One reference workload, built for one device with one choice of levers."""

    model: nn.Module
    """The trained model."""

    def __init__(self, values: Mapping[str, Value], device: torch.device) -> None:
        """Build model and optimizer, seeded by `values["seed"]`. `configure` is called next."""

    def configure(self, values: Mapping[str, Value]) -> None:
        """Apply the levers that need neither a new loader nor a rebuilt model."""

    def samples(self, values: Mapping[str, Value]) -> Samples:
        """Return the dataset under these levers."""

    @staticmethod
    def refusal(values: Mapping[str, Value], device: torch.device) -> str | None:
        """Return why this combination cannot work here; None if it can."""

    @staticmethod
    def host_bytes(values: Mapping[str, Value], device: torch.device) -> tuple[int, int]:
        """Return the host bytes of one batch, and of training on it."""

    def prepare(self, batch: Batch, mark: Mark) -> Prepared:
        """Prepare a batch on the current stream. Marks copy and prepare."""

    def train(self, prepared: Prepared, mark: Mark) -> Tensor:
        """Train on a prepared batch. Marks forward, backward, optimizer. Returns the loss ()."""
