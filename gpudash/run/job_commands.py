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
)
from gpudash.run.member import AHEAD_S, Key, Member

GATHER_S = 3.0
"""Ranks that train together are connected within so long."""
AHEAD_STEPS = 3
"""With `AHEAD_S` how far ahead the step is at which all ranks are to change: the command has to
reach each of them before, and none looks at its socket within a step."""


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
        return [*self._send_on(members), *self._left_over(members)]

    def note_answer(self, envelope: Envelope, rank: int) -> None:
        """Take what a process says: perhaps it answers.

        One answer is told: rank 0's, or where it is lost, another's.
        """
        for number in getattr(envelope.body, "answers", ()):
            asked = self._asked.get(number)
            if asked is not None and rank == 0:
                del self._asked[number]
            elif asked is not None:
                asked.answer = asked.answer or envelope

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

    def _hand_over(self, command: AnyCommand, ranks: list[Member]) -> None:
        if len(ranks) > 1 and isinstance(command, Change | Blocks):
            command = msgspec.structs.replace(command, at_step=self._step_for_all(ranks))
        self._asked[command.id] = _Asked(command, {member.key for member in ranks})
        for member in ranks:
            member.send(command)

    def _step_for_all(self, members: Iterable[Member]) -> int:
        """Return the step after which all are to change, none of them being so far."""
        ahead = max(one.steps_in(AHEAD_S) for one in members) + AHEAD_STEPS
        newest = max(member.step_now() for member in members)
        self._at_step = max(self._at_step, newest + ahead)
        return self._at_step

    def _left_over(self, members: Sequence[Member]) -> list[Envelope]:
        """Return the answers to what rank 0 will not answer any more."""
        found = []
        here = {member.key: member.rank for member in members}
        for number, asked in list(self._asked.items()):
            left = asked.told & here.keys()
            if 0 in {here[key] for key in left} or (left and asked.answer is None):
                continue
            del self._asked[number]
            answer = asked.answer or _unheard(asked.command, "the training has ended, or was lost")
            found.append(msgspec.structs.replace(answer, rank=0))
        return found


@dataclass(slots=True)
class _Asked:
    """A command that has no answer so far."""

    command: AnyCommand
    told: set[Key]
    """Whom, by their keys."""
    answer: Envelope | None = None
    """Another rank's, in case that rank 0 gives none."""


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
