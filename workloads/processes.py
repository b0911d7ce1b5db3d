"""Several processes that train one model together, and how they average gradients.

Each process has the whole model and its own share of every batch. torch's DistributedDataParallel
averages the gradients over the processes, bucket by bucket, during the backward pass. Source: Li et
al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training (VLDB 2020).
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from workloads.levers import LeverError, Value


@dataclass(frozen=True)
class Processes:
    """The rank of the process, and the number of processes."""

    rank: int = 0
    count: int = 1


ALONE = Processes()


@dataclass(frozen=True, kw_only=True)
class GradientOptions:
    """How the processes average their gradients."""

    bucket_cap_mb: int
    gradient_as_bucket_view: bool
    static_graph: bool
    compression: str

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "GradientOptions | None":
        """Return the options among all levers' values; None for a single process."""
        if "bucket_cap_mb" not in values:
            return None
        return cls(
            bucket_cap_mb=int(values["bucket_cap_mb"]),
            gradient_as_bucket_view=bool(values["gradient_as_bucket_view"]),
            static_graph=bool(values["static_graph"]),
            compression=str(values["gradient_compression"]),
        )

    def averaged(self, module: nn.Module, device: torch.device) -> nn.Module:
        """Return the module wrapped in DDP; all processes must call this together."""
        for weight in module.parameters():
            weight.grad = None  # it may be a view of the previous buckets
        wrapped = DistributedDataParallel(
            module,
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=self.bucket_cap_mb,
            gradient_as_bucket_view=self.gradient_as_bucket_view,
            static_graph=self.static_graph,
        )
        if self.compression == "bf16":
            wrapped.register_comm_hook(None, bf16_compress_hook)
        return wrapped


def check_gpus(name: str, count: int) -> None:
    """Raise LeverError if there are fewer GPUs than `count` processes on device `name` need."""
    gpus = torch.cuda.device_count()
    if _is_cpu(name) or count <= gpus:
        return
    raise LeverError(
        f"--nproc {count} is not valid: torch sees {gpus} GPU{'' if gpus == 1 else 's'} here, "
        f"and each process trains on its own; valid: {f'1 to {gpus}, or ' if gpus else ''}"
        "any number with --device cpu"
    )


def pick_device(name: str) -> torch.device:
    """Return this process's device: the CPU, or GPU n for process n of its host."""
    return (
        torch.device("cpu")
        if _is_cpu(name)
        else torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    )


def _is_cpu(name: str) -> bool:
    return name == "cpu" or (name == "auto" and not torch.cuda.device_count())


def join(device: torch.device) -> Processes:
    """Join the other processes that torchrun has started."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        distributed.init_process_group("nccl", device_id=device)
    else:
        distributed.init_process_group("gloo")
    return Processes(distributed.get_rank(), distributed.get_world_size())


@contextmanager
def first_alone(processes: Processes) -> Iterator[None]:
    """Run the block in the first process, then in the others, which find its files."""
    if processes.count == 1:
        yield
        return
    if processes.rank:
        distributed.barrier()
    yield
    if not processes.rank:
        distributed.barrier()
