"""Read a command that trains as a source: its output, its processes' messages, its end.

A user's command ends only on a Stop, by signals, and runs on when the source is closed. A reference
workload is ours: it stops at a step, says itself how its training ended, and ends with the source.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from signal import SIGINT, SIGKILL

import msgspec
from msgspec.structs import replace

from gpudash.format import plain, signal_name
from gpudash.input_file import read_input
from gpudash.protocol.commands import AnyCommand, Figures, Stacks, Stop
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.session import Notice
from gpudash.protocol.training import (
    Failed,
    Hello,
    LifePhase,
    Printed,
    Progress,
    StartStage,
    State,
    Status,
    TrainingProcess,
)
from gpudash.rendezvous import Rendezvous
from gpudash.run.command_process import CommandProcess
from gpudash.run.lines import StackReply
from gpudash.run.nodes import Nodes
from gpudash.run.source import Source, printed
from gpudash.run.terminal_lines import TerminalLines
from gpudash.run.training_processes import TrainingProcesses
from gpudash.run.turns import Turn

INTERRUPTED = (-SIGINT, 128 + SIGINT)
"""Exit codes after a SIGINT; the second is a shell's, and that of those who do as a shell does."""
NO_HOOKS = {
    "oldtorch": "its torch is older than 2.5: gpudash measures nothing there",
    "oldpython": "its Python is older than 3.10: gpudash measures nothing there",
    "newpython": "its Python is newer than 3.14: this gpudash measures nothing there",
}
"""Why a process is not measured, by the mark that it left."""
NO_STEP = {
    "oldtorch": f"no training step was seen: {NO_HOOKS['oldtorch']}",
    "failed": "no training step was seen: gpudash failed in the process that imported torch",
    "trained": "the training ended with its first steps: too soon to measure one",
    "torch": "no training step was seen, though torch was imported",
    "oldpython": f"no training step was seen: {NO_HOOKS['oldpython']}",
    "newpython": f"no training step was seen: {NO_HOOKS['newpython']}",
    "python": "no training step was seen: torch was never imported, or in a Python that gpudash "
    "does not reach: started with -I, -E or -S, or without PYTHONPATH",
    "": "no training step was seen: gpudash was not loaded; is this python -I, -E or -S, a frozen "
    "program, or no Python?",
}
"""Why no step was seen, by the first of these marks that is there; by none."""
OUTPUT_S, TYPING_S = 0.2, 2.0
"""Seconds between reads of the output, and seconds after typing in which each turn reads it."""
BURST_BYTES, SUSTAINED_BYTES_PER_S = 1 << 20, 1 << 16
"""Limits of the output that is shown and recorded: at once, and in the long run."""
MOST_BYTES = 1 << 16
"""Of what a process says of its failure."""
PUT_BACK = "the training was started again: its levers are as the script has them"
TORCHRUN_REPORT = re.compile(r"^ *rank +: (\d+) \(.*\n *exitcode +: (-?\d+) \(", re.MULTILINE)


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the command's trainings has done: rank 0 in one process."""

    pid: int
    began_s: float
    until_s: float
    steps: int = 0

    @property
    def seconds(self) -> float:
        """From its begin, or when it was first watched, to its newest step."""
        return self.until_s - self.began_s


