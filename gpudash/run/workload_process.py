"""Hold the command of a reference workload: it is gpudash's own, and ends with it.

It is started on the main thread, because the kernel kills it when the thread that started it ends.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import msgspec

from gpudash.errors import WorkerError
from gpudash.protocol.commands import Plan
from gpudash.rendezvous import Rendezvous
from gpudash.run import child
from gpudash.run.command_process import CommandProcess
from gpudash.run.job import TrainingJob
from gpudash.run.lines import TURN_BYTES, receive
from gpudash.run.terminal_lines import LINE_LIMIT

WORKLOAD, LAUNCHER = ("-m", "gpudash.worker"), ("-m", "gpudash.worker.launch")
REAP_S = 3.0
"""Seconds to wait for a killed process: one inside the GPU's driver may take any time."""


def start(plan: Plan) -> TrainingJob:
    """Start the plan's process, or its several ranks. Raises WorkerError."""
    return job_of(plan, WorkloadProcess(plan))


def job_of(plan: Plan, held: "WorkloadProcess") -> TrainingJob:
    return TrainingJob(plan.workload, held, held.place, world_size=plan.nproc)


class WorkloadProcess(CommandProcess):
    """A process group whose output gpudash reads, and a scratch directory where it is met."""

    can = ("levers", "pause", "restart", "blocks", "record", "memory", "profile", "stacks")
    is_ours = True

    def __init__(self, plan: Plan, program: Sequence[str] = ()) -> None:
        """Start Python with this program. Raises WorkerError, after cleaning up."""
        program = program or (WORKLOAD if plan.nproc == 1 else LAUNCHER)
        try:
            with ExitStack() as on_failure:
                # the parent owns it: the worker's children may be killed before they remove it
                self._scratch = child.Scratch()
                on_failure.callback(self._scratch.cleanup)
                self.place = Rendezvous(Path(self._scratch.name))
                self._process = subprocess.Popen(
                    child.command(
                        *program,
                        str(os.getpid()),
                        self._scratch.name,
                        msgspec.json.encode(plan).decode(),
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # no Ctrl-C for it; killpg reaches its children
                    env=child.environment(),
                )
                on_failure.pop_all()
        except OSError as error:
            raise WorkerError(f"the training process could not start: {error}") from error
        assert self._process.stdout
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._partial = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self) -> bytes:
        """Return whole lines, which nothing replaces: they are for a log."""
        if self._output.closed:
            return b""
        self.exit_code = self._process.poll()
        self.over = self.exit_code is not None
        received, _ = receive(partial(os.read, self._output.fileno()), TURN_BYTES)
        received = self._partial + received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines, end, self._partial = received.rpartition(b"\n")
        if self.over or len(self._partial) > LINE_LIMIT:
            end, self._partial = end + self._partial, b""
        return lines + end

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # gone, or no longer ours
            os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Return after `REAP_S` seconds at the latest, even if it has not ended by then."""
        self.signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_S)
        self._output.close()
        self._scratch.cleanup()
