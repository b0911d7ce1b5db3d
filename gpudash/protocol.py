"""Every message between the processes and every sample of the device, as frozen records.

This module owns the wire format and nothing else: no I/O, no arithmetic, no torch.
A point in time, `*_s`, is in seconds of `time.monotonic()`, which all processes of one
machine share. A duration carries its unit in its name. `None` means "not measured".
"""

from typing import Annotated, Literal, TypeAlias

import msgspec

PROTOCOL_VERSION = 2
"""Raised whenever a reader of older messages would misread a new one."""
Ability: TypeAlias = Literal[
    "levers", "pause", "restart", "blocks", "record", "profile", "memory", "leave", "type", "stacks"
]
"""What may be asked of a source; `leave`: to train on unwatched; `type`: to take what is typed."""
Settings: TypeAlias = dict[str, str]
"""Lever name → value in its canonical text form, in the workload's lever order."""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="type"):
    """A message or a sample: frozen, compared by value, tagged with its type on the wire."""


# ── worker → session ────────────────────────────────────────────────────────────────────


class Hello(Record, frozen=True, kw_only=True):
    """The first message of every source; said again, everything before it is void."""

    protocol: int = PROTOCOL_VERSION
    can: tuple[Ability, ...] = ()
    pid: int | None = None
    """Of the process that it speaks for, if it is one."""
    job: str = ""
    """What processes that train together have in common; empty where one trains alone."""


class Printed(Record, frozen=True, kw_only=True):
    """What the training process printed: plain text, whatever it contains."""

    lines: tuple[str, ...]
    replaces: int = 0
    """So many of the newest lines are void: a progress bar writes over itself."""


class Note(Record, frozen=True, kw_only=True):
    """What the user should know about the active settings on this device."""

    lever: str | None
    """The lever it is about; None: about no single one."""
    text: str
    """One sentence."""


class Status(Record, frozen=True, kw_only=True):
    """What the worker is doing while it is not training yet, as a sentence for the user."""

    text: str


class Device(Record, frozen=True, kw_only=True):
    """Where the training runs, as torch reports it."""

    kind: Literal["cpu", "cuda"]
    name: str
    uuid: str | None = None
    """NVML form (`GPU-…` or `MIG-…`), so that telemetry reads the very device trained on."""
    mem_total_mib: float | None = None


class Phase(Record, frozen=True, kw_only=True, tag=False):
    """A part of a step that is measured on its own, as a source names it."""

    name: str
    label: str
    """On screen, in the workload's own word, such as `encode`."""
    lane: Literal["prepare", "train"]
    """The half of a step that it belongs to: making a batch ready, or training on it."""


class Started(Record, frozen=True, kw_only=True):
    """The worker is ready: the first step comes next."""

    at_s: float
    segment: int = 0
    """As in `Step`."""
    pid: int
    workload: str
    device: Device
    settings: Settings
    """Every lever with its active value, `auto` resolved."""
    requested: Settings = {}
    """The levers that were asked for, as asked, `auto` kept: what a restart sends."""
    warmup_steps: int
    """Steps until loader, caches and schedule are warm: what is measured leaves them out."""
    versions: dict[str, str]
    notes: tuple[Note, ...] = ()
    phases: tuple[Phase, ...] = ()
    """What `Step.phases_ms` may tell of, in the order of a step."""
    world_size: int = 1
    """How many processes train together."""
    node: str = ""
    """The machine's name, where several processes train together."""
    bus_gb_s: float | None = None
    """Bus bandwidth that a short all-reduce of a large tensor reached on these GPUs."""


LeverKind: TypeAlias = Literal["switch", "choice", "count"]


class LeverOffer(Record, frozen=True, kw_only=True, tag=False):
    """A lever of a training that is in no catalogue, as `workloads.levers.Lever` describes one."""

    name: str
    kind: LeverKind
    default: str
    """What the training had by itself."""
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 0
    """Of a count."""
    effect: Literal["next step", "new loader", "rebuilt model"] = "next step"
    summary: str
    source: str
    numerics: bool = False
    """Whether another value computes other numbers, which the user is asked about first."""
    refusal: str | None = None
    """Why it cannot be moved here, as a clause; None where it can be."""


