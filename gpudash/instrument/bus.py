"""Measures the bandwidth between the ranks' devices by a large all-reduce."""

import time

import torch
from torch import distributed

LARGE_MIB = {"cuda": 256, "cpu": 16}
"""Size of the tensor, large enough that latency does not count."""
TIMES = 5


def bus_gb_s(device: torch.device) -> float:
    """Return the bus bandwidth in GB/s, as defined by nccl-tests: what each link carries one way.

    All ranks must call it together.
    """
    count = distributed.get_world_size()
    values = torch.zeros(LARGE_MIB[device.type] << 18, device=device)
    best_s = min(_all_reduce_s(values) for _ in range(TIMES))
    return 2 * (count - 1) / count * values.nbytes / best_s / 1e9


def _all_reduce_s(values: torch.Tensor) -> float:
    _finish(values)
    began_s = time.perf_counter()
    distributed.all_reduce(values)
    _finish(values)
    return time.perf_counter() - began_s


def _finish(values: torch.Tensor) -> None:
    if values.is_cuda:
        torch.cuda.synchronize(values.device)  # sync: before the first step
