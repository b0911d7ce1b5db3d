"""`%load_ext gpudash`, `%gpudash` and `%unload_ext gpudash` in the kernel of a notebook.

The kernel is a run of its own, as a command of `gpudash run` is: `gpudash attach` finds it by its
directory. torch is hooked now, or once it is imported. Between two cells nothing trains, so a timer
of the kernel's own event loop serves a dashboard. In a forked child nothing of this works.
"""

import asyncio
import atexit
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import rendezvous
from ..run.keeper import write_facts
from .watching import Watching

if TYPE_CHECKING:
    from ..script.entry import Hooks

MAGIC = "gpudash"
LOOK_EVERY_S = 0.1
"""Seconds between two looks for a dashboard while no cell runs."""
NAMES = ("JPY_SESSION_NAME", "__session__", "__vsc_ipynb_file__")
"""The notebook's path: an environment variable, else names in the user's namespace."""


class Notebook:
    """What was put into this kernel."""

    def __init__(self, shell: Any, python: str | None) -> None:
        """`python` is that of gpudash's own environment; None: the kernel's is. Raises OSError."""
        self._shell = shell
        self._pid = os.getpid()
        self._place = rendezvous.begin()
        self.name = _name_of(shell)
        with suppress(OSError):
            self._place.mark("python")
        try:
            write_facts(
                self._place.path,
                name=self.name,
                command=[self.name],
                pid=self._pid,
                is_kept=False,
                is_notebook=True,
            )
        except OSError:
            shutil.rmtree(self._place.path, ignore_errors=True)
            raise
        self._hooks: Hooks | None = None
        self._in_cell = True
        self._timer: asyncio.TimerHandle | None = None
        self._watching = Watching(self._place.path, python)
        self._unhook = after_torch(self._hook)
        shell.events.register("pre_run_cell", self._cell_begins)
        shell.events.register("post_run_cell", self._cell_ends)
        shell.register_magic_function(self._show, "line", MAGIC)
        atexit.register(self.end)
        self._look()

    def end(self) -> None:
        """Take everything out of this kernel again."""
        if os.getpid() != self._pid:  # a forked child: all of this is its parent's
            return
        atexit.unregister(self.end)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for name, action in (
            ("pre_run_cell", self._cell_begins),
            ("post_run_cell", self._cell_ends),
        ):
            with suppress(ValueError):
                self._shell.events.unregister(name, action)
        self._shell.magics_manager.magics["line"].pop(MAGIC, None)
        self._unhook()
        if self._hooks is not None:
            self._hooks.end()
            self._hooks = None
        self._watching.end()
        shutil.rmtree(self._place.path, ignore_errors=True)

    def _hook(self) -> None:
        with suppress(OSError):
            self._place.mark("torch")
        try:
            from ..script.entry import start  # noqa: PLC0415  # it needs torch, which is there now

            self._hooks = start(self._place)
        except Exception as error:  # noqa: BLE001  # the notebook goes on without hooks
            _say(f"gpudash cannot measure here: {type(error).__name__}: {error}")

    def _cell_begins(self, *_: object) -> None:
        self._in_cell = True

    def _cell_ends(self, *_: object) -> None:
        self._in_cell = False
        if self._hooks is not None:
            self._hooks.cell_ends()

    def _look(self) -> None:
        """Serve a dashboard while no cell runs, and again in a moment."""
        if self._hooks is not None and not self._in_cell:
            self._hooks.look()
        with suppress(RuntimeError):  # a terminal has no loop: a cell that trains serves there
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)

    def _show(self, line: str) -> None:
        """Print what limits the training, and draw its rate and its steps over time."""
        if line.strip():
            _say("%gpudash takes no arguments")
            return
        if self._hooks is not None:
            self._hooks.flush()
        found = self._watching.ask()
        if isinstance(found, str):
            _say(found)
            return
        _say(found["text"])
        if found["picture"]:
            from IPython.display import SVG, display  # noqa: PLC0415  # the kernel has it

            display(SVG(found["picture"]))


def after_torch(hook: Callable[[], None]) -> Callable[[], None]:
    """Call this once torch is imported, now if it is; return what takes the wait back."""
    if "torch" in sys.modules:
        hook()
        return lambda: None
    finder = _AfterTorch(hook)
    sys.meta_path.insert(0, finder)

    def stop() -> None:
        with suppress(ValueError):
            sys.meta_path.remove(finder)

    return stop


class _AfterTorch:
    def __init__(self, hook: Callable[[], None]) -> None:
        self._hook = hook

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _HookingLoader(spec.loader, self, self._hook)
                    return spec
        return None


class _HookingLoader:
    def __init__(self, loader: Any, finder: _AfterTorch, hook: Callable[[], None]) -> None:
        self._loader, self._finder, self._hook = loader, finder, hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        with suppress(ValueError):
            sys.meta_path.remove(self._finder)  # type: ignore[arg-type]
        self._hook()


def _name_of(shell: Any) -> str:
    given = [os.environ.get(NAMES[0]), *(shell.user_ns.get(name) for name in NAMES[1:])]
    named = next((one for one in given if one and isinstance(one, str)), "")
    return Path(named).name or "notebook"


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # into the cell's output


# ── the extension ───────────────────────────────────────────────────────────────────────

_loaded: list[Notebook] = []
"""The notebook of this kernel, once the extension is loaded."""


def load(shell: Any, python: str | None = None) -> None:
    """Watch this kernel, and say how to look in."""
    run = rendezvous.of_environment()
    if run is not None and run.path.is_dir():
        _say("gpudash run watches this kernel already: nothing to load")
        return
    try:
        notebook = Notebook(shell, python)
    except OSError as error:
        _say(f"gpudash cannot watch this kernel: {error.strerror or error}")
        return
    _loaded.append(notebook)
    _say(
        f"gpudash watches this kernel: %gpudash shows what limits it, "
        f"gpudash attach {os.getpid()} in a terminal changes it while it trains"
    )


def unload() -> None:
    """Leave nothing of gpudash in this kernel."""
    while _loaded:
        _loaded.pop().end()
