"""Ask training processes where they are while no step finishes; see `instrument.stack_server`."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from gpudash.protocol.commands import Stacks
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.inspections import Joined, Stack
from gpudash.ranks import hangs
from gpudash.rendezvous import Rendezvous
from gpudash.run import flight_recorder
from gpudash.run.lines import MOST_BYTES, ask
from gpudash.run.member import Member
from gpudash.snapshot import Hang

PATIENCE_S = 2.0
"""Seconds that a process may take to send its stack."""
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


class LocalStacks:
    """Requests to processes of this machine; their answers are returned together."""

    def __init__(self, place: Rendezvous, pids: Iterable[int]) -> None:
        self.asked_s = time.monotonic()
        self._replies = {pid: ask(place, pid) for pid in pids}
        self._recorders = {pid: flight_recorder.ask(pid) for pid in self._replies}
        self._joined: dict[int, tuple[Joined, ...] | None] = {}

    def answers(self) -> dict[int, Stack] | None:
        texts = {pid: reply.read() if reply else "" for pid, reply in self._replies.items()}
        is_whole = all(reply.is_whole for reply in self._replies.values() if reply)
        if not is_whole and time.monotonic() - self.asked_s < PATIENCE_S:
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
        self._here = LocalStacks(place, [one.pid for one in members if one.is_seen])
        self._elsewhere: dict[Member, Stack] = {}

    def take(self, member: Member, stack: Stack) -> None:
        self._elsewhere[member] = stack

    def answers(self) -> list[Envelope] | None:
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


def why_not(pid: int) -> str:
    """Return why a process does not answer, as a predicate of `rank N`."""
    return STATES.get(_status(pid).get("State", "")[:1], "does not tell where it is")


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


class HangWatch:
    """Watches the envelopes of all ranks for a hang; `look` is called at the screen's rate."""

    def __init__(
        self, least_s: float, ask: Callable[[], None], log: Callable[[Sequence[str]], None]
    ) -> None:
        self._ask = ask
        self._log = log
        self._hangs = hangs.Hangs(least_s)
        self._logged: tuple[str, ...] = ()
        self._since_s: float | None = None  # the newest step's end, while a hang is logged

    def take(self, envelope: Envelope) -> None:
        self._hangs.take(envelope)

    def look(self, now_s: float) -> Hang | None:
        """Request stacks and log the hang as needed."""
        hang = self._hangs.hang(now_s)
        if self._hangs.wants_stacks(now_s):
            self._ask()
        if hang is None:
            self._log_end()
            return None
        clauses = hangs.clauses(hang)
        if hang.stacks and clauses != self._logged:
            self._log([*hangs.log_lines(hang)])
            self._since_s = self._hangs.newest_s
        self._logged = clauses
        return hang

    def _log_end(self) -> None:
        newest_s, since_s = self._hangs.newest_s, self._since_s
        if newest_s is not None and since_s is not None and newest_s > since_s:
            self._log([f"steps come again; for {newest_s - since_s:.0f} s none had finished"])
        self._logged, self._since_s = (), None
