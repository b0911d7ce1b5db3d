"""Starts the ranks: `python -m gpudash.worker.launch PARENT_PID DIRECTORY PLAN_JSON`.

All ranks die with this process, and it dies with the dashboard's. They meet the dashboard in the
directory.
"""

import logging
import os
import sys
from pathlib import Path
from signal import SIGTERM

import msgspec

from gpudash.format import signal_name
from gpudash.imports import without_collecting
from gpudash.protocol.commands import Plan
from gpudash.rendezvous import Rendezvous
from workloads.lifetime import die_with, end
from workloads.standard_levers import usable_cores

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""All ranks are on this machine, so their traffic stays on it, as does their store (`loopback`)."""


def main() -> int:
    parent_pid, directory, plan_json = sys.argv[1:]
    die_with(int(parent_pid))
    plan = msgspec.json.decode(plan_json, type=Plan)
    with without_collecting():
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415  # slow
        from torch.distributed.run import parse_args, run  # noqa: PLC0415  # slow

        from gpudash.worker import loopback  # noqa: PLC0415  # imports torch

    loopback.register()
    # each rank reports its own failure
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ |= LOOPBACK
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // plan.nproc)))
    me = str(os.getpid())
    rank = [sys.executable, "-P", "-m", "gpudash.worker", me, directory, plan_json]
    meeting = [f"--rdzv-backend={loopback.BACKEND}", f"--rdzv-endpoint={loopback.ADDRESS}"]
    how = [*meeting, f"--nproc-per-node={plan.nproc}"]
    try:
        run(parse_args([*how, "--no-python", *rank]))  # type: ignore[no-untyped-call]  # in torch
    except ChildFailedError as error:
        deaths = [
            f"rank {rank} was killed by {signal_name(-one.exitcode)}"
            for rank, one in error.failures.items()
            if one.exitcode < 0 and -one.exitcode != SIGTERM  # which torchrun sends to the others
        ]
        if deaths:  # failures of the other ranks follow from these
            Rendezvous(Path(directory)).mark("failed", "; ".join(deaths))
        return 1
    return 0


if __name__ == "__main__":
    end(main())
