"""The snapshot: all that a screen shows of a run at one moment, as one frozen value.

Element i of every tuple in `Series` belongs to `at_s[i]`.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from gpudash.protocol.answer import Answer
from gpudash.protocol.inspections import CodeLines, Joined, MemoryOwners, Profiled, Rehearsed
from gpudash.protocol.readings import GpuReading, HostReading, OtherJobs
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown, Playback, SlowingShown, Straggler
from gpudash.protocol.training import (
    Ability,
    Aside,
    Device,
    Failed,
    Lever,
    Phase,
    StartStage,
    TrainingProcess,
)

ShownState: TypeAlias = Literal[
    "starting", "training", "switching", "paused", "finished", "failed", "stopped"
]
MarkerKind: TypeAlias = Literal["change", "restart", "blocks"] | Aside
"""`asked`: a pause begins or ends; `blocks`: an A/B or a proof by slowing begins or ends."""
Values: TypeAlias = tuple[float | None, ...]

ENDED: frozenset[str] = frozenset({"finished", "failed", "stopped"})
"""States in which no worker runs."""
KEPT_LINES = 2000
"""Number of newest log lines that listener and screen keep."""
ASIDES: dict[Aside, str] = {
    "evaluation": "evaluating",
    "checkpoint": "saving a checkpoint",
    "profile": "profiling",
    "idle": "no cell trains",
}
"""What a training does other than measured steps."""
SLOWING = "slowing"
"""The label of the marker at which a proof by slowing begins."""
AB = "A/B"
"""The label of the marker at which an A/B begins."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The run so far in ticks, oldest first. None = not measured."""

    tick_s: float = 0.5
    """Length of recent ticks; old ones are longer."""
    at_s: tuple[float, ...] = ()
    """End of each tick, in seconds since the run began. A tick begins at the end of the previous
    one."""
    values: dict[str, Values] = {}
    """Values by metric; a metric measured in none of the ticks is absent."""

    def of(self, name: str) -> Values:
        """Empty if it was not measured."""
        return self.values.get(name, ())


