"""Which phase of a step each event begins: a table. It knows neither torch nor a clock.

What lies behind a call is known late. Between the forward and the backward pass the loss is
computed, which belongs to the forward pass. Before another pass over the same model comes the
script's own code, such as an environment's step. So the code behind a call is marked as the
script's own, until the next event shows what it was.

`Observer` is who receives what the tracker finds.
"""

from collections.abc import Hashable
from typing import Literal, Protocol, TypeAlias

from ..levers.training_objects import TrainingObjects
from ..protocol.training import Aside, Phase

LABELS = {
    "rollout": "rollout",
    "copy": "copy",
    "frozen": "forward, frozen",
    "forward": "forward",
    "backward": "backward",
    "communication": "communication",
    "optimizer": "optimizer",
    "graph": "CUDA graph",
    "your_code": "your code",
}
PHASES = tuple(Phase(name=name, label=label, lane="train") for name, label in LABELS.items())
"""The phases of a step."""


class Observer(Protocol):
    """What receives the tracker's findings, on the thread that trains."""

    def found(self, found: TrainingObjects) -> None:
        """Take the findings: before the first step is measured, and whenever they change."""

    def border(self, step: int) -> None:
        """Do what is due here. A step whose end is recognised within the next one has no border."""

    def aside(self, why: Aside | None) -> None:
        """Take what came between two steps, such as evaluation; None: training goes on."""

    def flush(self) -> None: ...

    def begins_anew(self) -> None:
        """Forget the training before: another one begins, and its findings follow."""

    def loads(self) -> None:
        """Note that the workers of a DataLoader may have started."""

    def idle(self) -> None:
        """Do what may be done anywhere, not only between steps."""


Symbol: TypeAlias = Literal[
    "begins",
    "waits",
    "has to copy",
    "copies",
    "has copied",
    "has a batch",
    "acts",
    "freezes",
    "trains",
    "returns",
    "learns",
    "has learned",
    "updates",
    "has updated",
    "replays",
]
CODE, COPY = "your_code", "copy"
BEGINS: dict[Symbol, str] = {
    "begins": CODE,
    "waits": "idle",
    "has to copy": COPY,
    "copies": COPY,
    "has copied": CODE,
    "has a batch": CODE,
    "acts": "rollout",
    "freezes": "frozen",
    "trains": "forward",
    "learns": "backward",
    "has learned": CODE,
    "updates": "optimizer",
    "has updated": CODE,
    "replays": "graph",
}
"""The phase that an event begins."""
COPYING = frozenset[Symbol]({"has to copy", "copies", "has copied"})
"""A batch is not on the device: until a copy is seen all that comes may be one."""
CALLS = frozenset[Symbol]({"acts", "freezes", "trains"})
"""Calls of models: for a rollout, without gradients, or to train."""
GOES_ON = frozenset[tuple[str, Symbol]](
    {
        ("forward", "trains"),
        ("forward", "learns"),
        ("frozen", "freezes"),
        (COPY, "copies"),
    }
)
"""The phases of a pass in which the code before the event is more of it, if a call is of another
model or part than those before; and those of copies."""


class Phases:
    """Follows the events of a step; `phase` is the one in progress."""

    __slots__ = ("_called", "_outer", "_so_far", "phase")

    def __init__(self) -> None:
        self.phase = CODE
        self._outer: list[str] = []  # the phases around the calls in progress
        self._called: set[Hashable] = set()  # models and parts, in this pass
        self._so_far = ""  # the phase of the pass so far; a forward pass stays one

    def reset(self) -> None:
        self.phase, self._so_far = CODE, ""
        self._outer.clear()
        self._called.clear()

    def cut(self) -> None:
        self._so_far = ""

    def feed(self, symbol: Symbol, subject: Hashable = None) -> tuple[str | None, str | None]:
        """Return what the phase in progress was all along, and the phase to mark, if one begins."""
        if symbol == "returns":
            return None, self._return()
        phase, before = BEGINS[symbol], self.phase
        goes_on = before == CODE and (self._so_far, symbol) in GOES_ON
        shown = self._so_far if goes_on else None
        if symbol == "copies" and before == COPY:  # the first one: what came before it is no copy
            shown = CODE
        if symbol not in CALLS:
            if self._so_far:
                self._so_far = ""
                self._called.clear()
            if symbol == "has copied":
                self._so_far = COPY
            if self._outer:  # an exception has left calls that never return
                self._outer.clear()
            self.phase = phase
            return shown, phase
        if subject in self._called:  # another pass
            shown = None
            self._called.clear()
        self._called.add(subject)
        self._outer.append(before)
        if self._so_far != "forward":
            self._so_far = phase
        self.phase = phase
        return shown, None if phase == (shown or before) else phase

    def _return(self) -> str | None:
        if not self._outer:
            return None
        outer, ended = self._outer.pop(), self.phase
        if self._outer:
            self.phase = outer
        elif ended != "rollout":  # the environment's steps belong to it
            self.phase = CODE
        return None if self.phase == ended else self.phase
