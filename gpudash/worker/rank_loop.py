"""The loop of one of several ranks: it changes its levers, pauses and ends at the others' step.

Two things make sure of that. Commands and the time are taken in turns, in which the leader's are
everyone's (`turns.py`). And where a rank may refuse what the others do, all of them agree first.
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
from gpudash.worker.exchange import Exchange
from gpudash.worker.loop import Loop
from gpudash.worker.phases import phases_of_ranks
from gpudash.worker.turns import Follower, Leader
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
        turns: Leader | Follower,
        agreement: Agreement,
    ) -> None:
        self._turns = turns
        self._agreement = agreement
        self._decisions = itertools.count()
        self._told_s: float | None = None  # the time, as of the newest turn
        self._next_turn = 0  # batches taken when it comes
        self._has_resumed = False
        self._exchange = Exchange(training.averaged)
        super().__init__(training, plan, commands, send)

    @property
    def _taken(self) -> int:
        """Batches taken, which all ranks have as many of at the same step."""
        return self._training.trained_steps + self._training.pending

    def _now(self) -> float:
        return self._began_s if self._told_s is None else self._told_s

    def _begin(self) -> Mark:
        return self._exchange.marked(super()._begin())

    def _collectives(self) -> Collectives:
        return self._exchange.collectives()

    def _rest(self, at_most_s: float) -> None:
        if self._paused:
            self._turns.wait(at_most_s)
            self._due_s = 0.0
        else:
            time.sleep(at_most_s)

    def _obey_commands(self) -> None:
        """While paused; else just before a step, where all ranks take the same next one."""
        if self._paused:
            self._take_turn()

    def _iterate(self) -> None:
        if self._has_resumed:  # blocks that wait begin first
            self._has_resumed = False
            return
        if self._taken >= self._next_turn:
            self._take_turn()
            if self._paused or self._done():
                return
        super()._iterate()

    def _take_turn(self) -> None:
        busy = self._blocks.running
        turn = self._turns.take(self._taken, paused=self._paused is not None, busy=busy)
        if turn is None:
            return
        if self._told_s is None:
            self._began_s = turn.at_s
        self._told_s, self._next_turn = turn.at_s, turn.until
        was_paused = self._paused is not None
        for command in turn.commands:
            self._obey(command)
        self._has_resumed = was_paused and self._paused is None

    def _block_is_over(self) -> bool:
        block = self._blocks.current
        if block is not None and block.wall_clock == "uninstrumented" and not self._paused:
            self._keep_time()
        return super()._block_is_over()

    def _keep_time(self) -> None:
        """Take a turn in a block that runs step by step, with no look at anything between."""
        if self._taken >= self._next_turn and not self._done():
            turn = self._turns.keep_time(self._taken)
            self._told_s, self._next_turn = turn.at_s, turn.until

    def _together(self, act: Callable[[], ResultT]) -> ResultT:
        """Do it on all ranks. Raises LeverError on all of them where one cannot."""
        result, refusal = None, None
        try:
            result = act()
        except LeverError as error:
            refusal = str(error)
        except (RuntimeError, MemoryError) as error:
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
        self._next_turn = self._taken  # steps may be slower now
        if self._exchange.module is not self._training.averaged:
            self._exchange = Exchange(self._training.averaged)

    def _say(self, notes: list[str]) -> None:
        if isinstance(self._turns, Leader):  # for all
            super()._say(notes)

    def _topic(self) -> str:
        return f"worker {next(self._decisions)}"
