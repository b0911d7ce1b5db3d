"""How several ranks obey at the same step: the first one leads, the others do as it did.

Whatever does not follow from the steps alone, commands and the time, the leader takes in turns. It
tells the others which step comes before the next turn, so that all stand at the same one. A turn
is one line over a Unix socket: no collective, and nothing of it while steps are taken between.
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
"""How often a turn comes, as often as one process alone looks for commands."""
BESIDE_PROFILE = 4
"""Steps that a profile takes besides those that it is asked for, at most."""
RETRY_S = 0.01
READ_BYTES = 1 << 16


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What all ranks take in before the same step."""

    at_s: float
    """The time by which all of them judge until the next turn."""
    until: int
    """Batches taken when that comes, unless the levers change or the training pauses before."""
    commands: tuple[AnyCommand, ...] = ()


class Leader:
    """Rank 0: reads the commands, and tells the others."""

    def __init__(self, commands: CommandPipe, path: Path, followers: int) -> None:
        """Wait for so many at this socket."""
        self._commands = commands
        self._waiting: list[AnyCommand] = []
        self._newest = (0, time.monotonic())  # batches taken at the newest turn, and when it was
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen(followers)
            self._followers = [listening.accept()[0] for _ in range(followers)]

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a turn may come, at most so long; tell whether it may."""
        return bool(self._waiting) or self._commands.wait(timeout_s)

    def take(self, taken: int, *, paused: bool = False, busy: bool = False) -> Turn | None:
        """Return the turn before batch `taken` + 1; None while paused with nothing to obey.

        `busy` with blocks, nothing is profiled.
        """
        self._waiting += self._commands.read()
        if paused and not self._waiting:
            return None
        commands = self._at_once()
        self._waiting = self._waiting[len(commands) :]
        profiled = sum(one.steps for one in commands if isinstance(one, Profile))
        beside = profiled + BESIDE_PROFILE if profiled and not (paused or busy) else 0
        return self._turn(taken, commands, beside)

    def keep_time(self, taken: int) -> Turn:
        """Return a turn without commands, which wait."""
        return self._turn(taken)

    def _turn(self, taken: int, commands: Sequence[AnyCommand] = (), beside: int = 0) -> Turn:
        now_s = time.monotonic()
        until = taken + (beside or self._pace(taken, now_s))
        self._newest = taken, now_s
        shared = tuple(one for one in commands if not isinstance(one, Profile | Memory))
        self._tell(Turn(at_s=now_s, until=until, commands=shared))
        return Turn(at_s=now_s, until=until, commands=tuple(commands))

    def _at_once(self) -> list[AnyCommand]:
        """Return what is obeyed in one turn: a profile, which takes steps of its own, alone."""
        first = [n for n, one in enumerate(self._waiting) if isinstance(one, Profile)]
        return self._waiting[: max(first[0], 1)] if first else self._waiting

    def _pace(self, taken: int, now_s: float) -> int:
        """Return how many steps about fill the time to the next turn, by those since the newest.

        At most twice as many as those: the next ones may be slower.
        """
        steps, began_s = taken - self._newest[0], self._newest[1]
        fill = int(steps * EVERY_S / max(now_s - began_s, 1e-6))
        return max(1, min(fill, 2 * steps))

    def _tell(self, turn: Turn) -> None:
        line = msgspec.json.encode(turn) + b"\n"
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
        self._partial = b""
        self._turns: list[Turn] = []
        self._decoder = msgspec.json.Decoder(Turn)

    def wait(self, timeout_s: float) -> bool:
        """As the leader's."""
        return bool(self._turns or select.select([self._leader], [], [], timeout_s)[0])

    def take(self, taken: int, *, paused: bool = False, busy: bool = False) -> Turn | None:  # noqa: ARG002  # as the leader's
        """As the leader's."""
        return None if paused and not self.wait(0) else self.keep_time(taken)

    def keep_time(self, _taken: int) -> Turn:
        """Return the leader's turn, once that has come to the same step."""
        while not self._turns:
            received = self._leader.recv(READ_BYTES)
            if not received:
                raise ParentGone
            *lines, self._partial = (self._partial + received).split(b"\n")
            self._turns += map(self._decoder.decode, lines)
        return self._turns.pop(0)


def meet(commands: CommandPipe, path: Path, rank: int, world_size: int) -> Leader | Follower:
    """Meet the other ranks at this socket."""
    return Follower(path) if rank else Leader(commands, path, world_size - 1)
