"""The levers that every workload has, and those that most training loops have.

This module does not import torch.
"""

import os
from collections.abc import Collection

from workloads.cgroup import cores_quota
from workloads.levers import AUTO, NEXT, Choice, Count, Lever, Switch

STREAMS = "C. Rand, Pipelining AI/ML Training Workloads with CUDA Streams (2025)"
CACHING = (
    "C. Rand, A Caching Strategy for Identifying Bottlenecks on the Data Input Pipeline (2025)"
)
JPEG = (
    "C. Rand, Solving Bottlenecks on the Data Input Pipeline with PyTorch Profiler and "
    "TensorBoard (2023)"
)
MASKS = "C. Rand, PyTorch Model Performance Analysis and Optimization, Part 3 (2023)"

DDP = "torch.nn.parallel.DistributedDataParallel"


def usable_cores(allowed: Collection[int] | None = None) -> int:
    """Return of how many cores this process's cgroup has the time, of those that are allowed.

    Without an argument these are the ones on which this process may run.
    """
    quota = cores_quota()
    most = len(os.sched_getaffinity(0) if allowed is None else allowed)
    return most if quota is None else max(1, min(most, int(quota)))


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
        helps={NEXT: "more samples"},
    )


def pipelined(summary: str) -> Switch:
    """Return the pipelining lever; `summary` is about the workload's first half."""
    return Switch(
        name="pipelined",
        default=False,
        effect="next step",
        summary=f"{summary} Helps where both take about as long and neither fills the GPU.",
        source=STREAMS,
        helps={"on": "halves at a time"},
        needs_gpu=True,
    )


def model_scale(full: str, small: str) -> Choice:
    """Return the lever with which a workload also runs without a GPU."""
    return Choice(
        name="model_scale",
        default=AUTO,
        choices=(AUTO, "full", "small"),
        effect="rebuilt model",
        summary=f"Sizes of model and images. full is the source's: {full}. small is {small}. auto "
        "is small on a CPU.",
        source="gpudash, so that the demo moves without a GPU",
    )


INPUT: tuple[Lever, ...] = (
    Count(
        name="num_workers",
        default=min(8, usable_cores()),
        minimum=0,
        maximum=256,
        effect="new loader",
        summary="Loader processes that make batches; helps while the step waits for data "
        "and cores are free. 0 loads in the training process.",
        source="torch.utils.data.DataLoader",
        helps={NEXT: "more workers"},
    ),
    Switch(
        name="pin_memory",
        default=False,
        effect="new loader",
        summary="Put batches into page-locked memory, so that the copy to the GPU runs beside "
        "the host; without it non_blocking=True does nothing.",
        source="torch.utils.data.DataLoader",
        helps={"on": "pinned copy"},
        needs_gpu=True,
    ),
    Count(
        name="prefetch_factor",
        default=2,
        minimum=1,
        maximum=256,
        effect="new loader",
        summary="Batches that each loader worker keeps ready; helps where the time to make a "
        "batch varies, and costs host memory.",
        source="torch.utils.data.DataLoader",
        helps={NEXT: "batches ahead"},
    ),
    Choice(
        name="data",
        default="loader",
        choices=("loader", "cached", "resident"),
        effect="new loader",
        summary="Where batches come from: the loader, a few real batches replayed from host "
        "memory, or the same held on the device; the others show the ceiling that input hides.",
        source=CACHING,
        helps={"cached": "no loading"},
    ),
)
"""Levers of the input: how batches reach the step."""

OPTIMIZATIONS: tuple[Lever, ...] = (
    Choice(
        name="precision",
        default="tf32",
        choices=("fp32", "tf32", "bf16"),
        effect="next step",
        summary="What the layers compute in: fp32; tf32 in convolutions, PyTorch's default; or "
        "bf16 by autocast. Fewer bits go through the tensor cores faster; bf16 also halves the "
        "memory traffic.",
        source="torch.backends, torch.autocast",
        helps={"tf32": "tf32", "bf16": "bf16"},
        numerics=True,
    ),
    Switch(
        name="channels_last",
        default=False,
        effect="next step",
        summary="Keep images and weights in NHWC order, which cuDNN's tensor-core kernels want; "
        "saves their transposes.",
        source="PyTorch, Channels Last Memory Format tutorial",
        helps={"on": "image order"},
    ),
    Switch(
        name="fused_optimizer",
        default=False,
        effect="next step",
        summary="Update all parameters in one kernel; helps where many small launches bound "
        "the step.",
        source="torch.optim.SGD(fused=True)",
        helps={"on": "one update"},
    ),
    Choice(
        name="backward_thread",
        default="caller",
        choices=("caller", "autograd"),
        effect="next step",
        summary="Which thread enqueues the backward pass on a GPU: the loop's own, or autograd's, "
        "PyTorch's default, woken for every step on whatever core is free. The same kernels; "
        "caller helps where launches bound the step, and steadies it.",
        source="torch.autograd.set_multithreading_enabled",
        needs_gpu=True,
    ),
    Switch(
        name="compile",
        default=False,
        effect="next step",
        summary="torch.compile the model: fuses pointwise work into few kernels. The first step "
        "after a change compiles, which takes seconds to minutes.",
        source="torch.compile",
        helps={"on": "fewer kernels"},
    ),
    Switch(
        name="cuda_graph",
        default=False,
        effect="next step",
        summary="Record forward, backward and optimizer once as a CUDA graph and replay them in "
        "one launch; helps where launching bounds the step.",
        source="torch.cuda.graph",
        helps={"on": "one launch"},
        needs_gpu=True,
    ),
)
"""The optimizations: how a model is computed, never what."""

PROCESSES: tuple[Lever, ...] = (
    Count(
        name="bucket_cap_mb",
        default=25,
        minimum=1,
        maximum=4096,
        effect="next step",
        summary="MiB of gradients that are averaged in one all-reduce: small buckets start early "
        "and hide behind the backward pass, large ones use the links better.",
        source=DDP,
        helps={NEXT: "fewer collectives"},
    ),
    Switch(
        name="gradient_as_bucket_view",
        default=False,
        effect="next step",
        summary="Have gradients lie in the buckets: saves a copy of each and the memory of all.",
        source=DDP,
        helps={"on": "fewer gradient copies"},
    ),
    Switch(
        name="static_graph",
        default=False,
        effect="next step",
        summary="Promise that each step uses the same weights in the same order: less to find out "
        "in every step.",
        source=DDP,
    ),
    Choice(
        name="gradient_compression",
        default="none",
        choices=("none", "bf16"),
        effect="next step",
        summary="What gradients are averaged in: bf16 halves the bytes on the links and rounds "
        "what it averages. Helps where communication is exposed.",
        source="torch.distributed.algorithms.ddp_comm_hooks",
        helps={"bf16": "half the bytes"},
        numerics=True,
    ),
)
"""Levers of several processes: how they average gradients. A single process has none of these."""

SEED = Count(
    name="seed",
    default=0,
    minimum=0,
    maximum=2**31 - 1,
    effect="rebuilt model",
    summary="Seeds the weights and the data; a change starts from new weights.",
    source="torch.manual_seed",
)
