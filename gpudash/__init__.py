"""The terminal workbench for GPU training throughput."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.own import workload

__all__ = ["workload"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `workload`, the decorator, where it is asked for: importing gpudash costs nothing."""
    if name == "workload":
        from workloads.own import workload  # noqa: PLC0415  # see above

        return workload
    raise AttributeError(f"module 'gpudash' has no attribute {name!r}")
