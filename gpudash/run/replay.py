"""Play a recording as a source, by a clock that can be paused and moved.

Messages come again in their order, each at the moment at which it was sent. One reader goes ahead
to the end, which may still grow, for the length and the markers. Another one sends what is due.
Seeking back starts the file again.
"""

import time
from collections import deque
from collections.abc import Callable
from itertools import count
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeGuard

from msgspec.structs import replace

from gpudash.errors import SourceError, UsageError
from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.session import Playback
from gpudash.protocol.training import Hello, Progress
from gpudash.ranks.normalise import Normaliser
from gpudash.recording.csv_reader import log_of
from gpudash.recording.log import Closed, Logged, LogReader
from gpudash.run.source import Source
from gpudash.run.speeds import SPEEDS
from gpudash.views.live import LiveView

NOTHING = Plan(workload="", settings={})
"""The plan of a replay until the recording's own has been read."""
AT_ONCE = 500
"""Lines read in one turn, so that a long file delays nothing else."""


class _From(NamedTuple):
    position_s: float
    at_s: float
    speed: float
    playing: bool


class Player:
    """Controls the position of a replay, in seconds since its recording began; from any thread."""

    def __init__(self, speed: float = 1.0, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.length_s = 0.0
        """Known length of the recording; the position is never beyond it."""
        self.complete = False
        """Whether the recording is closed, so that it does not grow any more."""
        self._from = _From(0.0, now(), speed, playing=True)

    @property
    def position_s(self) -> float:
        position_s, at_s, speed, playing = self._from
        played_s = speed * (self.now() - at_s) if playing else 0.0
        return min(position_s + played_s, self.length_s)

    @property
    def at_end(self) -> bool:
        return self.position_s >= self.length_s

    @property
    def playing(self) -> bool:
        return self._from.playing and not (self.complete and self.at_end)

    @property
    def speed(self) -> float:
        """Seconds of the recording per second."""
        return self._from.speed

    def play_or_hold(self) -> None:
        """At the end of a closed recording, play from the beginning."""
        playing = not self.playing
        again = playing and self.complete and self.at_end
        self._set(0.0 if again else self.position_s, self.speed, playing=playing)

    def seek(self, position_s: float) -> None:
        """Beyond the end, follow the end while it grows."""
        self._set(max(position_s, 0.0), self.speed, playing=self._from.playing)

    def seek_end(self) -> None:
        self._set(inf, self.speed, playing=True)

    def faster(self, direction: int) -> None:
        """`direction` is +1 for the next higher speed, -1 for the next lower one."""
        others = [one for one in SPEEDS if (one - self.speed) * direction > 0]
        speed = min(others, key=lambda one: abs(one - self.speed), default=self.speed)
        self._set(self.position_s, speed, playing=self._from.playing)

    def _set(self, position_s: float, speed: float, *, playing: bool) -> None:
        self._from = _From(position_s, self.now(), speed, playing)


class Replay(Source):
    """A recording that is played; it takes no commands except through its player."""

    def __init__(self, path: Path, player: Player) -> None:
        """Open the log, or that beside a CSV. Raises UsageError."""
        self.player = player
        self._name = path.name
        self.path = log_of(path)
        """The file that is read."""
        self._seq = count()
        self._ahead = LogReader(self.path, steps=False)
        self.origin = self._ahead.origin
        """When and by what the recording was made."""
        self._began_s = self._newest_s = self.origin.began_s
        self._overview = LiveView(NOTHING, self._began_s)
        self._stamp = Normaliser().take_own
        self._markers: tuple[tuple[float, str], ...] = ()
        self._reader = LogReader(self.path)
        self._begin()

    def now(self) -> float:
        """Return the moment up to which messages have been sent: a replayed session's clock."""
        return self._now_s

    @property
    def playback(self) -> Playback:
        player = self.player
        return Playback(
            name=self._name,
            position_s=player.position_s,
            length_s=player.length_s,
            speed=player.speed,
            playing=player.playing,
            following=player.playing and player.at_end,
            markers=self._markers,
        )

    def read(self) -> list[Envelope]:
        try:
            self._look_ahead()
            until_s = self._began_s + self.player.position_s
            if until_s < self._now_s:
                self._reader.close()
                self._reader = LogReader(self.path)
                self._begin()
            found = self._due(until_s)
        except UsageError as error:
            raise SourceError(str(error)) from error
        return [*found, self._envelope("replay", self.playback)]

    def close(self) -> None:
        self._ahead.close()
        self._reader.close()

    def _begin(self) -> None:
        self._now_s = self._began_s
        self._next = deque[Logged]()
        self._first = [self._envelope("training", Hello())]

    def _envelope(self, source: str, body: Event) -> Envelope:
        return Envelope(source=source, seq=next(self._seq), sent_s=self._now_s, body=body)

    def _look_ahead(self) -> None:
        found = self._ahead.read(AT_ONCE)
        for one in found:
            self._newest_s = max(self._newest_s, sent_s(one))
            if isinstance(one, Closed):
                self.player.complete = True
            elif isinstance(one, Envelope) and _may_be_marked(one):
                self._overview.take(self._stamp(one))
        if found:
            self._markers = tuple((one.at_s, one.label) for one in self._overview.markers)
        self.player.length_s = self._newest_s - self._began_s

    def _due(self, until_s: float) -> list[Envelope]:
        found, self._first = self._first, []
        while len(found) < AT_ONCE:
            self._next = self._next or deque(self._reader.read(AT_ONCE))
            if not self._next or sent_s(self._next[0]) > until_s:
                self._now_s = max(until_s, self._now_s)
                break
            one = self._next.popleft()
            self._now_s = max(sent_s(one), self._now_s)
            if is_played(one):
                found.append(replace(one, seq=next(self._seq)))
        return found


def is_played(one: Logged) -> TypeGuard[Envelope]:
    """Leave out its Hello: a replay says its own, as it can do less."""
    return isinstance(one, Envelope) and not isinstance(one.body, Hello)


def _may_be_marked(one: Envelope) -> bool:
    return not one.rank and not isinstance(one.body, Progress | GpuReading | HostReading)


def sent_s(one: Logged) -> float:
    return one.sent_s if isinstance(one, Envelope) else one.ended_s
