"""gpudash under the name that it has in somebody else's process, where it may not be installed.

The modules that run there are the files of `gpudash` itself: `_gpudash.script` is `gpudash/script`.
They import each other relatively, and else only the standard library and torch. This package's
folder is on the path for a moment only, so that nothing else is found there. The package is
imported in each Python of the script, and imports nothing itself.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` is slow
    from collections.abc import Callable
    from typing import Any

FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of gpudash's modules."""
UNCOUNTED = "<gpudash>"
"""The folder in a `__file__` of ours under coverage.py, which counts no file whose name is not
real. It leaves out what is in the `site-packages` of its own Python; gpudash may be elsewhere."""
__file__ = os.path.join(UNCOUNTED, os.path.basename(__file__))
__path__ = [FOLDER]
OLDEST_TORCH = (2, 5)
python = None  # type: str | None
"""Of gpudash's own environment, set by a notebook's first cell; None: gpudash is in this one."""


def begin(mark: Callable[..., None]) -> None:
    """Do nothing the second time. `mark` notes for the dashboard a stage, and perhaps why."""
    if any(type(one) is _Offered for one in sys.meta_path):
        return
    offer()
    after_torch(lambda: _hook(mark))


def offer() -> None:
    """Let `import gpudash` find gpudash where nothing else of this name is."""
    sys.meta_path.append(_Offered())


def after_torch(then: Callable[[], None]) -> None:
    """Call this now if torch is imported, or once it is."""
    if "torch" in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _AfterTorch(then))


def end() -> None:
    sys.meta_path[:] = [one for one in sys.meta_path if type(one) not in (_Offered, _AfterTorch)]


def load_ipython_extension(shell: Any) -> None:
    """Watch the kernel of a notebook: `%load_ext`."""
    from _gpudash.notebook.extension import (  # type: ignore[import-not-found]  # noqa: PLC0415
        load,  # slow
    )

    load(shell)


def unload_ipython_extension(_shell: Any) -> None:
    """Leave nothing of gpudash in the kernel: `%unload_ext`."""
    from _gpudash.notebook.extension import unload  # noqa: PLC0415  # loaded already

    unload()


class _Offered:
    """A finder that finds `gpudash` where nobody else does: it is asked last."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        if name != "gpudash":
            return None
        from importlib.util import spec_from_file_location  # noqa: PLC0415  # slow

        file = os.path.join(FOLDER, "__init__.py")
        return spec_from_file_location(name, file, submodule_search_locations=[FOLDER])


class _AfterTorch:
    """A finder that hooks torch once it is executed, not at the first look for its spec."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then: Callable[[], None] | None = then

    def torch_is_there(self) -> None:
        """Act once: others may have wrapped our loader in ours."""
        then, self._then = self._then, None
        if then is not None:
            then()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        spec = self._found_by_others(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _HookingLoader(spec.loader, self.torch_is_there)
        return spec

    def _found_by_others(self, name: str, path: Any, target: Any) -> Any:
        for finder in sys.meta_path:
            if type(finder) is not _AfterTorch and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


class _HookingLoader:
    """A loader that installs our hooks after it has executed the module."""

    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader = loader
        self._then = then

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
        self._then()


def _leave_uncounted() -> None:
    from importlib.machinery import FileFinder, SourceFileLoader  # noqa: PLC0415  # slow

    class Uncounted(SourceFileLoader):
        def exec_module(self, module: Any) -> None:
            module.__file__ = os.path.join(UNCOUNTED, os.path.basename(self.path))
            super().exec_module(module)

    for folder, _, _ in os.walk(FOLDER):
        sys.path_importer_cache[folder] = FileFinder(folder, (Uncounted, [".py"]))


def _hook(mark: Callable[..., None]) -> None:
    try:
        mark("torch")
        if is_old(sys.modules["torch"]):
            mark("oldtorch")
            return
        if "coverage" in sys.modules:
            _leave_uncounted()
        from _gpudash.script.entry import (  # type: ignore[import-not-found]  # noqa: PLC0415
            install,  # it needs torch, which is there now
        )

        install()
    except NotImplementedError as error:  # torch lacks something
        mark("failed", str(error))
    except Exception as error:  # noqa: BLE001  # the script goes on without hooks
        mark("failed", f"{type(error).__name__}: {error}")


def is_old(torch: Any) -> bool:
    """Return whether this torch is older than those that gpudash knows."""
    first, second, *_ = f"{getattr(torch, '__version__', '')}..".split(".")
    return first.isdecimal() and second.isdecimal() and (int(first), int(second)) < OLDEST_TORCH
