"""What a session hands its messages and rows to: a recording, rows on standard output, an exporter.

A new kind is a module here with a class that derives from `Sink`, and a line in `SINKS`.
"""

from abc import abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from gpudash.errors import UsageError
from gpudash.protocol.commands import Figures
from gpudash.protocol.envelope import Envelope
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.snapshot import RecordingStatus
from gpudash.views.time_breakdown import TimeBreakdown


class Sink(Protocol):
    """Takes messages and complete rows in their order, and is ended once: closed or abandoned.

    It first gets the messages that still hold: the plan, the states, the GPUs. All calls come from
    the sink's own thread, which may wait for a disk or a reader. After a RecordingError, one line
    for the user, it goes on unless it has `failed`. Any other exception is told too, and ends it.
    """

    every_step: bool = True
    """Whether it takes single steps and readings, besides the rows that hold them.

    Where it is far behind, they are left out. Rows and other messages never are.
    """
    every_reading: bool = False
    """Whether it takes all readings, but no single steps."""
    apart: bool = True
    """Whether it has a thread of its own. Without, it delays the session."""

    @property
    def failed(self) -> bool:
        """A sink that has failed can take nothing more; it is then abandoned."""
        return False

    @property
    def shown(self) -> RecordingStatus | None:
        return None

    def connect(self, track: Callable[[Figures], None], /) -> None:
        """Take what hands figures to a tracker in the training's process; most need none."""
        del track

    @abstractmethod
    def take(self, item: Envelope | Interval, /) -> None:
        """Take the next message, or the next complete row of all ranks and GPUs."""

    @abstractmethod
    def close(self, account: TimeBreakdown | None, /) -> None:
        """Complete it; nothing follows. `account` is of its time; None without a step."""

    def abandon(self) -> None:
        """End it because it failed, or the session itself: what it has is incomplete."""
        self.close(None)

    def discard(self) -> None:
        """End it before the training began, as where another sink is refused: leave no file."""
        self.abandon()


class _Opener(Protocol):
    """A class of sinks."""

    def __call__(self, target: str, origin: Origin, /, *, force: bool) -> Sink:
        """Open a sink at a file or an address. Raises UsageError and RecordingError."""


SINKS = {
    "recording": "gpudash.sinks.recording:RecordingWriter",
    "csv": "gpudash.sinks.rows:CsvRows",
    "jsonl": "gpudash.sinks.rows:JsonRows",
    "otlp": "gpudash.sinks.otlp:Otlp",
    "prometheus": "gpudash.sinks.prometheus:Prometheus",
    "tensorboard": "gpudash.sinks.tensorboard:Tensorboard",
    "trace": "gpudash.sinks.trace:TraceFile",
    "wandb": "gpudash.sinks.wandb:Wandb",
}
"""Name → module and class, so that only what is used is imported."""


def opener(name: str) -> _Opener:
    """Raise UsageError for an unknown name."""
    if name not in SINKS:
        raise UsageError(f"{name} is no sink; valid: {', '.join(SINKS)}")
    module, _, kind = SINKS[name].partition(":")
    found: _Opener = getattr(import_module(module), kind)
    return found
