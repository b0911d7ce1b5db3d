"""What the loop needs of a training's levers."""

from typing import ClassVar, Protocol

from ..protocol.records import Settings
from ..protocol.training import RefusalKind


class Refusal(Exception):  # noqa: N818  # nothing went wrong
    """A lever is not moved; the message says why, as a clause."""

    kind: ClassVar[RefusalKind] = "bad_setting"


class OutOfMemory(Refusal):
    """Memory ran out with these settings."""

    kind = "out_of_memory"


class Levers(Protocol):
    """The levers of a training. They are moved on the thread that trains, between two steps."""

    @property
    def settings(self) -> Settings:
        """The active values."""

    @property
    def warmup_steps(self) -> int:
        """Warm-up steps after the newest `begins`, or after the start."""

    @property
    def burst_steps(self) -> int:
        """Batches that arrive at a time after the newest `enter`."""

    def resolve(self, changes: Settings) -> Settings:
        """Return all settings after these changes. Raises Refusal."""

    def needs_call(self, wanted: Settings) -> bool:
        """Return whether the settings must be rehearsed on a training call of the roots."""

    def enter(self, wanted: Settings) -> None:
        """Make the settings active. Raises Refusal; then call `CommandedTraining.put_back`."""

    def begins(self, *, in_blocks: bool, anew: bool) -> None:
        """Note that what is measured begins after the present step.

        Batches that are there already do not count, if `anew` nor those that are being made. What
        is kept for a later block is freed unless blocks go on.
        """

    def restore(self) -> None:
        """Put back what the training had before any change."""


def phrase(settings: Settings) -> str:
    """Return the settings as `name=value`, separated by commas."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())
