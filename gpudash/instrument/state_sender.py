"""The life of the training in this process, as it is reported: one state that replaces another."""

from collections.abc import Callable
from typing import Any

from ..protocol.records import replace
from ..protocol.training import Aside, State
from .pipes import Sent

OUTSIDE_BLOCKS: dict[str, Any] = {"run": None, "block": None, "baseline": {}}
"""The fields of a state outside of a run of blocks."""


class StateSender:
    """Holds the newest state of the training, and sends every change of it."""

    def __init__(self, state: State, send: Callable[[Sent], None]) -> None:
        self.send = send
        self.state = state
        """The newest state that was sent."""
        send(state)

    def turn(self, at_s: float, *, answers: tuple[int, ...] = (), **changes: Any) -> None:
        self.state = replace(self.state, at_s=at_s, answers=answers, **changes)
        self.send(self.state)

    def tell_loaders(self, pids: tuple[int, ...]) -> None:
        if pids != self.state.loader_pids:
            self.turn(self.state.at_s, loader_pids=pids)

    def pause(
        self,
        at_s: float,
        after_step: int,
        why: Aside = "asked",
        answers: tuple[int, ...] = (),
        **changes: Any,
    ) -> None:
        if self.state.why == why:
            self.turn(self.state.at_s, answers=answers)
        else:
            changes |= {"phase": "paused", "why": why, "after_step": after_step}
            self.turn(at_s, answers=answers, **changes)

    def resume(self, at_s: float, answers: tuple[int, ...] = (), **changes: Any) -> None:
        since_s = self.state.at_s if self.state.phase == "training" else at_s
        self.turn(since_s, phase="training", why=None, answers=answers, **changes)
