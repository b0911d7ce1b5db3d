"""Run a tune's rounds as blocks of one training."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import msgspec

from gpudash.compare.ab import sides_of
from gpudash.compare.blocks import MeasuredBlock, NotRun, Outcome
from gpudash.compare.energy import of_blocks
from gpudash.compare.experiment import Experiment, block_of
from gpudash.compare.meter import EnergyMeter, gpus_of
from gpudash.compare.paired_t import Estimate
from gpudash.compare.sequential import estimate_so_far
from gpudash.compare.tune.search import (
    ALLOWANCE,
    COMPILE,
    Allowance,
    Cost,
    NoCost,
    Round,
    RoundCosts,
    Search,
    Tried,
)
from gpudash.compare.tune.tunable import Tunable
from gpudash.format import percent
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.commands import Block
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import HostReading, Reading
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown
from gpudash.protocol.training import Progress, State
from gpudash.statistics import Means
from workloads.levers import phrase

MIN_STEPS = 3
"""Least steps of a block: fewer than in an A/B, as a tune of slow steps has time for few blocks."""
AHEAD = 20
"""Rounds that the worker knows ahead, so that it never waits for a decision."""
PATIENCE_S = 120.0
"""After so long without a step a setting is given up: it hangs, or compiles for too long."""
WARM = 2.0
"""Time of a block that compiles nothing, its warm-up included, in multiples of what is measured."""
FEWEST_READINGS = 5
NOT_FINITE = "the loss was no number any more"


TUNE = "tune"
"""Stands for the lever where a tune is shown as a comparison."""


class _TuneProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a tune is; replaced as a whole, so any thread may read it."""

    racing: str = ""
    """The lever whose values race; empty if none does."""
    left: tuple[Settings, ...] = ()
    """Of the race: what may still win, as changes of the start."""
    leader: Settings = {}
    """The best so far, as changes of the start."""
    tried: tuple[Tried, ...] = ()
    is_proving: bool = False
    found: Estimate | None = None
    """The proof so far."""
    pairs: int = 0
    spent_s: float = 0.0


class _Turn:
    """One measurement of a round."""

    def __init__(self, order: Sequence[int], numbers: Sequence[int]) -> None:
        self.order = tuple(order)
        self.numbers = tuple(numbers)
        self.costs: dict[int, Cost] = {}
        self.is_void = False
        """Whether a block of it was cut off."""

    @property
    def missing(self) -> list[int]:
        numbered = zip(self.order, self.numbers, strict=True)
        return [number for setting, number in numbered if setting not in self.costs]

    @property
    def is_whole(self) -> bool:
        return not self.missing

    @property
    def is_over(self) -> bool:
        return self.is_whole or self.is_void


class _Begun(NamedTuple):
    """The block in progress."""

    number: int
    after_step: int
    stepped: bool = False
    """Whether a step of it has ended."""


