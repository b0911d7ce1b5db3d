"""Run the worker as a source: start it, exchange messages, notice its end.

Nothing here waits for the worker, except `close` for a killed one. Only the thread that consumes
the events calls the methods. `WorkerProcess` itself is created on the main thread, because the
kernel kills the child when the thread that started it ends. `find` has a child describe a workload
of the user's, whose code is never imported here.
"""

import codecs
import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpudash.errors import WorkerError
from gpudash.format import plain, signal_name
from gpudash.protocol.commands import AnyCommand, Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Described, Description, State
from gpudash.reference_levers import from_record
from gpudash.rendezvous import Rendezvous
from gpudash.run import child
from gpudash.run.lines import TURN_BYTES, receive
from gpudash.run.source import Decoder, Source, printed
from gpudash.run.training_processes import TrainingProcesses
from workloads import CATALOGUE, Entry, add
from workloads.levers import LeverError
from workloads.nearest import unknown
from workloads.own.names import installed, is_file


def find(name: str) -> Entry:
    """Describe a user's own workload in a child. Raises LeverError with the failed line."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    if not name.isprintable():
        raise LeverError(f"workload {name!r} is not valid; valid: a name of printable UTF-8")
    if not is_file(name) and name not in installed():
        raise LeverError(unknown("workload", name, [*CATALOGUE, *installed()]))
    done = child.run("-m", "gpudash.worker.describe", name)
    try:
        description: Description = msgspec.json.decode(done.stdout, type=Description)
    except msgspec.DecodeError as error:  # it ended without a description
        words = [line for line in done.stderr.splitlines() if line.strip()] or [""]
        why = f"{name}: Python ended with {done.returncode} while importing it: {words[-1]}"
        raise LeverError(plain(why.rstrip(": "))) from error
    if not isinstance(description, Described):
        raise LeverError(plain(description.why))
    return add(
        Entry(
            name=name,
            summary=plain(description.summary),
            source=description.source,
            levers=tuple(map(from_record, description.levers)),
            module="workloads.own.adapter",
            on_cpu={one.name: one.on_cpu for one in description.levers if one.on_cpu},
        )
    )


WORKER = ("-m", "gpudash.worker")
LAUNCHER = ("-m", "gpudash.worker.launch")
REAP_S = 3.0
"""Seconds to wait for a killed worker: one inside the GPU's driver may take any time."""
LAST_WORDS = 20
"""Last output lines kept, to say why a worker died without an event."""
LINE_LIMIT = 1 << 12
"""Most characters of a printed line: a progress bar may never end one."""


def start(plan: Plan) -> Source:
    """Start the plan's process, or its several ranks. Raises WorkerError."""
    return WorkerProcess(plan) if plan.nproc == 1 else RankProcesses(plan)


class WorkerProcess(Source):
    """A running worker process, its pipes and its process group."""

    def __init__(self, plan: Plan, program: Sequence[str] = WORKER) -> None:
        """Start Python with this program. Raises WorkerError, after cleaning up."""
        try:
            with ExitStack() as on_failure, ExitStack() as childs_ends:
                # the parent owns it: the worker's children may be killed before they remove it
                self._scratch = child.Scratch()
                on_failure.callback(self._scratch.cleanup)
                self._events, events = _pipe(on_failure, childs_ends)
                output, stdout = _pipe(on_failure, childs_ends)
                errors, stderr = _pipe(on_failure, childs_ends)
                self._printed = [output, errors]
                self._process = subprocess.Popen(
                    child.command(
                        *program,
                        str(events),
                        str(os.getpid()),
                        self._scratch.name,
                        msgspec.json.encode(plan).decode(),
                    ),
                    stdin=subprocess.PIPE,
                    stdout=stdout,
                    stderr=stderr,
                    pass_fds=(events,),
                    start_new_session=True,  # no Ctrl-C for it; killpg reaches its children
                    env=child.environment(),
                )
                on_failure.pop_all()
        except OSError as error:
            raise WorkerError(f"the training process could not start: {error}") from error
        assert self._process.stdin
        self._stdin = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self._unsent = bytearray()
        self._decoder = Decoder("the training process")
        self._seq = itertools.count()  # of its output
        self._last_words: list[str] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def filenos(self) -> tuple[int, ...]:
        return tuple(lines.fd for lines in (self._events, *self._printed) if not lines.ended)

    def send(self, command: AnyCommand, /) -> None:
        self._unsent += msgspec.json.encode(command) + b"\n"
        self._flush()

    def _flush(self) -> None:
        if self._unsent:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                del self._unsent[: os.write(self._stdin.fileno(), self._unsent)]

    def read(self) -> list[Envelope]:
        self._flush()
        lines = [line for pipe in self._printed for line in pipe.read_text()]
        events = [self._decoder.decode(line) for line in self._events.read()]
        return [*self._output(lines), *events]

    def _output(self, lines: list[str]) -> list[Envelope]:
        self._last_words = (self._last_words + lines)[-LAST_WORDS:]
        now_s = time.monotonic()
        return [
            Envelope(source="output", seq=next(self._seq), sent_s=now_s, body=one)
            for one in printed(lines)
        ]

    def exit_code(self) -> int | None:
        """Return None while it runs, a negative number for a signal."""
        return self._process.poll()

    def ended(self) -> str | None:
        code = self.exit_code()
        if code is None:
            return None
        if code < 0:  # its last output is not the reason
            return f"the training process was killed by {signal_name(-code)}"
        words = [line.strip() for line in self._last_words if line.strip()]
        why = f"the training process exited with {code}"
        return f"{why}: {words[-1]}" if words else why

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or no longer ours
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Return after `REAP_S` seconds at the latest, even if the worker has not ended by then."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_S)
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        for lines in (self._events, *self._printed):
            lines.close()
        self._scratch.cleanup()


