"""Logs what gpudash measures to the run that the script has open in W&B, MLflow or Trackio.

No library is imported here: where the script has not done so, it has no run. The training's thread
only looks up the run and passes it on, as two of the libraries know a run by its thread. The calls
that log, which may wait for a disk or a server, are made on a thread of its own. No step counter of
the script's moves: its next row has the step that it would have had.
"""

import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

from ..errors import first_line
from ..protocol.commands import Figures, Tracker
from ..protocol.session import Notice

MOST_WAITING = 4
"""Rows that wait for a library that is slow; those that come then are left out."""
LAST_S = 0.5
"""Most seconds that the end of a training waits for the last row."""
THREAD = "gpudash-tracker"
STEP = "gpudash/step"
"""The training step, which W&B draws gpudash's own charts over."""

Say: TypeAlias = Callable[[Notice], None]


class Library(NamedTuple):
    """What is asked of a tracker's library."""

    name: str
    find: Callable[[Any], Any]
    """Returns the module's open run, or None; called on the training's thread."""
    log: Callable[[Any, Any, Figures, bool], None]
    """Logs to a run of the module; the last argument says whether it is this run's first time."""


class Trackers:
    """The trackers of one process. It says each thing once."""

    def __init__(self, say: Say) -> None:
        """`say` takes a notice for the user; it is called on the training's thread."""
        self._say = say
        self._waiting: SimpleQueue[tuple[Any, Figures] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # by tracker: the run that was logged to last, and one that takes no more, with the reason
        self._known: dict[Tracker, Any] = {}
        self._failed: dict[Tracker, tuple[Any, str]] = {}
        self._hindered: dict[Tracker, str] = {}  # what was said to be in the way
        self._found: set[Tracker] = set()  # trackers that have had a run open
        self._slow: set[Tracker] = set()

    def take(self, figures: Figures) -> None:
        """Log figures soon, if the script has a run open."""
        tracker = figures.tracker
        library, run = LIBRARIES[tracker], self._open_run(tracker)
        if run is None:
            return
        if self._hindered.pop(tracker, None):
            self._tell(
                tracker, f"{library.name}: the training has opened a run, and figures go there"
            )
        if self._waiting.qsize() < MOST_WAITING:
            self._waiting.put((run, figures))
            if self._thread is None:
                self._thread = threading.Thread(target=self._log_all, name=THREAD, daemon=True)
                self._thread.start()
        elif tracker not in self._slow:
            self._slow.add(tracker)
            self._tell(tracker, f"{library.name} is slow: some figures are left out")

    def look(self) -> None:
        """Say what logging has raised since: no more figures may come."""
        for tracker in self._failed.keys() - self._hindered.keys():
            self._open_run(tracker)

    def close(self, wait_s: float = 0.0) -> None:
        """Have the thread end once it has logged what waits; say what that raises in this time."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(wait_s)
            self._thread = None
        self.look()

    def _open_run(self, tracker: Tracker) -> Any:
        """Return the script's run, if it takes figures; else None, and say why."""
        library, module = LIBRARIES[tracker], sys.modules.get(tracker)
        name = library.name
        try:
            run = None if module is None else library.find(module)
        except Exception as error:  # noqa: BLE001  # no exception of ours may reach the script
            self._hinder(tracker, f"{name} takes no figures: {first_line(error)}")
            return None
        if run is None:
            if tracker not in self._found:  # else the script has ended it
                why = f"{name}: the training has no run open; once it has, figures go there"
                self._hinder(tracker, why)
            return None
        self._found.add(tracker)
        if (failed := self._why_not(tracker, run)) is not None:
            self._hinder(tracker, f"{name} takes no more figures of this run: {failed}")
            return None
        return run

    def _tell(self, tracker: Tracker, text: str) -> None:
        self._say(Notice(text=text, sink=tracker))

    def _hinder(self, tracker: Tracker, why: str) -> None:
        if self._hindered.get(tracker) != why:
            self._hindered[tracker] = why
            self._say(Notice(text=why, sink=tracker, hinders=True))

    def _why_not(self, tracker: Tracker, run: Any) -> str | None:
        """Return what logging to this run has raised; None: nothing. The next run is tried anew."""
        failed, why = self._failed.get(tracker, (None, ""))
        return why if failed is run else None

    def _log_all(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            run, figures = waiting
            tracker = figures.tracker
            if self._why_not(tracker, run) is not None:
                continue
            try:
                is_first = run is not self._known.get(tracker)
                LIBRARIES[tracker].log(sys.modules[tracker], run, figures, is_first)
                self._known[tracker] = run
            except Exception as error:  # noqa: BLE001  # as above
                self._failed[tracker] = run, first_line(error)


def _log_wandb(_module: Any, run: Any, figures: Figures, is_first: bool) -> None:  # noqa: FBT001  # one signature
    """Add to the row that the script is about to log: without a commit no row of its own begins."""
    if is_first:
        run.define_metric(STEP, hidden=True)
        run.define_metric("gpudash/*", step_metric=STEP)
    run.log({**figures.values, **figures.texts, STEP: figures.step}, commit=False)


def _log_mlflow(module: Any, run: Any, figures: Figures, _is_first: bool) -> None:  # noqa: FBT001  # …
    """Add metrics with steps of their own, as every metric has there; texts become tags."""
    entities, at_ms = module.entities, int(1e3 * figures.at_s)
    module.MlflowClient().log_batch(
        run.info.run_id,
        metrics=[
            entities.Metric(name, value, at_ms, figures.step)
            for name, value in figures.values.items()
        ],
        tags=[entities.RunTag(name, text) for name, text in figures.texts.items()],
    )


def _log_trackio(_module: Any, run: Any, figures: Figures, _is_first: bool) -> None:  # noqa: FBT001  # …
    """Add to the run's system metrics, which have times: each other row would take a step."""
    run.log_system({**figures.values, **figures.texts, STEP: figures.step})


LIBRARIES: dict[Tracker, Library] = {
    "wandb": Library("W&B", lambda module: getattr(module, "run", None), _log_wandb),
    "mlflow": Library("MLflow", lambda module: module.active_run(), _log_mlflow),
    "trackio": Library(
        "Trackio", lambda module: module.context_vars.current_run.get(), _log_trackio
    ),
}
