"""Relay this node's training processes to a gpudash on another node, and its commands to them.

Without a connection the training goes on unwatched; the relay tries again at growing intervals.
"""

import platform
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

import msgspec

from gpudash.addresses import Address, resolved, why_not
from gpudash.errors import UNDECODABLE, UsageError
from gpudash.metrics import METRICS
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.inspections import Stack
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.training import PROTOCOL_VERSION, State
from gpudash.rendezvous import Rendezvous
from gpudash.run import stacks
from gpudash.run.lines import Lines, Lost
from gpudash.run.member import Arrivals, peer
from gpudash.run.node_protocol import (
    OURSELVES,
    SILENT_S,
    Challenge,
    Denied,
    Parting,
    Ping,
    Pong,
    Said,
    ToRelay,
    Welcome,
    answer,
    is_valid_welcome,
    line_of,
    new_nonce,
    own_line,
    parsed,
)
from gpudash.run.source import ENVELOPES
from gpudash.run.telemetry_source import TelemetrySource

TURN_S = 0.05
CONNECT_S = 3.0
"""Seconds that a host may take to accept a connection."""
ANSWER_S = 10.0
"""Seconds that the gpudash there may take to answer: it may have other connections."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
DECODER: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)
TO_RELAY: msgspec.json.Decoder[ToRelay] = msgspec.json.Decoder(ToRelay)
STACK_CHARACTERS = 1 << 14
"""Most characters of a stack, innermost calls first: hundreds of stacks are sent at once."""
END_S = 1.0
"""Seconds that the last messages of a training may take after its command's end."""


class _Unreachable(Exception):  # noqa: N818  # it is tried again
    """The other gpudash cannot be reached now; the text says why."""


