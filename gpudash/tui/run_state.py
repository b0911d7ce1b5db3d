"""The run as the screen knows it: engine, newest snapshot, and requests without an answer.

`Quiet` lets what is measured change on screen at most every two seconds.
"""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from gpudash.availability import Requests
from gpudash.errors import UsageError
from gpudash.protocol.answer import Answer
from gpudash.protocol.commands import Plan
from gpudash.protocol.inspections import Profiled
from gpudash.protocol.session import ComparisonShown
from gpudash.reference_levers import reference_levers
from gpudash.snapshot import ENDED, Snapshot, runs_on
from gpudash.tui.availability import why_not

if TYPE_CHECKING:  # the first frame does not wait for them
    from gpudash.run.session import Session

WishT = TypeVar("WishT")
Ongoing: TypeAlias = Literal["pause", "comparison"]


class Request(NamedTuple, Generic[WishT]):
    """A request to the run that no snapshot includes yet."""

    number: int | None
    """The engine's id of the request; None if nothing runs: it is for the next start."""
    wish: WishT


class RunState:
    """The engine, the newest snapshot, and the requests since."""

    def __init__(
        self, open_engine: Callable[[], "Session"], plan: Plan, first: Snapshot | None = None
    ) -> None:
        """`first` is shown until the engine sends one; None: what the plan says."""
        self._open_engine = open_engine
        self.plan = plan
        """The plan of the last start, or of the first one to come."""
        levers = reference_levers(plan.workload, plan.settings)
        self.snapshot = first or Snapshot(workload=plan.workload, levers=levers)
        self.begun = False
        """Whether the engine has started a run."""
        self.asked_levers: dict[str, Request[str]] = {}
        """Lever → the request to change it."""
        self.asked: dict[Ongoing, Request[bool]] = {}
        """True to begin it, False to end it."""
        self.asked_profile: Request[Profiled | None] | None = None
        """Its wish is the previous profile."""
        self.asked_restart: Request[Plan] | None = None

    @cached_property
    def engine(self) -> "Session":
        """The run, opened at first use; its methods return at once, except `close`."""
        return self._open_engine()

    def is_open(self, request: Request[WishT] | None) -> bool:
        """Return whether the newest snapshot does not include the request yet."""
        if request is None:
            return False
        return request.number is None or request.number > self.snapshot.last_command

    def drop_answered(self) -> None:
        """Forget requests that the newest snapshot includes; lever requests outlive a worker."""
        if self.dead:
            self.asked, self.asked_profile = {}, None
            return
        levers, asked = self.asked_levers.items(), self.asked.items()
        self.asked_levers = {name: one for name, one in levers if self.is_open(one)}
        self.asked = {what: one for what, one in asked if self.is_open(one)}

    @property
    def requests(self) -> Requests:
        return Requests(self.comparing, self.pausing, self.profiling)

    def why_not(self, action: str, lever: str = "") -> str | None:
        why = why_not(action, self.snapshot, self.requests, lever)
        return why.reason if why is not None else None

    def require(self, action: str, lever: str = "") -> None:
        """Raise UsageError if the action is not possible now."""
        if (reason := self.why_not(action, lever)) is not None:
            raise UsageError(reason)

    @property
    def workload(self) -> str:
        return self.snapshot.workload or self.plan.workload

    @property
    def dead(self) -> bool:
        """Whether no worker runs; lever changes are then for the next start."""
        return self.snapshot.state in ENDED

    @property
    def alive(self) -> bool:
        return self.begun and not self.dead

    @property
    def leavable(self) -> bool:
        """Whether a user's script runs, which does not end with the dashboard."""
        return self.alive and runs_on(self.snapshot)

    @property
    def pausing(self) -> bool:
        """Whether the training is paused or will be, as the user has asked last."""
        snapshot = self.snapshot
        if "pause" in self.asked:
            return self.asked["pause"].wish
        if snapshot.pausing is not None:
            return snapshot.pausing
        return snapshot.state == "paused"

    @property
    def comparing(self) -> bool:
        """Whether an A/B or a proof by slowing is running, or was just requested."""
        if self.dead or self.snapshot.state == "starting":  # it ended with its worker
            return False
        if "comparison" in self.asked:
            return self.asked["comparison"].wish
        return self.slowing or self.running is not None

    @property
    def running(self) -> ComparisonShown | None:
        """The A/B or the tune that runs, once a snapshot has it."""
        shown = self.snapshot.comparison
        return None if shown is None or shown.is_over else shown

    @property
    def slowing(self) -> bool:
        shown = self.snapshot.slowing
        return shown is not None and not shown.is_over

    @property
    def profiling(self) -> bool:
        """Whether steps are being traced, or a profile was just requested."""
        return self.snapshot.profiling or self.asked_profile is not None


QUIET_S = 2.0
NUMBERS = (
    "total_steps",
    "total_samples",
    "loss",
    "samples_per_s",
    "steps_per_s",
    "tokens_per_s",
    "step_ms_p50",
    "step_ms_p95",
    "instruments_ms",
    "unattributed_pct",
    "gpu",
    "host",
    "other_jobs",
    "series",
    "results",
)
"""The fields of a snapshot that are measured anew all the time."""


class Quiet:
    """Holds the numbers of a snapshot until they may change."""

    def __init__(self) -> None:
        self._shown = self._answered = Snapshot()

    @property
    def answer(self) -> Answer | None:
        return self._answered.answer

    @property
    def estimated(self) -> Answer | None:
        """The last answer, if it is of the present settings: its estimates hold."""
        return self.answer if self._answered.settings == self._shown.settings else None

    def of(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot, with the numbers that were shown last if those are new enough."""
        shown = self._shown
        begins = snapshot.state == "starting" or snapshot.workload != self._answered.workload
        if snapshot.answer is not None or begins:
            self._answered = snapshot
        is_new = 0 < snapshot.elapsed_s - shown.elapsed_s < QUIET_S and shown.total_steps > 0
        if snapshot.playback is None and is_new and _event(snapshot) == _event(shown):
            held: dict[str, Any] = {name: getattr(shown, name) for name in NUMBERS}
            return msgspec.structs.replace(snapshot, **held)
        self._shown = snapshot
        return snapshot


def _event(snapshot: Snapshot) -> tuple[object, ...]:
    """Return what changes when something has happened; the blocks of an A/B are no event."""
    shown = snapshot.comparison
    if shown is not None and not shown.is_over:
        moves = snapshot.state in ("training", "switching")
        return (snapshot.workload, shown.lever, moves or snapshot.state, snapshot.quiet_s is None)
    return (
        snapshot.workload,
        snapshot.state,
        snapshot.status_line,
        snapshot.settings,
        snapshot.pending,
        len(snapshot.markers),
        len(snapshot.results),
        len(snapshot.verdicts),
        snapshot.answer is None,
        snapshot.quiet_s is None,
        snapshot.hang is None,
        len(snapshot.ranks),
    )
