"""Find the rank that the others wait for, and the phase in which it is slower.

In a collective every rank waits for the last, so all have the same step time. Only their waits
differ: the late rank hardly waits. docs/concepts/slow-rank.md says when a rank is named.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import fsum, sqrt
from operator import attrgetter
from statistics import NormalDist, covariance, fmean, median
from typing import Literal, NamedTuple

from msgspec.structs import replace

from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import GpuReading, HostReading, Reading
from gpudash.protocol.session import Straggler, StragglerShown
from gpudash.protocol.training import Progress, State, Step
from gpudash.ranks.same_steps import BESIDE, REST, SameSteps, StepsOfAll, over_others
from gpudash.ranks.why_slow import Readings

WINDOWS = (8, 20)
"""Blocks that a rank is judged by: few show a large delay soon, many show a small one."""
LEAST_PCT = 1.5
"""Least delay, of the step: two H200s of one host differed by up to 1.0 %."""
LEAST_MS = 0.05
HIDDEN_HOST_PCT = 3.0
"""Least excess of a host that nobody waits for, of the step: hosts differ more than GPUs."""
ALARMS = 1e-6
"""Probability that noise alone names a rank."""
HOLDS = 0.5
"""A named rank stays named down to this part of the threshold, …"""
PREFERRED = 0.8
"""… while its delay is at least this part of the largest one."""
WANDERING_PCT = 5.0
"""Least delay in a single block, of the step: noise is larger there, …"""
WANDERING_ERRORS = 6.0
"""… and the delay has to be this many times its error."""
OFTEN = 0.5
"""Part of the blocks in which some rank has to be late; half of that once it is reported."""
LATELY = 40
"""Newest blocks in which the late rank has to change, …"""
CHANGES = 2
"""… at least this often: one rank may recover and another one become slow. Nor may one be behind
in nearly all of them, while others are later for a moment."""
EXPLAINED = 0.5
"""Part of a delay that a phase, or additional work, has to explain."""
COMPUTED = ("frozen", "forward", BESIDE, "optimizer")
ALL_COMPUTED = "compute"
"""The phase of a rank whose device is slower in all of these: about as much in each that …"""
LARGE = 0.15
"""… takes at least this part of them, …"""
ALIKE = 2.0
"""… up to so many times more or less."""
BY_WORK = 0.7
"""Part of the deviation between steps that work has to explain: half of the variance."""

Kind = Literal["persistent", "wandering", "imbalance"]


class Stragglers:
    """Folds the messages of all ranks, in order of arrival."""

    def __init__(self) -> None:
        self._said: StragglerShown | None = None  # the newest one
        self._forget()

    def _forget(self) -> None:
        self._readings = Readings()
        self._on_gpu = False
        self._begin(0)

    def _begin(self, segment: int) -> None:
        self._segment = segment
        self._steps = SameSteps()
        self._blocks: deque[StepsOfAll] = deque(maxlen=LATELY)
        self._named: Straggler | None = None

    def take(self, rank: int, body: Event | Reading) -> None:
        match body:
            case StragglerShown():
                self._said = body
            case State(phase="starting"):  # other processes
                self._forget()
            case State():
                if body.process is not None and "starts" in body.turns:
                    self._begin(0)  # all ranks restart, or one has joined
                    self._on_gpu = body.process.device.kind == "cuda"
                    self._readings.train(rank, body.process.device.uuid)
            case Progress():
                self._readings.take_owners(rank, body)
                for step in body.steps:
                    self._add(rank, step)
            case GpuReading() | HostReading():
                self._readings.take(rank, body)

    def _add(self, rank: int, step: Step) -> None:
        if step.segment > self._segment:
            self._begin(step.segment)  # with other settings it is another training
        block = self._steps.add(rank, step) if step.segment == self._segment else None
        if block is not None:
            self._blocks.append(block)
            self._named = self._judge()

    def found(self) -> Straggler | None:
        named = self._named
        return named and replace(named, why=named.why or self._readings.why(named))

    @property
    def straggler(self) -> Straggler | None:
        """The slow rank by the newest `StragglerShown`, else by the steps."""
        return self.found() if self._said is None else self._said.straggler

    @property
    def are_compared(self) -> bool:
        """Whether there are enough blocks to name a rank."""
        return len(self._blocks) >= min(WINDOWS)

    @property
    def unsaid(self) -> StragglerShown | None:
        """What the steps say of the slow rank, if the newest `StragglerShown` differs."""
        found = self.found()
        said = None if self._said is None else self._said.straggler
        return None if found == said else StragglerShown(straggler=found)

    def _judge(self) -> Straggler | None:
        named = self._named
        lately = list(self._blocks)
        changing = _changing(lately, named)
        if changing and not _is_one_behind(lately):
            return _described(changing, lately, "wandering")
        for blocks in self._windows():
            rank = _behind(blocks, attrgetter("late_ms"), _held(named))
            if rank is not None:
                return _described([(block, rank) for block in blocks], blocks, "persistent")
        for blocks in self._windows():
            unequal = _unequal(blocks)
            if unequal is not None:
                return unequal
        for blocks in self._windows() if self._on_gpu else ():
            for phase, excess, least_pct in HIDDEN:
                rank = _behind(blocks, excess, _held(named, phase), least_pct)
                if rank is not None:
                    return _hidden(blocks, rank, phase, excess)
        return None

    def _windows(self) -> Iterable[list[StepsOfAll]]:
        kept = list(self._blocks)
        return [kept[-count:] for count in WINDOWS if len(kept) >= count]


# ── one rank, all the time ──────────────────────────────────────────────────────────────


class _Mean(NamedTuple):
    """A mean of blocks with its standard error; successive steps would not be independent."""

    ms: float
    error_ms: float


Excess = Callable[[StepsOfAll], Mapping[int, float]]
"""By how many ms each rank exceeds the others."""


def _behind(
    blocks: Sequence[StepsOfAll], excess: Excess, held: int | None, least_pct: float = LEAST_PCT
) -> int | None:
    """Let `held`, the rank that is named already, exceed the others less clearly."""
    means = _means(blocks, excess)
    if len(means) < 2:
        return None
    rank = max(means, key=lambda one: means[one].ms)
    least_ms = max(least_pct / 100 * _step_ms(blocks), LEAST_MS)
    if held in means and len(blocks) == min(WINDOWS):
        held_ms = means[held].ms
        if held_ms > HOLDS * least_ms and held_ms > PREFERRED * means[rank].ms:
            return held
    ms, own_error_ms = means[rank]
    errors = NormalDist().inv_cdf(1 - ALARMS / len(means))
    error_ms = max(own_error_ms, median(one.error_ms for one in means.values()))
    return rank if ms > least_ms and ms - errors * error_ms > HOLDS * least_ms else None


def _is_one_behind(blocks: Sequence[StepsOfAll]) -> bool:
    """Return whether a rank is behind on average, and all others by half as much at most."""
    late = attrgetter("late_ms")
    most_ms = sorted(one.ms for one in _means(blocks, late).values())[-2:]
    return _behind(blocks, late, None) is not None and most_ms[0] <= HOLDS * most_ms[-1]


def _held(named: Straggler | None, hidden: str = "") -> int | None:
    if named is None or named.why or named.kind == "wandering":
        return None
    if hidden:
        return named.rank if named.others_wait_ms is None and named.phase == hidden else None
    return named.rank if named.others_wait_ms is not None else None


def _means(blocks: Sequence[StepsOfAll], excess: Excess) -> dict[int, _Mean]:
    excesses = [excess(block) for block in blocks]
    everywhere = set.intersection(*map(set, excesses))
    return {rank: _mean([one[rank] for one in excesses]) for rank in everywhere}


def _mean(values: Sequence[float]) -> _Mean:
    return _Mean(fmean(values), sqrt(covariance(values, values) / len(values)))


def _step_ms(blocks: Iterable[StepsOfAll]) -> float:
    return median(block.step_ms for block in blocks)


HIDDEN: tuple[tuple[str, Excess, float], ...] = (
    ("data", attrgetter("data_ms"), LEAST_PCT),
    ("host", attrgetter("host_ms"), HIDDEN_HOST_PCT),
)
"""Excesses that are hidden while the host runs ahead of its GPU: nobody waits for them so far."""


def _hidden(blocks: Sequence[StepsOfAll], rank: int, phase: str, excess: Excess) -> Straggler:
    excess_ms = _mean([excess(block)[rank] for block in blocks]).ms
    slower_pct = 100 * excess_ms / _step_ms(blocks)
    return Straggler(rank=rank, phase=phase, excess_ms=excess_ms, slower_pct=slower_pct)


# ── another rank every now and then ─────────────────────────────────────────────────────


def _changing(
    blocks: Sequence[StepsOfAll], named: Straggler | None
) -> list[tuple[StepsOfAll, int]]:
    late = [(block, rank) for block in blocks if (rank := _late_in(block)) is not None]
    is_named = named is not None and named.kind == "wandering"
    often = len(late) >= OFTEN * (HOLDS if is_named else 1) * len(blocks)
    changes = sum(before != after for (_, before), (_, after) in pairwise(late))
    return late if often and len(blocks) >= min(WINDOWS) and changes >= CHANGES else []


def _unequal(blocks: Sequence[StepsOfAll]) -> Straggler | None:
    ranks = [means for block in blocks for means in block.ranks.values()]
    by_work_ms = fmean(one.by_work_ms for one in ranks)
    deviation_ms = fmean(one.own_deviation_ms for one in ranks)
    least_ms = (min(one.least_wait_ms for one in block.ranks.values()) for block in blocks)
    waits_ms = fmean(one.wait_ms for one in ranks) - fmean(least_ms)
    step_ms = _step_ms(blocks)
    if by_work_ms <= BY_WORK * deviation_ms or waits_ms < WANDERING_PCT / 100 * step_ms:
        return None
    newest = blocks[-1].ranks
    return Straggler(
        rank=max(newest, key=lambda rank: newest[rank].own_ms),
        phase="",
        excess_ms=by_work_ms,
        slower_pct=100 * by_work_ms / step_ms,
        others_wait_ms=waits_ms,
        kind="imbalance",
        why="another rank in each step",
    )


def _late_in(block: StepsOfAll) -> int | None:
    rank = max(block.late_ms, key=lambda one: block.late_ms[one])
    error_ms = median(one.own_error_ms for one in block.ranks.values())
    least_ms = max(WANDERING_PCT / 100 * block.step_ms, WANDERING_ERRORS * error_ms, LEAST_MS)
    return rank if block.late_ms[rank] > least_ms else None


# ── in what it is slower ────────────────────────────────────────────────────────────────


def _described(
    late: Sequence[tuple[StepsOfAll, int]], blocks: Sequence[StepsOfAll], kind: Kind
) -> Straggler:
    late_ms = fmean(block.late_ms[rank] for block, rank in late)
    phase, excess_ms = _slowest_phase(late, late_ms)
    return Straggler(
        rank=late[-1][1],
        phase=phase,
        excess_ms=excess_ms,
        slower_pct=100 * excess_ms / _step_ms(blocks),
        others_wait_ms=late_ms * len(late) / len(blocks),
        kind="imbalance" if _has_more_work(late, late_ms) else kind,
    )


def _slowest_phase(late: Sequence[tuple[StepsOfAll, int]], late_ms: float) -> tuple[str, float]:
    """Return `""` if no phase explains the delay."""
    names = {name for block, rank in late for name in block.ranks[rank].phases_ms}

    def over(name: str) -> float:
        return _excess_ms(late, lambda block, rank: block.ranks[rank].phases_ms.get(name, 0.0))

    excesses = {name: over(name) for name in names}
    excesses[BESIDE] = fmean(block.beside_ms[rank] for block, rank in late)
    computed_ms = _computed_alike_ms(late, excesses)
    if computed_ms >= EXPLAINED * late_ms:
        return ALL_COMPUTED, computed_ms
    excess_ms, phase = max((ms, name) for name, ms in excesses.items())
    if excess_ms < EXPLAINED * late_ms:
        return "", late_ms
    if phase in (REST, "your_code"):  # the device waits for the host
        data_ms = _excess_ms(late, lambda block, rank: block.ranks[rank].data_ms)
        if data_ms >= EXPLAINED * excess_ms:
            return "data", data_ms
    return phase or "host", excess_ms


def _computed_alike_ms(
    late: Sequence[tuple[StepsOfAll, int]], excesses: Mapping[str, float]
) -> float:
    """Return how much longer all computation takes; 0 if some of it does not."""
    more = {name: excesses[name] for name in COMPUTED if name in excesses}
    usual = {
        name: fmean(block.ranks[rank].phases_ms.get(name, 0.0) for block, rank in late) - ms
        for name, ms in more.items()
    }
    least_ms = LARGE * max(fsum(usual.values()), 0.0)
    large = [name for name, ms in usual.items() if ms > least_ms]
    slower = [more[name] / usual[name] for name in large]
    is_alike = len(large) > 1 and 0 < max(slower) <= ALIKE * min(slower)
    return fsum(more[name] for name in large) if is_alike else 0.0


def _excess_ms(
    late: Sequence[tuple[StepsOfAll, int]], value: Callable[[StepsOfAll, int], float]
) -> float:
    return fmean(
        over_others({one: value(block, one) for one in block.ranks})[rank] for block, rank in late
    )


def _has_more_work(late: Sequence[tuple[StepsOfAll, int]], late_ms: float) -> bool:
    shares, own_ms = [], []
    for block, rank in late:
        work = {one: means.work for one, means in block.ranks.items() if means.work is not None}
        if rank not in work or len(work) < 2:
            return False
        more = over_others(work)[rank]
        shares.append(more / work[rank] if work[rank] else 0.0)
        own_ms.append(block.ranks[rank].own_ms)
    return fmean(shares) * fmean(own_ms) >= EXPLAINED * late_ms
