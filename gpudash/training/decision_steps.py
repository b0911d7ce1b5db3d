"""At which steps all ranks of a training decide together, and what rank 0 tells them there.

Blocks need no message between ranks: at each decision rank 0 names the step of the next one, by the
block's pace so far. Other commands carry the step after which they are obeyed.
"""

import math
import time
from collections.abc import Iterable

from ..protocol.commands import FOR_ALL, AnyCommand, Block, Blocks
from ..protocol.records import Decoder, Settings, Struct, encode
from .block_queue import BlockQueue
from .commanded import CommandedTraining

CAME_LATE = "the command came after its step"
SPARE = 1.05
"""Blocks are planned longer by this factor, so that few need more steps at their end."""
DECIDE_EVERY_S = 2.0
"""At most this long between two decisions: a run of blocks can end only at a decision."""
GUESS_S = 0.1
"""Assumed duration of a step before one was timed; a shorter step only means more decisions."""


class Instruction(Struct, frozen=True, omit_defaults=True):
    """What rank 0 has all ranks do in a run of blocks. One of the fields is set."""

    begin: Block | None = None
    ends: str = ""
    """Why the run of blocks is over."""
    decide_at: int = 0
    """The block goes on, and the ranks decide again after this step."""

    def encode(self) -> str:
        return encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> "Instruction":
        return Decoder(cls).decode(text)


class DecisionSteps:
    """The decision steps of one rank, which are the same on all ranks."""

    def __init__(self, training: CommandedTraining, blocks: BlockQueue) -> None:
        self._training = training
        self._blocks = blocks
        self._paces = _Paces()
        self.block_at = 0
        """The step after which all ranks decide whether the block in progress is over."""

    @property
    def block_topic(self) -> str:
        return f"{self.block_at}.run{self._blocks.run}"

    @property
    def way_back_topic(self) -> str:
        return f"{self.block_topic}.back"

    @property
    def block_is_late(self) -> bool:
        return self._training.taken > self.block_at

    def is_early(self, command: AnyCommand) -> bool:
        return self.is_for_all(command) and self._training.taken < (command.at_step or 0)

    def is_late(self, command: AnyCommand) -> bool:
        return self.is_for_all(command) and self._training.taken > (command.at_step or 0)

    def prepare(self, inbox: Iterable[AnyCommand]) -> None:
        training = self._training
        steps = [at for command in inbox if (at := command.at_step) and self.is_for_all(command)]
        steps += [self.block_at] if self._blocks.running else []
        training.come_to(min((step for step in steps if step > training.taken), default=0))

    def note_pace(self, now_s: float) -> None:
        step_s = self._blocks.pace_s(self._training.taken, now_s)
        self._paces.note(self._training.levers.settings, step_s)

    def instruction(self, now_s: float, *, is_over: bool) -> Instruction:
        if not is_over:
            return Instruction(decide_at=self._planned(now_s))
        block = self._blocks.take()
        return Instruction(ends="no block is left") if block is None else Instruction(begin=block)

    def planned_from_here(self) -> str:
        """Return the step of the next decision of a block that begins now, as text."""
        levers = self._training.levers
        self._blocks.entered(self._training.step, levers.warmup_steps, levers.burst_steps)
        return str(self._planned(time.monotonic()))

    def _planned(self, now_s: float) -> int:
        step, step_s = self._training.taken, self._paces.step_s(self._training.levers.settings)
        left = self._blocks.steps_left(step, now_s, step_s / SPARE)
        return step + min(left, math.ceil(DECIDE_EVERY_S / step_s))

    def is_for_all(self, command: AnyCommand) -> bool:
        if not self._training.is_shared or self._training.why_not(command) is not None:
            return False
        if isinstance(command, Blocks):
            return self._blocks.begins(command)
        return isinstance(command, FOR_ALL)


class _Paces:
    """Seconds a step takes, by the settings that blocks have run with."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str], ...], float] = {}
        self._newest_s = GUESS_S

    def note(self, settings: Settings, step_s: float | None) -> None:
        if step_s is not None:
            self._newest_s = self._known[_key(settings)] = step_s

    def step_s(self, settings: Settings) -> float:
        """Return that of the newest timed step for settings without a pace."""
        return self._known.get(_key(settings), self._newest_s)


def topic(command: AnyCommand) -> str:
    """Return a name with more than the id: ids alone repeat between dashboards."""
    return f"{command.at_step}.{command.id}"


def _key(settings: Settings) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))
