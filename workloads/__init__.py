"""The catalogue of reference workloads, by name.

Importing it costs no torch: an entry holds what a command line or a screen needs to list a
workload and check its levers; `Entry.build` imports the implementation when training starts.
"""

import importlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workloads.levers import Choice, Count, Lever, LeverError, Switch

if TYPE_CHECKING:
    from workloads.workload import Workload

STREAMS = "C. Rand, Pipelining AI/ML Training Workloads with CUDA Streams (2025)"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A workload as the catalogue knows it."""

    name: str
    summary: str
    source: str
    levers: tuple[Lever, ...]
    module: str

    def build(self) -> "type[Workload]":
        """Import the implementation, and with it torch."""
        workload: type[Workload] = importlib.import_module(self.module).WORKLOAD
        return workload


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0))


PIPELINED = Switch(
    name="pipelined",
    default=False,
    effect="next step",
    summary="Prepare batch n+1 on one CUDA stream while batch n trains on another; "
    "helps where neither half fills the GPU.",
    source=STREAMS,
)
NUM_WORKERS = Count(
    name="num_workers",
    default=min(8, usable_cores()),
    minimum=0,
    maximum=256,
    effect="new loader",
    summary="Loader processes that make batches; helps while the step waits for data "
    "and cores are free. 0 loads in the training process.",
    source="torch.utils.data.DataLoader",
)
PIN_MEMORY = Switch(
    name="pin_memory",
    default=False,
    effect="new loader",
    summary="Put batches into page-locked memory, so that the copy to the GPU runs beside "
    "the host; without it non_blocking=True does nothing.",
    source="torch.utils.data.DataLoader",
)
DATA = Choice(
    name="data",
    default="loader",
    choices=("loader", "cached", "resident"),
    effect="new loader",
    summary="Where batches come from: the loader, a few real batches replayed from host "
    "memory, or the same held on the device; the others show the ceiling that input hides.",
    source="C. Rand, A Caching Strategy for Identifying Bottlenecks on the Data Input "
    "Pipeline (2025)",
)
SEED = Count(
    name="seed",
    default=0,
    minimum=0,
    maximum=2**31 - 1,
    effect="rebuilt model",
    summary="Seeds the weights and the data; a change starts from new weights.",
    source="torch.manual_seed",
)


def batch_size(default: int) -> Count:
    """Return the batch-size lever with a workload's own default."""
    return Count(
        name="batch_size",
        default=default,
        minimum=1,
        maximum=1 << 20,
        effect="new loader",
        summary="Samples in one step; larger batches fill the GPU better, "
        "as long as memory and convergence allow.",
        source=STREAMS,
    )


CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="encdec",
            summary="Image segmentation: a frozen convolutional encoder, a trained decoder.",
            source=STREAMS,
            module="workloads.encdec",
            levers=(
                PIPELINED,
                batch_size(8),
                NUM_WORKERS,
                PIN_MEMORY,
                DATA,
                Choice(
                    name="model_scale",
                    default="auto",
                    choices=("auto", "full", "small"),
                    effect="rebuilt model",
                    summary="full is the source's model on 256×256 images; small takes 64×64 "
                    "images and an eighth of the channels; auto is small on a CPU.",
                    source="gpudash, so that the demo moves without a GPU",
                ),
                SEED,
            ),
        ),
    )
}
DEFAULT = "encdec"


def find_workload(name: str) -> Entry:
    """Return the entry called `name`. Raises LeverError, listing the names there are."""
    if name not in CATALOGUE:
        raise LeverError(f"unknown workload {name!r}; valid: {', '.join(CATALOGUE)}")
    return CATALOGUE[name]
