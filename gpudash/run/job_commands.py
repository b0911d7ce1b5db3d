"""Send commands to the training processes, and return one answer to each.

A lever changes on all ranks or on none, and all pause, go on and stop together. Such a command goes
to every rank, with the step after which all ranks obey it. Other commands go to rank 0.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from gpudash.protocol.commands import (
    FOR_ALL,
    AnyCommand,
    Blocks,
    Change,
    Memory,
    Pause,
    Profile,
    Rehearse,
    Resume,
    Stop,
)
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.inspections import Rehearsed
from gpudash.protocol.training import BlocksEnded, Refused, State, TooLate, TrainingProcess
from gpudash.run.member import AHEAD_S, Key, Member

GATHER_S = 3.0
"""Seconds within which all ranks of a job are expected to be connected."""
AHEAD_STEPS = 3
"""Together with `AHEAD_S`, how far ahead the step of a change is: the command has to reach every
rank before it, and none reads its socket within a step."""
TRIES = 4
"""Most attempts, each with a step twice as far ahead: a busy machine delivers commands later."""
TOO_LATE = "each time it reached the ranks after the step at which they were to obey"
ENDED = "the training has ended, or was lost"


class JobCommands:
    """The commands that are not sent yet, and those without an answer."""

    def __init__(self, world_size: int | None = None) -> None:
        """`world_size` is the number of ranks that are known to come: they are waited for."""
        self._world_size = world_size
        self._unsent: deque[tuple[AnyCommand, float]] = deque()  # with a time limit
        self._pending: dict[int, _Pending] = {}  # by its id
        self._processes: dict[int, TrainingProcess | None] = {}  # of each rank
        self._at_step = 0  # of the newest command for all ranks

    def take(self, command: AnyCommand) -> None:
        wait_s = GATHER_S if self._world_size is None else math.inf
        self._unsent.append((command, time.monotonic() + wait_s))

    def turn(self, members: Sequence[Member]) -> list[Envelope]:
        """Send the commands that can be sent; return answers for those that get none."""
        self._ask_again(members)
        return [*self._send_on(members), *self._left_over(members)]

    def note(self, envelope: Envelope, rank: int) -> None:
        """Pass on one answer to a command: rank 0's, or another rank's if rank 0 is lost."""
        if isinstance(envelope.body, State) and envelope.body.process != self._processes.get(rank):
            self._processes[rank] = envelope.body.process
            self._at_step = 0
        for number in getattr(envelope.body, "answers", ()):
            pending = self._pending.get(number)
            if pending is None:
                continue
            if rank != 0:
                pending.answer = pending.answer or envelope
            elif isinstance(envelope.body, TooLate):
                pending.is_late = True
            else:
                del self._pending[number]

    def _send_on(self, members: Sequence[Member]) -> list[Envelope]:
        unanswered = []
        while self._unsent:
            command, until_s = self._unsent[0]
            speaker = next((member for member in members if member.rank == 0), None)
            ranks = [speaker] if speaker is not None else []
            needed = 1
            if speaker is not None and isinstance(command, FOR_ALL):
                needed = max(speaker.world_size, self._world_size or 1)
                if needed > 1:
                    ranks = [one for one in members if one.world_size == needed]
            if len(ranks) >= needed:
                self._hand_over(command, ranks)
            elif speaker is None and self._world_size is None:
                unanswered.append(_unanswered(command, "nothing is training"))
            elif time.monotonic() > until_s:
                why = f"{len(ranks)} of {needed} ranks are connected"
                unanswered.append(_unanswered(command, f"{why}, and a lever moves on all at once"))
            else:
                break
            self._unsent.popleft()
        return unanswered

    def _ask_again(self, members: Sequence[Member]) -> None:
        for pending in [one for one in self._pending.values() if one.is_late and one.tries < TRIES]:
            receivers = [member for member in members if member.key in pending.receivers]
            self._hand_over(pending.command, receivers, pending.tries + 1)

    def _hand_over(self, command: AnyCommand, ranks: Sequence[Member], tries: int = 1) -> None:
        if len(ranks) > 1 and isinstance(command, FOR_ALL):
            at_step = self._step_for_all(ranks, 2 ** (tries - 1))
            command = msgspec.structs.replace(command, at_step=at_step)
        self._pending[command.id] = _Pending(command, {member.key for member in ranks}, tries)
        for member in ranks:
            member.send(command)

    def _step_for_all(self, members: Iterable[Member], margin: int) -> int:
        ahead = max(one.steps_in(AHEAD_S) for one in members) + AHEAD_STEPS
        newest = max(member.step_now() for member in members)
        self._at_step = max(self._at_step, newest + margin * ahead)
        return self._at_step

    def _left_over(self, members: Sequence[Member]) -> list[Envelope]:
        found = []
        here = {member.key: member.rank for member in members}
        for number, pending in list(self._pending.items()):
            left = pending.receivers & here.keys()
            waits = 0 in {here[key] for key in left} or (left and pending.answer is None)
            if waits and not (pending.is_late and pending.tries == TRIES):
                continue
            del self._pending[number]
            answer = pending.answer
            if answer is None or isinstance(answer.body, TooLate):
                answer = _unanswered(pending.command, TOO_LATE if left else ENDED)
            elif isinstance(answer.body, State):  # of another rank: not the state of this one
                answer = msgspec.structs.replace(answer, body=TooLate(answers=(number,)))
            found.append(msgspec.structs.replace(answer, rank=0))
        return found


@dataclass(slots=True)
class _Pending:
    """A command without an answer."""

    command: AnyCommand
    receivers: set[Key]
    """Keys of the processes it was sent to."""
    tries: int = 1
    answer: Envelope | None = None
    """Another rank's answer, in case rank 0 gives none."""
    is_late: bool = False
    """Whether it reached rank 0 after its step."""


def _unanswered(command: AnyCommand, why: str) -> Envelope:
    now_s, mine = time.monotonic(), (command.id,)
    body: Event
    match command:
        case Blocks(run=run):
            body = BlocksEnded(at_s=now_s, answers=mine, run=run, why=why)
        case Profile():
            body = Refused(answers=mine, kind="no_profile", changes={}, reason=why)
        case Memory():
            body = Refused(answers=mine, kind="no_memory_owners", changes={}, reason=why)
        case Rehearse():
            body = Rehearsed(at_s=now_s, answers=mine, why_not=why)
        case Pause() | Resume() | Stop():
            what = f"{type(command).__name__.lower()}: {why}"
            body = Refused(answers=mine, kind="bad_setting", changes={}, reason=what)
        case _:
            changes = command.settings if isinstance(command, Change) else {}
            body = Refused(answers=mine, kind="bad_setting", changes=changes, reason=why)
    return Envelope(source="training", seq=0, sent_s=now_s, body=body)
