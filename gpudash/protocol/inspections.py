"""What a training process answers when it is looked into: profiles, owners of memory, stacks."""

from typing import Literal, TypeAlias

from .records import Record


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
    began_ns: int = 0
    """Unix time at which it was called; 0 where torch tells of the wait alone."""


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
    phases_gflop: dict[str, float] = {}
    """Those of each phase that has any."""


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
    untraced_phases_ms: dict[str, float] = {}
    """The same of each phase, in those of the steps that had it and measured it."""
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


class Timing(Record, frozen=True, kw_only=True, tag=False):
    """What the models' calls take with a lever's value, timed on one batch."""

    lever: str
    value: str
    is_frozen: bool = False
    """Whether of the calls without gradients, forward alone; else of forward and backward."""
    before_ms: float
    """On the device, with the present values; the median of some repeats."""
    after_ms: float
    spread: float = 0.0
    """Half of the distance between the quartiles of the repeats, as a part of the median."""
    before_host_ms: float = 0.0
    after_host_ms: float = 0.0
    """For how long the host launches; 0 where it is the device."""


class Rehearsed(Record, frozen=True, kw_only=True):
    """Levers were timed, without being moved."""

    at_s: float
    answers: tuple[int, ...] = ()
    timings: tuple[Timing, ...] = ()
    why_not: str = ""
    """Why nothing was timed, as a clause."""


class CodeLine(Record, frozen=True, array_like=True, tag=False):
    """A line of the script's own code."""

    file: str
    line: int
    function: str
    count: int
    """How often the script was there when it was looked at."""


class CodeLines(Record, frozen=True, kw_only=True):
    """The lines at which a script was, at some random moments; the most frequent first."""

    at_s: float
    looks: int
    lines: tuple[CodeLine, ...]
    """Outside of forward, backward, optimizer and loader."""
    work: tuple[CodeLine, ...] = ()
    """Outside of backward: also those that had called a module, an optimizer or a loader."""
    beside: bool = False
    """All of this in evaluation and checkpoints, not within steps."""

    @property
    def first(self) -> CodeLine | None:
        """Return the line of the script's own code that costs most; None if none costs much."""
        return self.most_frequent(self.lines)

    def most_frequent(self, lines: tuple[CodeLine, ...]) -> CodeLine | None:
        """Return the first of the lines if its function was met in more than a tenth of looks."""
        first = next(iter(lines), None)
        if first is None:
            return None
        there = (first.file, first.function)
        count = sum(one.count for one in lines if (one.file, one.function) == there)
        return first if count > 0.1 * self.looks else None


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
    """The stack: a line for each call, innermost first; empty if the process did not answer."""
    why: str = ""
    """Why the process did not answer, as a clause whose subject is the rank."""
    is_known: bool = True
    """Whether `text` or `why` says where the process is; false for a process in a container, which
    cannot be asked."""
    joined: tuple[Joined, ...] = ()
    """One for each process group; empty if the flight recorder is not read."""
