"""Runs blocks one after the other: when one is over, what comes next, and the way back."""

import time

from ..protocol.commands import Block, Blocks
from ..protocol.records import Settings
from .block_queue import BlockQueue, difference
from .commanded import CommandedTraining, Refusal, Replies
from .decision_steps import CAME_LATE, DecisionSteps, Instruction
from .switching import PlannedSwitch, Switching
from .wall_clock import WallClock


class BlockRun:
    """The run of blocks in progress, if there is one. Several ranks decide each of its turns."""

    def __init__(
        self,
        training: CommandedTraining,
        blocks: BlockQueue,
        decisions: DecisionSteps,
        switching: Switching,
        wall_clock: WallClock,
        replies: Replies,
    ) -> None:
        self._training = training
        self._blocks = blocks
        self._decisions = decisions
        self._switching = switching
        self._wall_clock = wall_clock
        self._replies = replies

    def take(self, command: Blocks) -> bool:
        """Return False if a switch has to come first."""
        run = self._blocks.run
        if run is not None and self._blocks.begins(command):
            self.leave("other blocks began")
            if self._switching.waiting is not None:
                return False
        if not self._blocks.take_in(command, self._training.levers.settings):
            self._replies.refuse("it had ended before", command)
        elif self._blocks.run != run:
            self._decisions.block_at = self._training.taken
        return True

    def may_end_block(self) -> bool:
        """Return whether the block is over; of several ranks, whether they decide."""
        training = self._training
        is_over = self._blocks.is_over(training.taken, time.monotonic())
        return training.taken >= self._decisions.block_at if training.is_shared else is_over

    def turn(self, why_over: str | None) -> None:
        """End the run if this rank has a reason: `why_over`."""
        blocks, training = self._blocks, self._training
        began_s, lasted = time.monotonic(), blocks.current
        is_over = blocks.is_over(training.taken, began_s)
        self._decisions.note_pace(began_s)
        why = why_over or (CAME_LATE if self._decisions.block_is_late else None)
        plan = ""
        if training.speaks:
            plan = self._decisions.instruction(began_s, is_over=is_over).encode()
        decided = training.decide(
            self._decisions.block_topic, why if training.is_shared else None, plan
        )
        if decided.refusal is not None:
            self.leave(decided.refusal)
            return
        instruction = Instruction.decode(decided.payload)
        if instruction.decide_at:
            self._decisions.block_at = instruction.decide_at
            return
        self._wall_clock.read(lasted)
        self._wall_clock.stop()
        blocks.current = instruction.begin
        if instruction.begin is None:
            self.leave(instruction.ends)
        else:
            self._enter(instruction.begin, began_s)

    def leave(self, why: str) -> None:
        self._blocks.current = None
        began_s, changes = time.monotonic(), self.changes_back()
        votes = self._training.votes_on_way_back(changes)
        self._switching.switch(
            PlannedSwitch(
                self._blocks.baseline,
                changes,
                began_s,
                leaves=why,
                topic=self._decisions.way_back_topic if votes else "",
                is_late=votes and self._decisions.block_is_late,
            )
        )

    def changes_back(self) -> Settings:
        """Return no changes if no blocks run."""
        running, settings = self._blocks.running, self._training.levers.settings
        return difference(settings, self._blocks.baseline) if running else {}

    def _enter(self, block: Block, began_s: float) -> None:
        levers, decision = self._training.levers, f"{self._decisions.block_topic}.begin"
        try:
            wanted = levers.resolve(self._blocks.baseline | block.changes)
            self._training.check_slow(block.slow)
        except Refusal as error:
            self._training.decide(decision, str(error))
            self._replies.refuse(str(error))
            self._switching.end_block()
            return
        changes = difference(levers.settings, wanted)
        self._switching.switch(PlannedSwitch(wanted, changes, began_s, topic=decision))
