"""The loop of one of several ranks: all change levers, pause and end at the same step.

Commands and the time come from rank 0 at sync points (`lockstep.py`). Where a rank may refuse what
the others do, all of them agree first (`instrument/agreement.py`).
"""

import itertools
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpudash.instrument.agreement import Agreement
from gpudash.instrument.clock import Mark
from gpudash.instrument.collectives import Collectives
from gpudash.instrument.life import Life
from gpudash.instrument.pipes import CommandPipe
from gpudash.protocol import Plan, Settings
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

    def __init__(
        self,
        training: Training,
        plan: Plan,
        commands: CommandPipe,
        life: Life,
        lockstep: Leader | Follower,
        agreement: Agreement,
    ) -> None:
        self._lockstep = lockstep
        self._agreement = agreement
        self._decisions = itertools.count()
        self._shared_s: float | None = None  # the time of the newest sync point
        self._next_sync = 0  # batches taken at the next sync point
        self._has_resumed = False
        self._gradient_sync = GradientSync(training.averaged)
        super().__init__(training, plan, commands, life)

    @property
    def _taken(self) -> int:
        """The number of batches taken, which is the same on all ranks at the same step."""
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
        """Sync while paused; otherwise `_iterate` syncs, before the same step on all ranks."""
        if self._paused:
            self._sync()

    def _iterate(self) -> None:
        if self._has_resumed:  # waiting blocks begin first
            self._has_resumed = False
            return
        if self._taken >= self._next_sync:
            self._sync()
            if self._paused or self._done():
                return
        super()._iterate()

    def _sync(self) -> None:
        busy = self._blocks.running
        point = self._lockstep.sync(self._taken, paused=self._paused, busy=busy)
        if point is None:
            return
        if self._shared_s is None:
            self._began_s = point.at_s
        self._shared_s, self._next_sync = point.at_s, point.next_at
        was_paused = self._paused
        for command in point.commands:
            self._obey(command)
        self._has_resumed = was_paused and not self._paused

    def _block_is_over(self) -> bool:
        block = self._blocks.current
        if block is not None and block.wall_clock == "uninstrumented" and not self._paused:
            self._sync_time()
        return super()._block_is_over()

    def _sync_time(self) -> None:
        """Sync the time in an uninstrumented block, which reads no commands."""
        if self._taken >= self._next_sync and not self._done():
            point = self._lockstep.sync_time(self._taken)
            self._shared_s, self._next_sync = point.at_s, point.next_at

    def _on_all_ranks(self, act: Callable[[], ResultT]) -> ResultT:
        """Run `act` on all ranks. Raises LeverError on all of them if one refuses."""
        result, refusal = None, None
        try:
            result = super()._on_all_ranks(act)
        except LeverError as error:
            refusal = str(error)
        except (RuntimeError, MemoryError, OSError) as error:
            if not is_out_of_memory(error):
                raise
            refusal = "out of memory"
        decision = self._agreement.decide(self._topic(), refusal)
        if decision.refusal is not None:
            raise LeverError(decision.refusal)
        return result  # type: ignore[return-value]  # set, as no rank refused

    def _may_roll_back(self, error: Exception) -> bool:
        """Return whether all ranks ran out of memory in the same step and can roll back."""
        if not is_out_of_memory(error):
            return False
        way = "back" if super()._may_roll_back(error) else ""
        return self._agreement.decide(self._topic(), None, way).payload == "back"

    def _roll_back(self, began_s: float, answers: tuple[int, ...] = (), why: str = "") -> None:
        good = msgspec.json.encode((self._last_good, self._last_good_requested)).decode()
        decision = self._agreement.decide(self._topic(), None, good)
        if decision.refusal is not None:
            raise RuntimeError(decision.refusal)
        # ranks have seen different steps finish, so rank 0's last good settings count
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

    def _print_notes(self, notes: list[str]) -> None:
        if isinstance(self._lockstep, Leader):  # rank 0 prints for all
            super()._print_notes(notes)

    def _topic(self) -> str:
        return f"worker {next(self._decisions)}"
