"""One start of two trainings, A and B: they run in turns, block by block, in a drawn order.

While a block of one is measured, the other is paused between two steps. So what both share (drift,
clocks, other load) is the same for both, as between two values of a lever in one training.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from statistics import variance
from typing import Literal, TypeAlias

from gpudash.compare.blocks import MeasuredBlock, Outcome
from gpudash.compare.experiment import Experiment, block_of
from gpudash.compare.losses import MOST_STEPS
from gpudash.compare.paired_t import block_order, log_ratio
from gpudash.protocol.commands import Block
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import GpuReading, HostReading, Reading
from gpudash.protocol.training import Progress, Refused, State
from gpudash.statistics import Means, geometric

MOST_PAIRS = 100
"""Pairs of blocks in a start at most."""
MEMORY = ("mem_reserved_mib", "mem_free_mib", "worker_rss_mib")
TOLD = {
    "compiles": "compiles",
    "mem_peak_mib": "peak memory",
    "collective_mib": "MiB of collectives",
}
"""What a training counts without a profile, by metric, as `counted.py` names it."""
FEWEST_BLOCKS = 2
"""Of each side, for a start to count."""
REPORTS = 2
"""After the first steps, until the last of their losses has arrived."""
SETTLES_S = 1.0
"""Seconds of a pause in which a loader may still fill its queue."""

Unit: TypeAlias = Literal["token", "sample", "step"]
"""Of what the cost is compared."""


class Turns:
    """Lets one block of all that are drawn run at a time."""

    def __init__(self, sides: str) -> None:
        """`sides` has the side of each block, as `ABBA`."""
        self._sides = sides
        self._lock = threading.Lock()
        self._ready: dict[int, Callable[[], object]] = {}
        self._running: str | None = ""  # the side whose block runs; empty before `begin`
        self._next = 0

    def begin(self) -> None:
        """Let the first block begin."""
        with self._lock:
            self._running = None
            self._go_on()

    def ready(self, number: int, go: Callable[[], object]) -> None:
        """Note that a side has come to this block of its own; `go` begins it."""
        with self._lock:
            self._ready[number] = go
        self.over(number)

    def over(self, number: int) -> None:
        """Note that no earlier block of this one's side runs any more."""
        with self._lock:
            if self._running == self._sides[number]:
                self._running = None
            self._go_on()

    def _go_on(self) -> None:
        if self._running is None and (go := self._ready.pop(self._next, None)) is not None:
            self._running, self._next = self._sides[self._next], self._next + 1
            go()


