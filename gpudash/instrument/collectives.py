"""What collectives move, by tensor sizes, and what DDP's statistics tell.

DDP times its first ten backward passes and then every hundredth, in any case.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

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


class Moved(NamedTuple):
    """MiB moved by collectives."""

    mib: float = 0.0
    """What this process puts in."""
    bus_mib: float = 0.0
    """What each link carries of it one way, by the factors of nccl-tests."""


class Collectives(NamedTuple):
    """The collectives of a backward pass or of a step; None: not known."""

    mib: float | None = None
    """As in `Moved`, like `bus_mib`."""
    bus_mib: float | None = None
    ms: float | None = None
    """Including what computation hides: in DDP from the begin of the first to the end of the last,
    else the time while at least one runs."""
    exposed_ms: float | None = None
    """The part of it in which the computation waits; None in DDP, where a phase tells it."""

    def values(self) -> dict[str, float]:
        """Return what is known by metric."""
        found = {
            "collective_mib": self.mib,
            "collective_ms": self.ms,
            "collective_bus_mib": self.bus_mib,
            "collective_exposed_ms": self.exposed_ms,
        }
        return {name: value for name, value in found.items() if value is not None}


def all_gathered(shard_bytes: float, ranks: int) -> Moved:
    """Return what an all-gather moves to which each rank adds a shard."""
    return Moved(shard_bytes / MIB, (ranks - 1) * shard_bytes / MIB)


def reduce_scattered(whole_bytes: float, ranks: int) -> Moved:
    """Return what a reduce-scatter moves to which each rank adds the whole."""
    return Moved(whole_bytes / MIB, (ranks - 1) / ranks * whole_bytes / MIB)


def all_reduced(whole_bytes: float, ranks: int) -> Moved:
    """Return what an all-reduce moves."""
    return Moved(whole_bytes / MIB, 2 * (ranks - 1) / ranks * whole_bytes / MIB)


def together(moved: Iterable[Moved | None]) -> Moved | None:
    """Return the sum; None if one is not known."""
    mib = bus_mib = 0.0
    for one in moved:
        if one is None:
            return None
        mib, bus_mib = mib + one.mib, bus_mib + one.bus_mib
    return Moved(mib, bus_mib)


def collectives_of(module: DistributedDataParallel) -> Collectives:
    """Return the newest collectives of a pass that synchronises gradients; takes 10 µs."""
    logged: dict[str, Any] = module._get_ddp_logging_data()  # type: ignore[no-untyped-call]  # noqa: SLF001  # documented
    ms = (logged.get("backward_comm_time") or 0) / 1e6 or None
    moved = _moved(module, logged)
    return Collectives(ms=ms) if moved is None else Collectives(*moved, ms)


def _moved(module: DistributedDataParallel, logged: dict[str, Any]) -> Moved | None:
    """Return what a pass moves; None for a communication hook that is not torch's own."""
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
    """Return the sizes of the buckets in bytes."""
    sizes = str(logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or "")
    return [int(size) for size in sizes.split(",") if size.strip()]
