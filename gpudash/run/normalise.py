"""Order messages and number segments over the whole run, so that views need not.

Each worker counts its segments from 0, and a run may have several workers. No I/O, no clock.
"""

from collections import deque

from msgspec.structs import replace

from gpudash.protocol import (
    Changed,
    Envelope,
    Event,
    Hello,
    Paused,
    Progress,
    Reading,
    Restarted,
    Started,
    Step,
)

WORKER = ("training", "output")
"""Source names of a worker's process."""


class Normaliser:
    """Stamps run-wide segments and steps since the last break; drops repeats."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], int] = {}  # newest `seq` of each source and rank
        self._base: int | None = None  # added to the worker's count of segments
        self._segment = 0
        self._breaks = deque([0])  # steps followed by a start, a change or a pause

    def take(self, envelope: Envelope) -> Event | Reading | None:
        """Return the message for the views; None for a repeat, and for one that views do not use.

        Views use rank 0's messages, and only the training's Hello.
        """
        key, body = (envelope.source, envelope.rank), envelope.body
        if envelope.seq <= self._newest.get(key, -1):
            return None
        self._newest[key] = envelope.seq
        speaks_for_another = isinstance(body, Hello) and envelope.source != "training"
        return None if envelope.rank or speaks_for_another else self.stamp(body)

    def stamp(self, body: Event | Reading) -> Event | Reading:
        """Return the message in terms of the run."""
        match body:
            case Restarted():  # another process, which counts from 0
                newest = self._newest.items()
                self._newest = {key: seq for key, seq in newest if key[0] not in WORKER}
            case Started():
                self._base = body.segment if self._base is None else self._segment + 1
                self._segment = self._base
                self._breaks = deque([0])
                return replace(body, segment=self._base)
            case Changed():
                self._breaks.append(body.after_step)
                return replace(body, segment=self._of_run(body.segment))
            case Paused(why="asked"):  # an evaluation is part of the training
                self._breaks.append(body.after_step)
            case Progress():
                return replace(body, steps=tuple(map(self._step, body.steps)))
        return body

    def _step(self, step: Step) -> Step:
        while len(self._breaks) > 1 and self._breaks[1] < step.step:
            self._breaks.popleft()
        since_break = step.step - self._breaks[0]
        return replace(step, segment=self._of_run(step.segment), since_break=since_break)

    def _of_run(self, segment: int) -> int:
        self._segment = max(self._segment, (self._base or 0) + segment)
        return (self._base or 0) + segment
