"""Requests to the run: checks them, passes them to the engine, and returns notices.

This module knows no widget. An impossible request raises a LeverError or a GpudashError, whose
one line the app shows as a notice.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from gpudash import format as fmt
from gpudash.compare.ab import Question
from gpudash.compare.lengths import FEWEST_PAIRS, PAIRS
from gpudash.diagnosis.remedies import CUDA_ONLY
from gpudash.errors import GpudashError, RecordingError, UsageError
from gpudash.offers import levers_of
from gpudash.protocol.commands import Plan
from gpudash.protocol.inspections import Profiled
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown, Playback
from gpudash.protocol.training import Ability
from gpudash.snapshot import ENDED, Listener, Result, Snapshot, aside, is_script
from gpudash.tui import wording
from gpudash.tui.keys import PROFILED_STEPS, fixed, is_pausing, key_for, no_new_row, why_not
from gpudash.tui.undo import Edit, UndoStack, Way
from gpudash.tui.values import Measured, measured_values
from workloads import CATALOGUE, find_workload
from workloads.levers import AUTO, Lever, LeverError, find, phrase, resolve
from workloads.standard_levers import usable_cores

if TYPE_CHECKING:  # the first frame does not wait for them
    from gpudash.run.replay import Player
    from gpudash.run.session import Session

WishT = TypeVar("WishT")
MOST_PAIRS = 10_000


class OtherNumbersError(UsageError):
    """A lever changes the computed numbers, and the user has not confirmed; the message asks."""


class Request(NamedTuple, Generic[WishT]):
    """A request to the run that no snapshot includes yet."""

    number: int | None
    """The engine's id of the request; None if nothing runs: it is for the next start."""
    wish: WishT


