"""Requests to the run; an impossible one raises LeverError or GpudashError. No widget is known."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec

from gpudash.availability import Requests
from gpudash.diagnosis.headline import Headline, headline
from gpudash.errors import GpudashError, RecordingError, UsageError
from gpudash.protocol.commands import Plan
from gpudash.protocol.inspections import Profiled
from gpudash.snapshot import Listener, Snapshot
from gpudash.tui.ab_control import AbControl
from gpudash.tui.keys import PROFILED_STEPS
from gpudash.tui.lever_control import LeverControl, Way
from gpudash.tui.run_state import Quiet, Request, RunState
from workloads import find_workload

if TYPE_CHECKING:  # the first frame does not wait for them
    from gpudash.run.session import Session


class Control(RunState):
    """The run, with what can be requested of it."""

    def __init__(
        self, open_engine: Callable[[], "Session"], plan: Plan, first: Snapshot | None = None
    ) -> None:
        super().__init__(open_engine, plan, first)
        self.levers = LeverControl(self)
        self.ab = AbControl(self, self.levers)
        self.quiet = Quiet()
        """What is held on the screen."""
        self.profile_note = ""
        """Status of a profile that was made: it is being read, or why it cannot be."""
        self._listener: Listener | None = None
        self.recorded = ""
        """The newest recording that has rows, as one printable line."""
        self.interrupted = False
        """Whether a script was sent SIGINT."""
        self.ending = False
        """Whether the dashboard waits for a script's end to quit."""
        self._shown_failure: RecordingError | None = None

    def take(self, snapshot: Snapshot) -> str | None:
        """Store the newest snapshot; return a notice of a refusal, or of a recording's end."""
        before, self.snapshot = self.snapshot, self.quiet.of(snapshot)
        if snapshot.recording is not None and snapshot.recording.rows:
            self.recorded = snapshot.recording.path
        self.drop_answered()
        self.levers.settle()
        return _refusal(before, self.snapshot) or self._recording_ended(before)

    # ── the run ─────────────────────────────────────────────────────────────────────────

    def begin(self, listener: Listener) -> None:
        """Raise WorkerError, which the snapshot then has; R tries again."""
        self._listener = listener
        try:
            self.engine.start(listener)
        except GpudashError as error:
            self.snapshot = msgspec.structs.replace(
                self.snapshot, state="failed", status=str(error), settings=self.plan.settings
            )
            raise
        self.begun = True

    def interrupt(self) -> None:
        """Send SIGINT to a script."""
        self.interrupted = True
        self.engine.stop()

    def end(self) -> None:
        """Request a script's end; the dashboard quits after it."""
        self.ending = True
        self.interrupt()

    def pause_or_resume(self) -> None:
        self.require("pause")
        pause = not self.pausing
        number = self.engine.pause() if pause else self.engine.resume()
        self.asked["pause"] = Request(number, pause)

    def new_row(self) -> None:
        self.require("new_row")
        self.engine.new_row()

    def restart(self) -> None:
        """Start the same plan with the requested levers. Raise WorkerError or UsageError."""
        self.require("restart")
        plan, snapshot = self.plan, self.snapshot
        is_there = self.dead or snapshot.worker_pid is not None
        if self.begun and (self.is_open(self.asked_restart) or not is_there):
            raise UsageError("the training is starting")  # a key held down repeats
        settings = plan.settings
        if self.workload == plan.workload:  # else the snapshot is still the last workload's
            settings = {**settings, **snapshot.requested, **snapshot.pending}
        asked = {name: request.wish for name, request in self.asked_levers.items()}
        self._start(plan.workload, settings | asked)

    def start_workload(self, name: str) -> None:
        """Raise LeverError for an unknown workload, and WorkerError."""
        find_workload(name)
        self._start(name, {})

    def _start(self, workload: str, settings: Mapping[str, str]) -> None:
        if self._listener is None:  # the first start is about to come
            return
        plan = msgspec.structs.replace(self.plan, workload=workload, settings=dict(settings))
        begun = self.begun
        if not begun:  # the worker could not be started
            self.begin(self._listener)
        if begun or plan != self.plan:
            self.asked_restart = Request(self.engine.restart(plan), plan)
        if workload != self.plan.workload:
            self.levers.forget_edits()
            self.ab.waits = None
        self.plan = plan
        self.asked_levers, self.asked = {}, {}

    def ask_memory_owners(self) -> None:
        self.require("memory")
        self.engine.memory_owners()

    @property
    def headline(self) -> Headline:
        found = headline(self.snapshot, self.quiet.answer)
        return msgspec.structs.replace(found, waits=self.ab.waits)

    @property
    def requests(self) -> Requests:
        return super().requests._replace(
            edits=frozenset(way for way in get_args(Way) if self.levers.label(way)),
            proposes=self.headline.first is not None,
            pipelines=self.levers.acts("pipelined"),
        )

    # ── profiles ────────────────────────────────────────────────────────────────────────

    @property
    def profile_status(self) -> str:
        return f"profiling {PROFILED_STEPS} steps …" if self.profiling else self.profile_note

    def profile(self, path: Path) -> None:
        self.require("profile")
        self.profile_note = ""
        number = self.engine.profile(PROFILED_STEPS, path)
        self.asked_profile = Request(number, self.snapshot.profile)

    def new_profile(self) -> Profiled | None:
        """Return the requested profile once it is there; only once."""
        asked, newest = self.asked_profile, self.snapshot.profile
        if asked is None or self.snapshot.profiling or self.is_open(asked):
            return None
        self.asked_profile = None  # answered: without a new one it was refused
        return newest if newest != asked.wish else None

    # ── recording ───────────────────────────────────────────────────────────────────────

    def record(self, text: str, *, force: bool = False) -> None:
        self.require("record")
        self.engine.begin_sink("recording", Path(text).expanduser(), force=force)

    def _recording_ended(self, before: Snapshot) -> str | None:
        ended = before.recording
        if ended is None or self.snapshot.recording is not None:
            return None
        failure = self.engine.sink_failures.get("recording")
        shown, self._shown_failure = self._shown_failure, failure
        if failure is not shown:
            return None  # status and log show it
        if self.snapshot.state == "failed" and not ended.rows:
            return None  # nothing was written: there is no file
        return f"recording complete: {ended.path}"

    @property
    def file_stem(self) -> str:
        """The workload's name, which may be a path, as part of a file's name."""
        return re.sub(r"[^\w.-]+", "-", self.workload).strip("-.")


def _refusal(before: Snapshot, now: Snapshot) -> str | None:
    """Return why the training has refused a change, in whole: the status line has one row."""
    return now.notice if now.refused and now.status_line != before.status_line else None