class Offered(Record, frozen=True, kw_only=True):
    """What was found in a training that nobody wrote for us; said again when more is known."""

    found: str
    """One line: `AdamW, root GPT, 4 backward passes a step, no DataLoader`."""
    levers: tuple[LeverOffer, ...] = ()


class Described(Record, frozen=True, kw_only=True):
    """A workload of a user's own, as its entry in the catalogue holds it."""

    summary: str
    source: str
    on_cpu: Settings
    levers: tuple[LeverOffer, ...]


class Unfit(Record, frozen=True, kw_only=True):
    """There is no such workload, or its code fails."""

    why: str


Description: TypeAlias = Described | Unfit


class Step(Record, frozen=True, kw_only=True, array_like=True, tag=False, gc=False):
    """A step that the device has finished, or several alike. Times in milliseconds."""

    step: int
    """Counts from 1 and never restarts while the worker lives."""
    segment: int
    """How many times the levers had been changed when this step was enqueued; the session
    counts on over several workers."""
    samples: int | None = None
    """In all of its `count` steps; None, as for the two times of the host, if its source does
    not know."""
    finished_s: float
    """The last of them."""
    step_ms: float
    """Of each, as all times: from the end of the step before, or after a break from its own
    begin, to its end."""
    data_ms: float | None = None
    """The host waited for a batch before enqueueing this step; on two streams, for the next one."""
    host_ms: float | None = None
    """The host was occupied with the step, waiting for data excluded."""
    device_ms: float | None = None
    """The device had work of this step in progress; overlapping halves counted once.

    This and what follows is measured in some steps of each 100 ms, and None in the others; the
    CPU time in every step.
    """
    phases_ms: dict[str, float] | None = None
    """What each phase took; as `overlap`, how long both streams were busy, if there are two."""
    cpu_ms: float | None = None
    """CPU time that the training process used during the step, in all threads; None on a GPU."""
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    """How many steps it stands for, one directly after the other; more only in a replay."""
    since_break: int = 0
    """Steps since the last start, change or pause, this one included; the session stamps it. An
    evaluation or a checkpoint is no pause."""
    tokens: int | None = None
    """As `samples`."""
    parts_ms: dict[str, tuple[float, ...]] | None = None
    """What of `phases_ms` was cut into parts, in their order: a backward pass that collectives run
    beside. None where no phase was."""


class Progress(Record, frozen=True, kw_only=True):
    """The steps finished since the last such message, about 20 messages a second."""

    until_s: float
    """Every step finished before this moment has been reported."""
    steps: tuple[Step, ...]
    total_steps: int
    total_samples: int | None
    loss: float | None = None
    """The newest loss read back, of step `loss_step`."""
    loss_step: int | None = None
    transform_ms: dict[str, float] = {}
    """Mean time a sample spent in each transform of a loader worker, since the last message."""
    skipped_samples: int = 0
    """Unreadable samples that were passed over, since the worker started."""
    instruments_ms: float = 0.0
    """Host time that measuring, reporting and reading commands took since the last message."""
    mem_reserved_mib: float | None = None
    """Held by torch's caching allocator on this process's GPU. Like the next two None without a
    GPU, and in all messages but about two a second."""
    mem_allocated_mib: float | None = None
    """… of it in tensors."""
    mem_peak_mib: float | None = None
    """The most in tensors at once: since the newest `Started` or `Changed`; in a user's script
    since it began, as gpudash does not reset a script's own statistics."""
    collective_mib: float | None = None
    """What one rank puts into the collectives of a step. Like the next one None where it is not
    known, and in all messages but about two a second."""
    collective_ms: float | None = None
    """How long they took in a step, hidden behind computation or not."""
    collective_bus_mib: float | None = None
    """What each link carries of them one way, by the factors of NCCL's tests."""


