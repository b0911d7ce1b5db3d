"""What a training process says of itself: its life, its steps, its levers, answers to commands."""

from typing import Annotated, Literal, TypeAlias

from .records import Meta, Record, Settings

PROTOCOL_VERSION = 3
"""Incremented when a reader of older messages would misread a new one."""
TRAINING_ENDED = "the training ended"
"""Why no more blocks come, whoever hears of it first: the training or who compares."""
Ability: TypeAlias = Literal[
    "levers", "pause", "restart", "blocks", "record", "profile", "memory", "leave", "type", "stacks"
]
"""Requests that a source accepts; `leave`: to train on unwatched; `type`: to take typed input."""


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


StartStage: TypeAlias = Literal["process", "torch", "model", "step"]


class Status(Record, frozen=True, kw_only=True):
    """What a training does before its first step."""

    text: str
    """One sentence for the user."""
    awaits: StartStage = "process"
    """What has to come next."""


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
    number: int = 1
    """Of the training in its process: in a notebook one may follow another."""
    phases: tuple[Phase, ...] = ()
    """The phases that `Step.phases_ms` may contain, in the order of a step."""
    world_size: int = 1
    """Number of processes that train together."""
    gpus: int = 1
    """GPUs on which this process has memory: `device`, and more in `nn.DataParallel` and where a
    model is spread over several."""
    node: str = ""
    """The machine's name, where several processes train together."""
    threads: int | None = None
    """Threads that compute an operator on the CPU; what `own` of that lever stands for."""
    bus_gb_s: float | None = None
    """Bus bandwidth of a short all-reduce of a large tensor on these GPUs, in GB/s."""


LifePhase: TypeAlias = Literal[
    "starting", "training", "paused", "finished", "failed", "stopped", "parted"
]
"""`finished`: the planned steps or time are reached, a Stop was obeyed, or a script has ended.
`stopped`: ended as requested, by gpudash or by a script's Ctrl-C. `parted`: the process has ended,
its command runs on."""
Turn: TypeAlias = Literal["starts", "replaces", "changes", "pauses", "blocks", "fails"]
"""`starts`: another process of this rank trains, or the first one; `replaces`: it has another pid
than the one before. `changes`: of settings, within a process. `pauses`: it pauses, or does
something else than before instead of steps. `blocks`: a run of blocks begins, or is over. `fails`:
in another way than before."""
Aside: TypeAlias = Literal["asked", "evaluation", "checkpoint", "profile", "idle"]
"""`idle`: no cell of a notebook trains."""


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

    What changes in a life is what the process does (`phase`, `why`), the settings with which it
    trains (`segment` and the fields after it), and its loader workers.
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

    loader_pids: tuple[int, ...] | None = None
    """Processes that its DataLoaders have started, by the numbers that they have where it runs: a
    container counts its own. None if it does not say."""

    failure: Failed | None = None
    trained_until_s: float | None = None
    """When the training closed its connection, if its process went on afterwards until `at_s`."""

    worker: int = 0
    """Number of processes that were ready in this rank so far, this one included; set by the
    session. 0: none, or not set yet."""
    since_s: float = 0.0
    """Begin of `phase`; set by the session."""
    turns: tuple[Turn, ...] = ()
    """What has just happened: how this differs from the state before; set by the session."""
    stood: tuple[Aside, float] | None = None
    """Why the process stood still until now, and since when; None if it did not. Set likewise."""


LeverKind: TypeAlias = Literal["switch", "choice", "count"]
SWITCH = ("off", "on")
MOST_DIGITS = 100
"""Of a number that may be out of bounds."""
SCRIPT = "script"
"""Names the value that the script itself has: of any lever in a command, and in an offer where the
script's own is none of the others, such as groups of an optimizer that differ."""


