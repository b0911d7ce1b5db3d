"""Every message between the processes, and every reading of a device, as frozen records.

This module is the wire format and nothing else: no I/O, no arithmetic, no torch.
A point in time, such as `at_s`, is in seconds of `time.monotonic()`, which all processes of a
machine share. A duration has its unit in its name. `None` means "not measured".
"""

from typing import Annotated, Literal, TypeAlias

import msgspec

PROTOCOL_VERSION = 3
"""Incremented when a reader of older messages would misread a new one."""
Ability: TypeAlias = Literal[
    "levers", "pause", "restart", "blocks", "record", "profile", "memory", "leave", "type", "stacks"
]
"""Requests that a source accepts; `leave`: to train on unwatched; `type`: to take typed input."""
Settings: TypeAlias = dict[str, str]
"""Lever name → value in its canonical text form, in the workload's lever order."""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="type"):
    """Base of messages and readings: frozen, compared by value, tagged by type on the wire."""


# ── worker → session ────────────────────────────────────────────────────────────────────


class Hello(Record, frozen=True, kw_only=True):
    """The first message of every source. Another Hello voids everything before it."""

    protocol: int = PROTOCOL_VERSION
    can: tuple[Ability, ...] = ()
    pid: int | None = None
    """The training process, if the source is one."""
    job: str = ""
    """A name shared by the processes that train together; empty for a single process."""


class Printed(Record, frozen=True, kw_only=True):
    """Lines that the training process printed: plain text, never markup."""

    lines: tuple[str, ...]
    replaces: int = 0
    """How many of the newest lines these replace: a progress bar overwrites itself."""


class Note(Record, frozen=True, kw_only=True):
    """A remark for the user about the active settings on this device."""

    lever: str | None
    """The lever that it is about; None if there is no single one."""
    text: str
    """One sentence."""


class Status(Record, frozen=True, kw_only=True):
    """What the worker does before it trains, as a sentence for the user."""

    text: str


class Device(Record, frozen=True, kw_only=True):
    """The device of the training, as torch reports it."""

    kind: Literal["cpu", "cuda"]
    name: str
    uuid: str | None = None
    """NVML form (`GPU-…` or `MIG-…`), by which telemetry finds the same device."""
    mem_total_mib: float | None = None


class Phase(Record, frozen=True, kw_only=True, tag=False):
    """A part of a step that is measured on its own."""

    name: str
    label: str
    """The workload's own word, shown on screen, such as `encode`."""
    lane: Literal["prepare", "train"]
    """The half of a step that it belongs to: preparing a batch, or training on it."""


class TrainingProcess(Record, frozen=True, kw_only=True, tag=False, omit_defaults=True):
    """What does not change while a process trains."""

    pid: int
    ready_s: float
    """When it was ready to take its first step, or when it was first watched."""
    device: Device
    versions: dict[str, str]
    phases: tuple[Phase, ...] = ()
    """The phases that `Step.phases_ms` may contain, in the order of a step."""
    world_size: int = 1
    """Number of processes that train together."""
    node: str = ""
    """The machine's name, where several processes train together."""
    bus_gb_s: float | None = None
    """Bus bandwidth of a short all-reduce of a large tensor on these GPUs, in GB/s."""


LifePhase: TypeAlias = Literal[
    "starting", "training", "paused", "finished", "failed", "stopped", "parted"
]
"""`finished`: the planned steps or time are reached, a Stop was obeyed, or a script has ended.
`stopped`: ended by gpudash, as requested. `parted`: the process has ended, its command runs on."""
Aside: TypeAlias = Literal["asked", "evaluation", "checkpoint", "profile"]


class Failed(Record, frozen=True, kw_only=True, tag=False):
    """Why a training cannot go on."""

    kind: Literal["bad_setting", "out_of_memory", "error"]
    sentence: str
    """One plain sentence for the status line."""
    traceback: str = ""
    """For the log pane; empty where it would not help."""


