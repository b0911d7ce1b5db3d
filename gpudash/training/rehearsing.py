"""Times levers on the newest step's calls of the model, without moving any; only when asked."""

import time

from ..instrument.state_sender import StateSender
from ..protocol.commands import Rehearse
from ..protocol.inspections import Rehearsed, Timing
from .commanded import CommandedTraining

SHARED = "the other ranks would wait for it meanwhile"


class Rehearsing:
    """One rehearsal at a time. It waits for a step with a call of the model."""

    def __init__(self, training: CommandedTraining, life: StateSender) -> None:
        self._training = training
        self._life = life
        self._asked: tuple[Rehearse, int] | None = None

    @property
    def waits(self) -> bool:
        return self._asked is not None

    def begin(self, command: Rehearse, why_not: str | None) -> None:
        """Rehearse after the next step, unless there is a reason not to."""
        why_not = why_not or (SHARED if self._training.is_shared else None)
        if why_not is not None:
            self._answer(command, why_not=why_not)
            return
        self._training.keep_calls(keep=True)
        self._training.look_closely(2)
        self._asked = command, self._training.step

    def turn(self) -> None:
        if self._asked is None or self._training.step <= self._asked[1]:
            return
        command, self._asked = self._asked[0], None
        why_not = self._training.why_no_rehearsal()
        try:
            timings = () if why_not is not None else self._training.timings()
        finally:
            self._training.keep_calls(keep=False)
            self._training.interrupt()
            self._life.turn(time.monotonic(), **self._training.anew())
        self._answer(command, timings, why_not or "")

    def drop(self, why: str) -> None:
        if self._asked is not None:
            self._training.keep_calls(keep=False)
            self._answer(self._asked[0], why_not=why)
            self._asked = None

    def _answer(
        self, command: Rehearse, timings: tuple[Timing, ...] = (), why_not: str = ""
    ) -> None:
        now_s = time.monotonic()
        self._life.send(
            Rehearsed(at_s=now_s, answers=(command.id,), timings=timings, why_not=why_not)
        )
