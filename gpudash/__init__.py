"""The terminal workbench for GPU training throughput.

Under `gpudash run` a script imports this also where gpudash is not installed: see `inject`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudash.script.explicit import step
    from workloads.own import workload

__all__ = ["step", "workload"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `step` or `workload` at first use, so that importing gpudash is cheap."""
    if name == "step":
        step = in_training("script.explicit").step
        globals()[name] = step  # a script looks it up in every step
        return step
    if name == "workload":
        from workloads.own import workload  # noqa: PLC0415  # see above

        return workload
    raise AttributeError(f"module 'gpudash' has no attribute {name!r}")


def in_training(module: str) -> Any:
    """Return a module by the name that it has in this process.

    Under `gpudash run` what is in a training has another name, see `inject`: a second copy of it
    would know nothing of the first.
    """
    from importlib import import_module  # noqa: PLC0415  # see above

    try:
        return import_module(f"_gpudash.{module}")
    except ModuleNotFoundError as error:
        if error.name != "_gpudash":
            raise
        return import_module(f"gpudash.{module}")
