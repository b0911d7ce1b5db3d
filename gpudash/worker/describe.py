"""`python -m gpudash.worker.describe NAME`: what a workload of a user's own is, as one JSON line.

A process of its own, because finding out runs the user's code.
"""

import os
import sys

import msgspec

from gpudash.imports import without_collecting
from gpudash.offers import offer_of
from gpudash.protocol import Described, Description, Unfit
from workloads.levers import LeverError
from workloads.lifetime import die_with
from workloads.own.loading import find


def describe(name: str) -> Description:
    """Import what is named, and describe it."""
    try:
        with without_collecting():
            entry = find(name)
    except LeverError as error:
        return Unfit(why=str(error))
    return Described(
        summary=entry.summary,
        source=entry.source,
        on_cpu=dict(entry.on_cpu),
        levers=tuple(map(offer_of, entry.levers)),
    )


def main() -> None:
    """Print the description alone; what the user's code prints goes to standard error."""
    die_with(os.getppid())
    ours = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    said = msgspec.json.encode(describe(sys.argv[1]))
    while said:
        said = said[os.write(ours, said) :]
    os._exit(0)  # whatever threads the user's code has begun


if __name__ == "__main__":
    main()