class RankProcesses(WorkerProcess):
    """The launcher with its pipes, and a connection to each rank."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, LAUNCHER)
        self._ranks = TrainingProcesses(Rendezvous(Path(self._scratch.name)), world_size=plan.nproc)
        self._seqs: Counter[tuple[str, int]] = Counter()
        self._unanswered: list[Envelope] = []
        self._failures: list[tuple[int, State]] = []  # each with its rank
        self._death: State | None = None  # of a rank that could not report it

    def send(self, command: AnyCommand, /) -> None:
        self._unanswered += self._ranks.send(command)

    def read(self) -> list[Envelope]:
        has_ended = self.exit_code() is not None
        unanswered, self._unanswered = self._unanswered, []
        found = []
        for envelope in (*super().read(), *unanswered):
            if isinstance(envelope.body, State) and envelope.body.failure is not None:
                self._death = envelope.body
            else:
                found.append(envelope)
        for envelope in self._ranks.read():
            if isinstance(envelope.body, State) and envelope.body.failure is not None:
                self._failures.append((envelope.rank, envelope.body))
            else:
                found.append(envelope)
        why = self._death or self._first_failure()
        if has_ended and why is not None:
            self._death, self._failures = None, []
            failed = State(at_s=why.at_s, phase="failed", failure=why.failure)
            found.append(Envelope(source="training", seq=0, sent_s=why.at_s, body=failed))
        return [self._numbered(one) for one in found]

    def close(self) -> None:
        super().close()
        self._ranks.close()

    def _first_failure(self) -> State | None:
        if not self._failures:
            return None
        rank, first = min(self._failures, key=lambda one: one[1].at_s)
        sentences = {state.failure.sentence for _, state in self._failures if state.failure}
        if len(sentences) == 1 or first.failure is None:
            return first
        sentence = f"rank {rank}: {first.failure.sentence}"
        return replace(first, failure=replace(first.failure, sentence=sentence))

    def _numbered(self, envelope: Envelope) -> Envelope:
        key = envelope.source, envelope.rank
        self._seqs[key] += 1
        return replace(envelope, seq=self._seqs[key])


class _PipeLines:
    """Lines from a non-blocking pipe."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.ended = False
        self._partial = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""

    def read(self) -> list[bytes]:
        *lines, self._partial = (self._partial + self._receive()).split(b"\n")
        return lines

    def read_text(self) -> list[str]:
        received = self._receive()
        self._text += self._decoder.decode(received, self.ended)
        *lines, self._text = self._text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if self._text and (self.ended or len(self._text) > LINE_LIMIT):
            lines.append(self._text)
            self._text = ""
        return [line[:LINE_LIMIT] for line in lines]

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def _receive(self) -> bytes:
        received, self.ended = receive(partial(os.read, self.fd), TURN_BYTES)
        return received


def _pipe(on_failure: ExitStack, childs_ends: ExitStack) -> tuple[_PipeLines, int]:
    reading, writing = os.pipe()
    lines = _PipeLines(reading)
    on_failure.callback(lines.close)
    childs_ends.callback(os.close, writing)
    return lines, writing
