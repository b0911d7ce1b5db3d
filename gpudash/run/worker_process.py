"""The worker as a source: start it, talk to it, notice its end.

Nothing here waits for the worker, but `close` for a killed one, and not for ever. Only the
thread that consumes the events calls its methods; `WorkerProcess` itself is
made on the main thread, because the kernel kills the child when the thread that started it ends.
"""

import codecs
import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec

from gpudash.errors import WorkerError
from gpudash.format import signal_name
from gpudash.protocol import AnyCommand, Envelope, Plan, Printed
from gpudash.run import child, scratch
from gpudash.run.source import Decoder, Ended, Source

WORKER = ("-m", "gpudash.worker")
READ_BYTES = 1 << 16
TURN_BYTES = 1 << 20
"""One turn reads no more, so that a flood of output holds up nothing else. It is many times what
a pipe holds: one turn after the worker's end reads all that it left."""
REAP_S = 3.0
"""How long a killed worker is waited for: one inside the GPU's driver may take any time."""
LAST_WORDS = 20
"""Lines of a worker that died without a word, kept to say why."""
MOST_LINES = 32
"""Of a message: so a log's line stays shorter than its reader takes, whatever is printed."""
LINE_LIMIT = 1 << 12
"""A line that the worker prints is cut here: a progress bar may never end one."""


class WorkerProcess(Source):
    """A running worker process, its pipes and its process group."""

    def __init__(self, plan: Plan, program: Sequence[str] = WORKER) -> None:
        """Start Python with this program. Raises WorkerError, and then leaves nothing behind."""
        try:
            with ExitStack() as on_failure, ExitStack() as childs_ends:
                # the worker's children keep sockets in it, and none of them may live to remove it
                self._scratch = scratch.Scratch()
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
                    start_new_session=True,  # Ctrl-C is ours alone, and killpg reaches its children
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
        self._seq = itertools.count()  # of what it prints
        self._last_words: list[str] = []

    @property
    def pid(self) -> int:
        """The worker's process id, also its process group's."""
        return self._process.pid

    @property
    def filenos(self) -> tuple[int, ...]:
        """What to watch for something to read; those at their end are left out."""
        return tuple(lines.fd for lines in (self._events, *self._printed) if not lines.ended)

    def send(self, command: AnyCommand, /) -> None:
        """Hand the command over; a worker that is gone or busy does not hold us up."""
        self._unsent += msgspec.json.encode(command) + b"\n"
        self._flush()

    def _flush(self) -> None:
        """Write what the worker's standard input takes."""
        if self._unsent:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                del self._unsent[: os.write(self._stdin.fileno(), self._unsent)]

    def read(self) -> list[Envelope]:
        """Return what it has printed, and its events; write what waits. Raises SourceError."""
        self._flush()
        printed = [line for lines in self._printed for line in lines.read_text()]
        events = [self._decoder.decode(line) for line in self._events.read()]
        return [*self._output(printed), *events]

    def _output(self, lines: list[str]) -> list[Envelope]:
        self._last_words = (self._last_words + lines)[-LAST_WORDS:]
        parts = [tuple(lines[at : at + MOST_LINES]) for at in range(0, len(lines), MOST_LINES)]
        now_s = time.monotonic()
        return [
            Envelope(source="output", seq=next(self._seq), sent_s=now_s, body=Printed(lines=part))
            for part in parts
        ]

    def exit_code(self) -> int | None:
        """Return how the worker ended, negative for a signal; None while it lives."""
        return self._process.poll()

    def ended(self) -> Ended | None:
        """Return how the worker ended; None while it lives."""
        code = self.exit_code()
        if code is None:
            return None
        if code < 0:  # what it printed before has nothing to do with it
            return Ended(f"the training process was killed by {signal_name(-code)}")
        words = [line.strip() for line in self._last_words if line.strip()]
        why = f"the training process exited with {code}"
        return Ended(f"{why}: {words[-1]}" if words else why)

    def kill(self) -> None:
        """End the worker and its children at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or not ours now
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left of the group, reap the worker, tidy up after it; again: nothing.

        Returns after `REAP_S` seconds at the latest; a worker still alive is the kernel's then.
        """
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_S)
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        for lines in (self._events, *self._printed):
            lines.close()
        self._scratch.cleanup()


class _Lines:
    """Lines out of a pipe that is never waited for."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.ended = False
        self._partial = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""

    def read(self) -> list[bytes]:
        """Return the complete lines that have arrived."""
        *lines, self._partial = (self._partial + self._receive()).split(b"\n")
        return lines

    def read_text(self) -> list[str]:
        """Return printed lines; a last one without an end counts, an endless one is cut."""
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
        received = bytearray()
        while not self.ended and len(received) < TURN_BYTES:
            try:
                chunk = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                break
            self.ended = not chunk
            received += chunk
        return bytes(received)


def _pipe(on_failure: ExitStack, childs_ends: ExitStack) -> tuple[_Lines, int]:
    """Return a new pipe's lines, ours to read, and the end that the child writes to."""
    reading, writing = os.pipe()
    lines = _Lines(reading)
    on_failure.callback(lines.close)
    childs_ends.callback(os.close, writing)
    return lines, writing
