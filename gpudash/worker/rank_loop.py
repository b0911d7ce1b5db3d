"""The loop of one of several ranks: it changes its levers, pauses and ends at the others' step.

Two things make sure of that. Commands and the time come from rank 0 at sync points (`lockstep.py`).
And where a rank may refuse what the others do, all of them agree first (`instrument/agreement.py`).
"""

import itertools
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpudash.instrument.agreement import Agreement
from gpudash.instrument.clock import Mark
from gpudash.instrument.collectives import Collectives
from gpudash.instrument.pipes import CommandPipe
from gpudash.protocol import Event, Plan, Settings
from gpudash.worker.gradient_sync import GradientSync
from gpudash.worker.lockstep import Follower, Leader
from gpudash.worker.loop import Loop
from gpudash.worker.phases import phases_of_ranks
from workloads.levers import LeverError
from workloads.memory import is_out_of_memory
from workloads.training import Training

ResultT = TypeVar("ResultT")


class RankLoop(Loop):
    """Steps one rank's part of a training."""

    phases = phases_of_ranks()

    def __init__(  # what a loop has, and the others
        self,
        training: Training,
        plan: Plan,
        commands: CommandPipe,
        send: Callable[[Event], None],
        lockstep: Leader | Follower,
        agreement: Agreement,
    ) -> None:
        self._lockstep = lockstep
        self._agreement = agreement
        self._decisions = itertools.count()
        self._shared_s: float | None = None  # the time, as of the newest sync point
        self._next_sync = 0  # batches taken at the next one
        self._has_resumed = False
        self._gradient_sync = GradientSync(training.averaged)
        super().__init__(training, plan, commands, send)

    @property
    def _taken(self) -> int:
        """Batches taken, which all ranks have as many of at the same step."""
        return self._training.trained_steps + self._training.pending

    def _now(self) -> float:
        return self._began_s if self._shared_s is None else self._shared_s

    def _begin(self) -> Mark:
        return self._gradient_sync.marked(super()._begin())

    def _collectives(self) -> Collectives:
        return self._gradient_sync.collectives()

    def _rest(self, at_most_s: float) -> None:
        if self._paused:
            self._lockstep.wait(at_most_s)
            self._due_s = 0.0
        else:
            time.sleep(at_most_s)

    def _obey_commands(self) -> None:
        """While paused; else just before a step, where all ranks take the same next one."""
        if self._paused:
            self._sync()

    def _iterate(self) -> None:
        if self._has_resumed:  # blocks that wait begin first
            self._has_resumed = False
            return
        if self._taken >= self._next_sync:
            self._sync()
            if self._paused or self._done():
                return
        super()._iterate()

    def _sync(self) -> None:
        busy = self._blocks.running
        point = self._lockstep.sync(self._taken, paused=self._paused is not None, busy=busy)
        if point is None:
            return
        if self._shared_s is None:
            self._began_s = point.at_s
        self._shared_s, self._next_sync = point.at_s, point.next_at
        was_paused = self._paused is not None
        for command in point.commands:
            self._obey(command)
        self._has_resumed = was_paused and self._paused is None

    def _block_is_over(self) -> bool:
        block = self._blocks.current
        if block is not None and block.wall_clock == "uninstrumented" and not self._paused:
            self._sync_time()
        return super()._block_is_over()

    def _sync_time(self) -> None:
        """Sync the time in a block that runs step by step, and looks at nothing between."""
        if self._taken >= self._next_sync and not self._done():
            point = self._lockstep.sync_time(self._taken)
            self._shared_s, self._next_sync = point.at_s, point.next_at

    def _together(self, act: Callable[[], ResultT]) -> ResultT:
        """Do it on all ranks. Raises LeverError on all of them where one cannot."""
        result, refusal = None, None
        try:
            result = super()._together(act)
        except LeverError as error:
            refusal = str(error)
        except (RuntimeError, MemoryError, OSError) as error:
            if not is_out_of_memory(error):
                raise
            refusal = "out of memory"
        decision = self._agreement.decide(self._topic(), refusal)
        if decision.refusal is not None:
            raise LeverError(decision.refusal)
        return result  # type: ignore[return-value]  # it was not refused

    def _may_roll_back(self, error: Exception) -> bool:
        """Tell whether all ranks have run out of memory in the same step, with a way back."""
        if not is_out_of_memory(error):
            return False
        way = "back" if super()._may_roll_back(error) else ""
        return self._agreement.decide(self._topic(), None, way).payload == "back"

    def _roll_back(self, began_s: float, answers: tuple[int, ...] = (), why: str = "") -> None:
        good = msgspec.json.encode((self._last_good, self._last_good_requested)).decode()
        decision = self._agreement.decide(self._topic(), None, good)
        if decision.refusal is not None:
            raise RuntimeError(decision.refusal)
        # each rank has seen other steps finish: what has worked is rank 0's word
        good_on_all = msgspec.json.decode(decision.payload, type=tuple[Settings, Settings])
        self._last_good, self._last_good_requested = good_on_all
        super()._roll_back(began_s, answers, why)

    def _entered_segment(
        self, changes: Settings, began_s: float, answers: tuple[int, ...] = ()
    ) -> None:
        super()._entered_segment(changes, began_s, answers)
        self._next_sync = self._taken  # steps may be slower now
        if self._gradient_sync.module is not self._training.averaged:
            self._gradient_sync = GradientSync(self._training.averaged)

    def _say(self, notes: list[str]) -> None:
        if isinstance(self._lockstep, Leader):  # for all
            super()._say(notes)

    def _topic(self) -> str:
        return f"worker {next(self._decisions)}"
