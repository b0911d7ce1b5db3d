"""The terminal workbench for GPU training throughput."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudash.script.explicit import step
    from workloads.own import workload

__all__ = ["step", "workload"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `step` or `workload` at first use, so that importing gpudash is cheap."""
    if name == "step":
        from gpudash.script.explicit import step  # noqa: PLC0415  # see above

        globals()[name] = step  # a script looks it up in every step
        return step
    if name == "workload":
        from workloads.own import workload  # noqa: PLC0415  # see above

        return workload
    raise AttributeError(f"module 'gpudash' has no attribute {name!r}")
