"""Hand rows to the W&B run that the script has open, in its process: `training/wandb_run.py`."""

from collections.abc import Callable

from gpudash.errors import RecordingError
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.commands import Figures
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.session import Notice
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.sinks.current import subjects
from gpudash.sinks.sink import Sink
from gpudash.views.time_breakdown import TimeBreakdown

PREFIX = "gpudash/"
"""What all names begin with, so that none is the script's."""


class Wandb(Sink):
    """Sends the numbers of each row to the training, with what limits it."""

    every_step = False

    def __init__(self, _target: str, origin: Origin, /, *, force: bool = False) -> None:
        del force
        self._origin = origin
        self._texts: dict[str, str] = {}
        self._track: Callable[[Figures], None] | None = None
        self._hindered = ""  # by what, as the training's process says

    def connect(self, track: Callable[[Figures], None], /) -> None:
        self._track = track

    def take(self, item: Envelope | Interval, /) -> None:
        if isinstance(item, Envelope):
            if isinstance(item.body, AnswerShown):
                found = item.body.answer
                self._texts = {f"{PREFIX}limit": found.limit} if found is not None else {}
            elif isinstance(item.body, Notice) and item.body.sink == "wandb":
                self._hindered = item.body.text if item.body.hinders else ""
        elif self._track is not None:
            values = {
                PREFIX + subject.tag(metric, name): value
                for subject in subjects(item, self._origin)
                for metric, name, value in subject.numbers()
            }
            self._track(Figures(step=max(item.step, 0), values=values, texts=self._texts))

    def close(self, _account: TimeBreakdown | None, /) -> None:
        """Leave the run open: the script ends it."""
        if self._hindered:
            raise RecordingError(self._hindered)
