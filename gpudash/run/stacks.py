"""Asks training processes where they are, by a signal; see `instrument.stack_signal`.

A real-time signal that nobody handles kills. It is sent to a process alone that has left word of
it, and that still has the file open which it answers into: neither another process of the same
number nor another program in the same process has.
"""

import ctypes
import os
import re
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gpudash.protocol import Envelope, Joined, Stack, Stacks
from gpudash.rendezvous import Rendezvous
from gpudash.run import flight_recorder
from gpudash.run.member import Member

HEAD = re.compile(rb"(\d{1,3}) (\d{1,9})\n")
MOST_BYTES = 1 << 17
"""Of a stack: a hundred frames, and names of five hundred characters."""
PATIENCE_S = 2.0
"""So long a process may take to write its stack."""
ELSEWHERE_S = PATIENCE_S + flight_recorder.PATIENCE_S
"""… and another node to tell of its processes."""
IN_CONTAINER = "is in a container, where nobody asks it"
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


class Signalled:
    """Processes of this machine that were asked where they are; they answer together."""

    def __init__(self, place: Rendezvous, pids: Iterable[int]) -> None:
        self.asked_s = time.monotonic()
        self._asked = {pid: ask(place, pid) for pid in pids}
        self._recorders = {pid: flight_recorder.ask(pid) for pid in self._asked}
        self._joined: dict[int, tuple[Joined, ...] | None] = {}
        self._written: dict[int, str] = {}  # a stack that grows no more is whole

    def answers(self) -> dict[int, Stack] | None:
        """Return what each has said; None while one is waited for."""
        texts = {pid: answered(file) if file else "" for pid, file in self._asked.items()}
        is_whole = texts == self._written
        is_whole = is_whole and all(texts[pid] for pid, file in self._asked.items() if file)
        if not is_whole and time.monotonic() - self.asked_s < PATIENCE_S:
            self._written = texts
            return None
        for pid, recorder in self._recorders.items():
            if recorder is not None and self._joined.get(pid) is None:
                self._joined[pid] = recorder.joined()
        is_late = time.monotonic() - self.asked_s >= flight_recorder.PATIENCE_S
        if None in self._joined.values() and not is_late:
            return None
        return {pid: self._of(pid, text) for pid, text in texts.items()}

    def _of(self, pid: int, text: str) -> Stack:
        why = "" if text else why_not(pid)
        is_known = bool(text) or why in STATES.values()
        joined = self._joined.get(pid) or ()
        return Stack(at_s=self.asked_s, text=text, why=why, is_known=is_known, joined=joined)


class Question:
    """Asks all training processes where they are: those here, and the others by their nodes."""

    def __init__(
        self,
        command: Stacks,
        place: Rendezvous,
        members: Collection[Member],
        nodes: Collection[str] = (),
    ) -> None:
        """`nodes` are those that were asked for the stacks of their processes."""
        self._number, self._members, self._nodes = command.id, [*members], nodes
        self._here = Signalled(place, [one.pid for one in members if one.is_seen])
        self._elsewhere: dict[Member, Stack] = {}

    def take(self, member: Member, stack: Stack) -> None:
        """Take what the node of this process tells."""
        self._elsewhere[member] = stack

    def answers(self) -> list[Envelope] | None:
        """Return what each has said; None while one is waited for."""
        here, now_s = self._here.answers(), time.monotonic()
        awaited = {one for one in self._members if one.node in self._nodes}
        is_late = now_s - self._here.asked_s >= ELSEWHERE_S
        if here is None or not (is_late or awaited <= self._elsewhere.keys()):
            return None
        return [
            Envelope(
                source="training",
                rank=one.rank,
                seq=0,
                sent_s=now_s,
                body=replace(self._of(one, here), answers=(self._number,)),
            )
            for one in self._members
            if one.rank is not None
        ]

    def _of(self, member: Member, here: dict[int, Stack]) -> Stack:
        if member.is_seen:
            return here[member.pid]
        if told := self._elsewhere.get(member):
            return replace(told, text=told.text[:MOST_BYTES])
        why = IN_CONTAINER
        if member.node:
            is_asked = member.node in self._nodes
            why = "which does not answer" if is_asked else "where nobody asks it"
            why = f"is on {member.node}, {why}"
        return Stack(at_s=self._here.asked_s, why=why, is_known=False)


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
