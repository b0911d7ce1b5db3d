"""Take turns in watching a run: a gpudash without a screen gives way to `gpudash attach`.

A training serves one dashboard at a time. Whoever opens a screen locks a file in the run's
directory, and the lock ends with its process, however that ends. The one that waits without a
screen lets go of the training, says so by another file, and comes back when the lock is gone.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

CLAIM, FREE = "claim", "free"
"""Names in the run's directory."""
PACE_S, TRIES = 0.02, 5


class Claim:
    """The right to watch a run, until `close`."""

    def __init__(self, place: Path) -> None:
        """Take the right. Raises BlockingIOError if another process has it, and OSError."""
        self._place = place
        self._fd = os.open(place / CLAIM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock()
        except OSError:
            self.close()
            raise

    def _lock(self) -> None:
        for turn in range(TRIES):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # for a moment also while a `Turn` looks
                if turn == TRIES - 1:
                    raise
                time.sleep(PACE_S)
            else:
                return

    def is_free_within(self, seconds: float) -> bool:
        """Return whether the gpudash without a screen lets go of the training in time."""
        until_s = time.monotonic() + seconds
        while not (self._place / FREE).exists():
            if time.monotonic() > until_s:
                return False
            time.sleep(PACE_S)
        return True

    def close(self) -> None:
        """Give the right back; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class Turn:
    """The turn of the gpudash without a screen, which has it whenever nobody claims it."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.is_ours = True

    def look(self) -> bool:
        """Return whether another process claims the run now, or has given it back."""
        is_ours = not _is_claimed(self._place / CLAIM)
        has_changed, self.is_ours = is_ours != self.is_ours, is_ours
        if has_changed and is_ours:
            with suppress(OSError):
                (self._place / FREE).unlink()
        return has_changed

    def tell(self) -> None:
        """Tell who claims the run that the training is free."""
        with suppress(OSError):  # the run is over
            (self._place / FREE).touch(mode=0o600)


def _is_claimed(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # nobody ever has
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks, where nobody can claim
        return False
    else:
        return False
    finally:
        os.close(fd)
