"""What the keys do to the run: checks a request, passes it to the engine, words the answer.

No widget in here. A request that cannot be is answered by a LeverError or GpudashError,
whose one line the app shows as a notice.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from gpudash.compare.ab import Question
from gpudash.errors import GpudashError, RecordingError, UsageError
from gpudash.protocol import Ability, Plan, Playback, Settings
from gpudash.snapshot import ENDED, Listener, Snapshot
from gpudash.tui.engine import Engine, Player
from gpudash.tui.keys import why_not
from workloads import CATALOGUE, find_workload
from workloads.levers import Lever, LeverError, find, resolve

WishT = TypeVar("WishT")
MARKER_REACH_S = 1.0
"""So far behind a marker, the one before is another one."""


def levers_of(workload: str) -> tuple[Lever, ...]:
    """Return the levers of a workload of the catalogue; none for any other."""
    entry = CATALOGUE.get(workload)
    return entry.levers if entry else ()


class LeverRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lever as the panel shows it."""

    lever: Lever
    value: str
    """Active, or about to be where nothing runs."""
    pending: str | None
    """Asked for and not active yet."""


class Request(NamedTuple, Generic[WishT]):
    """What was asked of the run, and no snapshot knows of yet."""

    number: int | None
    """The engine's; None where nothing runs: it is for the next start."""
    wish: WishT


