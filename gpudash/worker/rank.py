"""One of several ranks: `python -m gpudash.worker.rank DIRECTORY PLAN_JSON`, as torchrun starts it.

It listens on a socket in the directory, and waits until the dashboard that started it connects.
"""

import faulthandler
import os
import platform
import socket
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gpudash.imports import without_collecting
from gpudash.instrument.endpoint import Endpoint
from gpudash.instrument.pipes import CommandPipe, EventPipe
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import Status, TrainingProcess
from gpudash.rendezvous import Rendezvous
from gpudash.worker.__main__ import announce, keep_sockets_in, of_process, train, work
from gpudash.worker.phases import phases_of_ranks
from workloads.cache import keep_compiled_code
from workloads.lifetime import die_with, end
from workloads.own.loading import find

if TYPE_CHECKING:
    from workloads.training import Training


def main() -> int:
    faulthandler.enable()
    die_with(os.getppid())
    directory, plan_json = sys.argv[1:]
    keep_sockets_in(directory)
    keep_compiled_code(directory)
    plan = msgspec.json.decode(plan_json, type=Plan)
    line = await_dashboard(Rendezvous(Path(directory)))
    rank = int(os.environ["RANK"])
    events = EventPipe(line.fileno(), rank, line.send, socket.MSG_NOSIGNAL)
    commands = CommandPipe(line.fileno())
    code = work(plan, events, build, partial(train, commands=commands))
    if code == 0:
        leave()
    return code


def await_dashboard(place: Rendezvous) -> socket.socket:
    with closing(Endpoint(place.socket(os.getpid()))) as endpoint:
        return endpoint.wait()


def build(plan: Plan, events: EventPipe) -> tuple["Training", TrainingProcess]:
    with without_collecting():
        # the first optimizer would import it while the other ranks wait
        import torch._dynamo  # noqa: F401, PLC0415  # slow

        from gpudash.instrument.collectives import bus_gb_s  # noqa: PLC0415  # imports torch
        from gpudash.instrument.slowing import hook_loaders  # noqa: PLC0415  # imports torch
        from workloads import processes  # noqa: PLC0415  # imports torch
        from workloads.training import Training  # noqa: PLC0415  # imports torch

    device, entry = processes.pick_device(plan.device), find(plan.workload)
    events.send(Status(text=f"waiting for the other {plan.nproc - 1} processes"))
    joined = processes.join(device)
    described = announce(plan, device, events)
    hook_loaders()
    training = Training(entry.of_processes(), plan.settings, device, joined)
    about = {"world_size": joined.count, "node": platform.node(), "bus_gb_s": bus_gb_s(device)}
    process = of_process(described, phases_of_ranks(entry.prepares))
    return training, replace(process, **about)


def leave() -> None:
    """Call this only after success: else others may wait in a collective."""
    from torch import distributed  # noqa: PLC0415  # slow

    distributed.destroy_process_group()


if __name__ == "__main__":
    end(main())
