"""What the collectives of DistributedDataParallel move and take, by its own statistics.

It times its first ten backward passes and every hundredth after them, whether somebody asks or not.
"""

from typing import Any, NamedTuple

from torch.nn.parallel import DistributedDataParallel

MIB = 2**20


class Collectives(NamedTuple):
    """Those of a backward pass, or of a step; None: not known."""

    mib: float | None = None
    """What this process puts in."""
    ms: float | None = None
    """From the begin of the first to the end of the last, hidden behind computation or not."""


def collectives_of(module: DistributedDataParallel) -> Collectives:
    """Return those of a pass that synchronises gradients, by the newest numbers: about 10 µs."""
    logged: dict[str, Any] = module._get_ddp_logging_data()  # type: ignore[no-untyped-call]  # noqa: SLF001  # documented
    return Collectives(_mib(logged), (logged.get("backward_comm_time") or 0) / 1e6 or None)


def _mib(logged: dict[str, Any]) -> float | None:
    sizes = str(logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or "")
    mib = sum(int(size) for size in sizes.split(",") if size.strip()) / MIB
    hook = str(logged.get("comm_hook") or "").lower()
    if hook:  # of other hooks nobody knows what they send
        halves = "16_compress" in hook and logged.get("dtypes") == "float"
        return mib / 2 if halves and mib else None
    return mib or None
