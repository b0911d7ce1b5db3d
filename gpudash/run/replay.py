"""Play a recording as a source, by a clock that can be paused and moved.

One reader goes ahead to the end, which may still grow, for the length and the markers. Another
sends the messages that are due. Seeking back starts the file again.
"""

import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf, nextafter
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gpudash.errors import SourceError, UsageError
from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import GpuReading, HostReading, Reading
from gpudash.protocol.session import Playback, StragglerShown
from gpudash.protocol.training import Hello, Progress, State
from gpudash.ranks.normalise import Normaliser
from gpudash.recording.csv_reader import log_of
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Closed, LogReader
from gpudash.recording.unfold import unfold
from gpudash.run.source import Source
from gpudash.run.speeds import SPEEDS
from gpudash.views.live import LiveView

NOTHING = Plan(workload="", settings={})
"""The plan of a replay until the recording's own has been read."""
LATE_S = 2.5
"""Seconds after its end by which a row is written: messages from before may precede it."""
AT_ONCE = 500
"""Lines read in one turn, so that a long file delays nothing else."""
MOST_HELD = 10_000
"""Most messages that wait for earlier rows."""


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
        self._ahead = LogReader(self.path)
        self.origin = self._ahead.origin
        """When and by what the recording was made."""
        self.at_file_end = False
        """Whether the last read came to the end of the file."""
        self._began_s = self.origin.began_s
        self._overview = LiveView(NOTHING, self._began_s)
        self._stamp = Normaliser().stamp
        self._markers: tuple[tuple[float, str], ...] = ()
        self._rows_s = self._newest_s = self._began_s  # end of the rows, newest message
        self._grew_s = player.now()
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

    @property
    def refused(self) -> int:
        return self._ahead.refused

    @property
    def share_read(self) -> float:
        return self._reader.share_read

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
        return [*found, self._envelope("replay", self._now_s, self.playback)]

    def close(self) -> None:
        self._ahead.close()
        self._reader.close()

    def _begin(self) -> None:
        self._now_s = self._known_s = self._began_s  # every row begun by then is read
        self._event_s = self._began_s  # the newest message's time
        self._restarted_s = -inf
        self._held: list[tuple[float, int, Envelope | Interval]] = []
        self._every_step = self._reader.origin.every_step
        self._gpus: dict[str, GpuReading] = {}
        self._counters: dict[str, float] = {}  # energy of each GPU so far
        self._first = [self._envelope("training", self._began_s, Hello())]
        if not self._every_step:  # the means of rows would often name a wrong rank
            nobody = StragglerShown(straggler=None)
            self._first.append(self._envelope("session", self._began_s, nobody))

    def _envelope(self, source: str, at_s: float, body: Event | Reading, rank: int = 0) -> Envelope:
        return Envelope(source=source, rank=rank, seq=next(self._seq), sent_s=at_s, body=body)

    # ── ahead ───────────────────────────────────────────────────────────────────────────

    @property
    def _still(self) -> bool:
        return self.player.complete or self.player.now() - self._grew_s > LATE_S

    def _look_ahead(self) -> None:
        found = self._ahead.read(AT_ONCE)
        self.at_file_end = not found
        for one in found:
            if isinstance(one, Closed):
                self.player.complete = True
            elif isinstance(one, Interval) or isinstance(one.body, Progress):
                self._rows_s = max(self._rows_s, _moment(one))
            elif not isinstance(one.body, GpuReading | HostReading) and one.rank == 0:
                self._overview.take(replace(one, body=self._stamp(one.body)))
                self._newest_s = max(self._newest_s, _moment(one))
        if found:
            self._grew_s = self.player.now()
            self._markers = tuple((one.at_s, one.label) for one in self._overview.markers)
        end_s = max(self._rows_s, self._newest_s) if self._still else self._rows_s
        self.player.length_s = max(self.player.length_s, end_s - self._began_s)

    # ── what is due ─────────────────────────────────────────────────────────────────────

    def _due(self, until_s: float) -> list[Envelope]:
        found, self._first = self._first, []
        while len(found) < AT_ONCE:
            if self._held and self._held[0][0] <= min(until_s, self._known_s):
                at_s, _, one = heappop(self._held)
                self._now_s = max(self._now_s, at_s)
                found += self._messages(one)
            elif self._known_s > until_s or not self._read_on():
                self._now_s = until_s
                break
        return found

    def _read_on(self) -> bool:
        found, known_s = self._reader.read(AT_ONCE), self._known_s
        for one in found:
            if isinstance(one, Closed):
                self._known_s = inf
                continue
            at_s, late_s = _moment(one), 0.0
            if isinstance(one, Envelope):  # sent in the order in which they came
                at_s = self._event_s = max(one.sent_s if self._every_step else at_s, self._event_s)
                late_s = 0.0 if self._every_step else LATE_S + self._reader.origin.interval_s
                if isinstance(one.body, State) and one.body.phase == "starting":
                    self._restarted_s = at_s
            elif self._every_step:
                continue
            self._known_s = max(self._known_s, at_s - late_s)
            if isinstance(one, Interval) and one.began_s < self._restarted_s < at_s:
                at_s = nextafter(self._restarted_s, -inf)  # all its steps are of the worker before
            heappush(self._held, (at_s, next(self._seq), one))
        if not found and self._still:
            self._known_s = inf
        if len(self._held) > MOST_HELD:
            self._known_s = max(self._known_s, self._held[0][0])
        return bool(found) or self._known_s > known_s

    def _messages(self, one: Envelope | Interval) -> list[Envelope]:
        if isinstance(one, Interval):
            return [  # rank 0's is folded with the others' samples up to then
                self._envelope("training", one.ended_s, body, rank)
                for rank, body in unfold(one, self._gpus, self._counters)
            ]
        match one.body:
            case Hello():
                return []
            case GpuReading(uuid=uuid) as reading if not self._every_step:
                self._gpus[uuid] = replace(reading, values={})  # rows lack the GPU's name
                return []
        return [self._envelope(one.source, one.sent_s, one.body, one.rank)]


def _moment(one: Envelope | Interval) -> float:
    if isinstance(one, Interval):
        return one.ended_s
    if isinstance(one.body, Progress | GpuReading | HostReading):
        return one.sent_s
    return float(getattr(one.body, "at_s", one.sent_s))
