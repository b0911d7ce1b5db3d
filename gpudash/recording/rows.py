"""Fold messages into the rows of a recording: in a session for each of its sinks, and of a log."""

from collections.abc import Iterable

from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import HostReading
from gpudash.protocol.training import Progress, State
from gpudash.ranks.normalise import Normaliser
from gpudash.recording.intervals import Interval, Intervals
from gpudash.recording.rank_steps import RankTracks


class Rows:
    """Takes the messages of all ranks, the newest states first; rows begin with the training."""

    def __init__(self, began_s: float, interval_s: float) -> None:
        self._began_s = began_s
        self._interval_s = interval_s
        self._normaliser = Normaliser()
        self._ranks = RankTracks(interval_s)
        self._intervals: Intervals | None = None

    def take(self, envelope: Envelope) -> tuple[Interval, ...]:
        """Return the rows that are complete with this message."""
        rank, body = envelope.rank, envelope.body
        if isinstance(body, State):  # in mid-run, the first one is a start of what is recorded
            body = self._normaliser.stamp(body, rank)
        if not rank:
            self._begin(body)
            return self._intervals.fold(body) if self._intervals is not None else ()
        if isinstance(body, State) or (
            self._intervals is not None and isinstance(body, Progress | HostReading)
        ):
            self._ranks.take(rank, body)
        return ()

    def close(self, at_s: float) -> Iterable[Interval]:
        """Return the remaining rows. None follow."""
        return self._intervals.close(at_s) if self._intervals is not None else ()

    def _begin(self, body: object) -> None:
        if self._intervals is None and isinstance(body, State) and body.process is not None:
            began_s = max(self._began_s, body.process.ready_s)
            self._intervals = Intervals(began_s, self._interval_s, self._ranks)
