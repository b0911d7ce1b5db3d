"""What a workload is: a training step cut in two, G = train ∘ prepare.

`prepare` prepares a batch (copy, encode with a frozen encoder, augment, decode) and needs no
gradients; `train` trains on what was prepared. Because nothing in `prepare` depends on the
weights that `train` changes, a schedule is free to run `prepare` of batch n+1 beside
`train` of batch n. A workload says what the halves do, never when they run.
"""

from collections.abc import Mapping, Sized
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from workloads.levers import Value

Batch: TypeAlias = tuple[Tensor, ...]
"""What the loader yields, on the host (or on the device, with data=resident).

In a workload of a user's own it is what the user's samples are collated to: also one tensor, a
dict, or tuples and dicts in each other."""
Prepared: TypeAlias = tuple[Tensor, ...]
"""What crosses from `prepare` to `train`, on the device; of a user's own as above."""

Phase: TypeAlias = Literal["copy", "prepare", "forward", "backward", "optimizer", "graph", "idle"]
"""`graph` stands for forward, backward and optimizer replayed as one CUDA graph."""


class Samples(Dataset[Batch], Sized):
    """A dataset of known length; sample i is the same every time."""

    transforms: tuple[str, ...] = ()
    """What a loader worker does to a sample, if that is measured: then the last tensor of each
    sample is (T+1,) float32, the milliseconds of each transform and how many unreadable
    samples were passed over. It goes no further than the batches."""

    def collate(self, samples: list[Any]) -> Any:
        """Make a batch of samples, as the loader workers do."""
        return default_collate(samples)


class Mark(Protocol):
    """Told where one phase of a step ends and the next begins.

    `mark(phase)` says: what is enqueued from here on, on the current stream, belongs to
    `phase`. `idle` ends a half. An instrument records an event or a time stamp here; it
    never waits for the device.
    """

    def __call__(self, phase: Phase, /) -> None:
        """Begin `phase`."""


def unmarked(_phase: Phase, /) -> None:
    """Record nothing: the bare loop's mark."""


class Workload(Protocol):
    """One reference workload, built for one device with one choice of levers."""

    model: nn.Module
    """What is trained."""

    def __init__(self, values: Mapping[str, Value], device: torch.device) -> None:
        """Build model and optimizer. Seeded by `values["seed"]`. `configure` comes next."""

    def configure(self, values: Mapping[str, Value]) -> None:
        """Apply what needs neither a new loader nor a rebuilt model."""

    def samples(self, values: Mapping[str, Value]) -> Samples:
        """Return the dataset as the loader workers make it under these levers."""

    @staticmethod
    def refusal(values: Mapping[str, Value], device: torch.device) -> str | None:
        """Return why this combination cannot work here; None if it can."""

    @staticmethod
    def host_bytes(values: Mapping[str, Value], device: torch.device) -> tuple[int, int]:
        """Return the bytes of one batch and of what training on it needs, both on the host."""

    def prepare(self, batch: Batch, mark: Mark) -> Prepared:
        """Prepare a batch on the current stream; marks copy and prepare."""

    def train(self, prepared: Prepared, mark: Mark) -> Tensor:
        """Train on a prepared batch; marks forward, backward, optimizer. Returns the loss ()."""
