"""`%load_ext gpudash`, `%gpudash` and `%unload_ext gpudash` in the kernel of a notebook.

The kernel is a run of its own, which `gpudash attach` finds by its directory. Between two cells a
timer of its event loop serves a dashboard. In a forked child nothing of this works.
"""

import asyncio
import atexit
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _gpudash  # type: ignore[import-not-found]  # this is a part of it, in a kernel

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
        _gpudash.after_torch(self._hook)
        shell.events.register("pre_run_cell", self._cell_begins)
        shell.events.register("post_run_cell", self._cell_ends)
        shell.register_magic_function(self._show, "line", MAGIC)
        atexit.register(self.end)
        self._look()

    def end(self) -> None:
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
        _gpudash.end()
        if self._hooks is not None:
            self._hooks.end()
            self._hooks = None
            _listen_to("gpudash.script.explicit")
        self._watching.end()
        shutil.rmtree(self._place.path, ignore_errors=True)

    def _hook(self) -> None:
        with suppress(OSError):
            self._place.mark("torch")
        if _gpudash.is_old(sys.modules["torch"]):
            with suppress(OSError):
                self._place.mark("oldtorch")
            _say("gpudash measures nothing here: this torch is older than 2.5")
            return
        try:
            from ..instrument import private_torch  # noqa: PLC0415  # it needs torch, …
            from ..script.entry import start  # noqa: PLC0415  # … which is there now

            private_torch.check()
            self._hooks = start(self._place)
            _listen_to("gpudash.script.explicit")
        except Exception as error:  # noqa: BLE001  # the notebook goes on without hooks
            _say(f"gpudash cannot measure here: {type(error).__name__}: {error}")

    def _cell_begins(self, *_: object) -> None:
        self._in_cell = True
        if self._hooks is not None:
            self._hooks.cell_begins()

    def _cell_ends(self, *_: object) -> None:
        self._in_cell = False
        if self._hooks is not None:
            self._hooks.cell_ends()

    def _look(self) -> None:
        if not self._in_cell:
            self._serve()
        with suppress(RuntimeError):  # a terminal has no loop: a cell that trains serves there
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)

    def _serve(self) -> None:
        if self._hooks is not None:
            self._hooks.look()

    def _show(self, line: str) -> None:
        if line.strip():
            _say("%gpudash takes no arguments")
            return
        known = (0, 0) if self._hooks is None else self._hooks.told()
        found = self._watching.ask(known, self._serve)
        if isinstance(found, str):
            _say(found)
            return
        _say(found["text"])
        if found["picture"]:
            self._shell.display_pub.publish({"image/svg+xml": found["picture"], "text/plain": ""})


def _listen_to(module: str) -> None:
    """Have steps count that a cell declares with what it has imported earlier."""
    earlier = sys.modules.get(module)
    if earlier is not None:
        earlier.tell = sys.modules[f"_{module}"].tell  # type: ignore[attr-defined]


def _name_of(shell: Any) -> str:
    given = [os.environ.get(NAMES[0]), *(shell.user_ns.get(name) for name in NAMES[1:])]
    named = next((one for one in given if one and isinstance(one, str)), "")
    return Path(named).name or "notebook"


def _say(text: str) -> None:
    print(text, flush=True)  # into the cell's output


# ── the extension ───────────────────────────────────────────────────────────────────────

_loaded: list[Notebook] = []
"""The notebook of this kernel, once the extension is loaded."""


def load(shell: Any) -> None:
    if _loaded:
        _say("gpudash watches this kernel already")
        return
    run = rendezvous.of_environment()
    if run is not None and run.path.is_dir():
        _say("gpudash run watches this kernel already: nothing to load")
        return
    try:
        notebook = Notebook(shell, _gpudash.python)
    except OSError as error:
        _say(f"gpudash cannot watch this kernel: {error.strerror or error}")
        return
    _loaded.append(notebook)
    _say(
        f"gpudash watches this kernel: %gpudash shows what limits it, "
        f"gpudash attach {os.getpid()} in a terminal changes it while it trains"
    )


def unload() -> None:
    while _loaded:
        _loaded.pop().end()