class Changed(Record, frozen=True, kw_only=True):
    """Levers took effect between two steps."""

    at_s: float
    answers: tuple[int, ...] = ()
    """The commands that this answers; empty where none asked for it."""
    segment: int
    after_step: int
    """The last step enqueued with the settings before."""
    changes: Settings
    settings: Settings
    took_ms: float
    """Host time from the command's arrival until the next step may start."""
    requested: Settings = {}
    warmup_steps: int
    """Both as in `Started`; what blocks run with was not requested."""
    notes: tuple[Note, ...] = ()
    run: int | None = None
    """The run of blocks inside of which it was; None outside of one."""
    block: int | None = None
    """The block that begins here; None where one only ends."""


class Timed(Record, frozen=True, kw_only=True):
    """A block timed by the wall clock, between two moments at which the device was idle."""

    at_s: float
    """When the wall clock was read last."""
    block: int
    steps: int
    samples: int | None
    seconds: float


RefusalKind: TypeAlias = Literal["bad_setting", "out_of_memory", "no_profile", "no_memory_owners"]


class Refused(Record, frozen=True, kw_only=True):
    """A change that cannot be: the training goes on as it was.

    What is given up for want of memory may have trained a while: a `Changed` back follows.
    """

    answers: tuple[int, ...] = ()
    kind: RefusalKind
    changes: Settings
    reason: str
    run: int | None = None
    block: int | None = None
    """The block that was to run with these settings, and its run."""


class TooLate(Record, frozen=True, kw_only=True):
    """A command for all ranks reached one of them after its step, and is void; nobody obeyed it."""

    answers: tuple[int, ...]


class BlocksEnded(Record, frozen=True, kw_only=True):
    """A run of blocks is over; the settings are those from before it, or the user's new ones."""

    at_s: float
    answers: tuple[int, ...] = ()
    """Every `Blocks` of the run."""
    run: int
    why: str
    """As a clause, for the user."""


Aside: TypeAlias = Literal["asked", "evaluation", "checkpoint", "profile"]


class Paused(Record, frozen=True, kw_only=True):
    """No further step is started until a Resume; said again to each further Pause."""

    at_s: float
    answers: tuple[int, ...] = ()
    after_step: int = 0
    """The last step enqueued: the device may still be at work on it."""
    why: Aside = "asked"
    """What the training does instead, if nobody has asked for it."""


class Resumed(Record, frozen=True, kw_only=True):
    """Training goes on, perhaps as before."""

    at_s: float
    answers: tuple[int, ...] = ()


class SyncCall(Record, frozen=True, kw_only=True, array_like=True, tag=False):
    """A call that made the host wait for the device, as seen from the script's own line."""

    at_ns: int
    """Unix time at which the host went on."""
    thread: int
    """Native id of the thread that waited."""
    file: str
    line: int
    function: str
    what: str
    """What waited, as far as torch says: `nonzero`, `item`, `synchronize`; empty where unknown."""


class Peak(Record, frozen=True, kw_only=True, tag=False):
    """What this device reached in a short matmul and a short copy, at its clock of the moment."""

    matmul_tflops: dict[str, float]
    """By precision: `fp32`, `tf32`, `bf16`."""
    memory_gb_s: float
    """A copy within device memory, bytes read and written together."""


class Pinning(Record, frozen=True, kw_only=True, tag=False):
    """What a step's copies from pageable memory would take if it were page-locked: measured."""

    pin_ms: float
    """To put the batch there on the thread that trains, as a loader without workers does, …"""
    thread_pin_ms: float
    """… and as the thread of a loader with workers does: alone, from memory that they share."""
    copy_ms: float
    """To copy it from there to the device."""


class Weights(Record, frozen=True, kw_only=True, tag=False):
    """What the optimizer updates in a step, in this process."""

    mib: float
    state_mib: float
    """That it keeps for them, such as moments."""


class Flops(Record, frozen=True, kw_only=True, tag=False):
    """Floating-point operations of one uncompiled step, a multiply-add counted as two."""

    step_gflop: float
    covered_pct: float
    """Share of the operators with a matrix product or a convolution in them that were counted."""


