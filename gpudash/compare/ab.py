"""Conduct an A/B comparison: pairs of blocks, a narrowing interval, a verdict.

docs/concepts/statistics.md gives the reasons for the procedure.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from gpudash.compare import energy, meter
from gpudash.compare.blocks import MeasuredBlock, NotRun, Outcome
from gpudash.compare.experiment import Experiment, block_of
from gpudash.compare.lengths import FEWEST_PAIRS, PAIRS
from gpudash.compare.paired_t import (
    Estimate,
    block_order,
    estimate,
    holds_zero,
    same_setting_check,
    verdict,
)
from gpudash.compare.sequential import (
    EFFECTS,
    LARGE_TOO,
    estimate_so_far,
    is_settled,
    is_sure,
    least_of,
)
from gpudash.compare.starts import KnownStarts, host_share, of_one_start
from gpudash.diagnosis.model import SAMPLED
from gpudash.format import pairs, percent
from gpudash.metrics import COMPARED, CORE_WAIT_WARNS_PCT
from gpudash.protocol.commands import Block
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import GpuReading, HostReading, Reading
from gpudash.protocol.session import ComparisonShown, EnergyFound, Sides
from gpudash.protocol.training import Progress, State, TrainingProcess
from gpudash.statistics import Means, geometric

KINDS: frozenset[type] = frozenset({GpuReading, HostReading})
"""Of readings: the first of each after a step counts."""
READINGS = ("core_wait_pct", "gpu_util_pct")
"""Of which the mean over the whole comparison counts."""
INSTRUMENTS = "instruments"
"""Not a lever of the training: gpudash's own instruments, on or off, timed by the wall clock."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared, and for how long at most."""

    lever: str
    a: str
    b: str
    short_runs: bool = False
    """The lever needs a rebuild: each block is a short run of its own."""
    pairs: int = PAIRS
    """Most pairs; it ends earlier once the change is known."""
    precision: float | None = None
    """How closely the change is to be known, ± (0.01: 1 %); None: as `is_settled` has it."""
    fixed: bool = False
    """Measure all pairs, whatever they show. Its interval is the usual one then, unless it goes on
    with the pairs of another."""
    seed: int = 0
    energy: bool = False
    """Whether the energy of a sample is asked for: blocks are long enough for it then."""

    @property
    def name(self) -> str:
        return f"{self.lever}={self.b}"

    def block(self, number: int, value: str) -> Block:
        changes, energy = {self.lever: value}, self.energy
        block = block_of(number, changes, short_runs=self.short_runs, energy=energy)
        if self.lever != INSTRUMENTS:
            return block
        wall_clock = "instrumented" if value == "on" else "uninstrumented"
        return msgspec.structs.replace(block, changes={}, wall_clock=wall_clock)


