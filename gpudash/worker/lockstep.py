"""Sync points: how several ranks obey commands at the same step. Rank 0 leads.

Each rank would see commands and the time at another step. So rank 0 reads them at a sync point,
between two steps, and sends them to the others, with the step of the next sync point. A sync point
is one line over a Unix socket, and no collective. Between two of them the ranks exchange nothing.
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
"""Time between two sync points: a single process looks for commands as often."""
BESIDE_PROFILE = 4
"""Most steps that a profile takes beyond those that were requested."""
RETRY_S = 0.01
READ_BYTES = 1 << 16


class SyncPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Commands and the time that all ranks take over before the same step."""

    at_s: float
    """The time that all ranks use until the next sync point."""
    next_at: int
    """Batches taken at the next sync point, unless a lever change or a pause comes before."""
    commands: tuple[AnyCommand, ...] = ()


class Leader:
    """Rank 0: reads the commands, and sends them to the others."""

    def __init__(self, commands: CommandPipe, path: Path, followers: int) -> None:
        """Wait at this socket until so many followers have connected."""
        self._commands = commands
        self._waiting: list[AnyCommand] = []
        self._newest = (0, time.monotonic())  # batches taken at the newest sync point, and when
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen(followers)
            self._followers = [listening.accept()[0] for _ in range(followers)]

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a command arrives, at most so long; return whether one is there."""
        return bool(self._waiting) or self._commands.wait(timeout_s)

    def sync(self, taken: int, *, paused: bool = False, busy: bool = False) -> SyncPoint | None:
        """Return the sync point before batch `taken` + 1; None while paused without commands.

        `busy`: blocks are running, in which a profile is refused.
        """
        self._waiting += self._commands.read()
        if paused and not self._waiting:
            return None
        commands = self._obeyed_now()
        self._waiting = self._waiting[len(commands) :]
        profiled = sum(one.steps for one in commands if isinstance(one, Profile))
        beside = profiled + BESIDE_PROFILE if profiled and not (paused or busy) else 0
        return self._sync(taken, commands, beside)

    def sync_time(self, taken: int) -> SyncPoint:
        """Return a sync point without commands; they wait for the next one."""
        return self._sync(taken)

    def _sync(self, taken: int, commands: Sequence[AnyCommand] = (), beside: int = 0) -> SyncPoint:
        now_s = time.monotonic()
        next_at = taken + (beside or self._pace(taken, now_s))
        self._newest = taken, now_s
        shared = tuple(one for one in commands if not isinstance(one, Profile | Memory))
        self._send(SyncPoint(at_s=now_s, next_at=next_at, commands=shared))
        return SyncPoint(at_s=now_s, next_at=next_at, commands=tuple(commands))

    def _obeyed_now(self) -> list[AnyCommand]:
        """Return the commands for this sync point: a profile takes steps, so it comes alone."""
        first = [n for n, one in enumerate(self._waiting) if isinstance(one, Profile)]
        return self._waiting[: max(first[0], 1)] if first else self._waiting

    def _pace(self, taken: int, now_s: float) -> int:
        """Return the steps that fill the time to the next sync point at the present pace.

        At most twice as many as since the newest sync point: the next steps may be slower.
        """
        steps, began_s = taken - self._newest[0], self._newest[1]
        fill = int(steps * EVERY_S / max(now_s - began_s, 1e-6))
        return max(1, min(fill, 2 * steps))

    def _send(self, point: SyncPoint) -> None:
        line = msgspec.json.encode(point) + b"\n"
        try:
            for follower in self._followers:
                follower.sendall(line)
        except OSError as error:  # a rank has ended, and torchrun ends the others
            raise ParentGone from error


class Follower:
    """Any other rank."""

    def __init__(self, path: Path) -> None:
        """Connect to the leader at this socket, once it listens."""
        self._leader = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self._leader.connect(str(path))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(RETRY_S)
        self._arrived = select.poll()  # select refuses descriptors from 1024 on
        self._arrived.register(self._leader, select.POLLIN)
        self._partial = b""
        self._points: list[SyncPoint] = []
        self._decoder = msgspec.json.Decoder(SyncPoint)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a sync point arrives, at most so long; return whether one is there."""
        return bool(self._points or self._arrived.poll(timeout_s * 1e3))

    def sync(self, taken: int, *, paused: bool = False, busy: bool = False) -> SyncPoint | None:  # noqa: ARG002  # as the leader's
        """Return the leader's next sync point; None while paused and none has arrived."""
        return None if paused and not self.wait(0) else self.sync_time(taken)

    def sync_time(self, _taken: int) -> SyncPoint:
        """Wait until the leader is at the same step, and return its sync point."""
        while not self._points:
            received = self._leader.recv(READ_BYTES)
            if not received:
                raise ParentGone
            *lines, self._partial = (self._partial + received).split(b"\n")
            self._points += map(self._decoder.decode, lines)
        return self._points.pop(0)


def connect(commands: CommandPipe, path: Path, rank: int, world_size: int) -> Leader | Follower:
    """Connect to the other ranks by this socket."""
    return Follower(path) if rank else Leader(commands, path, world_size - 1)