class Profiled(Record, frozen=True, kw_only=True):
    """Some steps have been traced; the training goes on. The trace's key `gpudash` holds it too."""

    at_s: float
    answers: tuple[int, ...] = ()
    path: str
    """The Chrome trace."""
    first_step: int
    steps: int
    steps_ms: float
    """Wall time of the profiled steps together, device finished."""
    took_ms: float
    """How long the training stood still besides: to start and stop the profiler, to write the trace
    and to measure the device. The first profile of a process takes longer than further ones."""
    untraced_step_ms: float | None = None
    """Mean of steps shortly before, under the same settings: tracing makes launching slower. None
    where it is not known."""
    precision: str = ""
    """Of the matmuls, as `Peak` names them; empty where it is not known."""
    syncs: tuple[SyncCall, ...] = ()
    peak: Peak | None = None
    pinning: Pinning | None = None
    """Measured where these steps copied much to the device from memory that is not page-locked."""
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
"""What memory is for, as far as that can be told; `from before`: it was there when the recording
began, and is none of the first three."""


class Owner(Record, frozen=True, kw_only=True, tag=False):
    """A line of code that has allocated device memory, and what for."""

    file: str
    """Empty where no line is known: allocated before the recording, or by autograd's own thread."""
    line: int
    function: str
    use: MemoryUse
    mib: float
    count: int
    """Allocations."""


class MemoryOwners(Record, frozen=True, kw_only=True):
    """What was held of device memory at the fullest moment of some steps, or when it ran out."""

    at_s: float
    answers: tuple[int, ...] = ()
    """Empty where memory ran out."""
    peak_mib: float
    owners: tuple[Owner, ...]
    """The largest first; small ones are left out."""


class Joined(Record, frozen=True, kw_only=True, tag=False):
    """How far a rank is in the collectives of one process group, by PyTorch's flight recorder."""

    group: str
    group_name: str = ""
    """What it is for, as the script says."""
    newest: int = 0
    """The number of the newest one that it has joined; 0: it has joined none."""
    waits_in: int | None = None
    """The number of the oldest one that is not over; None: all are."""
    collective: str = ""
    """… its name."""
    mib: float | None = None
    """… what the rank puts in."""


class Stack(Record, frozen=True, kw_only=True):
    """Where the main thread of a training process is, told by whoever watches the process."""

    at_s: float
    answers: tuple[int, ...] = ()
    text: str = ""
    """As Python's faulthandler writes it; empty where the process did not answer."""
    why: str = ""
    """Why it did not, as a clause that the rank is the subject of."""
    is_known: bool = True
    """Whether one of the two says where it is: nobody can ask a process in a container."""
    joined: tuple[Joined, ...] = ()
    """By process group; empty where the flight recorder is not read."""


class Parted(Record, frozen=True, kw_only=True):
    """A training process has ended while its command lives."""

    at_s: float
    pid: int


class Finished(Record, frozen=True, kw_only=True):
    """The planned number of steps or time is reached, or a Stop obeyed; the worker exits."""

    at_s: float
    answers: tuple[int, ...] = ()
    """Every Stop, and whatever came too late to be obeyed."""
    total_steps: int
    trained_until_s: float | None = None
    """When the training hung up, where its process went on without it; else `at_s`."""


class Failed(Record, frozen=True, kw_only=True):
    """The worker cannot go on and exits."""

    at_s: float
    kind: Literal["bad_setting", "out_of_memory", "error"]
    sentence: str
    """One plain sentence for the status line."""
    traceback: str = ""
    """For the log pane; empty where it would not help."""
    trained_until_s: float | None = None
    """When the training hung up, where its process went on without it; else `at_s`."""


# ── session → worker ────────────────────────────────────────────────────────────────────


class Plan(Record, frozen=True, kw_only=True):
    """What a worker is started with."""

    workload: str
    settings: Settings
    """Only the levers that differ from their defaults need to be named."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    steps: int | None = None
    duration_s: float | None = None
    nproc: int = 1
    """Processes that train the workload together, on one machine."""
    command: tuple[str, ...] = ()
    """A command of the user's, as it is started; empty for a workload."""


