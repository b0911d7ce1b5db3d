"""`python -m gpudash.worker.describe NAME`: describes a user's own workload in one JSON line.

This is a process of its own because it runs the user's code.
"""

import os
import sys

import msgspec

from gpudash.imports import without_collecting
from gpudash.protocol.training import Described, Description, Unfit
from gpudash.reference_levers import record_of
from workloads.levers import LeverError
from workloads.lifetime import die_with
from workloads.own.loading import find


def describe(name: str) -> Description:
    try:
        with without_collecting():
            entry = find(name)
    except LeverError as error:
        return Unfit(why=str(error))
    return Described(
        summary=entry.summary,
        source=entry.source,
        levers=tuple(record_of(one, entry.on_cpu.get(one.name, "")) for one in entry.levers),
    )


def main() -> None:
    """Print the description to standard output; the user's code prints to standard error."""
    die_with(os.getppid())
    ours = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    line = msgspec.json.encode(describe(sys.argv[1]))
    while line:
        line = line[os.write(ours, line) :]
    os._exit(0)  # even if the user's code has started threads


if __name__ == "__main__":
    main()
