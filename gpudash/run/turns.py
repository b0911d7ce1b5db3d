"""Take turns in watching a run: a gpudash without a screen gives way to `gpudash attach`.

A training serves one dashboard at a time: the one that holds a lock in the run's directory. Whoever
opens a screen locks a second file, as a wish. The one without a screen then lets go, and comes back
when the wish is gone. Both locks end with their process, however that ends.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

WISH, WATCHED = "wish", "watched"
"""Names in the run's directory."""
PACE_S, TRIES = 0.02, 5


class Claim:
    """The right to watch a run, until `close`."""

    def __init__(self, place: Path) -> None:
        """Wish for it. Raises BlockingIOError if another process does, and OSError."""
        self._place = place
        self._fds = [_opened(place / WISH)]
        try:
            self._lock_wish()
        except OSError:
            self.close()
            raise

    def _lock_wish(self) -> None:
        for turn in range(TRIES):
            try:
                fcntl.flock(self._fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # for a moment also while a `Turn` looks
                if turn == TRIES - 1:
                    raise
                time.sleep(PACE_S)
            else:
                return

    def is_granted_within(self, seconds: float) -> bool:
        """Return whether who watches without a screen lets go in time, if anybody does."""
        until_s = time.monotonic() + seconds
        while (fd := _locked(self._place / WATCHED)) is None:
            if time.monotonic() > until_s:
                return False
            time.sleep(PACE_S)
        self._fds.append(fd)
        return True

    def close(self) -> None:
        while self._fds:  # the wish last: who waits for its end finds the run free
            os.close(self._fds.pop())


class Turn:
    """The turn of the gpudash without a screen, which has it whenever nobody wishes for it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._fd: int | None = None
        self.is_ours = False
        self.look()

    def look(self) -> bool:
        """Return whether another process wishes to watch now, or has given the run back."""
        is_ours = not _is_wished(self._place / WISH)
        if is_ours and self._fd is None:
            with suppress(OSError):  # the run is over
                self._fd = _locked(self._place / WATCHED)
            is_ours = self._fd is not None
        has_changed, self.is_ours = is_ours != self.is_ours, is_ours
        return has_changed

    def give_way(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _locked(path: Path) -> int | None:
    """Return a descriptor that holds the lock until it is closed; None if another process does."""
    fd = _opened(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:  # a file system without locks, where nobody can claim
        pass
    return fd


def _is_wished(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # nobody ever has
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # as above
        return False
    else:
        return False
    finally:
        os.close(fd)
