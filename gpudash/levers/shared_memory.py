"""How many batches fit into shared memory, through which loader workers hand them over.

Once it is full, a worker dies of a bus error. A container has 64 MiB of it by default.
"""

import os
from contextlib import suppress

from .training_objects import Feed

PLACE = "/dev/shm"  # noqa: S108  # where torch puts them


def batches_that_fit(feed: Feed | None) -> int | None:
    """Return how many batches of this loader fit; None if nothing is known."""
    if feed is not None and feed.batch_bytes:
        with suppress(OSError, AttributeError):  # there is none, as in Windows
            found = os.statvfs(PLACE)
            if found.f_blocks:  # else it has no limit
                return found.f_blocks * found.f_frsize // feed.batch_bytes
    return None


def most_ahead(fits: int | None, times: int) -> int | None:
    """Return the most workers (or batches of each), of `times` batches (or workers).

    The training holds one batch more.
    """
    return None if fits is None else max(fits - 1, 0) // max(times, 1)


def why_not(fits: int | None, ahead: int, own: int) -> str | None:
    """Return why so many batches may not be ahead of the training; None: they may.

    What the script has of its own is its own affair.
    """
    if fits is None or ahead <= max(fits - 1, own):
        return None
    return f"{PLACE} is too small for {ahead + 1} batches: {fits} fit"


def warning(feed: Feed) -> str:
    """Return a clause if the loader's batches, or those of a worker per core, do not fit."""
    fits, loader = batches_that_fit(feed), feed.loader()
    if fits is None or loader is None:
        return ""
    ahead = loader.prefetch_factor or 2
    most, workers = most_ahead(fits, ahead) or 0, loader.num_workers
    if most < workers:
        return f"{PLACE} is too small for their {workers * ahead + 1} batches: {fits} fit"
    if most < len(os.sched_getaffinity(0)):
        return f"{PLACE} has room for the batches of {most}"
    return ""