class Command(Record, frozen=True, kw_only=True):
    """What the session asks for. Exactly one event answers it, naming its id."""

    id: int
    """Counts up within a session."""


class Change(Command, frozen=True, kw_only=True):
    """Set these levers at the next step boundary."""

    settings: Settings
    at_step: int | None = None
    """Of several ranks: after this step, all of them; None: as soon as can be."""


class Pause(Command, frozen=True, kw_only=True):
    """Stop between two steps."""


class Resume(Command, frozen=True, kw_only=True):
    """Go on after a Pause."""


class Stop(Command, frozen=True, kw_only=True):
    """Finish the step in progress, report it and exit."""


class Block(Record, frozen=True, kw_only=True):
    """A stretch of training under one setting, long enough to be measured."""

    number: int
    """Counts up within a run of blocks: none is run twice."""
    changes: Settings
    """Levers, on top of those that the blocks began with."""
    min_steps: int
    min_s: float
    """It lasts until both are reached, counted after the warm-up; the last step of a
    block, which runs with nothing beside it on two streams, does not count either."""
    wall_clock: Literal["instrumented", "uninstrumented"] | None = None
    """Time it from outside, with or without the instruments: what they cost."""


class Blocks(Command, frozen=True, kw_only=True):
    """Run these blocks, one after the other, instead of the run's blocks that still wait.

    The worker switches by itself: no message has to travel between two blocks. Afterwards
    the levers are as before the first one. No blocks at all end the run; so do a Change and
    another run.
    """

    run: int
    """Numbers the comparison or the sweep, counting up within a session."""
    blocks: tuple[Block, ...]
    at_step: int | None = None
    """As in `Change`."""


PROFILE_LIMIT_S = 30.0
"""Then a profile ends with the steps that it has: what a trace keeps grows with each operator."""


class Profile(Command, frozen=True, kw_only=True):
    """Trace the next steps with torch.profiler; a Profiled or a Refused answers it."""

    steps: int
    path: str
    """Where the Chrome trace goes."""


class Memory(Command, frozen=True, kw_only=True):
    """Tell who owns device memory, over the next steps; MemoryOwners or a Refused answers it."""


class Stacks(Command, frozen=True, kw_only=True):
    """Tell where each training process is; a Stack of each answers it. The script goes on."""


AnyCommand: TypeAlias = Change | Pause | Resume | Stop | Blocks | Profile | Memory | Stacks

# ── telemetry → session ─────────────────────────────────────────────────────────────────


class _Reading(Record, frozen=True, kw_only=True):
    """What was read at one moment, by the names in `metrics.METRICS` or others.

    A value that was not measured is absent.
    """

    at_s: float
    values: dict[str, float | str] = {}

    def number(self, name: str) -> float | None:
        """Return this value; None where it was not measured, or is no number."""
        value = self.values.get(name)
        return None if isinstance(value, str) else value


class GpuReading(_Reading, frozen=True, kw_only=True):
    """One reading of one GPU."""

    index: int
    uuid: str
    name: str
    activity_since_s: float | None = None
    """Since when activity is a mean: readings repeat it until it is read again."""
    energy_at_s: float | None = None
    """When the counter `energy_j` was read: readings repeat it until it is read again."""


class HostReading(_Reading, frozen=True, kw_only=True):
    """One reading of a rank's processes, and with rank 0's of gpudash itself."""

    pid: int | None = None
    """The training process; the others are its descendants."""


Reading: TypeAlias = GpuReading | HostReading


class GpuMissing(Record, frozen=True, kw_only=True):
    """From now on no GPU is read; or one is again."""

    why: str | None
    """As a sentence; None while one is read."""


# ── session → views and log: besides these its plan and each command, as it is sent ─────


class Restarted(Record, frozen=True, kw_only=True):
    """Another worker is being started: all that comes of the training is its own from now on."""

    at_s: float
    plan: Plan


class Stopped(Record, frozen=True, kw_only=True):
    """The worker was ended on purpose."""

    at_s: float