class SideBlocks(Experiment):
    """The blocks of one of both: measured, and with the losses of the first steps."""

    name = "A/B"

    def __init__(self, numbers: Sequence[int], turns: Turns | None = None) -> None:
        """Without `turns` all blocks run, one after the other."""
        super().__init__()
        self._numbers = numbers
        self._turns = turns
        self._begins = threading.Event()
        self._run = -1
        self._waiting_s: float | None = None  # since when it is paused before a block
        self._paused = Means()
        self._has_begun = False  # it has reported steps
        self._later = 0  # reports since the first steps
        self.go: Callable[[], object] = lambda: None
        """Resumes the training; set before it is conducted."""
        self.blocks: list[MeasuredBlock] = []
        self.losses: dict[int, float] = {}
        """Of the first steps, by step; NaN if not finite."""
        self.refused = ""
        """Why it has not begun with the settings that were asked for; empty if it has."""
        self.held_mib: dict[str, float] = {}
        """Memory by metric: what it holds, and what the device has left; absent = not known yet."""
        self.told: dict[str, list[float]] = {}
        """Since its first block, by metric of `TOLD`: what the training says of itself."""
        self.ran: list[tuple[float, float | None]] = []
        """Begin and end of each block, where both run in turns; no end while it lasts."""

    @property
    def waits(self) -> bool:
        """Whether it has come to its first block."""
        return self._begins.is_set()

    @property
    def has_losses(self) -> bool:
        """Whether no loss of the first steps is to come: each arrives with the next report."""
        return len(self.losses) >= MOST_STEPS or self._later > REPORTS

    @property
    def paused_cpu_pct(self) -> float | None:
        """What it takes once it has been paused for a while; None: not known yet."""
        return self._paused.values().get("cpu_pct")

    def shown(self) -> None:
        return None

    def _first(self, _state: State, run: int) -> tuple[Block, ...]:
        self._run = run
        waits = self._turns is not None
        return tuple(block_of(one, {}, short_runs=True, waits=waits) for one in self._numbers)

    def _note(self, item: Event | Reading) -> None:
        match item:
            case Progress():
                self._train(item)
            case Refused() if not self._has_begun:
                self.refused = item.reason
            case State(phase="paused", why="asked", run=self._run, block=int(number)):
                if self._waiting_s is None:
                    self._waiting_s = item.at_s
                    self.ran[-1:] = [(began_s, item.at_s) for began_s, _ in self.ran[-1:]]
                    self._begins.set()
                    if self._turns is not None:
                        self._turns.ready(number, self.go)
            case State():
                if self._waiting_s is not None:
                    self.ran.append((item.at_s, None))
                self._waiting_s = None
            case HostReading() | GpuReading():
                self._keep(item.values)
                if self._waiting_s is not None and item.at_s > self._waiting_s + SETTLES_S:
                    self._paused.add({"cpu_pct": item.number("cpu_pct")})

    def _train(self, item: Progress) -> None:
        self._keep(item.values)
        for name in TOLD:
            if name in item.values and self.blocks:
                self.told.setdefault(name, []).append(item.values[name])
        for step, loss in item.first_losses:
            self.losses[step] = float("nan") if loss is None else loss
        self._later += item.total_steps >= MOST_STEPS
        self._has_begun = True

    def _keep(self, values: Mapping[str, float | str]) -> None:
        held = ((name, values.get(name)) for name in MEMORY)
        self.held_mib |= {name: mib for name, mib in held if isinstance(mib, float)}

    def _take(self, outcome: Outcome) -> None:
        if isinstance(outcome, MeasuredBlock):
            self.blocks.append(outcome)
        else:
            self.failure = outcome.reason

    def _end_early(self, reason: str) -> None:
        if len(self.blocks) < FEWEST_BLOCKS:
            self.failure = reason
        if self._turns is not None:
            self._turns.over(self._numbers[-1])


def alternating(seed: int) -> tuple[tuple[SideBlocks, SideBlocks], Turns]:
    """Return both sides of one start, and what lets their blocks run in a drawn order."""
    sides = "".join(block_order(MOST_PAIRS, seed))
    turns = Turns(sides)
    a, b = ([number for number, side in enumerate(sides) if side == one] for one in "AB")
    return (SideBlocks(a, turns), SideBlocks(b, turns)), turns


def alone() -> tuple[SideBlocks, SideBlocks]:
    """Return both sides where one is started after the other."""
    return SideBlocks(range(MOST_PAIRS)), SideBlocks(range(MOST_PAIRS))


def undisturbed(
    pairs: Sequence[tuple[MeasuredBlock, MeasuredBlock]],
) -> Sequence[tuple[MeasuredBlock, MeasuredBlock]]:
    """Leave out pairs beside others' work on the GPU, but not all: some are never idle."""
    quiet = [pair for pair in pairs if not any(one.is_disturbed for one in pair)]
    return quiet if len(quiet) >= FEWEST_BLOCKS else pairs


def unit_of(a: Sequence[MeasuredBlock], b: Sequence[MeasuredBlock]) -> Unit | None:
    """Return the finest of which both sides know how many they have done; None: one alone does."""
    blocks = (*a, *b)
    if all(one.tokens is not None for one in blocks):
        return "token"
    known = {one.samples is not None for one in blocks}
    if len(known) > 1:
        return None
    return "sample" if True in known else "step"


def cost_ms(blocks: Sequence[MeasuredBlock], unit: Unit) -> float:
    """Return the geometric mean of what one costs, in ms of the training's time."""
    mean = geometric(one.busy_s * 1e3 / _number(one, unit) for one in blocks)
    assert mean is not None, "there are blocks"
    return mean


def noise(a: Sequence[MeasuredBlock], b: Sequence[MeasuredBlock], unit: Unit) -> float:
    """Return the variance of the logarithm of the ratio of costs, from pairs of blocks."""
    pairs = zip(a, b, strict=True)
    logs = [log_ratio(cost_ms([of_a], unit), cost_ms([of_b], unit)) for of_a, of_b in pairs]
    return variance(logs) / len(logs) if len(logs) > 1 else 0.0


def _number(block: MeasuredBlock, unit: Unit) -> int:
    number = {"token": block.tokens, "sample": block.samples, "step": block.steps}[unit]
    assert number, "it is known of all blocks"
    return number
