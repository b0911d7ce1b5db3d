"""Prove what limits a training: slow each part of a step in turns, and see how much a step grows.

A round has a block without delay and one for each part, in random order. A part's slope is the
growth of a step by the delay: Student's interval over the rounds.
"""

import math
from statistics import fmean, stdev
from typing import get_args

from msgspec.structs import replace

from gpudash.compare.block_trial import BLOCK_S, MIN_STEPS, BlockTrial, block_of
from gpudash.compare.blocks import NotRun, Outcome
from gpudash.compare.paired_t import round_order, student_t
from gpudash.protocol.commands import Block, Slow, Slowable
from gpudash.protocol.session import Slope, SlowingShown
from gpudash.protocol.training import State

PARTS: tuple[Slowable, ...] = get_args(Slowable)
SIDES = 1 + len(PARTS)
"""Blocks of a round: side 0 is the one without delay, side n slows part n - 1."""
DELAY = 0.1
"""Of a step's duration."""
PRECISION = 0.2
"""The proof ends once each slope is known to ± this, …"""
MOST_S = 60.0
"""… or after so many seconds."""
FEWEST_ROUNDS = 4
MOST_ROUNDS = 100
CONFIDENCE = 0.95


class SlowingTrial(BlockTrial):
    """The blocks of a proof, and the slopes that they show.

    It has no verdict in words: the answer says what the slopes mean. Its failure is empty then.
    """

    name = "proof by slowing"

    def __init__(self, step_ms: float, *, seed: int = 0) -> None:
        """`step_ms` is the present duration of a step."""
        super().__init__()
        self._step_ms = step_ms
        self._delay_ms = DELAY * step_ms
        self._sides = [side for order in round_order(SIDES, MOST_ROUNDS, seed) for side in order]
        self._blocks: tuple[Block, ...] = ()
        self._took_ms: dict[int, float | None] = {}  # of a step, by block; None: it was refused
        self._growth: dict[Slowable, list[float]] = {part: [] for part in PARTS}
        self._why_not: dict[Slowable, str] = {}
        self._rounds = 0
        self._told = 0  # of how many parts that cannot be slowed the worker knows
        self._expected_s: float | None = None

    def _first(self, state: State, _run: int) -> tuple[Block, ...]:
        # all blocks are of one kind: in each, every step is met
        slows = [Slow(part="host", ms=0.0), *(Slow(part=part, ms=self._delay_ms) for part in PARTS)]
        self._blocks = tuple(
            replace(block_of(number, {}, short_runs=False), slow=slows[side])
            for number, side in enumerate(self._sides)
        )
        steps = state.warmup_steps + MIN_STEPS + 1
        block_s = max(steps * self._step_ms / 1e3, BLOCK_S)
        self._expected_s = FEWEST_ROUNDS * SIDES * block_s
        return self._blocks

    def shown(self) -> SlowingShown:
        """Return the state for the screen."""
        return SlowingShown(
            delay_ms=self._delay_ms,
            slopes=tuple(self._slope(part) for part in PARTS),
            rounds=self._rounds,
            expected_s=self._expected_s,
            is_over=self.done,
            failure=self.failure or "",
        )

    def _next(self) -> tuple[Block, ...] | None:
        if self._has_enough():
            self._end_early("it took too long")
        told, self._told = self._told, len(self._why_not)
        return self._left() if self._told > told else None

    def _take(self, outcome: Outcome) -> None:
        if isinstance(outcome, NotRun):
            side = self._sides[outcome.number]
            for part in PARTS[side - 1 : side] if side else PARTS:  # without a delay there is none
                self._why_not[part] = outcome.reason
            self._took_ms[outcome.number] = None
        else:
            self._took_ms[outcome.number] = outcome.busy_s * 1e3 / outcome.steps
        while (newest := self._newest_round()) is not None:
            self._rounds += 1
            plain_ms = newest.pop(0)
            for side, ms in newest.items():
                if ms is not None and plain_ms is not None:
                    self._growth[PARTS[side - 1]].append((ms - plain_ms) / self._delay_ms)

    def _left(self) -> tuple[Block, ...]:
        """Return the blocks without those of parts that cannot be slowed: the rest are left."""
        return tuple(
            block for block in self._blocks if not self._is_refused(self._sides[block.number])
        )

    def _is_refused(self, side: int) -> bool:
        return side > 0 and PARTS[side - 1] in self._why_not

    def _newest_round(self) -> dict[int, float | None] | None:
        """Return the next round's ms a step by side; None until it is whole, and at the end."""
        first = self._rounds * SIDES
        sides = dict(enumerate(self._sides[first : first + SIDES], first))
        if not sides or not all(
            one in self._took_ms or self._is_refused(side) for one, side in sides.items()
        ):
            return None
        return {side: self._took_ms.pop(number, None) for number, side in sides.items()}

    def _slope(self, part: Slowable) -> Slope:
        growth = self._growth[part]
        if part in self._why_not or not growth:
            return Slope(part=part, why_not=self._why_not.get(part, ""))
        slope = fmean(growth)
        if len(growth) < FEWEST_ROUNDS:
            return Slope(part=part, slope=slope)
        half = student_t(len(growth) - 1, CONFIDENCE) * stdev(growth) / math.sqrt(len(growth))
        return Slope(part=part, slope=slope, low=slope - half, high=slope + half)

    def _has_enough(self) -> bool:
        """Return whether each slope is known well enough, or the time is over."""
        if self.lasted_s >= MOST_S:
            return True
        known = [self._slope(part) for part in PARTS if part not in self._why_not]
        return not known or all(
            one.low is not None and one.high is not None and one.high - one.low <= 2 * PRECISION
            for one in known
        )

    def _end_early(self, reason: str) -> None:
        slopes = [self._slope(part) for part in PARTS]
        self.failure = "" if any(one.low is not None for one in slopes) else reason
