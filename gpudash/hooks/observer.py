"""What is told of a training as it is found and measured, and to whom."""

from typing import Protocol

from gpudash.hooks.found import Found
from gpudash.protocol import Aside, Phase

LABELS = {
    "copy": "copy",
    "forward": "forward",
    "backward": "backward",
    "communication": "communication",
    "optimizer": "optimizer",
    "graph": "CUDA graph",
    "your_code": "your code",
}
PHASES = tuple(Phase(name=name, label=label, lane="train") for name, label in LABELS.items())
"""Of a step."""


class Observer(Protocol):
    """Who is told of the training, on the thread that trains."""

    def found(self, found: Found) -> None:
        """Take what is known: before the first step is measured, and whenever more is known."""

    def border(self, step: int) -> None:
        """Do what is to be done after this step: nothing of the next has been begun.

        Where the end of a step shows only in the middle of the next, it has no border.
        """

    def step(self, step: int) -> None:
        """Take that a step has been closed on the clock."""

    def aside(self, why: Aside | None) -> None:
        """Take what the training does since its newest step instead; None: it goes on."""

    def idle(self) -> None:
        """Do what may be done anywhere."""
