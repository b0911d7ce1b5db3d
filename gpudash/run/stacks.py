"""Request training processes' stacks by a signal; see `instrument.stack_signal`.

An unhandled real-time signal kills. So it is sent only to a process that has announced it and still
has its answer file open. Another process with the same id has not, nor has another program that
the process has executed.
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

from gpudash.protocol.commands import Stacks
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.inspections import Joined, Stack
from gpudash.rendezvous import Rendezvous
from gpudash.run import flight_recorder
from gpudash.run.member import Member

HEAD = re.compile(rb"(\d{1,3}) (\d{1,9})\n")
MOST_BYTES = 1 << 17
"""Most bytes of a stack: a hundred frames, with names of five hundred characters."""
PATIENCE_S = 2.0
"""Seconds that a process may take to write its stack."""
ELSEWHERE_S = PATIENCE_S + flight_recorder.PATIENCE_S
"""Seconds that another node may take to send the stacks of its processes."""
IN_CONTAINER = "is in a container, where nobody asks it"
STATES = {
    "D": "waits in the kernel, as for a disk",
    "T": "is stopped by a signal",
    "t": "is held by a debugger",
    "Z": "has ended",
    "": "has ended",
}
"""Why a process does not answer, by its state in the kernel: predicates of `rank N`."""


class Asked(NamedTuple):
    """A request to a process: the answer's file, and the offset at which the answer begins."""

    path: Path
    begin: int


class Signalled:
    """Requests to processes of this machine; their answers are returned together."""

    def __init__(self, place: Rendezvous, pids: Iterable[int]) -> None:
        self.asked_s = time.monotonic()
        self._asked = {pid: ask(place, pid) for pid in pids}
        self._recorders = {pid: flight_recorder.ask(pid) for pid in self._asked}
        self._joined: dict[int, tuple[Joined, ...] | None] = {}
        self._written: dict[int, str] = {}  # a stack that does not grow is complete

    def answers(self) -> dict[int, Stack] | None:
        """Return each process's stack; None while one is missing."""
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


class StacksQuestion:
    """Requests all training processes' stacks: here, and from other nodes."""

    def __init__(self, command: Stacks, place: Rendezvous, members: Collection[Member]) -> None:
        self._number, self._members = command.id, [*members]
        self._here = Signalled(place, [one.pid for one in members if one.is_seen])
        self._elsewhere: dict[Member, Stack] = {}

    def take(self, member: Member, stack: Stack) -> None:
        """Add a stack that the process's node has sent."""
        self._elsewhere[member] = stack

    def answers(self) -> list[Envelope] | None:
        """Return each process's stack; None while one is missing."""
        here, now_s = self._here.answers(), time.monotonic()
        awaited = {one for one in self._members if one.node}
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
        if sent := self._elsewhere.get(member):
            return replace(sent, text=sent.text[:MOST_BYTES])
        why = IN_CONTAINER
        if member.node:
            why = f"is on {member.node}, which does not answer"
        return Stack(at_s=self._here.asked_s, why=why, is_known=False)


def ask(place: Rendezvous, pid: int) -> Asked | None:
    """Signal the process; None if it must not be signalled. Never blocks."""
    path = place.stack(pid)
    try:
        with path.open("rb") as file:
            head = HEAD.match(file.read(16))
        if head is None:
            return None
        number, fd = map(int, head.groups())
        os.truncate(path, head.end())  # earlier answers have been read
        writes_there = Path(f"/proc/{pid}/fd/{fd}").readlink() == path.resolve()
        if number < signal.SIGRTMIN or not (writes_there and _handles(pid, number)):
            return None
        _signal_main_thread(pid, number)
    except (OSError, ValueError):
        return None
    return Asked(path, head.end())


def _signal_main_thread(pid: int, number: int) -> None:
    """Signal the main thread, whose stack is wanted; any thread may take a process's signal."""
    tgkill = getattr(ctypes.CDLL(None), "tgkill", None)  # glibc has had it since 2.30
    if tgkill is None:
        os.kill(pid, number)
    else:
        tgkill(pid, pid, number)


def answered(asked: Asked) -> str:
    """Return the stack written so far."""
    with suppress(OSError), asked.path.open("rb") as file:
        file.seek(asked.begin)
        return file.read(MOST_BYTES).decode(errors="replace")
    return ""


def why_not(pid: int) -> str:
    """Return why a process does not answer, as a predicate of `rank N`."""
    return STATES.get(_status(pid).get("State", "")[:1], "does not tell where it is")


def _handles(pid: int, number: int) -> bool:
    """Return whether the process handles the signal and does not block it."""
    status, bit = _status(pid), 1 << number - 1
    handled, blocked = (int(status.get(name, "0"), 16) for name in ("SigCgt", "SigBlk"))
    return bool(handled & bit) and not blocked & bit


def _status(pid: int) -> dict[str, str]:
    """Return the kernel's status of the main thread."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