class NewRow(Record, frozen=True, kw_only=True):
    """The user begins a new row of results with the active settings."""


class Notice(Record, frozen=True, kw_only=True):
    """What the user should know of gpudash itself."""

    text: str
    """One sentence."""


class Verdict(Record, frozen=True, kw_only=True):
    """What a comparison found."""

    text: str


class ComparisonShown(Record, frozen=True, kw_only=True):
    """An A/B comparison, running or concluded. Changes are relative: 0.05 is 5 % faster."""

    lever: str
    a: str
    b: str
    pairs: int
    """Pairs of blocks measured."""
    planned_pairs: int
    change: float | None
    """Throughput of b over that of a, less 1."""
    low: float | None
    high: float | None
    history: tuple[tuple[float, float, float], ...]
    """Low, change and high after each pair from the second on: the interval closing in."""
    steps_per_s: tuple[float | None, float | None]
    """Of a and of b, as the device finished them."""
    samples_per_s: tuple[float | None, float | None] = (None, None)
    host_ms: tuple[float | None, float | None]
    """Time the host was occupied with a step, of a and of b."""
    core_wait_pct: float | None = None
    """While both were measured; with it a verdict tells of the other load too."""
    verdict: str | None
    failure: str | None
    """Why there is no verdict and will be none."""
    settings: Settings = {}
    """What the other levers were set to; filled in by whoever folds the run."""
    precision: float | None = None
    """It ends as soon as the interval is ± this narrow; None: only after all pairs."""
    blocks: str = ""
    """Sides of the blocks measured, in their order: `ABBA`."""
    check_passed: bool | None = None
    """Whether the A/A check has found nothing; None while it has too few pairs."""
    ended_early: bool = False
    """Somebody ended it who saw the interval: that it excludes 0 then shows less."""

    @property
    def proven(self) -> bool:
        """Whether it is over and has shown a difference: the interval excludes 0."""
        if self.verdict is None or self.low is None or self.high is None or self.ended_early:
            return False
        return (self.low > 0 or self.high < 0) and self.check_passed is not False

    @property
    def rates(self) -> tuple[float | None, float | None]:
        """Of a and of b, in `unit`: what `change` is the change of."""
        return self.steps_per_s if self.unit == "steps/s" else self.samples_per_s

    @property
    def unit(self) -> str:
        """Steps of different batch sizes are not worth the same."""
        return "samples/s" if self.lever == "batch_size" else "steps/s"

    @property
    def is_over(self) -> bool:
        """Whether it is known how it ended."""
        return self.verdict is not None or self.failure is not None


class Playback(Record, frozen=True, kw_only=True):
    """Where the replay of a recording stands; positions in seconds since the recording began."""

    name: str
    """The file's."""
    position_s: float = 0.0
    length_s: float = 0.0
    """What the file holds so far."""
    speed: float = 1.0
    """Seconds of the recording in one second."""
    playing: bool = True
    following: bool = False
    """At the end of a file that may still grow."""
    markers: tuple[tuple[float, str], ...] = ()
    """All of the recording: position, label."""


Event: TypeAlias = (
    Hello
    | Printed
    | Status
    | Started
    | Offered
    | Progress
    | Changed
    | Timed
    | Refused
    | TooLate
    | BlocksEnded
    | Paused
    | Resumed
    | Profiled
    | MemoryOwners
    | Stack
    | Parted
    | Finished
    | Failed
    | AnyCommand
    | GpuMissing
    | Plan
    | Restarted
    | Stopped
    | NewRow
    | Notice
    | Verdict
    | ComparisonShown
    | Playback
)
# ── what every message travels in ───────────────────────────────────────────────────────


class Envelope(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A message and where it comes from; one JSON line on the wire."""

    source: str
    """`training` for the worker, `telemetry` for the sampler, `node` for other nodes' samplers,
    `session` for gpudash itself, …"""
    rank: int = 0
    seq: int
    """Counts up for each source and rank."""
    sent_s: float
    body: Event | Reading
