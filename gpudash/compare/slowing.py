"""Prove what limits a training: slow each part of a step in turns, and see how much a step grows.

Each slowed block lies between two without a delay, so a host whose speed drifts is no growth of a
step. A part's slope is the growth by the delay: Yuen's interval of a trimmed mean over the rounds.
Differences of neighbours are symmetric, so trimming does not move their middle.
"""

import math
from collections.abc import Sequence
from itertools import chain, islice
from random import Random
from statistics import fmean, stdev
from typing import get_args

from gpudash.compare.blocks import NotRun, Outcome
from gpudash.compare.experiment import Experiment
from gpudash.compare.paired_t import round_order, student_t
from gpudash.protocol.commands import Block, Slow, Slowable
from gpudash.protocol.session import Slope, SlowingShown
from gpudash.protocol.training import State

PARTS: tuple[Slowable, ...] = get_args(Slowable)
DELAY = 0.1
"""Of a step's duration."""
PRECISION = 0.2
"""The proof ends once each slope is known to ± this, …"""
MOST_S = 60.0
"""… or after so many seconds."""
FEWEST_ROUNDS = 4
MOST_ROUNDS = 1000
"""Last as long, even of one part."""
MIN_STEPS = 3
BLOCK_S = 0.04
"""A block lasts so many steps and about so long. A longer one drifts away from its neighbours: on
the recorded steps of a host that stumbled, blocks of 0.15 s needed four times as many steps for the
same interval. Each is longer by chance, so that nothing periodic in a training meets the same side
each time."""
MORE_STEPS = 3
SENT = 96
"""Blocks that a worker knows of at most."""
TRIMMED = 0.2
"""Of the rounds, at each end."""
CONFIDENCE = 0.95


class SlowingTrial(Experiment):
    """The blocks of a proof, and the slopes that they show. It has no verdict in words."""

    name = "proof by slowing"

    def __init__(self, step_ms: float) -> None:
        super().__init__()
        self._step_ms = step_ms
        self._delay_ms = DELAY * step_ms
        self._random = Random(0)
        rounds = round_order(len(PARTS), MOST_ROUNDS, seed=0)
        self._slowed = [PARTS[part] for order in rounds for part in order]  # in each second block
        self._blocks: tuple[Block, ...] = ()
        self._over = 0  # blocks that are
        self._told = 0  # of how many parts that cannot be slowed the worker knows
        self._ask_at = 0  # as many, and the worker is sent further ones
        self._plain_ms: float | None = None  # of a step in the newest block without a delay …
        self._newest: tuple[Slowable, float] | None = None  # … and in the slowed one after it
        self._growth: dict[Slowable, list[float]] = {part: [] for part in PARTS}
        self._why_not: dict[Slowable, str] = {}
        self._expected_s: float | None = None

    def _first(self, state: State, _run: int) -> tuple[Block, ...]:
        # all blocks are of one kind: in each, every step is met
        plain, random = Slow(part="host", ms=0.0), self._random
        slows = (Slow(part=part, ms=self._delay_ms) for part in self._slowed)
        self._blocks = tuple(
            Block(
                number=number,
                changes={},
                min_steps=MIN_STEPS + random.randrange(MORE_STEPS),
                min_s=BLOCK_S * random.uniform(0.5, 1.5),
                slow=slow,
            )
            for number, slow in enumerate(chain.from_iterable((plain, slow) for slow in slows))
        )
        steps = state.warmup_steps + MIN_STEPS + MORE_STEPS / 2 + 1
        block_s = max(steps * self._step_ms / 1e3, BLOCK_S)
        self._expected_s = FEWEST_ROUNDS * 2 * len(PARTS) * block_s
        return self._left()

    def shown(self) -> SlowingShown:
        return SlowingShown(
            delay_ms=self._delay_ms,
            slopes=tuple(self._slope(part) for part in PARTS),
            rounds=min((len(self._growth[part]) for part in self._parts), default=0),
            expected_s=self._expected_s,
            is_over=self.done,
            failure=self.failure or "",
        )

    def _next(self) -> tuple[Block, ...] | None:
        if self._has_enough():
            self._end_early("it took too long")
        told, self._told = self._told, len(self._why_not)
        asks = self._told > told or self._over >= self._ask_at
        return self._left() or None if asks else None

    @property
    def _parts(self) -> list[Slowable]:
        return [part for part in PARTS if part not in self._why_not]

    def _take(self, outcome: Outcome) -> None:
        self._over = outcome.number + 1
        part, is_slowed = self._slowed[outcome.number // 2], outcome.number % 2 == 1
        if isinstance(outcome, NotRun):
            for one in (part,) if is_slowed else PARTS:  # without a delay there is none
                self._why_not[one] = outcome.reason
            return
        ms = outcome.busy_s * 1e3 / outcome.steps
        if is_slowed:
            self._newest = part, ms
            return
        if self._newest is not None and self._plain_ms is not None:
            part, slowed_ms = self._newest
            growth_ms = slowed_ms - (self._plain_ms + ms) / 2
            self._growth[part].append(growth_ms / self._delay_ms)
        self._plain_ms, self._newest = ms, None

    def _left(self) -> tuple[Block, ...]:
        parts = self._parts
        ahead = self._blocks[self._over :]
        left = (block for block in ahead if self._slowed[block.number // 2] in parts)
        sent = tuple(islice(left, SENT))
        self._ask_at = sent[len(sent) // 2].number if len(sent) == SENT else len(self._blocks) + 1
        return sent

    def _slope(self, part: Slowable) -> Slope:
        growth = self._growth[part]
        if part in self._why_not or not growth:
            return Slope(part=part, why_not=self._why_not.get(part, ""))
        slope, half = _trimmed_mean(growth)
        if len(growth) < FEWEST_ROUNDS:
            return Slope(part=part, slope=slope)
        return Slope(part=part, slope=slope, low=slope - half, high=slope + half)

    def _has_enough(self) -> bool:
        if self.lasted_s >= MOST_S:
            return True
        known = [self._slope(part) for part in self._parts]
        return not known or all(
            one.low is not None and one.high is not None and one.high - one.low <= 2 * PRECISION
            for one in known
        )

    def _end_early(self, reason: str) -> None:
        slopes = [self._slope(part) for part in PARTS]
        self.failure = "" if any(one.low is not None for one in slopes) else reason


def _trimmed_mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean without the ends, and half of its interval (Yuen, Biometrika, 1974)."""
    count, cut = len(values), int(TRIMMED * len(values))
    kept = sorted(values)[cut : count - cut]
    if count < FEWEST_ROUNDS:
        return fmean(kept), math.inf
    drawn_in = [min(max(value, kept[0]), kept[-1]) for value in values]
    error = stdev(drawn_in) * math.sqrt(count) / len(kept)
    return fmean(kept), student_t(len(kept) - 1, CONFIDENCE) * error