class TrainingJob(Source):
    """The command, and all its training processes."""

    def __init__(
        self,
        name: str,
        held: CommandProcess,
        place: Rendezvous,
        *,
        nodes: Nodes | None = None,
        gives_way: bool = False,
        world_size: int | None = None,
    ) -> None:
        """With `gives_way` the training is left to `gpudash attach` while one watches it.

        `world_size` is the number of processes that are known to come.
        """
        self.name = name
        self.is_ours = held.is_ours
        self.started = False
        """Whether a step was ever seen; may be read from any thread."""
        self.total_steps = 0
        """Rank 0's steps, in the newest training."""
        self.trainings: tuple[Trained, ...] = ()
        """One after another, as far as steps were seen."""
        self.was_interrupted = False
        """Whether the terminal has sent it a SIGINT, as far as known."""
        self.is_behind = False
        """Whether they are those until another gpudash took over."""
        self.held = held
        self._place = place
        self._called = "the training process" if self.is_ours else name
        self._processes = TrainingProcesses(place, nodes, world_size=world_size)
        self._turn = Turn(place.path) if gives_way else None
        self._seqs: Counter[tuple[str, int]] = Counter()
        self._lines = TerminalLines()
        self._left_bytes = float(BURST_BYTES)
        self._read_s = self._typed_s = 0.0
        self._stops = 0
        self._answers: list[int] = []
        self._why: str | None = None  # how it ended
        self._failed_why = ""
        self._failures: list[tuple[int, State]] = []  # each with its rank
        self._is_closed = False
        awaits: StartStage = "process" if self.is_ours else "torch"
        self._waiting: list[Event] = [
            Hello(can=held.can),
            Status(text=f"starting {name}", awaits=awaits),
        ]
        if held.prints_to:
            lines = (f"gpudash: {name} prints elsewhere, to", held.prints_to)  # it may be long
            self._waiting.append(Printed(lines=lines))
        self._status = ""
        self._state: State | None = None  # rank 0's newest one

    @property
    def filenos(self) -> tuple[int, ...]:
        return self._processes.filenos

    @property
    def was_stopped(self) -> bool:
        """Whether gpudash has asked it to end, before it was seen to have ended."""
        return self._stops > 0

    @property
    def last_lines(self) -> tuple[str, ...]:
        """Empty unless a keeper has the command's terminal."""
        return self._lines.newest

    @property
    def is_away(self) -> bool:
        return self._turn is not None and not self._turn.is_ours

    def read(self) -> list[Envelope]:
        if self._is_closed or self._why is not None:
            return []
        # numbered in the order of sending: the normaliser drops older numbers
        found = [*self._own(), *self._output(), *self._of_training()]
        if self.held.over:
            while more := self._of_training():
                found += more
            self._end()
        else:
            self._report_progress()
            if not self.is_ours:  # whose end says what becomes of its processes
                found += self._relayed(self._processes.departed())
                self._waiting += self._processes.notices()
        return [*found, *self._own()]

    def send(self, command: AnyCommand, /) -> None:
        if isinstance(command, Stop) and not self.is_ours:
            self._answers.append(command.id)
            self._stop()
        elif isinstance(command, Stacks):
            self._processes.ask_for_stacks(command)
        elif not self._is_closed:
            self._waiting += [one.body for one in self._processes.send(command)]  # type: ignore[misc]  # no readings

    def track(self, figures: Figures, /) -> None:
        self._processes.track(figures)

    def stack(self) -> StackReply | None:
        return self._processes.stack()

    def type(self, text: str, /) -> None:
        self._typed_s = time.monotonic()
        self.held.type(text)

    def ended(self) -> str | None:
        return self._why

    def close(self) -> None:
        self._is_closed = True
        self._processes.close()
        self.held.close()

    # ── messages ────────────────────────────────────────────────────────────────────

    def _own(self) -> list[Envelope]:
        now_s = time.monotonic()
        events, self._waiting = self._waiting, []
        return [self._stamped("training", 0, now_s, event) for event in events]

    def _of_training(self) -> list[Envelope]:
        if self._turn is not None and self._turn.look() and self.is_away:
            parting, self.is_behind = self._processes.let_go(), True
            self._turn.give_way()
            return self._relayed(parting)
        found = []
        for envelope in () if self.is_away else self._processes.read():
            body, rank = envelope.body, envelope.rank
            if isinstance(body, State) and body.failure is not None:  # the end tells the first one
                self._failures.append((rank, body))
                continue
            process = body.process if isinstance(body, State) else None
            if isinstance(body, State) and process is not None:
                self.started, body = True, replace(body, workload=self.name)
                if rank == 0:
                    self._note_levers(body)
                    self._note_training(process)
            if isinstance(body, Progress) and rank == 0:
                self.total_steps, self.is_behind = body.total_steps, False
                self._note_progress(body)
            found.append(self._stamped(envelope.source, rank, envelope.sent_s, body))
        return found

    def _note_levers(self, state: State) -> None:
        before, self._state = self._state, state
        is_new = before is not None and before.process != state.process
        if before is not None and is_new and before.requested and not state.requested:
            self._waiting.append(Notice(text=PUT_BACK))

    def _note_training(self, process: TrainingProcess) -> None:
        if not self.trainings or self.trainings[-1].pid != process.pid:
            at_s = process.ready_s
            self.trainings += (Trained(pid=process.pid, began_s=at_s, until_s=at_s),)

    def _note_progress(self, report: Progress) -> None:
        if self.trainings:
            *before, newest = self.trainings
            until_s = max((step.finished_s for step in report.steps), default=newest.until_s)
            newest = replace(newest, steps=report.total_steps, until_s=until_s)
            self.trainings = (*before, newest)

    def _relayed(self, envelopes: Iterable[Envelope]) -> list[Envelope]:
        return [self._stamped(one.source, one.rank, one.sent_s, one.body) for one in envelopes]

    def _stamped(self, source: str, rank: int, sent_s: float, body: object) -> Envelope:
        self._seqs[source, rank] += 1
        seq = self._seqs[source, rank]
        return Envelope(source=source, rank=rank, seq=seq, sent_s=sent_s, body=body)  # type: ignore[arg-type]  # checked where it is made

    def _output(self) -> list[Envelope]:
        now_s = time.monotonic()
        if now_s - self._read_s < (0 if now_s - self._typed_s < TYPING_S else OUTPUT_S):
            return []
        more = SUSTAINED_BYTES_PER_S * (now_s - self._read_s)
        self._left_bytes = min(self._left_bytes + more, BURST_BYTES)
        self._read_s = now_s
        received = self.held.read()[-max(int(self._left_bytes), 1) :]
        if not received:
            return []
        self._left_bytes -= len(received)
        messages = printed(*self._lines.feed(received))
        return [self._stamped("output", 0, now_s, one) for one in messages]

    def _report_progress(self) -> None:
        if self.started or self.is_ours:  # which says itself what it does
            return
        marks = ("oldtorch", "torch", "oldpython", "newpython")
        mark = next((one for one in marks if self._processes.has_mark(one)), "")
        if mark == "torch":
            status = "torch is imported; no training step so far"
        else:
            status = f"{self.name} runs; {NO_HOOKS.get(mark, 'torch is not imported so far')}"
        if status != self._status:
            self._status = status
            awaits: StartStage = "step" if mark == "torch" else "torch"
            self._waiting.append(Status(text=status, awaits=awaits))

    def _stop(self) -> None:
        number = self.held.stops[min(self._stops, len(self.held.stops) - 1)]
        self._stops += 1
        with suppress(OSError):  # it has ended by itself
            self._place.end()
        self.held.signal(number)
        if number == SIGKILL:  # a killed launcher may leave its processes behind
            self._processes.kill()
        said = "as Ctrl-C does" if number == SIGINT else f"by {signal_name(number)}"
        self._waiting.append(Notice(text=f"{self.name} was asked to end, {said}"))

    # ── the end ─────────────────────────────────────────────────────────────────────────

    def _end(self) -> None:
        self._why = self.how_it_ended()
        if self._processes.has_mark("failed"):  # the place is gone soon
            self._failed_why = plain(_why(self._place, "failed"))
        if not self.is_ours:
            self._waiting += self._end_of_command(self._why)
        elif self._failed_why:
            self._why = self._failed_why
        else:
            self._waiting += self._first_failure()

    def _first_failure(self) -> Iterator[Event]:
        if not self._failures:
            return
        rank, first = min(self._failures, key=lambda one: one[1].at_s)
        failures = [state.failure for _, state in self._failures if state.failure is not None]
        failure = first.failure
        if failure is not None and len({one.sentence for one in failures}) > 1:
            failure = replace(failure, sentence=f"rank {rank}: {failure.sentence}")
        yield State(at_s=first.at_s, phase="failed", failure=failure)

    def _end_of_command(self, why: str) -> Iterator[Event]:
        code, until_s, now_s = self.held.exit_code, self._processes.parted_s, time.monotonic()
        if code == 0 or (code is None and not self.held.lost):
            yield State(
                at_s=now_s,
                phase="finished",
                trained_until_s=until_s,
                answers=tuple(self._answers),
                after_step=self.total_steps,
            )
        elif not self._stops and self._is_interrupted:
            # what has not begun cannot stop, and leaves no recording, as where the script is done
            phase: LifePhase = "stopped" if self.started else "finished"
            yield State(at_s=now_s, phase=phase, trained_until_s=until_s)
            yield Notice(text=why)
        elif not self._stops:
            failure = Failed(kind="error", sentence=why)
            yield State(at_s=now_s, phase="failed", trained_until_s=until_s, failure=failure)
        if not self.started and not self._stops:
            yield Notice(text=self.why_no_step())

    @property
    def _is_interrupted(self) -> bool:
        """Whether a SIGINT has ended it; who catches one may exit with any code."""
        code = self.held.exit_code
        return code in INTERRUPTED or (self.was_interrupted and code is not None and code > 0)

    def how_it_ended(self) -> str:
        code = self.held.exit_code
        if self.held.lost:
            return f"whoever held the terminal of {self.name} was killed, and the terminal is gone"
        if code is None or code == 0:
            return f"{self._called} has ended"
        if code in INTERRUPTED:
            return f"{self._called} was interrupted"
        if code < 0:
            return f"{self._called} was killed by {signal_name(-code)}"
        last = _failed_rank(self.last_lines) or _last_words(self.last_lines)
        return f"{self._called} exited with {code}{last and f': {last}'}"

    def why_no_more(self) -> str:
        return self.how_it_ended() if self.started else self.why_no_step()

    def why_no_step(self) -> str:
        mark = next((one for one in NO_STEP if self._processes.has_mark(one)), "")
        why = self._failed_why if mark == "failed" else ""
        return f"{NO_STEP[mark]}: {why}" if why else NO_STEP[mark]


def _last_words(lines: Sequence[str]) -> str:
    return next((one.strip() for one in reversed(lines) if any(map(str.isalnum, one))), "")


def _failed_rank(lines: Sequence[str]) -> str:
    """Return the rank that failed first by torchrun's final report; empty without a report."""
    found = TORCHRUN_REPORT.findall("\n".join(lines))
    if not found:
        return ""
    rank, code = found[-1]
    number = int(code)
    how = f"was killed by {signal_name(-number)}" if number < 0 else f"exited with {number}"
    return f"rank {rank} {how}"


def _why(place: Rendezvous, what: str) -> str:
    for pid in sorted(place.marked(what)):
        with suppress(OSError):
            said = read_input(place.path / f"{pid}.{what}", MOST_BYTES).decode(errors="replace")
            if said.strip():
                return said.strip().splitlines()[0]
    return ""
