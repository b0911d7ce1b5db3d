"""The terminal workbench for GPU training throughput.

Under `gpudash run` a script imports this also where gpudash is not installed: see `inject`.
"""

import sys
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


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext gpudash` in a notebook."""
    _in_kernel().load_ipython_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext gpudash`."""
    _in_kernel().unload_ipython_extension(shell)


def _in_kernel() -> Any:
    """Return gpudash under the name that it has in somebody else's process; see `inject`."""
    if "_gpudash" not in sys.modules:
        from importlib.util import (  # noqa: PLC0415  # both are slow, and for notebooks alone
            module_from_spec,
            spec_from_file_location,
        )
        from pathlib import Path  # noqa: PLC0415

        file = Path(__file__).parent / "inject/_gpudash/__init__.py"
        spec = spec_from_file_location("_gpudash", file, submodule_search_locations=[])
        assert spec is not None
        assert spec.loader is not None
        sys.modules["_gpudash"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["_gpudash"])
    return sys.modules["_gpudash"]


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
