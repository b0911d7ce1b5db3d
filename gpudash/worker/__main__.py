"""A process that trains a workload: `python -m gpudash.worker PARENT_PID DIRECTORY PLAN_JSON`.

It listens in the directory, as a script under gpudash does, and begins once the dashboard that
started it has connected. The first event leaves before torch is imported, so that the user knows
what the wait is for. Each of several ranks is such a process.
"""

import faulthandler
import os
import platform
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gpudash.imports import without_collecting
from gpudash.instrument import stack_server
from gpudash.instrument.endpoint import Endpoint
from gpudash.instrument.pipes import CommandPipe, EventPipe, ParentGone
from gpudash.instrument.state_sender import StateSender
from gpudash.process_levers import split
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import (
    Device,
    Failed,
    Hello,
    Note,
    Phase,
    State,
    Status,
    TrainingProcess,
)
from gpudash.rendezvous import Rendezvous
from gpudash.worker.phases import phases, phases_of_ranks
from workloads.cache import keep_compiled_code
from workloads.levers import LeverError, phrase
from workloads.lifetime import die_with, end
from workloads.own.loading import failure, find

if TYPE_CHECKING:
    import torch

    from workloads.training import Training


def main() -> int:
    faulthandler.enable()
    parent_pid, directory, plan_json = sys.argv[1:]
    die_with(int(parent_pid))
    keep_sockets_in(directory)
    keep_compiled_code(directory)
    plan = msgspec.json.decode(plan_json, type=Plan)
    several = plan.nproc > 1
    place = Rendezvous(Path(directory))
    line = await_dashboard(place)
    stack_server.answer(place)
    rank = int(os.environ["RANK"]) if several else 0
    events = EventPipe(line.fileno(), rank, line.send, socket.MSG_NOSIGNAL)
    commands = CommandPipe(line.fileno())
    make = build_rank if several else build
    code = work(plan, events, make, partial(train, commands=commands))
    if several and code == 0:
        leave()
    return code


def await_dashboard(place: Rendezvous) -> socket.socket:
    with closing(Endpoint(place.socket(os.getpid()))) as endpoint:
        return endpoint.wait()


def work(
    plan: Plan,
    events: EventPipe,
    build: Callable[[Plan, EventPipe], tuple["Training", TrainingProcess]],
    train: Callable[["Training", Plan, StateSender], None],
) -> int:
    training = None
    try:
        events.send(Hello(pid=os.getpid()))
        events.send(Status(text="loading torch", awaits="torch"))
        training, process = build(plan, events)
        train(training, plan, StateSender(ready(training, plan, process), events.send))
    except ParentGone:
        return 1
    except (Exception, SystemExit) as error:  # noqa: BLE001  # every failure is reported
        asked = training.chosen if training else plan.settings
        events.send(describe(error, plan.workload, asked))
        events.drain()
        return 1
    events.drain()
    return 0


def keep_sockets_in(directory: str) -> None:
    """Have multiprocessing put its sockets into this directory, which the parent removes."""
    tempfile.tempdir = directory
    get_temp_dir()
    tempfile.tempdir = None


def build(plan: Plan, events: EventPipe) -> tuple["Training", TrainingProcess]:
    # imported here because it takes seconds
    with without_collecting():
        from workloads.training import Training, pick_device  # noqa: PLC0415  # see above

    device, entry = pick_device(plan.device), find(plan.workload)
    described = begin_to_build(plan, device, events)
    training = Training(entry, split(plan.settings)[0], device)
    return training, of_process(described, phases(entry.prepares))


def build_rank(plan: Plan, events: EventPipe) -> tuple["Training", TrainingProcess]:
    with without_collecting():
        # the first optimizer would import it while the other ranks wait
        import torch._dynamo  # noqa: F401, PLC0415  # slow

        from gpudash.instrument.collectives import bus_gb_s  # noqa: PLC0415  # imports torch
        from workloads import processes  # noqa: PLC0415  # imports torch
        from workloads.training import Training  # noqa: PLC0415  # imports torch

    processes.check_gpus(plan.device, plan.nproc)
    device, entry = processes.pick_device(plan.device), find(plan.workload)
    waits = f"waiting for the other {plan.nproc - 1} processes"
    events.send(Status(text=waits, awaits="model"))
    joined = processes.join(device)
    described = begin_to_build(plan, device, events)
    training = Training(entry.of_processes(), split(plan.settings)[0], device, joined)
    about = {"world_size": joined.count, "node": platform.node(), "bus_gb_s": bus_gb_s(device)}
    process = of_process(described, phases_of_ranks(entry.prepares))
    return training, replace(process, **about)


def leave() -> None:
    """Call this only after success: else others may wait in a collective."""
    from torch import distributed  # noqa: PLC0415  # slow

    distributed.destroy_process_group()


def begin_to_build(plan: Plan, device: "torch.device", events: EventPipe) -> Device:
    from gpudash.instrument import loader_workers  # noqa: PLC0415  # imports torch
    from gpudash.instrument.device import describe_device  # noqa: PLC0415  # imports torch
    from gpudash.instrument.slowing import hook_loaders  # noqa: PLC0415  # imports torch

    hook_loaders()
    loader_workers.hook()
    described = describe_device(device)
    builds = f"building {plan.workload} on {described.name}"
    events.send(Status(text=builds, awaits="model"))
    return described


def of_process(device: Device, phases: tuple[Phase, ...]) -> TrainingProcess:
    import torch  # noqa: PLC0415

    from gpudash.instrument.device import versions  # noqa: PLC0415  # imports torch

    return TrainingProcess(
        pid=os.getpid(),
        ready_s=time.monotonic(),
        device=device,
        versions=versions(),
        phases=phases,
        threads=torch.get_num_threads(),
    )


def ready(training: "Training", plan: Plan, process: TrainingProcess) -> State:
    from gpudash.instrument import loader_workers  # noqa: PLC0415  # imports torch

    return State(
        at_s=process.ready_s,
        phase="training",
        process=process,
        workload=plan.workload,
        settings=training.settings | split(plan.settings)[1],
        requested=plan.settings,
        warmup_steps=training.warmup_steps,
        notes=tuple(Note(lever=lever, text=text) for lever, text in training.notes.items()),
        loader_pids=loader_workers.pids(),
    )


def train(training: "Training", plan: Plan, life: StateSender, commands: CommandPipe) -> None:
    from gpudash.worker.loop import Loop  # noqa: PLC0415  # imports torch

    with closing(training):
        Loop(training, plan, commands, life).run()


def describe(error: BaseException, workload: str, asked: Mapping[str, str]) -> State:
    """Return the error as a message; `asked` are the settings with which it happened."""
    from workloads.memory import is_out_of_memory  # noqa: PLC0415  # imports torch

    trace = traceback.format_exc()
    if isinstance(error, LeverError):
        return failed(Failed(kind="bad_setting", sentence=str(error)))
    if is_out_of_memory(error):
        lack = f"out of memory with {phrase(asked) or 'the default settings'}"
        sentence = "; ".join((lack, *getattr(error, "__notes__", ())))
        return failed(Failed(kind="out_of_memory", sentence=sentence, traceback=trace))
    return failed(Failed(kind="error", sentence=failure(error, workload), traceback=trace))


def failed(failure: Failed) -> State:
    return State(at_s=time.monotonic(), phase="failed", failure=failure)


if __name__ == "__main__":
    end(main())
