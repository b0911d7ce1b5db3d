"""Runs at the start of each Python process of a `gpudash run`, before the script; see `inject`.

Python imports the first module of this name on its path. This one removes itself from the path and
imports the user's own. It never prints and never raises. Without `gpudash run` it does nothing. It
imports nothing that the script could shadow, or that would slow its start.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` is slow
    from typing import Any


def _step_aside(folder: str) -> None:
    """Import the `sitecustomize` that Python would have found without this one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != folder]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this  # Python expects the module it has imported


def _mark(what: str) -> None:
    try:
        path = os.path.join(os.environ["_GPUDASH_RUN"], f"{os.getpid()}.{what}")
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError:
        pass


class _AfterTorch:
    """A finder that hooks torch once torch has been executed.

    It stays in place until then, as others ask for torch's spec without importing it.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        spec = self._found_by_others(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _HookingLoader(spec.loader)
        return spec

    def _found_by_others(self, name: str, path: Any, target: Any) -> Any:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


class _HookingLoader:
    """A loader that installs our hooks after it has executed the module."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException as error:
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next  # remove this frame
            raise
        sys.meta_path[:] = [one for one in sys.meta_path if type(one) is not _AfterTorch]
        _hook()


def _hook() -> None:
    _mark("torch")
    try:
        import gpudash  # noqa: F401, PLC0415
    except Exception:  # noqa: BLE001  # gpudash is not in the script's environment
        _mark("nogpudash")
        return
    try:
        from gpudash.script.entry import install  # noqa: PLC0415  # needs torch, which is there now

        install()
    except Exception:  # noqa: BLE001  # the script goes on without hooks
        _mark("failed")


def _begin() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        if os.path.isdir(os.environ.get("_GPUDASH_RUN", "")):
            _mark("python")
            sys.meta_path.insert(0, _AfterTorch())
    finally:
        _step_aside(folder)


_begin()
