"""Asks a training process where it is, by a signal; see `instrument.stack_signal`.

A real-time signal that nobody handles kills. It is sent to a process alone that has left word of
it, and that still has the file open which it answers into: neither another process of the same
number nor another program in the same process has.
"""

import ctypes
import os
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpudash.protocol import Envelope, Stack, Stacks
from gpudash.rendezvous import Rendezvous
from gpudash.run.member import Member

HEAD = re.compile(rb"(\d{1,3}) (\d{1,9})\n")
MOST_BYTES = 1 << 17
"""Of a stack: a hundred frames, and names of five hundred characters."""
PATIENCE_S = 2.0
"""So long a process may take to write its stack."""
STATES = {
    "D": "waits in the kernel, as for a disk",
    "T": "is stopped by a signal",
    "t": "is held by a debugger",
    "Z": "has ended",
    "": "has ended",
}
"""Why a process does not answer, by the state that the kernel tells: clauses without subject."""


class Asked(NamedTuple):
    """A process that was asked, and where in the file its answer begins."""

    path: Path
    begin: int


class Question:
    """Asks processes where they are; they answer together."""

    def __init__(self, command: Stacks, place: Rendezvous, members: Iterable[Member]) -> None:
        self._number, self._asked_s = command.id, time.monotonic()
        self._asked = {one: ask(place, one.pid) if one.is_seen else None for one in members}
        self._written: dict[Member, str] = {}  # a stack that grows no more is whole

    def answers(self) -> list[Envelope] | None:
        """Return what each has said; None while one is waited for."""
        texts = {one: answered(file) if file else "" for one, file in self._asked.items()}
        is_whole = texts == self._written
        is_whole = is_whole and all(texts[one] for one, file in self._asked.items() if file)
        if not is_whole and time.monotonic() - self._asked_s < PATIENCE_S:
            self._written = texts
            return None
        return [
            Envelope(
                source="training",
                rank=one.rank,
                seq=0,
                sent_s=time.monotonic(),
                body=self._of(one, text),
            )
            for one, text in texts.items()
            if one.rank is not None
        ]

    def _of(self, member: Member, text: str) -> Stack:
        where = f"on {member.node}" if member.node else "in a container"
        why = why_not(member.pid) if member.is_seen else f"is {where}, where nobody asks it"
        why = "" if text else why
        is_known = bool(text) or why in STATES.values()
        answers = (self._number,)
        return Stack(at_s=self._asked_s, answers=answers, text=text, why=why, is_known=is_known)


def ask(place: Rendezvous, pid: int) -> Asked | None:
    """Ask the process; None where it is not one to be asked. Never waits."""
    path = place.stack(pid)
    try:
        with path.open("rb") as file:
            head = HEAD.match(file.read(16))
        if head is None:
            return None
        number, fd = map(int, head.groups())
        os.truncate(path, head.end())  # what it answered before has been read
        writes_there = Path(f"/proc/{pid}/fd/{fd}").readlink() == path.resolve()
        if number < signal.SIGRTMIN or not (writes_there and _handles(pid, number)):
            return None
        _signal_main_thread(pid, number)
    except (OSError, ValueError):
        return None
    return Asked(path, head.end())


def _signal_main_thread(pid: int, number: int) -> None:
    """Send it to the main thread, whose stack is wanted; a signal to the process may go astray."""
    tgkill = getattr(ctypes.CDLL(None), "tgkill", None)  # glibc has had it since 2.30
    if tgkill is None:
        os.kill(pid, number)
    else:
        tgkill(pid, pid, number)


def answered(asked: Asked) -> str:
    """Return what it has written so far."""
    with suppress(OSError), asked.path.open("rb") as file:
        file.seek(asked.begin)
        return file.read(MOST_BYTES).decode(errors="replace")
    return ""


def why_not(pid: int) -> str:
    """Return why a process does not answer, as a clause that it is the subject of."""
    return STATES.get(_status(pid).get("State", "")[:1], "does not tell where it is")


def _handles(pid: int, number: int) -> bool:
    """Tell whether the signal reaches a handler there, and at once."""
    status, bit = _status(pid), 1 << number - 1
    handled, blocked = (int(status.get(name, "0"), 16) for name in ("SigCgt", "SigBlk"))
    return bool(handled & bit) and not blocked & bit


def _status(pid: int) -> dict[str, str]:
    """Return what the kernel tells of its main thread."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
