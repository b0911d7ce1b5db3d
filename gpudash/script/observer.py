"""The interface between the tracker, which finds and times steps, and the driver."""

from typing import Protocol

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
        """Do what is due between this step and the next.

        A step whose end is recognised only in the middle of the next one has no border.
        """

    def step(self, step: int) -> None:
        """Note that the clock has closed a step."""

    def aside(self, why: Aside | None) -> None:
        """Note an aside, such as evaluation, since the newest step; None: training goes on."""

    def flush(self) -> None:
        """Report all steps until here."""

    def begins_anew(self) -> None:
        """Note that another training begins in this process; its findings follow."""

    def idle(self) -> None:
        """Do what may be done anywhere, not only between steps."""