class Relay:
    """The connecting node's end."""

    def __init__(self, address: Address, token: str, notify: Callable[[str], None]) -> None:
        """`notify` gets lines for the user, on any thread. Raises UsageError."""
        self._address = address
        self._token = token
        self._notify = notify
        self._run = new_nonce()
        self._ending = threading.Event()
        self._parting = ""
        self._lines: Lines | None = None
        try:
            self._places = resolved(address)
        except OSError as error:
            raise UsageError(f"cannot connect to {address}: {why_not(error)}") from error

    def try_once(self) -> None:
        """Try to connect once; if nothing listens there, go on without."""
        with suppress(_Unreachable):
            self._lines = self._connect(CONNECT_S)

    @contextmanager
    def running(self, place: Rendezvous) -> Iterator[None]:
        run = partial(self._run_on, place)
        thread = threading.Thread(target=run, name="gpudash-relay", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join(2 * END_S)  # it may be in the middle of a connection

    def set_parting(self, text: str) -> None:
        self._parting = text

    def _run_on(self, place: Rendezvous) -> None:
        pause_s, reported = FIRST_PAUSE_S, ""
        while not self._ending.is_set():
            try:
                lines, self._lines = self._lines or self._connect(ANSWER_S), None
            except _Unreachable as error:
                if str(error) != reported and not self._ending.is_set():  # once
                    reported = str(error)
                    self._notify(f"gpudash: {reported}; the training goes on, unwatched")
                self._ending.wait(pause_s * random.uniform(0.7, 1.0))  # not all nodes at once
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            if reported:
                self._notify(f"gpudash: connected to {self._address}")
            pause_s, reported = FIRST_PAUSE_S, ""
            with closing(_Watched(place, lines)) as watched, suppress(Lost, *UNDECODABLE):
                watched.run_until(self._ending)
                watched.finish(self._parting)
            self._ending.wait(FIRST_PAUSE_S)

    # ── the connection ──────────────────────────────────────────────────────────────────

    def _connect(self, patience_s: float) -> Lines:
        lines = Lines(self._open())
        try:
            self._shake_hands(lines, time.monotonic() + patience_s)
        except BaseException:
            lines.close()
            raise
        return lines

    def _open(self) -> socket.socket:
        why = ""
        for family, place in self._places:
            connection = socket.socket(family)
            connection.settimeout(CONNECT_S)
            try:
                connection.connect(place)
            except OSError as error:
                connection.close()
                why = "no answer" if isinstance(error, TimeoutError) else why_not(error)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        raise _Unreachable(f"cannot connect to {self._address}: {why}")

    def _shake_hands(self, lines: Lines, until_s: float) -> None:
        there = f"the gpudash at {self._address}"
        challenge = self._received(lines, until_s)
        if not isinstance(challenge, Challenge):
            raise _Unreachable(f"{there} says what makes no sense")
        if challenge.protocol != PROTOCOL_VERSION:
            raise _Unreachable(
                f"{there} speaks protocol {challenge.protocol}, this one {PROTOCOL_VERSION}; "
                "valid: the same gpudash on all nodes"
            )
        node, clock_s = platform.node(), time.monotonic()
        said = answer(self._token, challenge, node=node, run=self._run, clock_s=clock_s)
        lines.send(msgspec.json.encode(said))
        back = self._received(lines, until_s)
        if isinstance(back, Denied):
            raise _Unreachable(f"{there} has another token")
        if not (isinstance(back, Welcome) and is_valid_welcome(self._token, challenge, said, back)):
            raise _Unreachable(f"whoever listens at {self._address} does not know the token")

    def _received(self, lines: Lines, until_s: float) -> Said:
        try:
            while (left_s := until_s - time.monotonic()) > 0 and not self._ending.is_set():
                select.select([lines], [], [], min(left_s, TURN_S))
                line = lines.read_one()
                if line is not None:
                    return DECODER.decode(line)
        except (Lost, *UNDECODABLE) as error:
            why = f"what listens at {self._address} is no gpudash, or has just ended"
            raise _Unreachable(why) from error
        raise _Unreachable(f"no gpudash answers at {self._address}")


class _Watched:
    """The training processes of this node, while another gpudash watches them."""

    def __init__(self, place: Rendezvous, lines: Lines) -> None:
        self._place = place
        self._arrivals = Arrivals(place)
        self._lines = lines
        self._processes: dict[tuple[int, int], Lines] = {}
        self._unseen: set[int] = set()  # of another PID namespace: their numbers differ here
        self._spoken: set[int] = set()  # these have sent their first message
        self._question: stacks.LocalStacks | None = None
        self._refused: set[tuple[int, int]] = set()
        self._telemetry = TelemetrySource()
        self._heard_s = time.monotonic()

    def run_until(self, ending: threading.Event) -> None:
        while not ending.is_set():
            self._turn()

    def finish(self, parting: str) -> None:
        end_s = time.monotonic() + END_S
        while self._processes and time.monotonic() < end_s:
            self._turn()
        self._lines.send(own_line(Parting(text=parting)))
        while self._lines.unsent_bytes and time.monotonic() < end_s:
            self._turn()

    def close(self) -> None:
        self._lines.close()
        for process in self._processes.values():
            process.close()
        self._telemetry.close()

    def _turn(self) -> None:
        select.select([self._lines], [], [], TURN_S)
        now_s = time.monotonic()
        for line in self._lines.read():
            self._heard_s = now_s
            self._obey(*parsed(line))
        if now_s - self._heard_s > SILENT_S:
            raise Lost("it is silent")
        for key, connection in self._arrivals.look(self._refused | set(self._processes)):
            self._processes[key] = Lines(connection)
            if peer(connection) != key[0]:
                self._unseen.add(key[0])
        for key in list(self._processes):
            self._relay(key)
        answers = None if self._question is None else self._question.answers()
        if answers is not None:
            self._question = None
            self._send_stacks(answers)
        for envelope in self._telemetry.read():
            reading = envelope.body
            if isinstance(reading, HostReading) and reading.pid not in self._unseen:
                self._lines.send(own_line(_of_training(reading)))
            elif isinstance(reading, GpuReading):
                self._lines.send(own_line(reading))

    def _relay(self, key: tuple[int, int]) -> None:
        try:
            said = self._processes[key].read()
            self._spoken.update(key[:1] if said else ())
        except Lost:
            self._processes.pop(key).close()
            said = [b""]
        for line in said:
            self._lines.send(line_of(key[0], line))
            if b'"State"' in line:
                self._watch(line)

    def _obey(self, process: int, said: bytes) -> None:
        if process == OURSELVES:
            asked = TO_RELAY.decode(said)
            if isinstance(asked, Ping):
                self._lines.send(own_line(Pong(asked_s=asked.asked_s, clock_s=time.monotonic())))
            else:
                self._ask_for_stacks()
            return
        for key in [one for one in self._processes if one[0] == process]:
            if said:
                with suppress(Lost):  # reading notices that
                    self._processes[key].send(said)
            else:  # it is not wanted
                self._refused.add(key)
                self._processes.pop(key).close()
                self._lines.send(line_of(process, b""))

    def _ask_for_stacks(self) -> None:
        unseen = {pid for pid, _ in self._processes} & self._unseen
        now_s, why = time.monotonic(), stacks.IN_CONTAINER
        self._send_stacks({pid: Stack(at_s=now_s, why=why, is_known=False) for pid in unseen})
        pids = [pid for pid, _ in self._processes if pid not in unseen]
        self._question = stacks.LocalStacks(self._place, pids)

    def _send_stacks(self, found: dict[int, Stack]) -> None:
        for pid in found.keys() & {pid for pid, _ in self._processes} & self._spoken:
            stack = msgspec.structs.replace(found[pid], text=found[pid].text[:STACK_CHARACTERS])
            said = Envelope(source="training", seq=0, sent_s=time.monotonic(), body=stack)
            self._lines.send(line_of(pid, msgspec.json.encode(said)))

    def _watch(self, line: bytes) -> None:
        with suppress(*UNDECODABLE):
            envelope = ENVELOPES.decode(line)
            if isinstance(envelope.body, State):
                self._telemetry.watch(envelope.body, envelope.rank)


def _of_training(reading: HostReading) -> HostReading:
    """Leave out gpudash's own usage: the listening end reports its own."""
    values = {name: one for name, one in reading.values.items() if METRICS[name].kind != "own"}
    return msgspec.structs.replace(reading, values=values)
