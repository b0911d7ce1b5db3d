"""What the keys do to the run: checks a request, passes it to the engine, words the answer.

No widget in here. A request that cannot be is answered by a LeverError or GpudashError,
whose one line the app shows as a notice.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path

import msgspec

from gpudash.compare.ab import Question
from gpudash.errors import GpudashError, RecordingError, UsageError
from gpudash.protocol import Plan, Settings
from gpudash.snapshot import ENDED, ComparisonShown, Listener, Snapshot
from gpudash.tui.asked import PATIENCE, Asked
from gpudash.tui.chosen import Chosen
from gpudash.tui.engine import Engine
from workloads import CATALOGUE, find_workload
from workloads.levers import Lever, LeverError, find, resolve


def levers_of(workload: str) -> tuple[Lever, ...]:
    """Return the levers of a workload of the catalogue; none for any other."""
    entry = CATALOGUE.get(workload)
    return entry.levers if entry else ()


class LeverRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lever as the panel shows it."""

    lever: Lever
    value: str
    """In force, or about to be where nothing runs."""
    pending: str | None
    """Asked for and not in force yet."""


class Control:
    """The engine, the newest snapshot, and what was asked for since."""

    def __init__(self, open_engine: Callable[[], Engine], plan: Plan) -> None:
        self._open_engine = open_engine
        self.plan = plan
        """What the worker was last started with, or is going to be."""
        self.snapshot = Snapshot(workload=plan.workload)
        self._asked = Asked()
        self._chosen = Chosen()
        self._listener: Listener | None = None
        self._begun = False
        self._completing: str | None = None  # the recording the user has ended
        self._told: RecordingError | None = None
        self._awaits_comparison = 0  # snapshots that may pass until one shows what was asked for …
        self._comparison_before: ComparisonShown | None = None  # … and not this one

    @cached_property
    def engine(self) -> Engine:
        """The run, opened when it is first needed: the first frame does not wait for it."""
        return self._open_engine()

    def take(self, snapshot: Snapshot) -> str | None:
        """Make this the newest snapshot; return a notice where something ended by itself."""
        before, self.snapshot = self.snapshot, snapshot
        self._chosen.reconcile(snapshot)
        seen = snapshot.comparison != self._comparison_before
        self._awaits_comparison = 0 if seen else max(self._awaits_comparison - 1, 0)
        if self.dead:
            self._asked.pause = None
        else:
            self._asked.reconcile(snapshot)
        return self._recording_ended(before)

    @property
    def dead(self) -> bool:
        """No worker lives: levers set up the next start."""
        return self.snapshot.state in ENDED

    @property
    def alive(self) -> bool:
        """A worker lives, or is being started."""
        return self._begun and not self.dead

    # ── levers ──────────────────────────────────────────────────────────────────────────

    @property
    def workload(self) -> str:
        """The workload on screen."""
        return self.snapshot.workload or self.plan.workload

    @property
    def levers(self) -> tuple[Lever, ...]:
        """The levers of that workload."""
        return levers_of(self.workload)

    @property
    def in_force(self) -> Settings:
        """Every lever's value in force; before anything ran, the one planned."""
        planned = self.plan.settings
        try:
            planned = resolve(self.levers, planned)
        except LeverError:  # the engine will say so when it starts
            planned = dict(planned)
        return {**planned, **self.snapshot.settings}

    @property
    def wanted(self) -> Settings:
        """The values in force, with everything asked for on top."""
        return {**self.in_force, **self.snapshot.pending, **self._asked.settings}

    @property
    def next_start(self) -> Settings:
        """What a restart would set differently, while no worker lives."""
        in_force = self.in_force
        changed = {**self.snapshot.pending, **self._asked.settings}
        return {k: v for k, v in changed.items() if self.dead and v != in_force.get(k)}

    def rows(self) -> tuple[LeverRow, ...]:
        """Return the levers as the panel shows them."""
        in_force, wanted = self.in_force, self.wanted
        return tuple(
            LeverRow(
                lever=lever,
                value=in_force.get(lever.name, lever.default_text),
                pending=wanted[lever.name]
                if wanted.get(lever.name) != in_force.get(lever.name)
                else None,
            )
            for lever in self.levers
        )

    def value(self, lever: Lever) -> str:
        """Return the value last asked for, or the one in force."""
        return self.wanted.get(lever.name, lever.default_text)

    def change(self, lever: Lever, text: str) -> None:
        """Ask for a value. Raises LeverError, listing the valid ones."""
        value = lever.canonical(text)
        if value == self.value(lever):
            return
        self._asked.ask(lever.name, value)
        if not self.dead:
            self._chosen.ask(lever.name, value, self.in_force.get(lever.name))
            self.engine.change({lever.name: value})

    def step(self, lever: Lever, direction: int) -> None:
        """Ask for the neighbouring value. Raises LeverError."""
        self.change(lever, lever.step(lever.canonical(self.value(lever)), direction))

    def lever(self, name: str) -> Lever:
        """Return the lever of this name. Raises LeverError where the workload has none."""
        return find(self.levers, name)

    # ── A/B ─────────────────────────────────────────────────────────────────────────────

    @property
    def comparing(self) -> bool:
        """Whether an A/B comparison is being run, or was asked for a moment ago."""
        if self.dead or self.snapshot.state == "starting":  # it ended with its worker
            return False
        return self._runs_comparison or self._awaits_comparison > 0

    @property
    def _runs_comparison(self) -> bool:
        shown = self.snapshot.comparison
        return shown is not None and not shown.is_over

    def check_comparable(self) -> None:
        """Raise UsageError where nothing can be compared now."""
        if self.dead:
            raise UsageError("nothing is running to compare; press R first")
        if self.snapshot.state != "training":
            raise UsageError(f"an A/B needs a running training; it is {self.snapshot.state}")

    def compare(self, lever: Lever, text: str) -> None:
        """Compare the lever's value with another one. Raises LeverError, UsageError."""
        self.check_comparable()
        a, b = self.value(lever), lever.canonical(text)
        if a == b:
            raise UsageError(f"{lever.name} is {a} already; an A/B needs another value")
        short_runs = lever.effect != "next step"
        self.engine.compare(Question(lever=lever.name, a=a, b=b, short_runs=short_runs))
        self._awaits_comparison = PATIENCE
        self._comparison_before = self.snapshot.comparison

    def end_comparison(self) -> str:
        """End the comparison that is run, without a verdict; return a notice."""
        self._awaits_comparison = 0
        self.engine.end_comparison()
        return f"the A/B ends {'once the training goes on' if self._pausing else 'after this step'}"

    @property
    def _pausing(self) -> bool:
        asked = self._asked.pause
        return self.snapshot.state == "paused" if asked is None else asked

    # ── the run ─────────────────────────────────────────────────────────────────────────

    def begin(self, listener: Listener) -> None:
        """Start the engine. Raises WorkerError; the snapshot then says so, and R tries again."""
        self._listener = listener
        try:
            self.engine.start(listener)
        except GpudashError as error:
            self.snapshot = Snapshot(
                state="failed",
                status=str(error),
                workload=self.plan.workload,
                settings=self.plan.settings,
            )
            raise
        self._begun = True

    def pause_or_resume(self) -> str | None:
        """Pause or go on; return a notice where neither is possible."""
        if self.dead:
            return "nothing is running; press R to restart"
        pause = not self._pausing
        self._asked.pause = pause
        if pause:
            self.engine.pause()
        else:
            self.engine.resume()
        return None

    def restart(self) -> None:
        """Start the same plan again, with what was asked for since. Raises WorkerError."""
        plan = self.plan
        settings = {**plan.settings, **self._chosen.in_force(self.snapshot.settings)}
        if self.workload == plan.workload:  # else the snapshot is still the last workload's
            settings |= self.snapshot.pending
        self._start(plan.workload, settings | self._asked.settings)

    def start_workload(self, name: str) -> None:
        """Start another workload with its defaults.

        Raises LeverError for an unknown one, and WorkerError.
        """
        find_workload(name)
        self._start(name, {})

    def _start(self, workload: str, settings: Mapping[str, str]) -> None:
        if self._listener is None:  # it is about to start anyway
            return
        plan = msgspec.structs.replace(self.plan, workload=workload, settings=dict(settings))
        begun = self._begun
        if not begun:  # the worker could not be started
            self.begin(self._listener)
        if begun or plan != self.plan:
            self.engine.restart(plan)
        self.plan = plan
        self._asked.clear()
        self._chosen.clear()

    # ── recording ───────────────────────────────────────────────────────────────────────

    def record(self, text: str, *, force: bool = False) -> None:
        """Record to the file named by `text`. Raises RecordingError."""
        self.check_recordable()
        self.engine.record(Path(text).expanduser(), force=force)

    def check_recordable(self) -> None:
        """Raise RecordingError where there is nothing to record."""
        if self.dead:
            raise RecordingError("nothing is running to record; press R first")

    def stop_recording(self, path: str) -> None:
        """Complete this recording; asking twice is asking once."""
        if self._completing != path:
            self._completing = path
            self.engine.stop_recording()

    def _recording_ended(self, before: Snapshot) -> str | None:
        """Return a notice if the newest snapshot shows that a recording has ended by itself."""
        if self.snapshot.recording is not None:
            return None
        completing, self._completing = self._completing, None
        ended, failure = before.recording, self.engine.recording_failure
        told, self._told = self._told, failure
        if ended is None or completing is not None or failure is not told:
            return None  # a failure is told by the status and the log
        if self.snapshot.state == "failed" and not ended.rows:
            return None  # nothing was written: there is no file
        return f"recording complete: {ended.path}"

    def file_name(self, now: datetime) -> str:
        """Return the name proposed for a recording."""
        return f"gpudash-{self.workload}-{now:%Y%m%d-%H%M%S}.csv"