class State(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The life of a training in one rank: it replaces the state before, and needs none of them.

    The training process sends one when it is ready and whenever something below has changed. The
    session adds the fields of the run. It also sends the states that no process can: `starting`
    before there is one, `stopped`, and an end that the process could not report. Such an end has no
    `process` on the wire; the session's normaliser completes it from the state before.

    Two things change in a life: what the process does (`phase`, `why`), and the settings with which
    it trains (`segment` and the fields after it). Who needs a change itself compares with the state
    before: another `worker`, another `segment`, another `phase`.
    """

    at_s: float
    """When the newest of the changes took place."""
    phase: LifePhase
    why: Aside | None = None
    """Why it is paused: `asked` by a Pause command, or what it does instead of steps."""
    answers: tuple[int, ...] = ()
    """Ids of the commands that this answers. A Stop is answered by the end, and so are commands
    that came too late to be obeyed."""
    process: TrainingProcess | None = None
    """None while no process of this worker is ready."""
    workload: str = ""
    after_step: int = 0
    """The last step enqueued before the newest change, at the end the last step of all; 0 at a
    start. The device may still work on it."""

    segment: int = 0
    """As in `Step`."""
    settings: Settings = {}
    """Every lever with its active value, `auto` resolved; before a process is ready, the requested
    levers."""
    requested: Settings = {}
    """The levers that were requested, as requested (`auto` kept): a restart sends these. Settings
    of blocks do not count as requested."""
    changes: Settings = {}
    """What the change that began this segment was to set; empty for the first one."""
    took_ms: float = 0.0
    """Host time of that change, from the command's arrival until the next step may start."""
    warmup_steps: int = 0
    """Steps after a start, a change or a pause until loader, caches and schedule are warm;
    measurements leave them out."""
    notes: tuple[Note, ...] = ()
    run: int | None = None
    """The run of blocks in progress; None outside of one."""
    block: int | None = None
    """The block in progress; None between two of them."""
    baseline: Settings = {}
    """During a run of blocks, the settings from before it."""

    failure: Failed | None = None
    trained_until_s: float | None = None
    """When the training closed its connection, if its process went on afterwards until `at_s`."""

    worker: int = 0
    """Number of processes that were ready in this rank so far, this one included; set by the
    session. 0: none, or not set yet."""
    since_s: float = 0.0
    """Begin of `phase`; set by the session."""

    def starts_after(self, before: "State | None") -> bool:
        """Return whether another process trains than in the state before, if there is one."""
        return self.process is not None and (before is None or self.worker != before.worker)

    def changed_from(self, before: "State | None") -> bool:
        """Return whether the process has changed its settings since the state before."""
        return (
            not self.starts_after(before) and before is not None and self.segment > before.segment
        )


LeverKind: TypeAlias = Literal["switch", "choice", "count"]


class LeverOffer(Record, frozen=True, kw_only=True, tag=False):
    """A lever of a training that is in no catalogue; a `workloads.levers.Lever` as a message."""

    name: str
    kind: LeverKind
    default: str
    """The training's own value."""
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 0
    """Like `minimum`, for a count."""
    effect: Literal["next step", "new loader", "rebuilt model"] = "next step"
    summary: str
    source: str
    numerics: bool = False
    """Whether another value changes the computed numbers; the user has to confirm such a change."""
    refusal: str | None = None
    """Why it cannot be changed here, as a clause; None if it can."""
    impossible: tuple[tuple[str, str], ...] = ()
    """Choices that cannot be made here, each with the reason as a clause."""


class Offered(Record, frozen=True, kw_only=True):
    """What was found in a user's script; sent again when more is known."""

    found: str
    """One line: `AdamW, root GPT, 4 backward passes a step, no DataLoader`."""
    levers: tuple[LeverOffer, ...] = ()


class Described(Record, frozen=True, kw_only=True):
    """A user's own workload, as its entry in the catalogue describes it."""

    summary: str
    source: str
    on_cpu: Settings
    levers: tuple[LeverOffer, ...]


class Unfit(Record, frozen=True, kw_only=True):
    """There is no such workload, or its code fails."""

    why: str


Description: TypeAlias = Described | Unfit


class Step(Record, frozen=True, kw_only=True, array_like=True, tag=False, gc=False):
    """A step that the device has finished, or several equal ones.

    A training process sends the fields up to `parts_ms`, in this order.
    """

    step: int
    """Number of the (last) step: counts from 1 and never restarts while the worker lives."""
    segment: int
    """Number of lever changes before this step was enqueued; the session counts on over several
    workers."""
    finished_s: float
    """When the device finished the (last) step."""
    step_ms: float
    """Time from the end of the step before, or after a break from the step's own begin, to its
    end."""
    values: dict[str, float] = {}
    """Values of one step by metric, such as `host_ms`. Those that were not measured are absent:
    phases and what else needs timestamps within a step are measured in some steps of each 100
    ms."""
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Number of consecutive steps that this record stands for; above 1 where they were timed
    together, and in a replay."""
    samples: int | None = None
    """Samples in all `count` steps together; None if the source does not know them."""
    tokens: int | None = None
    """Tokens, likewise."""
    parts_ms: dict[str, tuple[float, ...]] = {}
    """The parts, in order, of phases that were split: a backward pass with collectives beside
    it."""
    since_break: int = 0
    """Steps since the last start, change or pause, this one included; set by the session. An
    evaluation or a checkpoint is no pause."""
    warm: int = 0
    """How many of the `count` steps came after the warm-up; set by the session."""


class Progress(Record, frozen=True, kw_only=True):
    """The steps finished since the last Progress; about 20 messages a second."""

    until_s: float
    """Every step finished before this moment has been reported."""
    steps: tuple[Step, ...]
    total_steps: int
    total_samples: int | None
    loss: float | None = None
    """The newest loss read back from the device, of step `loss_step`."""
    loss_step: int | None = None
    transform_ms: dict[str, float] = {}
    """Mean time per sample in each transform of a loader worker, since the last message."""
    skipped_samples: int = 0
    """Unreadable samples skipped since the worker started."""
    instruments_ms: float = 0.0
    """Host time for measuring, reporting and reading commands since the last message."""
    values: dict[str, float] = {}
    """What the process says of itself, by metric of kind `host`: the memory of torch's allocator
    and the collectives of a step. Absent where unknown; read about twice a second."""


class Timed(Record, frozen=True, kw_only=True):
    """A block timed by the wall clock, between two moments at which the device was idle."""

    at_s: float
    """When the wall clock was stopped."""
    block: int
    steps: int
    samples: int | None
    seconds: float


RefusalKind: TypeAlias = Literal["bad_setting", "out_of_memory", "no_profile", "no_memory_owners"]


class Refused(Record, frozen=True, kw_only=True):
    """A command or a block is refused, and the training goes on.

    Settings that ran out of memory may have trained for a while. Then a `State` follows, back.
    """

    answers: tuple[int, ...] = ()
    kind: RefusalKind
    changes: Settings
    reason: str
    run: int | None = None
    block: int | None = None
    """The refused block; `run` is its run of blocks."""


class TooLate(Record, frozen=True, kw_only=True):
    """Rank 0 has not obeyed the command: it came after its step, or nothing trains any more."""

    answers: tuple[int, ...]


class BlocksEnded(Record, frozen=True, kw_only=True):
    """A run of blocks is over; the settings are those from before it, or the user's new ones."""

    at_s: float
    answers: tuple[int, ...] = ()
    """Ids of all `Blocks` commands of the run."""
    run: int
    why: str
    """The reason as a clause, for the user."""


class SyncCall(Record, frozen=True, kw_only=True, array_like=True, tag=False):
    """A call that made the host wait for the device, with the script's line."""

    at_ns: int
    """Unix time at which the wait ended, in ns."""
    thread: int
    """Native id of the thread that waited."""
    file: str
    line: int
    function: str
    what: str
    """The call that waited: `nonzero`, `item`, `synchronize`; empty where torch does not say."""


class Peak(Record, frozen=True, kw_only=True, tag=False):
    """Rates of this device in a short matmul and a short copy, at its present clock."""

    matmul_tflops: dict[str, float]
    """By precision: `fp32`, `tf32`, `bf16`."""
    memory_gb_s: float
    """Rate of a copy within device memory; bytes read and written are added."""


class Pinning(Record, frozen=True, kw_only=True, tag=False):
    """Measured times for a step's copies, if they came from page-locked memory."""

    pin_ms: float
    """Time to copy the batch into page-locked memory on the training thread, as a loader without
    workers does."""
    thread_pin_ms: float
    """The same on the pin thread of a loader with workers, from memory shared with them."""
    copy_ms: float
    """Time to copy the batch from page-locked memory to the device."""
    slower: float = 1.0
    """Times are the best of some runs. The slowest took up to so many times as long."""


class Weights(Record, frozen=True, kw_only=True, tag=False):
    """Size of the weights that the optimizer updates in a step, in this process."""

    mib: float
    state_mib: float
    """Size of the optimizer's state for them, such as moments."""


class Flops(Record, frozen=True, kw_only=True, tag=False):
    """Floating-point operations of one uncompiled step, a multiply-add counted as two."""

    step_gflop: float
    covered_pct: float
    """Share of the operators containing a matrix product or a convolution that were counted."""


class Profiled(Record, frozen=True, kw_only=True):
    """A profile of some steps; the training goes on. The trace has this under the key `gpudash`."""

    at_s: float
    answers: tuple[int, ...] = ()
    path: str
    """Path of the Chrome trace."""
    first_step: int
    steps: int
    steps_ms: float
    """Wall time of the profiled steps together, until the device has finished."""
    took_ms: float
    """Further time that the training stood still: to start and stop the profiler, to write the
    trace and to measure the device. The first profile of a process takes the longest."""
    untraced_step_ms: float | None = None
    """Mean time of steps shortly before, under the same settings, as tracing slows launches. None
    where it is not known."""
    precision: str = ""
    """Precision of the matmuls, as `Peak` names it; empty where it is not known."""
    syncs: tuple[SyncCall, ...] = ()
    peak: Peak | None = None
    pinning: Pinning | None = None
    """None unless these steps copied much to the device from memory that is not page-locked."""
    flops: Flops | None = None
    weights: Weights | None = None


MemoryUse: TypeAlias = Literal[
    "weights",
    "gradients",
    "optimizer state",
    "activations",
    "backward pass",
    "other",
    "from before",
]
"""Use of device memory; `from before`: allocated before the recording began, and none of the first
three."""


class Owner(Record, frozen=True, kw_only=True, tag=False):
    """Device memory allocated by a line of code for one use."""

    file: str
    """Empty where no line is known: allocated before the recording, or by autograd's own thread."""
    line: int
    function: str
    use: MemoryUse
    mib: float
    count: int
    """Number of allocations."""


class MemoryOwners(Record, frozen=True, kw_only=True):
    """The owners of device memory at the peak of some steps, or when memory ran out."""

    at_s: float
    answers: tuple[int, ...] = ()
    """Empty if memory ran out."""
    peak_mib: float
    owners: tuple[Owner, ...]
    """Largest first; small ones are left out."""


class Joined(Record, frozen=True, kw_only=True, tag=False):
    """A rank's position in the collectives of a process group, by PyTorch's flight recorder."""

    group: str
    group_name: str = ""
    """The script's description of the group."""
    newest: int = 0
    """Number of the newest collective that the rank has joined; 0 if it has joined none."""
    waits_in: int | None = None
    """Number of the oldest collective that is not over; None if all are."""
    collective: str = ""
    """Name of that collective."""
    mib: float | None = None
    """Data that the rank puts into it."""


class Stack(Record, frozen=True, kw_only=True):
    """The stack of a training process's main thread, sent by the process that watches it."""

    at_s: float
    answers: tuple[int, ...] = ()
    text: str = ""
    """The stack as Python's faulthandler writes it; empty if the process did not answer."""
    why: str = ""
    """Why the process did not answer, as a clause whose subject is the rank."""
    is_known: bool = True
    """Whether `text` or `why` says where the process is; false for a process in a container, which
    cannot be asked."""
    joined: tuple[Joined, ...] = ()
    """One for each process group; empty if the flight recorder is not read."""


# ── session → worker ────────────────────────────────────────────────────────────────────


class Plan(Record, frozen=True, kw_only=True):
    """The training that a worker is started with."""

    workload: str
    settings: Settings
    """Levers left out have their defaults."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    steps: int | None = None
    duration_s: float | None = None
    nproc: int = 1
    """Number of processes that train the workload together, on one machine."""
    command: tuple[str, ...] = ()
    """The user's command line; empty for a workload."""


class Command(Record, frozen=True, kw_only=True):
    """A request of the session. Exactly one event answers it, by its id."""

    id: int
    """Counts up within a session."""
    at_step: int | None = None
    """With several ranks, the step after which all obey; None: as soon as possible."""


class Change(Command, frozen=True, kw_only=True):
    """Set these levers at the next step boundary."""

    settings: Settings


class Pause(Command, frozen=True, kw_only=True):
    """Stop between two steps."""


class Resume(Command, frozen=True, kw_only=True):
    """Go on after a Pause."""


class Stop(Command, frozen=True, kw_only=True):
    """Finish the step in progress, report it and exit."""


class Block(Record, frozen=True, kw_only=True):
    """A stretch of training under one setting, long enough to be measured."""

    number: int
    """Counts up within a run of blocks; no block is run twice."""
    changes: Settings
    """Changes to the settings from before the blocks."""
    min_steps: int
    min_s: float
    """The block lasts until `min_steps` and `min_s` are reached after its warm-up. Its last step
    does not count, as on two streams nothing runs beside it."""
    wall_clock: Literal["instrumented", "uninstrumented"] | None = None
    """Time the block by the wall clock, with or without instruments, to measure their cost."""


class Blocks(Command, frozen=True, kw_only=True):
    """Run these blocks one after the other; they replace the run's blocks that still wait.

    The worker switches between blocks by itself. Afterwards it goes back to the settings from
    before the first one. An empty list of blocks, a Change and another run end the run.
    """

    run: int
    """Number of the comparison or the sweep; counts up within a session."""
    blocks: tuple[Block, ...]


PROFILE_LIMIT_S = 30.0
"""A profile ends after this time with the steps so far: a trace grows with each operator."""


class Profile(Command, frozen=True, kw_only=True):
    """Trace the next steps with torch.profiler; answered by a Profiled or a Refused."""

    steps: int
    path: str
    """Path for the Chrome trace."""


class Memory(Command, frozen=True, kw_only=True):
    """Record who owns device memory in the next steps; answered by MemoryOwners or a Refused."""


class Stacks(Command, frozen=True, kw_only=True):
    """Read the stack of each training process; each answers with a Stack. The script goes on."""


AnyCommand: TypeAlias = Change | Pause | Resume | Stop | Blocks | Profile | Memory | Stacks

# ── telemetry → session ─────────────────────────────────────────────────────────────────


class _Reading(Record, frozen=True, kw_only=True):
    """Values read at one moment, by their names in `metrics.METRICS` or others.

    A value that was not measured is absent.
    """

    at_s: float
    values: dict[str, float | str] = {}

    def number(self, name: str) -> float | None:
        """Return this value; None if it was not measured or is no number."""
        value = self.values.get(name)
        return None if isinstance(value, str) else value


class GpuReading(_Reading, frozen=True, kw_only=True):
    """One reading of one GPU."""

    index: int
    uuid: str
    name: str
    activity_since_s: float | None = None
    """Begin of the window over which activity is a mean; repeated until activity is read again."""
    energy_at_s: float | None = None
    """When the counter `energy_j` was read; repeated until it is read again."""


class HostReading(_Reading, frozen=True, kw_only=True):
    """One reading of a rank's processes; rank 0's includes gpudash itself."""

    pid: int | None = None
    """The training process; the rank's other processes are its descendants."""


Reading: TypeAlias = GpuReading | HostReading


class Job(Record, frozen=True, kw_only=True, tag=False):
    """A process that does not belong to the training."""

    pid: int
    name: str
    """The name of its program, or of the script that its interpreter runs."""
    cores: float
    """Cores that it used lately."""


class OtherJobs(Record, frozen=True, kw_only=True):
    """What processes of others used of the machine's cores; read while the training lacks cores."""

    at_s: float
    used_cores: float
    """Of all of them together."""
    cores: int
    """Cores of the machine."""
    busiest: tuple[Job, ...] = ()
    """At most two, the busiest first."""


class GpuMissing(Record, frozen=True, kw_only=True):
    """Whether a GPU is read has changed."""

    why: str | None
    """Why none is read, as a sentence; None if one is read."""


# ── session → views and log: these, the plan, and each command as it is sent ────────────


class NewRow(Record, frozen=True, kw_only=True):
    """The user begins a new row of results with the active settings."""


class Notice(Record, frozen=True, kw_only=True):
    """A message to the user about gpudash itself."""

    text: str
    """One sentence."""


class Verdict(Record, frozen=True, kw_only=True):
    """The result of a comparison."""

    text: str


class ComparisonShown(Record, frozen=True, kw_only=True):
    """An A/B comparison, running or concluded. Changes are relative: 0.05 is 5 % faster."""

    lever: str
    a: str
    b: str
    pairs: int
    """Number of pairs of blocks measured."""
    planned_pairs: int
    change: float | None
    """Throughput of b over that of a, minus 1."""
    low: float | None
    high: float | None
    history: tuple[tuple[float, float, float], ...]
    """Low, change and high after each pair from the second on."""
    steps_per_s: tuple[float | None, float | None]
    """Rates of a and of b, as the device finished the steps."""
    samples_per_s: tuple[float | None, float | None] = (None, None)
    host_ms: tuple[float | None, float | None]
    """Time that the host was busy with a step, of a and of b; averaged as the rates are."""
    core_wait_pct: float | None = None
    """Core wait while both were measured: a high one means that other load affects the verdict."""
    verdict: str | None
    failure: str | None
    """Why there will be no verdict."""
    settings: Settings = {}
    """Settings of the other levers; filled in by the views."""
    precision: float | None = None
    """The comparison ends once the interval is ± this narrow; None: only after all pairs."""
    blocks: str = ""
    """Sides of the measured blocks in order: `ABBA`."""
    check_passed: bool | None = None
    """Whether the A/A check has found no difference; None while it has too few pairs."""
    ended_early: bool = False
    """Whether somebody ended it who saw the interval; one that excludes 0 then proves less."""

    @property
    def proven(self) -> bool:
        """Whether it has ended and shown a difference: the interval excludes 0."""
        if self.verdict is None or self.low is None or self.high is None or self.ended_early:
            return False
        return (self.low > 0 or self.high < 0) and self.check_passed is not False

    @property
    def rates(self) -> tuple[float | None, float | None]:
        """Rates of a and of b in `unit`; `change` is their relative difference."""
        return self.steps_per_s if self.unit == "steps/s" else self.samples_per_s

    @property
    def unit(self) -> str:
        """Unit of `rates`; samples/s if the batch size differs, as steps are not equal then."""
        return "samples/s" if self.lever == "batch_size" else "steps/s"

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with a verdict or a failure."""
        return self.verdict is not None or self.failure is not None


class Straggler(Record, frozen=True, kw_only=True, tag=False):
    """The rank that the others wait for, and the phase in which it is slower."""

    rank: int
    phase: str
    """As `Phase.name`, or `data`, `host`; empty if unknown."""
    excess_ms: float
    """How much longer the phase takes in a step than the other ranks' median."""
    slower_pct: float
    """The excess as a share of the step."""
    others_wait_ms: float | None = None
    """How much longer the others are in the collectives than this rank; None if none waits."""
    kind: Literal["persistent", "wandering", "imbalance"] = "persistent"
    """`wandering`: the slow rank changes. `imbalance`: the rank has more work."""
    why: str = ""
    """The cause as GPU or host show it, as a clause."""


class StragglerShown(Record, frozen=True, kw_only=True):
    """The slow rank has changed, or what is known of it: the rows of a recording cannot show it."""

    straggler: Straggler | None
    """None if no rank is slow any more."""


class Part(Record, frozen=True, array_like=True, tag=False):
    """A stretch of a lane."""

    label: str
    short: str
    """The label where there is little room."""
    ms: float
    ink: str
    """A colour that text can be printed on, such as `fill-3`."""


class Lane(Record, frozen=True, array_like=True, tag=False):
    """The use of a step by one stream, or by the host: parts and rest add up to the step."""

    name: str
    parts: tuple[Part, ...]
    rest: str
    """The label of the step's rest, such as `idle`."""
    rest_ms: float


class Gain(Record, frozen=True, array_like=True, tag=False):
    """A gain in throughput, in percent of the present."""

    low_pct: float | None
    """None if only an upper bound is known."""
    high_pct: float
    source: str = ""
    """The measurement behind it, in a line; empty if other clauses of the answer state it."""
    measured: bool = False
    """Whether an A/B measured the gain itself."""

    @property
    def label(self) -> str:
        """Return `+80 to +150 %`, or `up to +17 %`."""
        high = f"{self.high_pct:+z,.0f} %"
        if self.low_pct is None:
            return f"up to {high}"
        low = f"{self.low_pct:+z,.0f}"
        return f"about {high}" if f"{low} %" == high else f"{low} to {high}"


class Try(Record, frozen=True, array_like=True, tag=False):
    """A change to try in an A/B, why it might help, and how much it can gain."""

    lever: str
    value: str
    why: str
    before: str = ""
    """The present value."""
    gain: Gain | None = None
    """None if no measurement supports a range."""

    @property
    def change(self) -> tuple[str, str]:
        """The lever and its new value."""
        return self.lever, self.value

    @property
    def label(self) -> str:
        """Return lever and value, as `precision=bf16`."""
        return f"{self.lever}={self.value}"

    @property
    def promise(self) -> str:
        """Return change and gain, as `num_workers 2 → 6: +80 to +150 %`."""
        change = f"{self.lever} {self.before} → {self.value}"
        return f"{change}: {self.gain.label}" if self.gain is not None else change


class Answer(Record, frozen=True, kw_only=True, tag=False):
    """What limits the training, and what to try; all of it was measured at one moment."""

    limit: str
    """The limit's word in the rules, such as `data`; `none` and `unknown` are words, too."""
    title: str
    """The limit for the user, such as `input-bound`."""
    evidence: tuple[str, ...] = ()
    """Clauses, the most important first."""
    why: tuple[str, ...] = ()
    """Lines: the rules with their values, and a profile's figures."""
    step_ms: float | None = None
    lanes: tuple[Lane, ...] = ()
    """The step that the evidence is about."""
    tries: tuple[Try, ...] = ()
    """Proposed changes, best first; empty where no A/B can run."""
    caution: str = ""
    """Why an A/B of them is uncertain now, and what to do; empty if it is not."""


class AnswerShown(Record, frozen=True, kw_only=True):
    """The answer has changed: the rows of a recording cannot show it."""

    at_s: float
    answer: Answer | None
    """None until enough steps are measured."""


class Playback(Record, frozen=True, kw_only=True):
    """State of a replay; positions are in seconds since the recording began."""

    name: str
    """Name of the file."""
    position_s: float = 0.0
    length_s: float = 0.0
    """Length of the file so far."""
    speed: float = 1.0
    """Seconds of the recording per second."""
    playing: bool = True
    following: bool = False
    """Whether it is at the end of a file that may still grow."""
    markers: tuple[tuple[float, str], ...] = ()
    """All markers of the recording: position, label."""


Event: TypeAlias = (
    Hello
    | Printed
    | Status
    | State
    | Offered
    | Progress
    | Timed
    | Refused
    | TooLate
    | BlocksEnded
    | Profiled
    | MemoryOwners
    | Stack
    | AnyCommand
    | GpuMissing
    | OtherJobs
    | Plan
    | NewRow
    | Notice
    | Verdict
    | ComparisonShown
    | StragglerShown
    | AnswerShown
    | Playback
)
# ── the envelope of every message ───────────────────────────────────────────────────────


class Envelope(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A message and its origin; one JSON line on the wire."""

    source: str
    """`training` for the worker, `telemetry` for the sampler, `node` for other nodes' samplers,
    `session` for gpudash itself, …"""
    rank: int = 0
    seq: int
    """Counts up for each source and rank."""
    sent_s: float
    body: Event | Reading
