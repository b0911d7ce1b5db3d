"""Starts the ranks: `python -m gpudash.worker.launch EVENTS_FD PARENT_PID DIRECTORY PLAN_JSON`.

All ranks die with this process, and it dies with the dashboard's.
"""

import logging
import os
import sys
from signal import SIGTERM

import msgspec

from gpudash.format import signal_name
from gpudash.imports import without_collecting
from gpudash.instrument.pipes import EventPipe
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import Failed, Hello, Status
from gpudash.worker.__main__ import CAN, describe, failed, take_input
from workloads.levers import LeverError
from workloads.lifetime import die_with, end
from workloads.standard_levers import usable_cores

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""All ranks are on this machine, so their traffic stays on it, as does their store (`loopback`)."""


def main() -> int:
    events_fd, parent_pid, directory, plan_json = sys.argv[1:]
    die_with(int(parent_pid))
    take_input()
    plan = msgspec.json.decode(plan_json, type=Plan)
    events = EventPipe(int(events_fd))
    events.send(Hello(can=CAN, pid=os.getpid()))
    events.send(Status(text=f"torchrun starts {plan.nproc} processes"))
    with without_collecting():
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415  # slow
        from torch.distributed.run import parse_args, run  # noqa: PLC0415  # slow

        from gpudash.worker import loopback  # noqa: PLC0415  # imports torch
        from workloads.processes import check_gpus  # noqa: PLC0415  # imports torch

    try:
        check_gpus(plan.device, plan.nproc)
    except LeverError as error:
        events.send(describe(error, plan.workload, plan.settings))
        events.drain()
        return 1
    loopback.register()
    # each rank reports its own failure
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ |= LOOPBACK
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // plan.nproc)))
    rank = [sys.executable, "-P", "-m", "gpudash.worker.rank", directory, plan_json]
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
            sentence = "; ".join(deaths)
            events.send(failed(Failed(kind="error", sentence=sentence)))
        return 1
    return 0


if __name__ == "__main__":
    end(main())
