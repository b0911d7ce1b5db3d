"""The scripted worker as a process: the real one's pipes, in real time, and no torch.

`start_double` takes the place of `start`; `gpudash(…)` is the command line with it. It trains
nothing, holds no memory and has no loader, and is up in a fraction of a second.
"""

import os
import socket
import sys
import time
from pathlib import Path

import msgspec

from gpudash.instrument.pipes import CommandPipe, EventPipe
from gpudash.protocol.commands import Change, Plan, Profile, Stop
from gpudash.protocol.training import Device, Hello, Refused, State, Status
from gpudash.rendezvous import Rendezvous
from gpudash.run.job import TrainingJob
from gpudash.run.workload_process import WorkloadProcess, job_of
from gpudash.worker.__main__ import await_dashboard
from tests.lives import failed, in_process
from tests.scripted_run import started
from tests.scripted_worker import Worker
from workloads.levers import LeverError, resolve
from workloads.lifetime import die_with
from workloads.own.loading import find

STEP_S = float(os.environ.get("DOUBLE_STEP_S", "0.01"))
STEP_MS = float(os.environ.get("DOUBLE_STEP_MS", "0"))
"""What each step is said to take; 0: what it really took."""
LARGEST_BATCH = 1 << 16
ROOT = Path(__file__).parents[1]


GPUDASH = """
import sys
from functools import partialmethod
from gpudash.cli.main import main
from gpudash.run.session import Session
from tests.worker_double import start_double
Session.__init__ = partialmethod(Session.__init__, start_source=start_double)
sys.exit(main())
"""


def start_double(plan: Plan) -> TrainingJob:
    """Start one, however many ranks are planned."""
    held = WorkloadProcess(plan, ("-m", "tests.worker_double"))
    return job_of(msgspec.structs.replace(plan, nproc=1), held)


def gpudash(*arguments: str) -> list[str]:
    """Return the command line of gpudash with the double, to be run in `environment()`."""
    return [sys.executable, "-c", GPUDASH, *arguments]


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which the tests can be imported from any folder.

    Pytest's readline sets the terminal's size in ours: it would be believed.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    ours = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return ours | {"PYTHONPATH": path} | more


class RealTime(Worker):
    """A scripted worker of the planned workload, whose steps last as long as they really did."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(behind=0, refuses=self.refusal)
        self.plan = plan
        self.over = False
        entry = find(plan.workload)
        self.levers = (entry if plan.nproc == 1 else entry.of_processes()).levers
        if reason := self.refusal(plan.settings):
            raise LeverError(reason)
        self.settings = resolve(self.levers, plan.settings)
        self.proven = dict(self.settings)
        self.now_s = self.began_s = time.monotonic()

    def start(self) -> State:
        device = Device(kind="cpu", name="CPU")
        first = started(self.now_s, dict(self.settings))
        state = in_process(first, pid=os.getpid(), device=device)
        return self.begin(msgspec.structs.replace(state, workload=self.plan.workload))

    def refusal(self, settings: dict[str, str]) -> str | None:
        try:
            batch_size = resolve(self.levers, settings)["batch_size"]
        except LeverError as error:
            return str(error)
        if int(batch_size) > LARGEST_BATCH:
            return f"batch_size={batch_size} takes 9.0 GiB, 1.0 GiB are available"
        return None

    def obey(self, command):
        match command:
            case Stop():
                self.over = True
                self.stops += (command.id,)
            case Change() if reason := self.refusal(self.settings | command.settings):
                refused = Refused(
                    answers=(command.id,),
                    kind="bad_setting",
                    changes=command.settings,
                    reason=reason,
                )
                self.sent.append(refused)
            case Profile():
                self.profile(command, 0.0)
            case _:
                super().obey(command)

    def turn(self):
        super().turn()
        steps, duration_s = self.plan.steps, self.plan.duration_s
        self.over |= steps is not None and self.trained >= steps
        self.over |= duration_s is not None and self.now_s - self.began_s >= duration_s
        if self.over:
            self.finish()

    def switch(self, settings, answers=(), *, leaves=False):
        print("switching", settings, flush=True)
        super().switch(settings, answers, leaves=leaves)

    def iterate(self, step_ms=None):
        now_s = time.monotonic()
        super().iterate(STEP_MS or (now_s - self.now_s) * 1e3)
        self.now_s = now_s


def train(plan: Plan, events: EventPipe, commands: CommandPipe) -> None:
    worker = RealTime(plan)
    events.send(worker.start())
    while not worker.over:
        commands.wait(STEP_S)
        for command in commands.read():
            worker.obey(command)
        worker.turn()
        for event in worker.take():
            events.send(event)


def main() -> int:
    """Be started as gpudash.worker is, and end as it does."""
    parent_pid, directory, plan_json = sys.argv[1:]
    die_with(int(parent_pid))
    line = await_dashboard(Rendezvous(Path(directory)))
    events = EventPipe(line.fileno(), 0, line.send, socket.MSG_NOSIGNAL)
    plan = msgspec.json.decode(plan_json, type=Plan)
    code = 0
    try:
        events.send(Hello())
        events.send(Status(text="loading nothing"))
        train(plan, events, CommandPipe(line.fileno()))
    except LeverError as error:
        events.send(failed(time.monotonic(), str(error), "bad_setting"))
        code = 1
    events.drain()
    return code


if __name__ == "__main__":
    sys.exit(main())
