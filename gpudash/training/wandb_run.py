"""Logs what gpudash measures to the run that the script has open in W&B.

Logging may wait for a disk or a server, so it has a thread of its own. No step counter of the
script's moves: figures join the row that it logs next.
"""

import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

from ..errors import first_line
from ..protocol.commands import Figures
from ..protocol.session import Notice

MOST_WAITING = 4
"""Rows that wait for a library that is slow; those that come then are left out."""
LAST_S = 0.5
"""Most seconds that the end of a training waits for the last row."""
THREAD = "gpudash-wandb"
STEP = "gpudash/step"
"""The training step, which W&B draws gpudash's own charts over."""

Say: TypeAlias = Callable[[Notice], None]


class WandbRun:
    """The run that is open in this process. Each thing is said once."""

    def __init__(self, say: Say) -> None:
        """Have `say` called on the training's thread, with notices for the user."""
        self._say = say
        self._waiting: SimpleQueue[tuple[Any, Figures] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._logged_to: Any = None
        self._failed: tuple[Any, str] | None = None  # a run that takes no more, and why
        self._hindered = ""  # what was said to be in the way
        self._was_open = self._is_slow = False

    def take(self, figures: Figures) -> None:
        run = self._open_run()
        if run is None:
            return
        if self._hindered:
            self._hindered = ""
            self._tell("W&B: the training has opened a run, and figures go there")
        if self._waiting.qsize() < MOST_WAITING:
            self._waiting.put((run, figures))
            if self._thread is None:
                self._thread = threading.Thread(target=self._log_all, name=THREAD, daemon=True)
                self._thread.start()
        elif not self._is_slow:
            self._is_slow = True
            self._tell("W&B is slow: some figures are left out")

    def look(self) -> None:
        """Say what logging has raised since: no more figures may come."""
        if self._failed is not None and not self._hindered:
            self._open_run()

    def close(self, wait_s: float = 0.0) -> None:
        """Have the thread end once it has logged what waits; say what that raises in this time."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(wait_s)
            self._thread = None
        self.look()

    def _open_run(self) -> Any:
        run = getattr(sys.modules.get("wandb"), "run", None)
        if run is None:
            if not self._was_open:  # else the script has ended it
                self._hinder("W&B: the training has no run open; once it has, figures go there")
            return None
        self._was_open = True
        if why := self._why_not(run):
            self._hinder(f"W&B takes no more figures of this run: {why}")
            return None
        return run

    def _tell(self, text: str, *, hinders: bool = False) -> None:
        self._say(Notice(text=text, sink="wandb", hinders=hinders))

    def _hinder(self, why: str) -> None:
        if self._hindered != why:
            self._hindered = why
            self._tell(why, hinders=True)

    def _why_not(self, run: Any) -> str:
        return self._failed[1] if self._failed is not None and self._failed[0] is run else ""

    def _log_all(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            run, figures = waiting
            if self._why_not(run):
                continue
            try:
                self._log(run, figures)
            except Exception as error:  # noqa: BLE001  # no exception of ours may reach the script
                self._failed = run, first_line(error)

    def _log(self, run: Any, figures: Figures) -> None:
        """Add to the row that the script is about to log: a commit would begin one of ours."""
        if run is not self._logged_to:
            run.define_metric(STEP, hidden=True)
            run.define_metric("gpudash/*", step_metric=STEP)
        run.log({**figures.values, **figures.texts, STEP: figures.step}, commit=False)
        self._logged_to = run