class Control:
    """The engine, the newest snapshot, and what was asked for since."""

    def __init__(
        self, open_engine: Callable[[], Engine], plan: Plan, player: Player | None = None
    ) -> None:
        self._open_engine = open_engine
        self.plan = plan
        """What the worker was last started with, or is going to be."""
        self.player = player
        self.snapshot = Snapshot(workload=plan.workload)
        if player is not None:
            self.snapshot = Snapshot(can=(), playback=Playback(name="…"))
        self._asked: dict[str, Request[str]] = {}  # lever → value
        self._asked_pause: Request[bool] | None = None
        self._asked_comparison: Request[bool] | None = None  # to begin one, or to end it
        self._listener: Listener | None = None
        self._begun = False
        self._completing: str | None = None  # the recording the user has ended
        self._told: RecordingError | None = None

    @cached_property
    def engine(self) -> Engine:
        """The run, opened when it is first needed: the first frame does not wait for it."""
        return self._open_engine()

    def take(self, snapshot: Snapshot) -> str | None:
        """Make this the newest snapshot; return a notice where something ended by itself."""
        before, self.snapshot = self.snapshot, snapshot
        if self.dead:  # what was asked for, the next start gets
            self._asked_pause = self._asked_comparison = None
            return self._recording_ended(before)
        self._asked = {k: one for k, one in self._asked.items() if self._is_open(one)}
        if not self._is_open(self._asked_pause):
            self._asked_pause = None
        if not self._is_open(self._asked_comparison):
            self._asked_comparison = None
        return self._recording_ended(before)

    def _is_open(self, request: Request[WishT] | None) -> bool:
        """Tell whether the newest snapshot does not know of it."""
        if request is None:
            return False
        return request.number is None or request.number > self.snapshot.last_command

    @property
    def dead(self) -> bool:
        """No worker lives: levers set up the next start."""
        return self.snapshot.state in ENDED

    @property
    def alive(self) -> bool:
        """A worker lives, or is being started."""
        return self._begun and not self.dead

    def why_not(self, ability: Ability) -> str | None:
        """Return why this cannot be asked of the run; None where it can."""
        return why_not(ability, self.snapshot)

    def require(self, ability: Ability) -> None:
        """Raise UsageError where this cannot be asked of the run."""
        why_not = self.why_not(ability)
        if why_not is not None:
            raise UsageError(why_not)

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
    def active(self) -> Settings:
        """Every lever's active value; before anything ran, the one planned."""
        planned = self.plan.settings
        try:
            planned = resolve(self.levers, planned)
        except LeverError:  # the engine will say so when it starts
            planned = dict(planned)
        return {**planned, **self.snapshot.settings}

    @property
    def wanted(self) -> Settings:
        """The active values, with everything asked for on top."""
        return {**self.active, **self._changes}

    @property
    def _changes(self) -> Settings:
        """Everything asked for and not answered."""
        asked = {name: request.wish for name, request in self._asked.items()}
        return {**self.snapshot.pending, **asked}

    @property
    def next_start(self) -> Settings:
        """What a restart would set differently, while no worker lives."""
        active = self.active
        return {k: v for k, v in self._changes.items() if self.dead and v != active.get(k)}

    def rows(self) -> tuple[LeverRow, ...]:
        """Return the levers as the panel shows them."""
        active, wanted = self.active, self.wanted
        return tuple(
            LeverRow(
                lever=lever,
                value=active.get(lever.name, lever.default_text),
                pending=wanted[lever.name]
                if wanted.get(lever.name) != active.get(lever.name)
                else None,
            )
            for lever in self.levers
        )

    def value(self, lever: Lever) -> str:
        """Return the value last asked for, or the active one."""
        return self.wanted.get(lever.name, lever.default_text)

    def change(self, lever: Lever, text: str) -> None:
        """Ask for a value. Raises LeverError, listing the valid ones, and UsageError."""
        self.require("levers")
        value = lever.canonical(text)
        if value == self.value(lever):
            return
        number = None if self.dead else self.engine.change({lever.name: value})
        self._asked[lever.name] = Request(number, value)

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
        if self._asked_comparison is not None:
            return self._asked_comparison.wish
        shown = self.snapshot.comparison
        return shown is not None and not shown.is_over

    def check_comparable(self) -> None:
        """Raise UsageError where nothing can be compared now."""
        self.require("blocks")
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
        question = Question(lever=lever.name, a=a, b=b, short_runs=short_runs)
        self._asked_comparison = Request(self.engine.compare(question), True)

    def end_comparison(self) -> str:
        """End the comparison that is run, without a verdict; return a notice."""
        self._asked_comparison = Request(self.engine.end_comparison(), False)
        return f"the A/B ends {'once the training goes on' if self._pausing else 'after this step'}"

    @property
    def _pausing(self) -> bool:
        if self._asked_pause is not None:
            return self._asked_pause.wish
        asked = self.snapshot.pausing
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
        if "pause" not in self.snapshot.can:
            return self.why_not("pause")
        if self.dead:
            return "nothing is running; press R to restart"
        pause = not self._pausing
        number = self.engine.pause() if pause else self.engine.resume()
        self._asked_pause = Request(number, pause)
        return None

    def restart(self) -> None:
        """Start the same plan again, with what was asked for. Raises WorkerError, UsageError."""
        self.require("restart")
        plan, snapshot = self.plan, self.snapshot
        settings = plan.settings
        if self.workload == plan.workload:  # else the snapshot is still the last workload's
            settings = {**settings, **snapshot.requested, **snapshot.pending}
        asked = {name: request.wish for name, request in self._asked.items()}
        self._start(plan.workload, settings | asked)

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
        self._asked = {}
        self._asked_pause = self._asked_comparison = None

    # ── replay ──────────────────────────────────────────────────────────────────────────

    def seek(self, seconds: float) -> None:
        """Go so far forward, or back."""
        if self.player is not None:
            self.player.seek(self.player.position_s + seconds)

    def seek_marker(self, direction: int) -> None:
        """Go to the next marker (+1), or to the one before (-1); beyond the first and the last."""
        playback = self.snapshot.playback
        if self.player is None or playback is None:
            return
        # one that was just reached is not the one before
        here_s = self.player.position_s + min(direction, 0) * MARKER_REACH_S
        places = (0.0, *(at_s for at_s, _ in playback.markers), playback.length_s)
        beyond = [at_s for at_s in places if (at_s - here_s) * direction > 0]
        if beyond:
            self.player.seek(min(beyond, key=lambda at_s: abs(at_s - here_s)))

    # ── recording ───────────────────────────────────────────────────────────────────────

    def record(self, text: str, *, force: bool = False) -> None:
        """Record to the file named by `text`. Raises RecordingError."""
        self.check_recordable()
        self.engine.record(Path(text).expanduser(), force=force)

    def check_recordable(self) -> None:
        """Raise UsageError or RecordingError where there is nothing to record."""
        self.require("record")
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
