"""How several ranks obey at the same step: rank 0 leads, the others follow.

Commands and the time do not follow from the steps alone. So rank 0 takes them in at a sync point,
between two steps, and sends them to the others, with the step of the next sync point. A sync point
is one line over a Unix socket: no collective, and between two of them the ranks do not talk.
"""

import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpudash.instrument.pipes import CommandPipe, ParentGone
from gpudash.protocol import AnyCommand, Memory, Profile

EVERY_S = 0.025
"""Between two sync points: as often as a single process looks for commands."""
BESIDE_PROFILE = 4
"""Steps that a profile takes besides those that it is asked for, at most."""
RETRY_S = 0.01
READ_BYTES = 1 << 16


class SyncPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What all ranks take in before the same step."""

    at_s: float
    """The time, for all of them, until the next one."""
    next_at: int
    """Batches taken at the next one, unless the levers change or the training pauses before."""
    commands: tuple[AnyCommand, ...] = ()


class Leader:
    """Rank 0: reads the commands, and sends them to the others."""

    def __init__(self, commands: CommandPipe, path: Path, followers: int) -> None:
        """Wait for so many at this socket."""
        self._commands = commands
        self._waiting: list[AnyCommand] = []
        self._newest = (0, time.monotonic())  # batches taken at the newest sync point, and when
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen(followers)
            self._followers = [listening.accept()[0] for _ in range(followers)]

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a sync point may come, at most so long; tell whether it may."""
        return bool(self._waiting) or self._commands.wait(timeout_s)

    def sync(self, taken: int, *, paused: bool = False, busy: bool = False) -> SyncPoint | None:
        """Return the sync point before batch `taken` + 1; None while paused with nothing to obey.

        `busy` with blocks, nothing is profiled.
        """
        self._waiting += self._commands.read()
        if paused and not self._waiting:
            return None
        commands = self._at_once()
        self._waiting = self._waiting[len(commands) :]
        profiled = sum(one.steps for one in commands if isinstance(one, Profile))
        beside = profiled + BESIDE_PROFILE if profiled and not (paused or busy) else 0
        return self._sync(taken, commands, beside)

    def sync_time(self, taken: int) -> SyncPoint:
        """Return a sync point without commands, which wait."""
        return self._sync(taken)

    def _sync(self, taken: int, commands: Sequence[AnyCommand] = (), beside: int = 0) -> SyncPoint:
        now_s = time.monotonic()
        next_at = taken + (beside or self._pace(taken, now_s))
        self._newest = taken, now_s
        shared = tuple(one for one in commands if not isinstance(one, Profile | Memory))
        self._send(SyncPoint(at_s=now_s, next_at=next_at, commands=shared))
        return SyncPoint(at_s=now_s, next_at=next_at, commands=tuple(commands))

    def _at_once(self) -> list[AnyCommand]:
        """Return what is obeyed at once: a profile, which takes steps of its own, alone."""
        first = [n for n, one in enumerate(self._waiting) if isinstance(one, Profile)]
        return self._waiting[: max(first[0], 1)] if first else self._waiting

    def _pace(self, taken: int, now_s: float) -> int:
        """Return how many steps about fill the time to the next one, by those since the newest.

        At most twice as many as those: the next ones may be slower.
        """
        steps, began_s = taken - self._newest[0], self._newest[1]
        fill = int(steps * EVERY_S / max(now_s - began_s, 1e-6))
        return max(1, min(fill, 2 * steps))

    def _send(self, point: SyncPoint) -> None:
        line = msgspec.json.encode(point) + b"\n"
        try:
            for follower in self._followers:
                follower.sendall(line)
        except OSError as error:  # a rank has ended, and with it all will
            raise ParentGone from error


class Follower:
    """Any other rank."""

    def __init__(self, path: Path) -> None:
        """Connect to the leader there, once it listens."""
        self._leader = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self._leader.connect(str(path))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(RETRY_S)
        self._arrived = select.poll()  # select takes no descriptor from 1024 on
        self._arrived.register(self._leader, select.POLLIN)
        self._partial = b""
        self._points: list[SyncPoint] = []
        self._decoder = msgspec.json.Decoder(SyncPoint)

    def wait(self, timeout_s: float) -> bool:
        """As the leader's."""
        return bool(self._points or self._arrived.poll(timeout_s * 1e3))

    def sync(self, taken: int, *, paused: bool = False, busy: bool = False) -> SyncPoint | None:  # noqa: ARG002  # as the leader's
        """As the leader's."""
        return None if paused and not self.wait(0) else self.sync_time(taken)

    def sync_time(self, _taken: int) -> SyncPoint:
        """Return the leader's sync point, once that has come to the same step."""
        while not self._points:
            received = self._leader.recv(READ_BYTES)
            if not received:
                raise ParentGone
            *lines, self._partial = (self._partial + received).split(b"\n")
            self._points += map(self._decoder.decode, lines)
        return self._points.pop(0)


def connect(commands: CommandPipe, path: Path, rank: int, world_size: int) -> Leader | Follower:
    """Connect to the other ranks, by this socket."""
    return Follower(path) if rank else Leader(commands, path, world_size - 1)