class RecentMeans(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the newest steps since the last break, without its warm-up."""

    steps: float = 0.0
    values: dict[str, float] = {}
    """By metric, of the steps and of the readings meanwhile. Absent = not measured."""


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """A moment on the time axis: a lever change, a pause, a restart."""

    kind: MarkerKind
    at_s: float
    """Seconds since the run began."""
    label: str
    lasts_s: float = 0.0
    """Of an evaluation, a checkpoint or a profile, how long it took."""


class BlockShown(msgspec.Struct, frozen=True, kw_only=True):
    """A block of an A/B comparison on the time axis."""

    begin_s: float
    """Seconds since the run began."""
    end_s: float | None = None
    """None while it lasts."""
    counts_s: float = 0.0
    """Where its first steps, which do not count, have ended."""
    side: Literal["a", "b"]


class SampleEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """What the GPU takes for a sample. The sensor's own error of ± 5 % is not in `within_j`."""

    joules: float
    within_j: float
    """Half of the 95 % interval, by the counter's ticks."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the history: what was measured under the same settings."""

    number: int
    """Counts from 1; rows without a measurement are dropped."""
    configuration: str
    """The levers in which the row differs from the first row; in the first row, the main ones."""
    settings: Settings = {}
    workload: str = ""
    steps: int = 0
    """Number of steps measured, without the warm-up after a change or a pause."""
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    values: dict[str, float] = {}
    """By metric, absent if not measured: means of its steps' values and of readings while they ran.
    Of the memory of torch's allocator it is the most, in tensors (`mem_peak_mib`) and held."""
    energy: SampleEnergy | None = None
    """None below 2 s of readings of the energy counter."""
    live: bool = False
    """Whether steps are counted in it; none are while the blocks of an A/B run."""


RankState: TypeAlias = ShownState | Literal["ended", "silent"]
"""`silent`: the rank sends nothing while others report steps."""


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of several processes that train together. Times are means of its newest steps."""

    rank: int
    pid: int | None = None
    state: RankState = "starting"
    steps: int = 0
    """Steps of the present process."""
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    """Samples of this rank alone."""
    step_ms_p50: float | None = None
    values: dict[str, float] = {}
    """By metric, absent if not measured: means of its newest steps, and what it says of itself."""
    loss: float | None = None
    node: str = ""
    """The machine that the rank runs on."""
    history: Values = ()
    """Step time in ms over the last minute, oldest first."""
    gpu: GpuReading | None = None
    """The GPU that the rank trains on."""
    host: HostReading | None = None
    """The rank's processes."""
    restarts: int = 0
    """How many processes had this rank before."""

    @property
    def waits_ms(self) -> float | None:
        return self.values.get("communication_ms")


class RankStack(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a rank while no step finishes."""

    rank: int
    lines: tuple[str, ...] = ()
    """The stack, innermost first: `file:line function`; empty if the rank did not answer."""
    collective: str = ""
    """The collective in which the rank waits; empty if it is in none."""
    is_known: bool = True
    """Whether the rank's position is known."""
    doing: str = ""
    """What the rank does, as a clause whose subject is the rank."""
    joined: tuple[Joined, ...] = ()
    """As in `protocol.Stack`."""


class Hang(msgspec.Struct, frozen=True, kw_only=True):
    """No rank has finished a step for long."""

    for_s: float
    missing: tuple[int, ...] = ()
    """The ranks that the others wait for; empty if unknown."""
    stacks: tuple[RankStack, ...] = ()
    recorded: str = ""
    """The unfinished collective, by PyTorch's flight recorder, as a clause; empty without it."""


class RecordingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The CSV file being written."""

    path: str
    """The path as one printable line."""
    rows: int


class Run(msgspec.Struct, kw_only=True):
    """What has been reported of a run, whichever worker trains."""

    can: tuple[Ability, ...] = ("levers", "pause", "restart", "blocks", "record")
    """Requests that the run's source accepts."""
    gpu_missing: str | None = None
    """Why no GPU is read, as a sentence; None while one is read."""
    gpu_unread: dict[str, str] = {}
    """Name of a reading of the GPU that is missing while others are read → the reason."""
    gpus_lost: dict[str, str] = {}
    """UUID of a GPU of another rank that is no longer read → the reason."""
    phases: tuple[Phase, ...] = ()
    """The phases of a step; empty before the training has started."""
    bus_gb_s: float | None = None
    """Bus bandwidth of a short all-reduce at the start; as in `TrainingProcess`."""
    comparison: ComparisonShown | None = None
    """The A/B comparison in progress, or the last one."""
    code: CodeLines | None = None
    """The lines of the script's own code that cost most, with the present settings."""
    rehearsed: Rehearsed | None = None
    """The newest rehearsal of levers with the present settings."""
    slowing: SlowingShown | None = None
    """The proof by slowing in progress, or the last one with the present settings."""
    profile: Profiled | None = None
    """The newest profile of this run."""
    profile_of: tuple[str, Settings] = ("", {})
    """The workload and the settings of that profile."""
    profile_refusal: str = ""
    """Why the newest request for a profile was refused, as a clause."""
    playback: Playback | None = None
    """State of the replay; None for a live run."""


class Training(Run, kw_only=True):
    """What has been reported of a run and of its present worker."""

    workload: str = ""
    found: str = ""
    """One line about what was found in a user's script; empty for a workload."""
    levers: tuple[Lever, ...] = ()
    """Of a user's script, once they are found, including those that it refuses to change."""
    awaits: StartStage = "process"
    """What comes next before the first step."""
    levers_complete: bool = True
    """False while other levers of the script may follow."""
    settings: Settings = msgspec.field(default_factory=dict)
    """Active levers; before the worker has started, the requested ones."""
    requested: Settings = msgspec.field(default_factory=dict)
    """The levers that were requested, as requested: a restart sends these."""
    notes: tuple[str, ...] = ()
    planned_steps: int | None = None
    planned_s: float | None = None
    steps_since_break: int = 0
    """Finished steps since the last start, change or pause."""
    memory_owners: MemoryOwners | None = None
    """The newest owners of device memory reported in this run."""


class Snapshot(Training, frozen=True, kw_only=True):  # type: ignore[misc]  # msgspec allows it
    """Everything the dashboard shows, at one moment."""

    state: ShownState = "starting"
    status: str = "starting"
    """One sentence: what is going on, or what went wrong; empty while it just trains. The screen
    adds what to do."""
    notice: str = ""
    """What has just been found, refused or reported, beside the status."""
    refused: bool = False
    """Whether the notice says why the training has refused a change."""
    doing: Aside | None = None
    """What the training does by itself instead of measured steps, one of `ASIDES`."""
    at_s: float = 0.0
    """Its moment, by the clock that readings are stamped with."""
    elapsed_s: float = 0.0
    """Time since the run began."""
    joined: bool = False
    """Whether the training ran before it was watched; times count from when it was watched."""
    training_s: float | None = None
    """Time since the present worker was ready, to which `planned_s` refers; None before."""
    worker_pid: int | None = None
    process: TrainingProcess | None = None
    """The training process; another one once a training is met again."""
    device: Device | None = None
    versions: dict[str, str] = {}
    """Of torch and what else the training process names."""
    total_steps: int = 0
    total_samples: int | None = 0
    loss: float | None = None
    transform_ms: dict[str, float] = {}
    """Mean time per sample in each transform of a loader worker."""
    skipped_samples: int = 0
    """Number of unreadable samples skipped."""
    ranks: tuple[RankRow, ...] = ()
    """One row for each process, if several train together."""
    straggler: Straggler | None = None
    are_compared: bool = False
    """Whether the ranks' steps are enough to name a slow one."""
    answer: Answer | None = None
    """What limits the training: the newest answer, also while nothing is measured. None until
    enough steps are measured since the last start, change or pause."""
    hang: Hang | None = None
    pending: Settings = msgspec.field(default_factory=dict)
    """Changes that were requested and are not answered yet."""
    pausing: bool | None = None
    """An unanswered request to pause (True) or to go on (False)."""
    last_command: int = 0
    """Id of the newest request of the screen that this snapshot includes."""
    steps_per_s: float | None = None
    """Finished steps per second over the last few seconds."""
    samples_per_s: float | None = None
    """Of all ranks, like `tokens_per_s` and `total_samples`."""
    tokens_per_s: float | None = None
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    quiet_s: float | None = None
    """Time since a step finished, if it is unusually long: something compiles, or the loader is
    late. None if steps come as usual."""
    gpu: GpuReading | None = None
    host: HostReading | None = None
    other_jobs: OtherJobs | None = None
    """What other jobs use of the cores; None if that was not read lately."""
    recent: RecentMeans = RecentMeans()
    series: Series = Series()
    markers: tuple[Marker, ...] = ()
    asides: tuple[Marker, ...] = ()
    """The newest evaluations, checkpoints and profiles: those that no marker shows, too."""
    blocks: tuple[BlockShown, ...] = ()
    """The newest blocks, oldest first."""
    results: tuple[Result, ...] = ()
    others: tuple[str, ...] = ()
    """Other workloads of this run: steps and time so far are theirs too."""
    recording: RecordingStatus | None = None
    verdicts: tuple[ComparisonShown, ...] = ()
    """The concluded comparisons of this workload, oldest first."""
    profiling: bool = False
    """Whether a request for a profile is not answered yet."""
    instruments_ms: float | None = None
    """Host time per step for measuring and reporting, lately."""
    unattributed_pct: float | None = None
    """Share of the run's time that is in no known part."""
    price: float | None = None
    """What a GPU costs for an hour; None if the user has not said it."""

    @property
    def status_line(self) -> str:
        return " – ".join(filter(None, (self.status or self.state, self.notice)))

    @property
    def usable_cores(self) -> int | None:
        cores = self.host.number("usable_cores") if self.host is not None else None
        return None if cores is None else round(cores)


def runs_on(snapshot: Snapshot) -> bool:
    """Whether the training is the user's own: it goes on without gpudash."""
    return "leave" in snapshot.can


def compares_starts(snapshot: Snapshot) -> bool:
    return snapshot.comparison is not None and snapshot.comparison.of_starts


def is_live(snapshot: Snapshot) -> bool:
    """Tell whether the newest moment is the present: of no recording, and of no ended training."""
    return snapshot.playback is None and snapshot.state not in ENDED


def trains(snapshot: Snapshot) -> bool:
    return snapshot.state == "training" and snapshot.doing is None


def doing_now(snapshot: Snapshot) -> str:
    """Return what it does: its state, or what it does instead of steps."""
    return snapshot.state if snapshot.doing is None else ASIDES[snapshot.doing]


def silence(snapshot: Snapshot) -> list[str]:
    return [] if snapshot.quiet_s is None else [f"no step for {snapshot.quiet_s:.0f} s"]


def unreadable(skipped_samples: int | None) -> list[str]:
    if not skipped_samples:
        return []
    return [f"{skipped_samples:,} unreadable sample{'s' * (skipped_samples > 1)} skipped"]


class Listener(Protocol):
    """A receiver of a run's snapshots. Called on the session's thread; must return at once."""

    def on_snapshot(self, snapshot: Snapshot, /) -> None: ...

    def on_log(self, lines: Sequence[str], /) -> None:
        """Receive plain text, never markup."""

    def on_output(self, lines: Sequence[str], replaces: int, /) -> None:
        """Replace this many of the newest lines that the script printed."""

    def on_rewind(self) -> None:
        """Clear the log: the run is sent again from the beginning."""

    def on_failure(self, failure: Failed, /) -> None: ...
