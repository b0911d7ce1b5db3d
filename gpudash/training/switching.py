"""Makes other settings active between two steps, on all ranks or on none.

The settings apply, or they are refused and all is as before, or they fail half-way. Then the
training goes back to settings that worked.
"""

import math
import time
from typing import NamedTuple

from ..instrument.state_sender import OUTSIDE_BLOCKS, StateSender
from ..protocol.commands import Change
from ..protocol.records import Settings
from .block_queue import BlockQueue, difference
from .commanded import CommandedTraining, Refusal, Replies, Return
from .decision_steps import CAME_LATE, DecisionSteps
from .wall_clock import WallClock

FAILED = "gpudash failed there"


class PlannedSwitch(NamedTuple):
    """Resolved settings that are about to become active."""

    wanted: Settings
    changes: Settings
    began_s: float
    command: Change | None = None
    leaves: str = ""
    """Why the run of blocks ends with this switch; empty: it does not."""
    after_step: int = 0
    """The switch waits for a step after this one."""
    topic: str = ""
    """The name of the ranks' decision; empty for a way back from blocks that needs none."""
    is_late: bool = False
    """This rank comes to the decision after its step, and refuses."""


class Switching:
    """One switch at a time."""

    def __init__(
        self,
        training: CommandedTraining,
        life: StateSender,
        blocks: BlockQueue,
        decisions: DecisionSteps,
        wall_clock: WallClock,
        replies: Replies,
    ) -> None:
        self._training = training
        self._life = life
        self._blocks = blocks
        self._decisions = decisions
        self._wall_clock = wall_clock
        self._replies = replies
        self.waiting: PlannedSwitch | None = None
        """The switch that waits for a step; later commands wait behind it."""

    def switch(self, planned: PlannedSwitch) -> None:
        """Make the settings active now, or after a step if a rehearsal needs a call."""
        self._wall_clock.stop()
        shared = self._training.is_shared  # several ranks kept a call at the step before
        if not shared and self._training.levers.needs_call(planned.wanted):
            self._training.keep_calls(keep=True)
            self._training.look_closely(2)
            self.waiting = planned._replace(after_step=self._training.step)
        else:
            self._enter(planned)

    def turn(self) -> None:
        if self.waiting is not None and self._training.step > self.waiting.after_step:
            planned, self.waiting = self.waiting, None
            self._enter(planned)

    def drop(self) -> None:
        if self.waiting is not None:
            self.waiting = None
            self._training.keep_calls(keep=False)

    def notice(self, before: Settings) -> None:
        changes = difference(before, self._training.levers.settings)
        if changes:
            self._training.begin_segment()
            self._report(changes)

    def recover(self, refusal: Refusal, began_s: float) -> None:
        self._wall_clock.stop()
        went_back = self._training.put_back(self._training.settings, refusal, entered=False)
        assert went_back is not None, "a training whose steps fail knows what worked"
        self._go_back(went_back, began_s)

    def begin_block(self) -> None:
        """Measure from here on: the block in progress, or what runs without blocks."""
        levers, block = self._training.levers, self._blocks.current
        self._blocks.entered(self._training.step, levers.warmup_steps, levers.burst_steps)
        # a block ends with a whole burst of batches, whose end is to be seen; delays meet each step
        whole = block is not None and (levers.burst_steps > 1 or block.slow is not None)
        self._training.look_closely(math.inf if whole else levers.warmup_steps + 1)
        self._wall_clock.stop()
        self._training.slow(block.slow if block is not None else None)
        if block is not None and block.wall_clock is not None:
            self._wall_clock.start(block)

    def end_block(self) -> None:
        """Have the next block begin at the next border."""
        self._blocks.current = None
        self._decisions.block_at = self._training.taken + 1

    def _enter(self, planned: PlannedSwitch) -> None:
        # meanwhile the training went on
        began_s = time.monotonic() if planned.after_step else planned.began_s
        training, command = self._training, planned.command
        refusal = self._try(planned)
        if isinstance(refusal, Return):
            self._go_back(refusal, began_s, command, leaves=bool(planned.leaves))
        elif refusal is not None and (command is not None or not planned.leaves):
            self._replies.refuse(refusal, command)
            self._go_on_after_refusal(planned)
            return
        else:
            if refusal is not None:
                training.levers.restore()  # always possible
                self._begins(in_blocks=False)
                training.requested = {}
            if planned.leaves:
                self._blocks.current = None
            if command is not None:
                training.requested = training.requested | command.settings
            training.begin_segment()
            answers = () if command is None else (command.id,)
            self._report(planned.changes, began_s, answers, leaves=bool(planned.leaves))
            self.begin_block()
        if planned.leaves:
            self._replies.end_blocks(planned.leaves)

    def _try(self, planned: PlannedSwitch) -> Return | str | None:
        """Return why this rank or another one refuses."""
        training, before = self._training, self._training.levers.settings
        refusal = Refusal(CAME_LATE) if planned.is_late else None
        stays = planned.command is not None and not self._blocks.running
        try:
            if refusal is None:
                training.enter(planned.wanted, stays=stays)
        except Refusal as error:
            refusal = error
        except BaseException:  # measuring ends here, and no rank must wait for this one
            if planned.topic:
                training.decide(planned.topic, FAILED)
            raise
        finally:
            training.keep_calls(keep=False)
        why = None if refusal is None else str(refusal)
        if refusal is None:
            self._begins(in_blocks=planned.command is None and not planned.leaves)
        if planned.topic:
            is_block = planned.command is None
            plan = self._decisions.planned_from_here() if is_block and refusal is None else ""
            decided = training.decide(planned.topic, why, plan)
            why = decided.refusal
            if why is None and is_block:
                self._decisions.block_at = int(decided.payload)
        if why is None:
            return None
        went_back = training.put_back(before, refusal or Refusal(why), entered=refusal is None)
        return went_back or why

    def _go_back(
        self,
        went_back: Return,
        began_s: float,
        command: Change | None = None,
        *,
        leaves: bool = False,
    ) -> None:
        self._replies.refuse(went_back.reason, command, went_back.kind, went_back.failed)
        self.end_block()
        self._begins(in_blocks=self._blocks.running and not leaves)
        self._training.begin_segment()
        self._report(went_back.restored, began_s, leaves=leaves)
        self.begin_block()

    def _begins(self, *, in_blocks: bool) -> None:
        block = self._blocks.current
        is_slow = in_blocks and block is not None and block.slow is not None
        self._training.levers.begins(in_blocks=in_blocks, anew=is_slow)  # a delay meets each batch

    def _go_on_after_refusal(self, planned: PlannedSwitch) -> None:
        if planned.command is None:
            self.end_block()
        self.begin_block()

    def _report(
        self,
        changes: Settings,
        began_s: float | None = None,
        answers: tuple[int, ...] = (),
        *,
        leaves: bool = False,
    ) -> None:
        training, blocks, now_s, within = self._training, self._blocks, time.monotonic(), {}
        if blocks.running and not leaves:
            number = blocks.current.number if blocks.current else None
            within = {"run": blocks.run, "block": number, "baseline": dict(blocks.baseline)}
        self._life.turn(
            now_s,
            answers=answers,
            segment=training.segment,
            after_step=training.step,
            changes=changes,
            settings=dict(training.settings),
            requested=dict(training.requested),
            took_ms=0.0 if began_s is None else (now_s - began_s) * 1e3,
            warmup_steps=training.levers.warmup_steps,
            notes=training.notes,
            **(OUTSIDE_BLOCKS | within),
        )
