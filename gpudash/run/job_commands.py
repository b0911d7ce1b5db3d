"""Commands on their way to the processes that train, and the one answer to each.

A lever moves on all ranks or on none: such a command goes to every rank, with the step after which
all of them are to obey. Other commands are rank 0's, and all are where it leads the others itself.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from gpudash.protocol import (
    AnyCommand,
    Blocks,
    BlocksEnded,
    Change,
    Envelope,
    Event,
    Memory,
    Pause,
    Profile,
    Refused,
    Resume,
    Resumed,
    Started,
    TooLate,
)
from gpudash.run.member import AHEAD_S, Key, Member

GATHER_S = 3.0
"""Ranks that train together are connected within so long."""
AHEAD_STEPS = 3
"""With `AHEAD_S` how far ahead the step is at which all ranks are to change: the command has to
reach each of them before, and none looks at its socket within a step."""
TRIES = 4
"""Each with a step twice as far ahead as the one before: a busy machine takes longer to say it."""
TOO_LATE = "each time it reached the ranks after the step at which they were to obey"
ENDED = "the training has ended, or was lost"


class JobCommands:
    """Told of each command and of each answer."""

    def __init__(self, *, rank_0_leads: bool = False) -> None:
        """Where `rank_0_leads`, the others read no commands: it passes them on."""
        self._rank_0_leads = rank_0_leads
        self._unsent: deque[tuple[AnyCommand, float]] = deque()  # and until when ranks may come
        self._asked: dict[int, _Asked] = {}  # by its id
        self._at_step = 0  # of the newest command for all ranks

    def take(self, command: AnyCommand) -> None:
        """Have `turn` hand it on."""
        self._unsent.append((command, time.monotonic() + GATHER_S))

    def turn(self, members: Sequence[Member]) -> list[Envelope]:
        """Hand on what can be; return the answers to what nobody will answer any more."""
        self._ask_again(members)
        return [*self._send_on(members), *self._left_over(members)]

    def note(self, envelope: Envelope, rank: int) -> None:
        """Take what a process says: perhaps it answers, or counts its steps anew.

        One answer is passed on: rank 0's, or where it is lost, another's.
        """
        if isinstance(envelope.body, Started):
            self._at_step = 0
        for number in getattr(envelope.body, "answers", ()):
            asked = self._asked.get(number)
            if asked is None:
                continue
            if rank != 0:
                asked.answer = asked.answer or envelope
            elif isinstance(envelope.body, TooLate):
                asked.is_late = True
            else:
                del self._asked[number]

    def _send_on(self, members: Sequence[Member]) -> list[Envelope]:
        """Hand on what has been asked, in its order, as soon as all who are to hear it are here."""
        unheard = []
        while self._unsent:
            command, until_s = self._unsent[0]
            speaker = next((member for member in members if member.rank == 0), None)
            ranks = [speaker] if speaker is not None else []
            needed = 1
            is_for_all = isinstance(command, Change | Blocks) and not self._rank_0_leads
            if speaker is not None and is_for_all:
                needed = speaker.world_size
                if needed > 1:
                    ranks = [one for one in members if one.world_size == needed]
            if len(ranks) >= needed:
                self._hand_over(command, ranks)
            elif speaker is None:
                unheard.append(_unheard(command, "nothing is training"))
            elif time.monotonic() > until_s:
                why = f"{len(ranks)} of {needed} ranks are connected"
                unheard.append(_unheard(command, f"{why}, and a lever moves on all at once"))
            else:
                break
            self._unsent.popleft()
        return unheard

    def _ask_again(self, members: Sequence[Member]) -> None:
        """Hand on anew what nobody has obeyed because it came after its step."""
        for asked in [one for one in self._asked.values() if one.is_late and one.tries < TRIES]:
            receivers = [member for member in members if member.key in asked.receivers]
            self._hand_over(asked.command, receivers, asked.tries + 1)

    def _hand_over(self, command: AnyCommand, ranks: Sequence[Member], tries: int = 1) -> None:
        if len(ranks) > 1 and isinstance(command, Change | Blocks):
            at_step = self._step_for_all(ranks, 2 ** (tries - 1))
            command = msgspec.structs.replace(command, at_step=at_step)
        self._asked[command.id] = _Asked(command, {member.key for member in ranks}, tries)
        for member in ranks:
            member.send(command)

    def _step_for_all(self, members: Iterable[Member], margin: int) -> int:
        """Return the step after which all are to change, none of them being so far."""
        ahead = max(one.steps_in(AHEAD_S) for one in members) + AHEAD_STEPS
        newest = max(member.step_now() for member in members)
        self._at_step = max(self._at_step, newest + margin * ahead)
        return self._at_step

    def _left_over(self, members: Sequence[Member]) -> list[Envelope]:
        """Return the answers to what rank 0 will not answer any more."""
        found = []
        here = {member.key: member.rank for member in members}
        for number, asked in list(self._asked.items()):
            left = asked.receivers & here.keys()
            waits = 0 in {here[key] for key in left} or (left and asked.answer is None)
            if waits and not (asked.is_late and asked.tries == TRIES):
                continue
            del self._asked[number]
            answer = asked.answer
            if answer is None or isinstance(answer.body, TooLate):
                answer = _unheard(asked.command, TOO_LATE if left else ENDED)
            found.append(msgspec.structs.replace(answer, rank=0))
        return found


@dataclass(slots=True)
class _Asked:
    """A command that has no answer so far."""

    command: AnyCommand
    receivers: set[Key]
    """Who was asked, by their keys."""
    tries: int = 1
    answer: Envelope | None = None
    """Another rank's, in case that rank 0 gives none."""
    is_late: bool = False
    """It came after its step, says rank 0."""


def _unheard(command: AnyCommand, why: str) -> Envelope:
    """Return an answer to a command that nobody answers."""
    now_s, mine = time.monotonic(), (command.id,)
    body: Event
    match command:
        case Blocks(run=run):
            body = BlocksEnded(at_s=now_s, answers=mine, run=run, why=why)
        case Profile():
            body = Refused(answers=mine, kind="no_profile", changes={}, reason=why)
        case Memory():
            body = Refused(answers=mine, kind="no_memory_owners", changes={}, reason=why)
        case Pause() | Resume():
            body = Resumed(at_s=now_s, answers=mine)
        case _:
            changes = command.settings if isinstance(command, Change) else {}
            body = Refused(answers=mine, kind="bad_setting", changes=changes, reason=why)
    return Envelope(source="training", seq=0, sent_s=now_s, body=body)
