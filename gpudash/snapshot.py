"""What the screen shows at one moment, as one frozen value.

A live run, a replayed file and a profile all end up here; widgets know nothing else.
Series are aligned: element i of every tuple in `Series` belongs to `at_s[i]`.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from gpudash.protocol import (
    Ability,
    Aside,
    ComparisonShown,
    Device,
    Failed,
    GpuReading,
    HostReading,
    Joined,
    LeverOffer,
    MemoryOwners,
    Phase,
    Playback,
    Profiled,
    Settings,
)

State: TypeAlias = Literal[
    "starting", "training", "switching", "paused", "finished", "failed", "stopped"
]
Values: TypeAlias = tuple[float | None, ...]

ENDED: frozenset[str] = frozenset({"finished", "failed", "stopped"})
"""No worker lives."""
STEP_CLASS = 1.02
"""The longest step of a class of the histogram over its shortest: 2 % apart."""
KEPT_LINES = 2000
"""Of the log, the newest: what a listener keeps until it is shown, and a screen afterwards."""
ASIDES: dict[Aside, str] = {
    "evaluation": "evaluating",
    "checkpoint": "saving a checkpoint",
    "profile": "profiling",
}
"""What a training does beside the steps that are measured: so `Snapshot.status` begins."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The run so far in ticks, oldest first. None = not measured."""

    tick_s: float = 0.5
    """Length of the recent ones; those long ago are longer."""
    at_s: tuple[float, ...] = ()
    """End of each tick, in seconds since the run began; it begins where the one before ends."""
    values: dict[str, Values] = {}
    """By metric; absent where it was measured in none of the ticks."""

    def of(self, name: str) -> Values:
        """Return the values of this metric; none at all where it was not measured."""
        return self.values.get(name, ())


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """A moment on the time axis: a lever change, a pause, a restart."""

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
    side: Literal["a", "b"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the results table: what one setting was worth on this machine."""

    number: int
    """Counts from 1; rows in which nothing was measured are dropped."""
    configuration: str
    """The levers in which the row differs from the first one; for the first, the main ones."""
    settings: Settings = {}
    workload: str = ""
    steps: int = 0
    """Steps measured: the first few after a change or a pause are left out as warm-up."""
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    host_ms: float | None = None
    """Mean time the host was occupied with a step. What is left of the step time it was ahead
    of the device or waited for data."""
    util_pct: float | None = None
    """GPU utilisation; None where no GPU is read."""
    cpu_pct: float | None = None
    peak_mib: float | None = None
    """The most device memory in the training's tensors at once, as its allocator says."""
    held_mib: float | None = None
    """The most that its allocator held, in use or not."""
    ratio: float | None = None
    """samples/s over the first row's: comparable across batch sizes, and steps/s at equal ones."""
    ratio_is_clear: bool = False
    """Whether `ratio` differs from 1 by more than both rows vary; the first row's own is 1."""
    live: bool = False
    """Still growing."""
    verdict: bool = False
    """A comparison's verdict, which stands in `configuration`: nothing else is set."""


RankState: TypeAlias = State | Literal["ended", "silent"]
"""`silent`: nothing is heard of it, while others tell of their steps."""


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of several processes that train together. Times are means of its last few steps."""

    rank: int
    pid: int | None = None
    state: RankState = "starting"
    steps: int = 0
    """Of the present process."""
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    """Its own."""
    step_ms_p50: float | None = None
    data_ms: float | None = None
    phases_ms: dict[str, float] = {}
    """By phase; absent where it was not measured."""
    loss: float | None = None
    node: str = ""
    """The machine that it runs on."""
    waits_ms: float | None = None
    """In a step, for the collectives: exposed communication."""
    history: Values = ()
    """Step time in ms over the last minute, oldest first."""
    tokens: float | None = None
    """Of a step; samples where no tokens are known."""
    gpu: GpuReading | None = None
    """The GPU that it trains on."""
    host: HostReading | None = None
    """Its processes."""
    restarts: int = 0
    """How many processes had this rank before."""
    collective_bus_mib: float | None = None
    collective_ms: float | None = None
    """Of a step, as in `protocol.Progress`."""


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """The rank that the others wait for, and in what it is slower than they are."""

    rank: int
    phase: str
    """As `Phase.name`, or `data`, `host`; empty where it cannot be told."""
    excess_ms: float
    """How much longer that takes in a step than the other ranks' median."""
    slower_pct: float
    """The same as a share of the step."""
    others_wait_ms: float | None = None
    """How much longer the others are in the collectives than it is; None where nobody waits."""
    kind: Literal["persistent", "wandering", "imbalance"] = "persistent"
    """`wandering`: another rank every now and then. `imbalance`: it has more to work on."""
    why: str = ""
    """What the GPU or the host shows of the cause, as a clause."""


class RankStack(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank is while no step finishes."""

    rank: int
    steps: int
    lines: tuple[str, ...] = ()
    """Innermost first: `file:line function`; empty where it did not answer."""
    collective: str = ""
    """In which one it waits; empty where it is in none."""
    is_known: bool = True
    """Whether it is known where it is."""
    doing: str = ""
    """What it does, as a clause that the rank is the subject of."""
    joined: tuple[Joined, ...] = ()
    """As in `protocol.Stack`."""


class Hang(msgspec.Struct, frozen=True, kw_only=True):
    """No rank has finished a step for long."""

    for_s: float
    missing: tuple[int, ...] = ()
    """The ranks that the others wait for; empty where it cannot be told."""
    stacks: tuple[RankStack, ...] = ()
    recorded: str = ""
    """Which collective is not over, by PyTorch's flight recorder, as a clause; empty without it."""


class RecordingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The CSV file being written."""

    path: str
    """As one printable line."""
    rows: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the dashboard shows, at one moment."""

    state: State = "starting"
    status: str = "starting"
    """One sentence: what is going on, or what went wrong. The screen adds what to do."""
    elapsed_s: float = 0.0
    """Since the run began."""
    joined: bool = False
    """Whether the training had begun before: times are since it is watched."""
    training_s: float | None = None
    """Since the present worker was ready; None before. `planned_s` is measured in it."""
    can: tuple[Ability, ...] = ("levers", "pause", "restart", "blocks", "record")
    """What may be asked of the run's source."""
    workload: str = ""
    device: Device | None = None
    found: str = ""
    """In one line what was found in a script of the user's; empty for a training of our own."""
    levers: tuple[LeverOffer, ...] = ()
    """Those that such a script's training has, movable or not."""
    ranks: tuple[RankRow, ...] = ()
    """Where several processes train together, each of them."""
    bus_gb_s: float | None = None
    """What their links reached in a short all-reduce at the start; as `protocol.Started`."""
    straggler: Straggler | None = None
    hang: Hang | None = None
    settings: Settings = msgspec.field(default_factory=dict)
    """Active levers; before the worker has started, those asked for."""
    requested: Settings = msgspec.field(default_factory=dict)
    """The levers that were asked for, as asked: what a restart sends."""
    pending: Settings = msgspec.field(default_factory=dict)
    """Asked for and not answered yet."""
    pausing: bool | None = None
    """Asked to pause (True) or to go on, and not answered yet."""
    last_command: int = 0
    """The newest request of the screen's that this snapshot knows of."""
    notes: tuple[str, ...] = ()
    worker_pid: int | None = None
    total_steps: int = 0
    total_samples: int | None = 0
    steps_since_break: int = 0
    """Since the last start, change or pause, as far as the device has finished them."""
    planned_steps: int | None = None
    planned_s: float | None = None
    steps_per_s: float | None = None
    """Over the last few seconds, as the device finished them."""
    samples_per_s: float | None = None
    """As tokens and `total_samples`, of all ranks."""
    tokens_per_s: float | None = None
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    quiet_s: float | None = None
    """How long no step has finished, where that is longer than steps are: something compiles,
    the loader is late. None where steps come as they should."""
    loss: float | None = None
    phases: tuple[Phase, ...] = ()
    """Of a step, as the training names them; empty before it has started."""
    gpu: GpuReading | None = None
    gpu_missing: str | None = None
    """Why no GPU is read, as a sentence; None while one is read."""
    host: HostReading | None = None
    series: Series = Series()
    markers: tuple[Marker, ...] = ()
    blocks: tuple[BlockShown, ...] = ()
    """The newest, oldest first."""
    step_histogram: tuple[tuple[float, int], ...] = ()
    """(least ms, steps) of each class of durations that is not empty, shortest first: of the
    steps since the last change, without its warm-up. A class is `STEP_CLASS` wide."""
    results: tuple[Result, ...] = ()
    recording: RecordingStatus | None = None
    comparison: ComparisonShown | None = None
    """The A/B comparison in progress, or the last one."""
    verdicts: tuple[ComparisonShown, ...] = ()
    """The concluded comparisons of this workload, oldest first."""
    profiling: bool = False
    """Asked to trace some steps, and not answered yet."""
    profile: Profiled | None = None
    """The newest profile of this run."""
    profile_of: tuple[str, Settings] = ("", {})
    """The workload and the settings that it was taken with."""
    profile_refusal: str = ""
    """Why the newest that was asked for is not there, as a clause."""
    memory_owners: MemoryOwners | None = None
    """The newest that was told of in this run."""
    transform_ms: dict[str, float] = msgspec.field(default_factory=dict)
    """Mean time a sample spends in each transform of a loader worker."""
    skipped_samples: int = 0
    """Unreadable samples passed over."""
    instruments_ms: float | None = None
    """What measuring and reporting took of the host's time in a step, lately."""
    unattributed_pct: float | None = None
    """Share of the run's time that nothing explains."""
    playback: Playback | None = None
    """Of the recording that is shown; None for a live run."""


def is_script(snapshot: Snapshot) -> bool:
    """Whether it is a training of the user's own, which goes on without a dashboard."""
    return "leave" in snapshot.can


def is_live(snapshot: Snapshot) -> bool:
    """Tell whether the newest moment is the present: of no recording, and of no ended training."""
    return snapshot.playback is None and snapshot.state not in ENDED


def aside(snapshot: Snapshot) -> str:
    """Return what the training does between two steps by itself; empty where it does nothing so."""
    doing = snapshot.status.partition(" – ")[0]
    by_itself = snapshot.state in ("training", "paused") and doing in ASIDES.values()
    return doing if by_itself else ""


def silence(snapshot: Snapshot) -> list[str]:
    """Return, as a clause, for how long no step has finished; empty where steps come."""
    return [] if snapshot.quiet_s is None else [f"no step for {snapshot.quiet_s:.0f} s"]


def unreadable(skipped_samples: int | None) -> list[str]:
    """Return, as a clause, that others took these samples' place, at a cost; empty for none."""
    if not skipped_samples:
        return []
    return [f"{skipped_samples:,} unreadable sample{'s' * (skipped_samples > 1)} skipped"]


class Listener(Protocol):
    """Whoever shows a run. Called from the session's thread; must return at once."""

    def on_snapshot(self, snapshot: Snapshot, /) -> None:
        """Take the newest state; an older one not shown yet may be dropped."""

    def on_log(self, lines: Sequence[str], /) -> None:
        """Take what the worker printed: plain text, whatever it contains."""

    def on_output(self, lines: Sequence[str], replaces: int, /) -> None:
        """Take what a script printed, instead of so many of its newest lines."""

    def on_rewind(self) -> None:
        """Forget the log: everything is told again, from the beginning."""

    def on_failure(self, failure: Failed, /) -> None:
        """Take the worker's failure; the next snapshot shows its sentence."""
