"""Prove what limits a training: slow each part of a step in turns, and see how much a step grows.

A round has a block without delay and one for each part, in random order. A part's slope is the
growth of a step by the delay: Student's interval over the rounds.
"""

import math
from statistics import fmean, stdev
from typing import get_args

from gpudash.compare.blocks import BlockLog, NotRun, Outcome
from gpudash.compare.paired_t import round_order, student_t
from gpudash.protocol.commands import Block, Slow, Slowable
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import HostReading, Reading
from gpudash.protocol.session import Slope, SlowingShown
from gpudash.protocol.training import Progress, State

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
MIN_STEPS = 5
BLOCK_S = 0.15
CONFIDENCE = 0.95


class SlowingTrial:
    """The blocks of a proof, and the slopes that they show; an `Experiment`."""

    verdict: str | None = None
    """It has none in words: the answer says what the slopes mean."""

    def __init__(self, step_ms: float, *, seed: int = 0) -> None:
        """`step_ms` is the present duration of a step."""
        self.done = False
        self._step_ms = step_ms
        self._delay_ms = DELAY * step_ms
        self._sides = [side for order in round_order(SIDES, MOST_ROUNDS, seed) for side in order]
        self._log = BlockLog()
        self._blocks: tuple[Block, ...] = ()
        self._took_ms: dict[int, float | None] = {}  # of a step, by block; None: it was refused
        self._growth: dict[Slowable, list[float]] = {part: [] for part in PARTS}
        self._why_not: dict[Slowable, str] = {}
        self._rounds = 0
        self._began_s: float | None = None
        self._expected_s: float | None = None
        self._is_over = False
        self._failure = ""

    def begin(self, state: State, run: int, /) -> tuple[Block, ...]:
        """Return the blocks that the worker runs under this run number."""
        # all blocks are of one kind: in each, every step is met
        slows = [Slow(part="host", ms=0.0), *(Slow(part=part, ms=self._delay_ms) for part in PARTS)]
        blocks = tuple(
            Block(
                number=number,
                changes={},
                min_steps=MIN_STEPS,
                min_s=BLOCK_S,
                slow=slows[side],
            )
            for number, side in enumerate(self._sides)
        )
        self._log, self._blocks = BlockLog(run, blocks, state), blocks
        steps = state.warmup_steps + MIN_STEPS + 1
        block_s = max(steps * self._step_ms / 1e3, BLOCK_S)
        self._expected_s = FEWEST_ROUNDS * SIDES * block_s
        return blocks

    def fold(self, item: Event | Reading, /) -> tuple[Block, ...] | None:
        """Fold one record; return an empty tuple to end the blocks, else None."""
        if self.done:
            return None
        refused = len(self._why_not)
        for outcome in self._log.fold(item):
            self._take(outcome)
        if self._log.over is not None:
            self._end(self._log.over)
            self.done = True
            return None
        if not self._is_over and self._has_enough(item):
            self._end("it took too long")
            return ()
        return self._left() if len(self._why_not) > refused and not self._is_over else None

    def cancel(self, reason: str) -> None:
        """End it early; the slopes so far stay."""
        self._end(reason)

    def shown(self) -> SlowingShown:
        """Return the state for the screen."""
        return SlowingShown(
            delay_ms=self._delay_ms,
            slopes=tuple(self._slope(part) for part in PARTS),
            rounds=self._rounds,
            expected_s=self._expected_s,
            is_over=self.done,
            failure=self._failure,
        )

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

    def _has_enough(self, item: Event | Reading) -> bool:
        """Return whether each slope is known well enough, or the time is over."""
        now_s = _time_s(item)
        if now_s is not None:
            self._began_s = now_s if self._began_s is None else self._began_s
            if now_s - self._began_s >= MOST_S:
                return True
        known = [self._slope(part) for part in PARTS if part not in self._why_not]
        return not known or all(
            one.low is not None and one.high is not None and one.high - one.low <= 2 * PRECISION
            for one in known
        )

    def _end(self, why: str) -> None:
        """Note the end, and why nothing was found if nothing was."""
        if not self._is_over:
            self._is_over = True
            slopes = [self._slope(part) for part in PARTS]
            self._failure = "" if any(one.low is not None for one in slopes) else why


def _time_s(item: Event | Reading) -> float | None:
    match item:
        case Progress():
            return item.until_s
        case HostReading():
            return item.at_s
    return None