class Comparison(Experiment):
    """Runs one question to its verdict."""

    name = "A/B"

    def __init__(self, question: Question, known: KnownStarts | None = None) -> None:
        super().__init__()
        self.question = question
        self._goes_on = False  # whether it began with pairs that were looked at
        self._known = known or KnownStarts()
        self._start, self._others = 0, ""  # number of the training's start; the other levers
        self._orders = block_order(question.pairs, question.seed)
        self._measured: dict[int, MeasuredBlock] = {}
        self._pairs: list[tuple[float, float]] = []
        self._sides: tuple[list[MeasuredBlock], list[MeasuredBlock]] = ([], [])
        self._intervals: list[Estimate] = []
        self._energy: EnergyFound | None = None
        self._why_no_energy = ""
        self._readings = Means()
        self._expected: frozenset[type] = KINDS
        self._process: TrainingProcess | None = None
        self.refused = False
        """Whether it failed because a setting is not possible."""

    @property
    def found(self) -> Estimate | None:
        return self._intervals[-1] if self._intervals else None

    @property
    def effects(self) -> tuple[float, ...] | None:
        """Those for which the newest interval was made; None: it is Student's."""
        if self._is_fixed and len(self._pairs) == self.question.pairs:
            return None
        return LARGE_TOO if self.question.short_runs else EFFECTS

    @property
    def _is_fixed(self) -> bool:
        """Whether the number of pairs was fixed before: few do not end earlier."""
        question = self.question
        return (question.fixed or question.pairs < FEWEST_PAIRS) and not self._goes_on

    @property
    def check(self) -> Estimate | None:
        return same_setting_check(self._pairs, self._orders[: len(self._pairs)])

    def _first(self, state: State, _run: int) -> tuple[Block, ...]:
        question, done = self.question, 2 * len(self._pairs)
        sides = "".join(self._orders)
        others = sorted(one for one in state.settings.items() if one[0] != question.lever)
        self._start, self._others = state.worker, str(others)
        return tuple(
            question.block(number, question.a if sides[number] == "A" else question.b)
            for number in range(done, len(sides))
        )

    def _meter(self, state: State) -> meter.EnergyMeter | None:
        self._process = state.process
        return meter.EnergyMeter(self._gpus) if self.question.energy else None

    def with_more(self, question: Question, state: State | None) -> "Comparison":
        """Go on with this one's pairs, as its interval holds at every look.

        Begin anew after another question or another start, which has a pace of its own.
        """
        longer = Comparison(question, self._known)
        process = state.process if state is not None else None
        is_same = msgspec.structs.replace(question, pairs=self.question.pairs) == self.question
        if is_same and self.done and self.failure is None and process == self._process:
            longer._goes_on = True
            longer._pairs, longer._sides = [*self._pairs], ([*self._sides[0]], [*self._sides[1]])
            longer._intervals = [*self._intervals]
            longer._energy, longer._why_no_energy = self._energy, self._why_no_energy
        return longer

    def shown(self) -> ComparisonShown:
        found, check, question = self.found, self.check, self.question
        return ComparisonShown(
            lever=question.lever,
            a=question.a,
            b=question.b,
            pairs=len(self._pairs),
            planned_pairs=question.pairs,
            change=found.change if found else None,
            low=found.low if found else None,
            high=found.high if found else None,
            history=tuple(
                (one.low, one.change, one.high)
                for one in self._intervals
                if one.low is not None and one.high is not None
            ),
            sides=sides_of(*self._sides),
            core_wait_pct=self._core_wait_pct,
            verdict=self.verdict,
            failure=self.failure,
            precision=question.precision,
            blocks="".join(self._orders[: len(self._pairs)]),
            check_passed=None if check is None else holds_zero(check),
            goes_on=self._goes_on,
            is_sure=found is not None and is_sure(found),
            energy=self._energy,
            why_no_energy=self._why_no_energy,
            gpus=self._gpus,
        )

    def ended(self, reason: str) -> str:
        if self.failure is None:
            return super().ended(reason)
        return f"A/B: no verdict for {self.question.name}: {self.failure}"

    @property
    def _gpus(self) -> int:
        return meter.gpus_of(self._process)

    @property
    def _device_is_limit(self) -> bool:
        """Whether the host merely waits for it: on a CPU, or for a GPU that is always at work."""
        if self._process is not None and self._process.device.kind == "cpu":
            return True
        return (self._readings.values().get("gpu_util_pct") or 0.0) >= 100 * SAMPLED

    @property
    def _core_wait_pct(self) -> float | None:
        """Over the whole comparison: many blocks are shorter than a reading's period."""
        return self._readings.values().get("core_wait_pct")

    def _note(self, item: Event | Reading) -> None:
        if isinstance(item, Progress) and item.steps:
            self._expected = KINDS
        elif isinstance(item, (GpuReading, HostReading)) and not self.is_over:
            if type(item) in self._expected:  # else no step ended since one: something compiles
                self._readings.add({name: item.number(name) for name in READINGS})
            self._expected -= {type(item)}

    def _end_early(self, reason: str) -> None:
        if self.found is None or self.found.low is None:
            self.failure = f"{reason} after {pairs(len(self._pairs))}, too few for a verdict"
            return
        self.cut_short = True
        self._conclude()

    def _take(self, outcome: Outcome) -> None:
        if isinstance(outcome, NotRun):
            self.refused = True
            self.failure = outcome.reason
            return
        self._measured[outcome.number] = outcome
        pair = len(self._pairs)
        number = 2 * pair
        if number not in self._measured or number + 1 not in self._measured:
            return
        first, second = self._measured.pop(number), self._measured.pop(number + 1)
        if self.question.lever == "batch_size" and None in (first.samples, second.samples):
            self.failure = "it is not known how many samples a step has"
            return
        a, b = (first, second) if self._orders[pair] == "AB" else (second, first)
        self._sides[0].append(a)
        self._sides[1].append(b)
        self._pairs.append((a.ms_per_sample, b.ms_per_sample))
        question = self.question
        is_fixed, is_last = self._is_fixed, len(self._pairs) == question.pairs
        effects = LARGE_TOO if question.short_runs else EFFECTS
        orders = self._orders[: pair + 1]
        so_far = partial(estimate_so_far, effects=effects, orders=orders)
        method = estimate if is_fixed and is_last else so_far
        found = method(self._pairs)
        self._intervals.append(found)
        if question.energy:
            self._energy, self._why_no_energy = energy.of_blocks(
                [*zip(*self._sides, strict=True)], method
            )
        settled = not (is_fixed or self._goes_on) and is_settled(found, question.precision)
        if settled or is_last:
            self._conclude()

    def _conclude(self) -> None:
        question = self.question
        least = least_of(question.precision)
        said = verdict(question.name, self._intervals[-1], self.check, least)
        shown = self.shown()
        asked = (question.lever, question.a, question.b, self._others)
        starts = self._known.add(asked, self._start, self._intervals[-1])
        share = None if self._device_is_limit else host_share(shown)
        alone = of_one_start(share, starts)
        self.verdict = said + alone + contention(self._core_wait_pct)


def contention(core_wait_pct: float | None) -> str:
    if core_wait_pct is None or core_wait_pct < CORE_WAIT_WARNS_PCT:
        return ""
    return f"; cores were short: the training waited for one {percent(core_wait_pct)} of the time"


def sides_of(a: Sequence[MeasuredBlock], b: Sequence[MeasuredBlock]) -> dict[str, Sides]:
    """Return geometric means by metric: of a rate, B's over A's is the change of the verdict."""
    pairs = {name: (_mean(name, a), _mean(name, b)) for name in COMPARED}
    return {name: pair for name, pair in pairs.items() if pair != (None, None)}


def _mean(name: str, blocks: Sequence[MeasuredBlock]) -> float | None:
    return geometric(block.of(name) for block in blocks)