class Tuning(Experiment):
    """Runs a search to its proof, and says what came out."""

    name = "tune"

    def __init__(
        self,
        tunables: Sequence[Tunable],
        allowance: Allowance = ALLOWANCE,
        *,
        recall: Callable[[State], Settings | None] = lambda _state: None,
        seed: int = 0,
        energy: bool = False,
    ) -> None:
        """`recall` returns what an earlier tune found best, if any: then only its proof is left."""
        super().__init__()
        self.tunables = tuple(tunables)
        self.allowance = allowance
        self.was_known = False
        """Whether the leader is of an earlier tune."""
        self.start: Settings = {}
        """The values of the levers before the tune."""
        self.cannot_tell = False
        """Whether others load the machine so much that nothing could be proven."""
        self.course = _TuneProgress()
        """How far it is."""
        self.hurt = ""
        """What it has done to the training, as a clause: a loss that stayed no number."""
        self._recall = recall
        self._random = Random(seed)
        self.energy = energy
        self.gpus = 0
        """GPUs of the training; 0 on a CPU."""
        self._blocks: dict[int, MeasuredBlock] = {}  # of turns that are not over
        self._proof: list[tuple[Settings, MeasuredBlock, MeasuredBlock]] = []
        self._search = Search({}, ())
        self._course = self._search.course()
        self._round: Round | None = None
        self._turns: deque[_Turn] = deque()
        self._what: dict[int, tuple[Settings, bool]] = {}  # a block's changes, and its kind
        self._next_number = 0
        self._run = -1
        self._stepped_s = 0.0
        self._given_up_s: float | None = None  # the last step before the newest hang
        self._begun: _Begun | None = None
        self._entered_s: dict[int, float] = {}  # the last step before a block
        self._compiled: set[frozenset[tuple[str, str]]] = set()
        self._losses: deque[tuple[int, Settings]] = deque(maxlen=64)  # the step each began after
        self._is_finite: bool | None = None  # the newest loss; None: none was seen
        self._readings = Means()
        self._waits: list[bool] = []  # of each reading: whether cores were short
        self._told = 0  # settings of which `news` has told

    @property
    def best(self) -> Settings:
        """What the proof has shown to be faster, as changes of the start; empty: the start."""
        return self._search.leader if self._search.is_proven else {}

    @property
    def leader(self) -> Settings:
        return self._search.leader

    @property
    def search(self) -> Search:
        return self._search

    @property
    def cores_were_short(self) -> bool:
        return len(self._waits) >= FEWEST_READINGS and sum(self._waits) > len(self._waits) / 2

    @property
    def core_wait_pct(self) -> float | None:
        return self._readings.values().get("core_wait_pct")

    def _meter(self, state: State) -> EnergyMeter | None:
        self.gpus = gpus_of(state.process)
        return EnergyMeter(self.gpus) if self.energy else None

    def _first(self, state: State, run: int) -> tuple[Block, ...]:
        self.start = {
            one.name: state.settings.get(one.name, one.lever.default) for one in self.tunables
        }
        known = self._recall(state)
        self.was_known = known is not None
        self._search = Search(self.start, self.tunables, self.allowance, known)
        self._course = self._search.course()
        self._run = run
        self._turn_over(None)
        self._show()
        return self._planned()

    def _next(self) -> tuple[Block, ...] | None:
        before = self._round
        self._give_up_what_hangs()
        self._go_on()
        self._show()
        is_low = len(self._turns) < AHEAD // 2
        return self._planned() if self._round is not before or is_low else None

    def _end_early(self, reason: str) -> None:
        self.cut_short = True
        self._conclude(reason)

    def shown(self) -> ComparisonShown:
        found = self._search.found
        best = self._search.leader if self.verdict is None else self.best
        proof = self.proof
        a, b = zip(*proof, strict=True) if proof else ((), ())
        energy, why_no_energy = None, ""
        if self.energy and (self.course.is_proving or self.is_over):
            energy, why_no_energy = of_blocks(proof, estimate_so_far)
        return ComparisonShown(
            lever=TUNE,
            a="start",
            b="best",
            pairs=self._search.pairs,
            planned_pairs=self.allowance.pairs,
            change=found.change if found else None,
            low=found.low if found else None,
            high=found.high if found else None,
            history=(),
            sides=sides_of(a, b),
            core_wait_pct=self.core_wait_pct,
            energy=energy,
            why_no_energy=why_no_energy,
            gpus=self.gpus,
            verdict=self.verdict,
            failure=self.failure,
            doing=self.doing,
            start={name: self.start[name] for name in best},
            best=best,
        )

    @property
    def proof(self) -> list[tuple[MeasuredBlock, MeasuredBlock]]:
        """The blocks under the start, and under the leader."""
        leader = self._search.leader
        return [(start, best) for settings, start, best in self._proof if settings == leader]

    @property
    def doing(self) -> str:
        course = self.course
        leader = phrase(course.leader)
        if course.is_proving:
            return f"proving {leader} against the start"
        doing = f"trying {course.racing}" if course.racing else "choosing what to try"
        values = dict.fromkeys(
            one.get(course.racing, self.start.get(course.racing, "")) for one in course.left
        )
        doing += f" {' or '.join(values)}" if values else ""
        return f"{doing}, best so far {leader}" if leader else doing

    def news(self) -> list[str]:
        new = self._search.tried[self._told :]
        self._told += len(new)
        return [f"tune: {change_of(one)}: {worth_of(one)}" for one in new if is_told(one)]

    def ended(self, reason: str) -> str:
        if self.verdict is not None or not self.leader:
            return super().ended(reason)
        return f"tune: {self.failure}; the best so far, not proven: {phrase(self.leader)}"

    # ── what comes in ───────────────────────────────────────────────────────────────────

    def _note(self, item: Event | Reading) -> None:
        self._stepped_s = self._stepped_s or self._now_s
        match item:
            case State():
                self._note_block(item)
            case Progress():
                if item.steps:
                    self._note_steps(item.steps[-1].step)
                self._note_loss(item)
            case HostReading():
                wait_pct = item.number("core_wait_pct")
                self._readings.add({"core_wait_pct": wait_pct})
                if wait_pct is not None:
                    self._waits.append(wait_pct >= CORE_WAIT_WARNS_PCT)
        spent_s = self.allowance.spent_s + self.lasted_s - self._search.compiled_s
        self._search.spent_s = max(self._search.spent_s, spent_s)

    def _note_block(self, state: State) -> None:
        if state.run != self._run or (self._begun and self._begun.number == state.block):
            return
        self._begun = None
        if state.block is not None and state.block in self._what:
            self._begun = _Begun(state.block, state.after_step)
            self._entered_s[state.block] = self._stepped_s  # what is rehearsed compiles before it
            self._stepped_s = max(self._stepped_s, state.at_s)
            self._losses.append((state.after_step, self._what[state.block][0]))

    def _note_steps(self, newest: int) -> None:
        self._stepped_s = self._now_s
        if self._begun is not None and newest > self._begun.after_step:
            self._begun = self._begun._replace(stepped=True)

    def _note_loss(self, progress: Progress) -> None:
        """Drop the setting under which the loss became no number, if it was one before."""
        step = progress.loss_step
        if step is None:
            return
        is_finite, before = progress.loss is not None, self._is_finite
        self._is_finite = is_finite
        changes = next((one for after, one in reversed(self._losses) if after < step), {})
        if before and not is_finite and changes:
            self._search.condemn(changes, NOT_FINITE)
            self.hurt = f"the loss is no number since {phrase(changes)} was tried"
        elif is_finite:
            self.hurt = ""

    def _take(self, outcome: Outcome) -> None:
        turn = next((one for one in self._turns if outcome.number in one.numbers), None)
        changes, _ = self._what[outcome.number]
        if isinstance(outcome, NotRun):
            is_for_good = outcome.kind == "out_of_memory"
            cost: Cost = NoCost(reason=outcome.reason, for_good=is_for_good)
        elif "batch_size" in self.start and outcome.samples is None:
            cost = NoCost(reason="it is not known how many samples a step has", for_good=True)
        else:
            cost = outcome.ms_per_sample
            self._blocks[outcome.number] = outcome
            self._note_compiling(outcome.number, changes, outcome.busy_s)
            for earlier in self._turns:  # outcomes come in order: what is missing was cut off
                earlier.is_void |= any(number < outcome.number for number in earlier.missing)
        if turn is not None and not turn.is_void:
            turn.costs[turn.order[turn.numbers.index(outcome.number)]] = cost

    def _note_proof(self, blocks: Mapping[int, MeasuredBlock | None]) -> None:
        of = {bool(self._what[number][0]): block for number, block in blocks.items()}
        start, leader = of.get(False), of.get(True)
        if self._search.is_proving and start is not None and leader is not None:
            self._proof.append((self._search.leader, start, leader))

    def _note_compiling(self, number: int, changes: Settings, busy_s: float) -> None:
        key = frozenset(changes.items())
        compiles = any(one.compiles and one.name in changes for one in self.tunables)
        if not compiles or key in self._compiled:
            return
        self._compiled.add(key)
        began_s = self._entered_s.get(number)
        if began_s is not None:
            lasted_s = self._now_s - began_s
            self._search.compiled_s += max(lasted_s - WARM * busy_s, 0.0)

    def _give_up_what_hangs(self) -> None:
        """Give up a setting without a step for long; if that goes on, the tune cannot."""
        silent_s = self._now_s - self._stepped_s
        number = self._hanging() if silent_s > PATIENCE_S else None
        if number is None:
            return
        changes, _ = self._what[number]
        if silent_s > 2 * PATIENCE_S:
            self._conclude(f"{phrase(changes) or 'the start'}: no step for {silent_s:.0f} s")
            return
        turn = next((one for one in self._turns if number in one.missing), None)
        if changes and turn is not None and self._given_up_s != self._stepped_s:
            self._given_up_s = self._stepped_s
            failure = NoCost(reason=f"no step for {PATIENCE_S:.0f} s", for_good=True)
            at = turn.order[turn.numbers.index(number)]
            self._turn_over(RoundCosts(turn.order, {at: failure}))

    def _hanging(self) -> int | None:
        if self._begun is not None and not self._begun.stepped:
            return self._begun.number
        after = self._begun.number if self._begun is not None else -1
        return min(
            (one for turn in self._turns for one in turn.numbers if one > after), default=None
        )

    # ── what goes out ───────────────────────────────────────────────────────────────────

    def _go_on(self) -> None:
        while not self.is_over and self._turns and self._turns[0].is_over:
            turn = self._turns.popleft()
            blocks = {number: self._blocks.pop(number, None) for number in turn.numbers}
            if turn.is_whole:
                self._note_proof(blocks)
                self._turn_over(RoundCosts(turn.order, turn.costs))

    def _turn_over(self, measured: RoundCosts | None) -> None:
        try:
            wanted = self._course.send(measured) if measured is not None else next(self._course)
        except StopIteration:
            self._conclude(self._search.failure)
            return
        if wanted != self._round:
            self._round = wanted
            self._turns.clear()

    def _planned(self) -> tuple[Block, ...]:
        """Return this round's blocks many times over; the worker takes what it has not."""
        if self._round is None or self.is_over:
            return ()
        while len(self._turns) < AHEAD:
            self._turns.append(self._next_turn(self._round))
        blocks = [self._block(number) for turn in self._turns for number in turn.numbers]
        return tuple(blocks)

    def _next_turn(self, wanted: Round) -> _Turn:
        order = self._random.sample(range(len(wanted.settings)), len(wanted.settings))
        numbers = []
        is_first, begun = not self._turns, self._begun
        if is_first and begun is not None and not wanted.fresh:
            changes, short_runs = self._what[begun.number]
            if changes in wanted.settings and short_runs == wanted.short_runs:
                at = wanted.settings.index(changes)  # it counts, and so comes first
                order.remove(at)
                order.insert(0, at)
                numbers.append(begun.number)
        for at in order[len(numbers) :]:
            self._what[self._next_number] = wanted.settings[at], wanted.short_runs
            numbers.append(self._next_number)
            self._next_number += 1
        return _Turn(order, numbers)

    def _block(self, number: int) -> Block:
        changes, short_runs = self._what[number]
        energy = self.energy and self._search.is_proving
        return block_of(number, changes, short_runs=short_runs, min_steps=MIN_STEPS, energy=energy)

    # ── the end ─────────────────────────────────────────────────────────────────────────

    def _conclude(self, why_none: str | None) -> None:
        """End with the verdict, or `why_none`; None: all was tried."""
        said = self._search.verdict()
        if said is None and why_none is None:
            said = "nothing faster was found"
        if said is not None and (tried := self._search.settings_tried) > 1:
            said += f"; the best found of {tried} settings tried"
        if said is None:
            self.failure = why_none
        elif self.cores_were_short and not self._search.is_proven:
            self.cannot_tell = True
            self.verdict = f"cannot tell: {self._short_cores()}"
        else:
            clause = f"; cores were short: {self._short_cores()}" if self.cores_were_short else ""
            self.verdict = f"{said}{clause}"
        self._show()

    def _short_cores(self) -> str:
        return f"the training waited for a core {percent(self.core_wait_pct)} of the time"

    def _show(self) -> None:
        search = self._search
        self.course = _TuneProgress(
            racing=search.racing,
            left=search.left,
            leader=search.leader,
            tried=search.tried,
            is_proving=search.is_proving,
            found=search.found,
            pairs=search.pairs,
            spent_s=search.spent_s,
        )


def compiling(budget_s: float) -> str:
    return f"compiling comes on top of the {budget_s:.0f} s: at most {COMPILE * budget_s:.0f} s"


def is_told(one: Tried) -> bool:
    """Tell whether it is told by itself: not of a combination that was not taken."""
    return one.taken or len(one.changes) == 1


def change_of(one: Tried) -> str:
    return ", ".join(f"{name} {one.before[name]} → {to}" for name, to in one.changes.items())


def worth_of(one: Tried) -> str:
    """Give no figure: a race has no interval, the proof at its end has."""
    if one.why_not is not None or one.change is None:
        return one.why_not or "not measured"
    return "taken" if one.taken else "not taken"