class Lever(Record, frozen=True, kw_only=True, tag=False):
    """A lever of a training: what it is now, and the values that it takes here."""

    name: str
    kind: LeverKind
    default: str
    """The training's own value; of a script, as last read from its objects."""
    on_cpu: str = ""
    """The default on a CPU, if that is another one."""
    choices: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 0
    """Like `minimum`, for a count."""
    bound: str = ""
    """Why its range is no wider here, as a clause; empty: it is so everywhere."""
    effect: Literal["next step", "new loader", "rebuilt model"] = "next step"
    summary: str
    source: str
    helps: tuple[tuple[str, str], ...] = ()
    """How a step gets shorter with a value: the word of an effect on the model of a step."""
    share: float = 1.0
    """Of what it shortens: the part that it can take away."""
    waits: tuple[tuple[tuple[str, str], ...], ...] = ()
    """Settings that make the host wait for the device within a step."""
    needs_gpu: bool = False
    """Whether a CPU refuses it, or it does nothing there."""
    numerics: bool = False
    """Whether another value changes the computed numbers; the user has to confirm such a change."""
    refusal: str | None = None
    """Why it cannot be changed here, as a clause; None if it can."""
    impossible: tuple[tuple[str, str], ...] = ()
    """Choices that cannot be made here, each with the reason as a clause."""

    @property
    def values(self) -> tuple[str, ...]:
        """All valid values, if they are names; empty for a number."""
        return SWITCH if self.kind == "switch" else self.choices

    @property
    def valid(self) -> str:
        """The valid values, for a message or a table."""
        if self.kind != "count":
            return ", ".join(self.values)
        because = f" ({self.bound})" if self.bound else ""
        return f"a whole number from {self.minimum} to {self.maximum}{because}"

    @property
    def rebuilds(self) -> bool:
        """Whether a change of it takes longer than a step."""
        return self.effect != "next step"

    def canonical(self, text: str) -> str:
        """Return a value in its one spelling. Raises ValueError."""
        if self.kind != "count":
            return self.values[self.values.index(text)]
        number = _number(text, len(str(self.maximum)))
        if not self.minimum <= number <= self.maximum:
            raise ValueError(text)
        return str(number)

    def step(self, text: str, direction: int) -> str:
        """Return the neighbouring value, upwards (+1) or downwards (-1). Raises ValueError.

        Numbers go to the next power of two. The present one may be out of bounds, of an older
        recording.
        """
        if self.kind != "count":
            return self.values[(self.values.index(text) + direction) % len(self.values)]
        number = _number(text, MOST_DIGITS)
        above = 1 << number.bit_length()  # strictly above
        below = 1 << max((number - 1).bit_length() - 1, 0) if number > 1 else 0
        return str(min(max(above if direction > 0 else below, self.minimum), self.maximum))


def _number(text: str, most_digits: int) -> int:
    # int() would also accept "1_0", " 8" and digits other than 0-9
    if not (text.isascii() and text.isdigit()) or len(text) > most_digits:
        raise ValueError(text)
    return int(text)


class Offered(Record, frozen=True, kw_only=True):
    """What was found in a user's script; sent again when more is known."""

    found: str
    """One line: `AdamW, root GPT, 4 backward passes a step, no DataLoader`."""
    levers: tuple[Lever, ...] = ()
    complete: bool = True
    """False while models that were just found may still be called: other levers may follow."""


class Described(Record, frozen=True, kw_only=True):
    """A user's own workload, as its entry in the catalogue describes it."""

    summary: str
    source: str
    levers: tuple[Lever, ...]


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
    count: Annotated[int, Meta(ge=1)] = 1
    """Number of consecutive steps that this record stands for; above 1 where they were timed
    together."""
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


class Untimed(Record, frozen=True, kw_only=True, array_like=True, tag=False, gc=False):
    """Steps that the device has finished and whose times are not known, or no usual ones.

    They are steps like others, in every count. The first step of a script began before it was seen,
    a traced one takes longer, and of some only a part was seen.
    """

    step: int
    """As in `Step`."""
    segment: int
    """As in `Step`."""
    finished_s: float
    """When the host has enqueued the last one, or the device has finished it."""
    count: Annotated[int, Meta(ge=1)] = 1
    """Number of consecutive steps, of which `step` is the last."""
    samples: int | None = None
    """Samples of all of them; None if the source does not know them."""
    tokens: int | None = None
    """Tokens, likewise."""


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
    """Host time for measuring, and CPU time for reporting and reading commands, since the last
    message."""
    values: dict[str, float] = {}
    """What the process says of itself, by metric of kind `host`: the memory of torch's allocator
    and the collectives of a step. Absent where unknown; read about twice a second."""
    untimed: tuple[Untimed, ...] = ()
    """Steps finished since the last Progress that are not among `steps`."""
    first_losses: tuple[tuple[int, float | None], ...] = ()
    """Step and loss of the run's first steps, as they arrive; None: not finite."""


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
    """Rank 0 has not obeyed: the command came after its step, or other ranks obeyed without it."""

    answers: tuple[int, ...]


class BlocksEnded(Record, frozen=True, kw_only=True):
    """A run of blocks is over; the settings are those from before it, or the user's new ones."""

    at_s: float
    answers: tuple[int, ...] = ()
    """Ids of all `Blocks` commands of the run."""
    run: int
    why: str
    """The reason as a clause, for the user."""