class Control:
    """The engine, the newest snapshot, and the requests since."""

    def __init__(
        self, open_engine: Callable[[], "Session"], plan: Plan, player: "Player | None" = None
    ) -> None:
        self._open_engine = open_engine
        self.plan = plan
        """The plan of the last start, or of the first one to come."""
        self.player = player
        self.snapshot = Snapshot(workload=plan.workload)
        if player is not None:
            self.snapshot = Snapshot(can=(), playback=Playback(name="…"))
        self._asked: dict[str, Request[str]] = {}  # lever → value
        self._asked_pause: Request[bool] | None = None
        self._asked_comparison: Request[bool] | None = None  # True to begin one, False to end it
        self._asked_profile: Request[Profiled | None] | None = None  # with the previous profile
        self.profile_note = ""
        """Status of a profile that was made: it is being read, or why it cannot be."""
        self._edits = UndoStack()
        self._asked_restart: Request[Plan] | None = None
        self._listener: Listener | None = None
        self._begun = False
        self.agreed = False
        """Whether the user has confirmed that numbers change."""
        self.interrupted = False
        """Whether a script was sent SIGINT."""
        self.ending = False
        """Whether the dashboard waits for a script's end to quit."""
        self._completing: str | None = None  # the recording that the user has ended
        self._shown_failure: RecordingError | None = None

    @cached_property
    def engine(self) -> "Session":
        """The run; opened at first use, so that the first frame need not wait for it.

        Its methods return at once, except `close`.
        """
        return self._open_engine()

    def take(self, snapshot: Snapshot) -> str | None:
        """Store the newest snapshot; return a notice if a recording has ended by itself."""
        before, self.snapshot = self.snapshot, snapshot
        if self.dead:  # lever requests are kept for the next start
            self._asked_pause = self._asked_comparison = self._asked_profile = None
            return self._recording_ended(before)
        self._asked = {k: one for k, one in self._asked.items() if self._is_open(one)}
        if not self._is_open(self._asked_pause):
            self._asked_pause = None
        if not self._is_open(self._asked_comparison):
            self._asked_comparison = None
        if self._is_settled:
            self._edits.settle(self._holds)
        return self._recording_ended(before)

    def _is_open(self, request: Request[WishT] | None) -> bool:
        """Return whether the newest snapshot does not include the request yet."""
        if request is None:
            return False
        return request.number is None or request.number > self.snapshot.last_command

    @property
    def _is_settled(self) -> bool:
        """Whether the present worker has answered all requests."""
        snapshot = self.snapshot
        answering = snapshot.state in ("training", "paused")
        return answering and not self._is_open(self._asked_restart) and not self._changes

    def _holds(self, settings: Settings) -> bool:
        """Return whether these levers have these values, resolved or as requested (`auto`)."""
        snapshot = self.snapshot
        return all(
            value in (snapshot.settings.get(name), snapshot.requested.get(name))
            for name, value in settings.items()
        )

    @property
    def dead(self) -> bool:
        """Whether no worker runs; lever changes are then for the next start."""
        return self.snapshot.state in ENDED

    @property
    def alive(self) -> bool:
        """Whether a worker runs or is being started."""
        return self._begun and not self.dead

    @property
    def leavable(self) -> bool:
        """Whether a user's script runs, which does not end with the dashboard."""
        return self.alive and is_script(self.snapshot)

    def interrupt(self) -> None:
        """Send SIGINT to a script."""
        self.interrupted = True
        self.engine.stop()

    def end(self) -> None:
        """Request a script's end; the dashboard quits after it."""
        self.ending = True
        self.interrupt()

    def require(self, ability: Ability) -> None:
        """Raise UsageError if the run does not accept such requests."""
        if (reason := why_not(ability, self.snapshot)) is not None:
            raise UsageError(reason)

    @property
    def cores(self) -> int | None:
        """Cores that the training may use; None for a recording, perhaps of another machine."""
        return usable_cores() if self.snapshot.playback is None else None

    # ── levers ──────────────────────────────────────────────────────────────────────────

    @property
    def workload(self) -> str:
        """The workload on screen."""
        return self.snapshot.workload or self.plan.workload

    @property
    def levers(self) -> tuple[Lever, ...]:
        """The levers of that workload."""
        return levers_of(self.workload, self.snapshot.settings, self.snapshot.levers)

    @property
    def active(self) -> Settings:
        """The active value of every lever; before a start, the planned values."""
        if self.snapshot.settings:
            return self.snapshot.settings
        planned: Settings = {**self._on_cpu_values, **self.plan.settings}
        with suppress(LeverError):  # the engine reports it at the start
            planned = resolve(self.levers, planned)
        return planned

    @property
    def wanted(self) -> Settings:
        """The active values, overridden by open requests."""
        return {**self.active, **self._changes}

    @property
    def _changes(self) -> Settings:
        """All requested changes that are not answered yet."""
        asked = {name: request.wish for name, request in self._asked.items()}
        return {**self.snapshot.pending, **asked}

    @property
    def next_start(self) -> Settings:
        """The changes that a restart would make; empty while a worker runs."""
        active = self.active
        return {k: v for k, v in self._changes.items() if self.dead and v != active.get(k)}

    @property
    def on_cpu(self) -> bool:
        """Whether the training runs on a CPU, or is planned to."""
        device = self.snapshot.device
        return device.kind == "cpu" if device is not None else self.plan.device == "cpu"

    @property
    def _on_cpu_values(self) -> Mapping[str, str]:
        """The workload's defaults on a CPU; empty on a GPU."""
        entry = CATALOGUE.get(self.workload)
        return entry.on_cpu if entry and self.on_cpu else {}

    def acts(self, name: str) -> bool:
        """Whether the lever has an effect on this device."""
        return not (self.on_cpu and name in CUDA_ONLY)

    def default_of(self, lever: Lever) -> str:
        """Return the lever's default on this device."""
        return self._on_cpu_values.get(lever.name, lever.default_text)

    def values(self, lever: Lever) -> tuple[Measured, ...]:
        """Return the lever's values, each with its measurement in this run."""
        now, default = self.value(lever), self.default_of(lever)
        return measured_values(lever, now, default, self.active, self.snapshot)

    def value(self, lever: Lever) -> str:
        """Return the requested value, or else the active one."""
        return self.wanted.get(lever.name, lever.default_text)

    def change(self, lever: Lever, text: str) -> None:
        """Request a value. Raises LeverError, listing the valid ones, and UsageError."""
        self.check_settable(lever.name)
        self._change({lever.name: lever.canonical(text)})

    def check_settable(self, name: str) -> None:
        """Raise UsageError if this lever cannot be changed."""
        self._check_levers()
        self._check_moves(name)

    @property
    def why_no_change(self) -> str | None:
        """Why no lever can be changed now; None if levers can. A change would end an A/B."""
        return why_not("levers", self.snapshot) or self.why_busy

    @property
    def why_busy(self) -> str | None:
        """The A/B that is running, and the key that ends it; None without one."""
        return f"an A/B is running; {key_for('compare')} ends it" if self.comparing else None

    def _check_levers(self) -> None:
        """Raise UsageError if no lever can be changed now."""
        if (reason := self.why_no_change) is not None:
            raise UsageError(reason)

    def _check_moves(self, name: str) -> None:
        if (reason := fixed(name, self.snapshot)) is not None:
            raise UsageError(reason)

    @property
    def refused_now(self) -> frozenset[str]:
        """The actions that are refused at present or do nothing here: their keys are grey."""
        refused = set()
        if self._why_no_profile is not None:
            refused.add("profile")
            if self.snapshot.profile is None:  # an existing profile can always be shown
                refused.add("timeline")
        if self._why_no_ab is not None:
            refused |= {"try_it", "more_pairs", *(() if self.comparing else ("compare",))}
        if not self.acts("pipelined"):
            refused.add("pipelining")
        return frozenset(refused)

    def agree(self) -> None:
        """Record that the user has confirmed changes of the computed numbers."""
        self.agreed = True

    def _check_numbers(self, settings: Mapping[str, str]) -> None:
        """Raise OtherNumbersError if settings change a script's numbers without confirmation."""
        for offer in () if self.agreed else self.snapshot.levers:
            value = settings.get(offer.name, offer.default)
            if offer.numerics and value != offer.default:
                script, setting = fmt.plain(self.workload), phrase({offer.name: value})
                raise OtherNumbersError(
                    f"{setting} computes other numbers: the weights of {script} will differ "
                    "from a plain run. Change it?"
                )

    def _change(self, settings: Settings) -> bool:
        """Request these values as one change; return whether any differs from the present one."""
        before = {name: self.value(self.lever(name)) for name in settings}
        after = {name: value for name, value in settings.items() if value != before[name]}
        for name in after:
            self._check_moves(name)
        if after:
            self._ask_for(after)
            self._edits.made(Edit({name: before[name] for name in after}, after))
        return bool(after)

    def _ask_for(self, settings: Settings) -> None:
        self._check_numbers(settings)
        number = None if self.dead else self.engine.change(settings)
        self._asked |= {name: Request(number, value) for name, value in settings.items()}

    def go(self, way: Way) -> None:
        """Undo the user's last lever change, or redo it. Raises UsageError if there is none."""
        self._check_levers()
        if (edit := self._edits.next(way)) is None:
            raise UsageError(f"there is no lever change to {way}")
        self._ask_for(edit.after)
        self._edits.went(way)

    def label(self, way: Way) -> str:
        """Return what undo or redo would set: `pipelined=off`; empty if there is nothing to do."""
        edit = self._edits.next(way)
        return edit.label if edit else ""

    def use_row(self, result: Result) -> None:
        """Set the levers as in a row of results. Raises UsageError if that is not possible."""
        self._check_levers()
        if result.verdict:
            raise UsageError("a verdict has no settings of its own; choose a numbered row")
        if result.workload != self.workload:
            raise UsageError(f"row {result.number} is of {result.workload}, not {self.workload}")
        if not self._change(result.settings):
            raise UsageError(f"row {result.number} has the levers as they are set now")

    def step(self, name: str, direction: int) -> None:
        """Request the neighbouring value. Raises LeverError and UsageError, as `change`."""
        self.check_settable(name)
        lever = self.lever(name)
        self.change(lever, lever.step(lever.canonical(self.value(lever)), direction))

    def lever(self, name: str) -> Lever:
        """Return the lever of this name. Raises LeverError if the workload has none.

        Raises UsageError if no levers are known yet.
        """
        if not self.levers:
            self.require("levers")
        return find(self.levers, name)

    # ── A/B ─────────────────────────────────────────────────────────────────────────────

    @property
    def comparing(self) -> bool:
        """Whether an A/B comparison is running or was just requested."""
        if self.dead or self.snapshot.state == "starting":  # it ended with its worker
            return False
        if self._asked_comparison is not None:
            return self._asked_comparison.wish
        shown = self.snapshot.comparison
        return shown is not None and not shown.is_over

    def check_comparable(self, lever: Lever) -> None:
        """Raise UsageError if the lever cannot be compared now."""
        self.require("blocks")
        self._check_moves(lever.name)
        self.check_trains()

    def check_trains(self) -> None:
        """Raise UsageError if no lever can be compared now."""
        if (reason := self._why_no_ab) is not None:
            raise UsageError(reason)

    @property
    def _why_no_ab(self) -> str | None:
        """Why no A/B can begin now; None if one can."""
        if self.dead:
            return f"nothing is running to compare; press {key_for('restart')} first"
        doing = aside(self.snapshot) or self.snapshot.state
        return None if doing == "training" else f"an A/B needs a running training; it is {doing}"

    def compare(self, name: str, text: str) -> None:
        """Compare a lever's value with another one. Raises LeverError, UsageError."""
        lever = self.lever(name)
        self.check_comparable(lever)
        a, b = self.value(lever), lever.canonical(text)
        if a == b:
            raise UsageError(f"{lever.name} is {a} already; an A/B needs another value")
        if b == AUTO:
            raise UsageError(f"{lever.name}={AUTO} stands for another value; an A/B needs that one")
        self._compare(lever, a, b, PAIRS)

    def _compare(self, lever: Lever, a: str, b: str, pairs: int) -> None:
        self._check_numbers({lever.name: b})
        rebuilds = lever.effect != "next step"
        question = Question(lever=lever.name, a=a, b=b, short_runs=rebuilds, pairs=pairs)
        self._asked_comparison = Request(self.engine.compare(question), True)

    def keep(self) -> str:
        """Set value B of the last A/B; return a notice. Raises UsageError without a verdict."""
        shown = self._concluded()
        if shown.verdict is None:  # value B may not even run
            raise UsageError("the A/B has no verdict: there is nothing to keep")
        notice = self._settle_on(shown.lever, shown.b)
        return f"{notice}; {key_for('code')} shows the lines for your own script"

    def back(self) -> str:
        """Set value A of the last A/B; return a notice. Raises UsageError without an A/B."""
        shown = self._concluded()
        return self._settle_on(shown.lever, shown.a)

    def _settle_on(self, name: str, value: str) -> str:
        self.require("levers")
        lever = self.lever(name)
        if not self._change({name: value}):
            return f"{name} stays {value}"
        return f"{name}={value} from the {'next start' if self.dead else lever.effect} on"

    def more_pairs(self) -> str:
        """Run the last A/B again with twice the pairs measured; return a notice.

        Raises UsageError.
        """
        shown = self._concluded()
        lever = self.lever(shown.lever)
        self.check_comparable(lever)
        pairs = min(2 * max(shown.pairs, FEWEST_PAIRS), MOST_PAIRS)
        self._compare(lever, shown.a, shown.b, pairs)
        return f"the A/B of {shown.lever} runs anew, with {pairs} pairs"

    def _concluded(self) -> ComparisonShown:
        shown = self.snapshot.comparison
        if self.comparing:
            raise UsageError("the A/B has no verdict yet")
        if shown is None:
            raise UsageError("no A/B has been run here")
        return shown

    def value_of_interest(self, lever: Lever) -> str:
        """Return the second value of the lever's A/B, until another one is set, or its value."""
        now, shown = self.value(lever), self.snapshot.comparison
        if shown is None or shown.lever != lever.name or shown.failure is not None:
            return now
        return shown.b if now == shown.a or not shown.is_over else now

    def verdict_command(self, shown: ComparisonShown) -> str:
        """Return the shell command that runs the same A/B. Raises UsageError if there is none."""
        count = max(self.plan.nproc, len(self.snapshot.ranks))  # a replay's plan has no ranks
        plan = msgspec.structs.replace(self.plan, nproc=count)
        return wording.verdict_command(shown, self.workload, plan)

    @property
    def comparison_ends(self) -> str:
        """How a running A/B ends if the run does: after how many pairs; empty without one."""
        shown = self.snapshot.comparison
        if not self.comparing:
            return ""
        if shown is None or shown.is_over:  # just requested
            return "the A/B just begun ends"
        of = f"{shown.pairs} of {shown.planned_pairs} pairs"
        return f"the A/B of {fmt.plain(shown.lever)} ends after {of}"

    @property
    def has_verdict_so_far(self) -> bool:
        """Whether the running A/B has enough pairs to be concluded."""
        shown = self.snapshot.comparison
        return (
            self.comparing
            and shown is not None
            and not shown.is_over
            and shown.pairs >= FEWEST_PAIRS
        )

    def end_comparison(self) -> str:
        """End the running comparison, with a verdict if it has enough pairs; return a notice.

        Raises UsageError in a run that cannot run comparisons.
        """
        self.require("blocks")
        self._asked_comparison = Request(self.engine.end_comparison(), False)
        return f"the A/B ends {'once the training goes on' if self._pausing else 'after this step'}"

    @property
    def _pausing(self) -> bool:
        asked = self._asked_pause
        return is_pausing(self.snapshot) if asked is None else asked.wish

    # ── the run ─────────────────────────────────────────────────────────────────────────

    def begin(self, listener: Listener) -> None:
        """Start the engine. Raises WorkerError; the snapshot then has it, and R tries again."""
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

    def ask_memory_owners(self) -> None:
        """Request who owns device memory. Raises UsageError if that is not possible."""
        self.require("memory")
        if self.dead:
            raise UsageError("nothing is running")
        if self.profiling:  # a request to the training would end it
            raise UsageError("a profile is being made: ask for memory afterwards")
        self.engine.memory_owners()

    def pause_or_resume(self) -> str | None:
        """Pause or resume; return a notice if neither is possible."""
        if (reason := why_not("pause", self.snapshot)) is not None:
            return reason
        if self.dead:
            return f"nothing is running; press {key_for('restart')} to restart"
        pause = not self._pausing
        number = self.engine.pause() if pause else self.engine.resume()
        self._asked_pause = Request(number, pause)
        return None

    def new_row(self) -> None:
        """Begin a new row of the results. Raises UsageError if it would stay empty."""
        if (reason := no_new_row(self.snapshot)) is not None:
            raise UsageError(reason)
        self.engine.new_row()

    def restart(self) -> None:
        """Start the same plan again with the requested levers. Raises WorkerError, UsageError."""
        self.require("restart")
        plan, snapshot = self.plan, self.snapshot
        is_there = self.dead or snapshot.worker_pid is not None
        if self._begun and (self._is_open(self._asked_restart) or not is_there):
            raise UsageError("the training is starting")  # a key held down repeats
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
        if self._listener is None:  # the first start is about to come
            return
        plan = msgspec.structs.replace(self.plan, workload=workload, settings=dict(settings))
        begun = self._begun
        if not begun:  # the worker could not be started
            self.begin(self._listener)
        if begun or plan != self.plan:
            self._asked_restart = Request(self.engine.restart(plan), plan)
        if workload != self.plan.workload:
            self._edits = UndoStack()
        self.plan = plan
        self._asked = {}
        self._asked_pause = self._asked_comparison = None

    # ── profiles ────────────────────────────────────────────────────────────────────────

    @property
    def profiling(self) -> bool:
        """Whether steps are being traced, or a profile was just requested."""
        return self.snapshot.profiling or self._asked_profile is not None

    @property
    def profile_status(self) -> str:
        """The status line's text about a profile."""
        return f"profiling {PROFILED_STEPS} steps …" if self.profiling else self.profile_note

    def check_profilable(self) -> None:
        """Raise UsageError if no steps can be traced now."""
        self.require("profile")
        if (reason := self._why_no_profile) is not None:
            raise UsageError(reason)

    @property
    def _why_no_profile(self) -> str | None:
        """Why no profile can begin now; None if one can."""
        if self.dead:
            return f"nothing is running to profile; press {key_for('restart')} first"
        if self.profiling:
            return "a profile is being made"
        if self._pausing:
            return f"the training is paused; {key_for('pause')} resumes it"
        return self.why_busy

    def profile(self, path: Path) -> None:
        """Trace the next steps. Raises UsageError."""
        self.check_profilable()
        self.profile_note = ""
        number = self.engine.profile(PROFILED_STEPS, path)
        self._asked_profile = Request(number, self.snapshot.profile)

    def new_profile(self) -> Profiled | None:
        """Return the requested profile once it is there; only once."""
        asked, newest = self._asked_profile, self.snapshot.profile
        if asked is None or self.snapshot.profiling or self._is_open(asked):
            return None
        self._asked_profile = None  # answered: without a new one it was refused
        return newest if newest != asked.wish else None

    # ── recording ───────────────────────────────────────────────────────────────────────

    def record(self, text: str, *, force: bool = False) -> None:
        """Record to the file named by `text`. Raises RecordingError."""
        self.check_recordable()
        self.engine.begin_sink("recording", Path(text).expanduser(), force=force)

    def check_recordable(self) -> None:
        """Raise UsageError or RecordingError if there is nothing to record."""
        self.require("record")
        if self.dead:
            raise RecordingError(f"nothing is running to record; press {key_for('restart')} first")

    def stop_recording(self, path: str) -> None:
        """Complete this recording; a second call does nothing."""
        if self._completing != path:
            self._completing = path
            self.engine.stop_recording()

    def _recording_ended(self, before: Snapshot) -> str | None:
        """Return a notice if a recording has ended by itself since the snapshot `before`."""
        if self.snapshot.recording is not None:
            return None
        completing, self._completing = self._completing, None
        ended, failure = before.recording, self.engine.sink_failures.get("recording")
        shown, self._shown_failure = self._shown_failure, failure
        if ended is None or completing is not None or failure is not shown:
            return None  # status and log show a failure
        if self.snapshot.state == "failed" and not ended.rows:
            return None  # nothing was written: there is no file
        return f"recording complete: {ended.path}"

    def file_name(self, now: datetime) -> str:
        """Return the name proposed for a recording."""
        return f"gpudash-{self.file_stem}-{now:%Y%m%d-%H%M%S}.csv"

    @property
    def file_stem(self) -> str:
        """The workload's name, which may be a path, as part of a file's name."""
        return re.sub(r"[^\w.-]+", "-", self.workload).strip("-.")
