"""Data and times of the collectives of a step, and what the links between the ranks carry."""

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

MIB = 2**20
HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
KEPT = {
    ("", ""): 1.0,
    ("", "BuiltinCommHookType.ALLREDUCE"): 1.0,
    ("", "BuiltinCommHookType.FP16_COMPRESS"): 0.5,
    (HOOKS, "allreduce_hook"): 1.0,
    (HOOKS, "fp16_compress_hook"): 0.5,
    (HOOKS, "bf16_compress_hook"): 0.5,
}
"""By module and name of a communication hook: its share of float32 gradient bytes."""


class BytesMoved(NamedTuple):
    """MiB moved by collectives."""

    mib: float = 0.0
    """What this process puts in."""
    bus_mib: float = 0.0
    """What each link carries of it one way, by the factors of nccl-tests."""


class Collectives(NamedTuple):
    """The collectives of a backward pass or of a step; None: not known."""

    mib: float | None = None
    """As in `BytesMoved`, like `bus_mib`."""
    bus_mib: float | None = None
    ms: float | None = None
    """Including what computation hides: in DDP from the begin of the first to the end of the last,
    else the time while at least one runs."""
    exposed_ms: float | None = None
    """The part of it in which the computation waits; None in DDP, where a phase tells it."""

    def values(self) -> dict[str, float]:
        found = {
            "collective_mib": self.mib,
            "collective_ms": self.ms,
            "collective_bus_mib": self.bus_mib,
            "collective_exposed_ms": self.exposed_ms,
        }
        return {name: value for name, value in found.items() if value is not None}


def all_gathered(shard_bytes: float, ranks: int) -> BytesMoved:
    return BytesMoved(shard_bytes / MIB, (ranks - 1) * shard_bytes / MIB)


def reduce_scattered(whole_bytes: float, ranks: int) -> BytesMoved:
    return BytesMoved(whole_bytes / MIB, (ranks - 1) / ranks * whole_bytes / MIB)


def all_reduced(whole_bytes: float, ranks: int) -> BytesMoved:
    return BytesMoved(whole_bytes / MIB, 2 * (ranks - 1) / ranks * whole_bytes / MIB)


def together(moved: Iterable[BytesMoved | None]) -> BytesMoved | None:
    mib = bus_mib = 0.0
    for one in moved:
        if one is None:
            return None
        mib, bus_mib = mib + one.mib, bus_mib + one.bus_mib
    return BytesMoved(mib, bus_mib)


def collectives_of(module: DistributedDataParallel) -> Collectives:
    """Return those of the newest pass that synchronises gradients; takes 10 µs."""
    logged: dict[str, Any] = module._get_ddp_logging_data()  # type: ignore[no-untyped-call]  # noqa: SLF001  # documented
    ms = (logged.get("backward_comm_time") or 0) / 1e6 or None
    moved = _moved(module, logged)
    return Collectives(ms=ms) if moved is None else Collectives(*moved, ms)


def _moved(module: DistributedDataParallel, logged: dict[str, Any]) -> BytesMoved | None:
    owner: str = ""
    group: Any = module.process_group
    with suppress(AttributeError, TypeError, ValueError):  # private, and empty without a hook
        ((hook, group),) = module._comm_hooks  # noqa: SLF001  # the statistics lack the module
        owner = hook.__module__
    kept, sizes = KEPT.get((owner, str(logged.get("comm_hook") or ""))), _sizes(logged)
    if kept is None or not sizes or (kept < 1 and logged.get("dtypes") != "float"):
        return None
    return all_reduced(kept * sum(sizes), distributed.get_world_size(group))


def _sizes(logged: dict[str, Any]) -> list[int]:
    sizes = str(logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or "")
    return [int(size) for size in sizes.split(",") if size.strip()]


LARGE_MIB = {"cuda": 256, "cpu": 16}
"""Size of the tensor, large enough that latency does not count."""
TIMES = 5


def bus_gb_s(device: torch.device) -> float:
    """Return a link's bandwidth one way, as nccl-tests has it. All ranks must call it together."""
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


Span: TypeAlias = tuple[float, float]
"""Begin and end, in ms from any moment."""


class CollectiveTimes(NamedTuple):
    """Times of the collectives of one step."""

    ms: float
    """While at least one runs: collectives beside each other count once, gaps do not count."""
    exposed_ms: float
    """The part of `ms` in which the computation waits for them."""


def collective_times(collectives: Sequence[Span], phases: Iterable[Span]) -> CollectiveTimes:
    """`phases` are those in which the computation may wait."""
    ends = sorted(end for _, end in collectives)
    waits = []
    for begin, end in phases:
        ended = bisect_right(ends, end)
        if ended and ends[ended - 1] > begin:
            waits.append((begin, ends[ended - 1]))
    ms, waits_ms = _covered(collectives), _covered(waits)
    return CollectiveTimes(ms, ms + waits_ms - _covered([*collectives, *waits]))


def _covered(spans: Iterable[Span]) -> float:
    covered, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered
