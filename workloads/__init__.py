"""The catalogue of workloads by name: the reference workloads, and the user's own ones in use.

Importing it does not import torch. An entry has what a command line or a screen needs to list a
workload and check its levers. `Entry.build` imports the implementation when training starts.
"""

import copy
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from workloads.levers import Choice, Lever, LeverError
from workloads.nearest import unknown
from workloads.needs import BESIDE_TORCH, check
from workloads.standard_levers import (
    INPUT,
    JPEG,
    MASKS,
    OPTIMIZATIONS,
    PROCESSES,
    SEED,
    STREAMS,
    batch_size,
    model_scale,
    pipelined,
)

if TYPE_CHECKING:
    from workloads.workload import Workload


class Entry:
    """A workload's entry in the catalogue."""

    def __init__(
        self,
        *,
        name: str,
        summary: str,
        source: str,
        levers: tuple[Lever, ...],
        module: str,
        on_cpu: Mapping[str, str],
        prepares: str = "prepare",
        shared_loss: str = "",
    ) -> None:
        self.name = name
        self.summary = summary
        self.source = source
        self.levers = levers
        self.module = module
        self.on_cpu = on_cpu
        """Levers' defaults that differ on a CPU."""
        self.prepares = prepares
        """The workload's word for its first half, such as `encode`."""
        self.shared_loss = shared_loss
        """Why the loss of several processes differs from that of one process with all samples, as a
        clause; empty if it does not."""
        self.needs = ("torch", *BESIDE_TORCH.get(module, ()))
        """Modules that `build` imports, of those that gpudash itself does without."""

    def of_processes(self) -> "Entry":
        """Return the entry for several processes, with the levers that only they have."""
        other = copy.copy(self)
        other.levers = (*(one for one in self.levers if one not in PROCESSES), *PROCESSES)
        return other

    def levers_with(self, settings: Mapping[str, str]) -> tuple[Lever, ...]:
        """Return the levers of a training with these settings, of one or several processes."""
        is_of_several = any(lever.name in settings for lever in PROCESSES)
        return self.of_processes().levers if is_of_several else self.levers

    def build(self) -> "type[Workload]":
        """Import the implementation, and with it torch; return its class.

        Raises LeverError if something that it imports is not installed.
        """
        check(self.name, self.needs)
        workload: type[Workload] = importlib.import_module(self.module).WORKLOAD
        return workload


CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="encdec",
            summary="Image segmentation: a frozen convolutional encoder, a trained decoder.",
            source=STREAMS,
            module="workloads.encdec",
            prepares="encode",
            levers=(
                pipelined("Encode batch n+1 on one CUDA stream while n trains on another."),
                batch_size(8),
                *INPUT,
                *OPTIMIZATIONS,
                model_scale(
                    full="256×256 images, 16 to 4096 channels",
                    small="64×64 images, 8 to 512 channels",
                ),
                SEED,
            ),
            on_cpu={"precision": "fp32"},
        ),
        Entry(
            name="augment",
            summary="Image classification with heavy augmentation, on the CPU or on the GPU.",
            source=STREAMS,
            module="workloads.augment",
            prepares="augment",
            levers=(
                pipelined("Augment batch n+1 on one CUDA stream while n trains on another."),
                batch_size(32),
                Choice(
                    name="augment_on",
                    default="cpu",
                    choices=("cpu", "batched"),
                    effect="new loader",
                    summary="Where images are augmented: cpu, one by one in the loader workers; "
                    "batched, all of a batch at once on the training device. Helps where the "
                    "workers cannot keep up; a quarter of the bytes cross to a GPU.",
                    source=STREAMS,
                    helps={"batched": "loading on the device"},
                ),
                Choice(
                    name="rotation",
                    default="per_image",
                    choices=("per_image", "batched"),
                    effect="next step",
                    summary="How augment_on=batched rotates: per_image, the source's loop, makes "
                    "the host wait twice an image; batched, one grid for the whole batch, gives "
                    "the same bits without waiting. Helps where launches bound the step.",
                    source="per_image: the source's; batched: torch.nn.functional.grid_sample",
                    helps={"batched": "batched work"},
                    waits=({"rotation": "per_image", "augment_on": "batched"},),
                ),
                *INPUT,
                *OPTIMIZATIONS,
                model_scale(
                    full="256×256 images, 16 to 4096 channels",
                    small="64×64 images, 8 to 512 channels",
                ),
                SEED,
            ),
            on_cpu={"precision": "fp32"},
        ),
        Entry(
            name="masked_loss",
            summary="Segmentation with a loss that masks pixels, and makes the host wait "
            "for the device.",
            source=MASKS,
            module="workloads.masked_loss",
            shared_loss="each averages over its own pixels that count, so the loss is not quite "
            "that of one process with all samples",
            levers=(
                pipelined("Copy batch n+1 on one CUDA stream while n trains on another."),
                batch_size(256),
                Choice(
                    name="loss",
                    default="nonzero",
                    choices=("nonzero", "where", "counted", "ignore_index", "minmax"),
                    effect="next step",
                    summary="How ignored pixels are masked, each form better than the one before: "
                    "by indices; by torch.where; labels counted on the device; no selection, so "
                    "the host never waits; no sort. The loss is the same.",
                    source=f"{MASKS}; minmax: gpudash",
                    helps={"minmax": "no waits"},
                    waits=({"loss": "nonzero"}, {"loss": "where"}, {"loss": "counted"}),
                ),
                *INPUT,
                *OPTIMIZATIONS,
                model_scale(
                    full="256×256 images, 10 hidden convolutions",
                    small="32×32 images, 4 hidden convolutions",
                ),
                SEED,
            ),
            on_cpu={"precision": "fp32", "batch_size": "16"},
        ),
        Entry(
            name="jpeg_input",
            summary="Classification of crops from JPEG files, bound by reading and decoding them.",
            source=JPEG,
            module="workloads.jpeg_input",
            prepares="convert",
            levers=(
                pipelined(
                    "Copy, mask and convert batch n+1 on one CUDA stream while n trains on another."
                ),
                batch_size(256),
                Choice(
                    name="input",
                    default="baseline",
                    choices=(
                        "baseline",
                        "dilation",
                        "crop_first",
                        "batched_colour",
                        "on_device",
                        "tensor_decode",
                        "region_decode",
                    ),
                    effect="new loader",
                    summary="How samples are made, each stage on top of the one before: boolean "
                    "dilation; crop before the tensor; colour per batch; mask and colour on the "
                    "device; decode to a tensor; decode the crop alone. The samples are the same.",
                    source=f"{JPEG}; from on_device: gpudash, torchvision, nvImageCodec",
                    helps={"tensor_decode": "loading on the device", "crop_first": "less loading"},
                ),
                *INPUT,
                *OPTIMIZATIONS,
                model_scale(
                    full="30 channels from the whole crop on",
                    small="4 channels after a stride of 8, the same files and crops",
                ),
                SEED,
            ),
            on_cpu={"precision": "fp32", "batch_size": "32"},
        ),
    )
}
DEFAULT = "encdec"


def add(entry: Entry) -> Entry:
    """Add a user's own workload to this process's catalogue; return it."""
    CATALOGUE[entry.name] = entry
    return entry


def names() -> tuple[str, ...]:
    return tuple(CATALOGUE)


def find_workload(name: str) -> Entry:
    """Return the entry called `name`. Raises LeverError, listing the valid names."""
    if name not in CATALOGUE:
        raise LeverError(unknown("workload", name, CATALOGUE))
    return CATALOGUE[name]
