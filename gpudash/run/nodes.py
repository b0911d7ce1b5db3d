"""Listen for the gpudash of other nodes, which relay their training processes' messages.

A connection without the token is soon closed. A node with it may send only a training's messages.
"""

import platform
import selectors
import socket
import time
from contextlib import suppress

import msgspec

from gpudash.addresses import Address, resolved, why_not
from gpudash.errors import UNDECODABLE, SourceError, UsageError
from gpudash.format import plain
from gpudash.protocol.commands import Stacks
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuReading, HostReading, Reading
from gpudash.protocol.training import State
from gpudash.run.clocks import ClockDifference, moved
from gpudash.run.lines import LINE_BYTES, HungUp, Lines, Lost
from gpudash.run.member import NodeLost
from gpudash.run.node_protocol import (
    OURSELVES,
    PING_S,
    SILENT_S,
    Challenge,
    Credentials,
    Denied,
    FromRelay,
    Parting,
    Ping,
    Pong,
    is_valid_answer,
    line_of,
    new_nonce,
    own_line,
    parsed,
    welcome,
)

STRANGER_S = 5.0
STRANGER_BYTES = 1024
MOST_STRANGERS = 64
"""Limits of connections without a proof: seconds, bytes, and their number."""
BACKLOG = 128
"""Connections that may wait to be accepted."""
MOST_DENIED = 8
"""Most hosts that are logged for a wrong token: strangers must not fill the log."""
NAME_LENGTH, TEXT_LENGTH = 64, 200
UNNAMED = "another node"
"""A node's name if it sends none: an empty one means this machine."""
READ_THERE = "node"
"""Source of the nodes' readings; its sequence numbers are apart from the local `telemetry`."""


class Nodes:
    """Listens for nodes, and has a channel to each of their training processes."""

    def __init__(self, address: Address, token: str) -> None:
        try:
            family, place = resolved(address)[0]
            self._listening = socket.create_server(place, family=family, backlog=BACKLOG)
        except OSError as error:
            raise UsageError(f"cannot listen on {address}: {why_not(error)}") from error
        self._listening.setblocking(False)
        self.address = Address(address.host, self._listening.getsockname()[1])
        self.sentences: list[str] = [f"listens on {self.address} for other nodes"]
        """Sentences for the user; the reader clears them."""
        self._token = token
        self._strangers: list[_Stranger] = []
        self._nodes: list[_Node] = []
        self._denied: set[str] = set()
        self._awaited = selectors.DefaultSelector()  # answers whose arrival is timed

    def fileno(self) -> int:
        """Return a descriptor that is readable when `turn` should be called at once."""
        return self._awaited.fileno()

    def turn(self) -> list["_Channel"]:
        for stranger in list(self._strangers):  # an answer counts that came before others did
            if not self._read_stranger(stranger):
                self._strangers.remove(stranger)
        self._accept()
        return [channel for node in list(self._nodes) for channel in self._turn_of(node)]

    def readings(self) -> list[Envelope]:
        found = [one for node in self._nodes for one in node.readings]
        for node in self._nodes:
            node.readings.clear()
        return found

    def ask(self, command: Stacks) -> None:
        for node in self._nodes:
            node.say(own_line(command))

    def close(self) -> None:
        self._listening.close()
        for stranger in self._strangers:
            stranger.lines.close()
        for node in self._nodes:
            node.close()
        self._strangers, self._nodes = [], []
        self._awaited.close()

    # ── strangers ───────────────────────────────────────────────────────────────────────

    def _accept(self) -> None:
        for _ in range(MOST_STRANGERS):  # no more, so that each can answer before the next turn
            try:
                connection, (host, *_) = self._listening.accept()
            except OSError:  # none waits, or no descriptor is left
                return
            if len(self._strangers) == MOST_STRANGERS:  # those that say nothing keep no node out
                oldest = self._strangers.pop(0)
                self._await(oldest.lines, wanted=False)
                oldest.lines.close()
            stranger = _Stranger(connection, host)
            self._await(stranger.lines, wanted=True)
            self._strangers.append(stranger)

    def _read_stranger(self, stranger: "_Stranger") -> bool:
        try:
            said = stranger.answer()
            if said is None and time.monotonic() - stranger.asked_s < STRANGER_S:
                return True
        except (Lost, *UNDECODABLE):
            said = None
        self._await(stranger.lines, wanted=False)
        if said is not None and is_valid_answer(self._token, stranger.challenge, said):
            self._trust(stranger, said)
            return False
        if said is not None:
            self._deny(stranger)
        stranger.lines.close()
        return False

    def _trust(self, stranger: "_Stranger", said: Credentials) -> None:
        node = _Node(stranger.lines, said)
        node.difference.take(stranger.asked_s, said.clock_s, time.monotonic())
        for former in [one for one in self._nodes if one.run == said.run]:
            self._part_with(former)
        self._nodes.append(node)
        node.say(msgspec.json.encode(welcome(self._token, stranger.challenge, said)))
        within_ms = 1e3 * node.difference.within_s
        self.sentences.append(f"node {node.name} is connected; clocks within {within_ms:.1f} ms")

    def _deny(self, stranger: "_Stranger") -> None:
        stranger.say(Denied())
        if len(self._denied) < MOST_DENIED and stranger.host not in self._denied:
            self._denied.add(stranger.host)
            self.sentences.append(f"{plain(stranger.host)} was turned away: its token is wrong")

    # ── nodes ───────────────────────────────────────────────────────────────────────────

    def _turn_of(self, node: "_Node") -> list["_Channel"]:
        try:
            new = node.turn()
        except (Lost, *UNDECODABLE) as error:
            why = error if isinstance(error, Lost) else "a line of it makes no sense"
            self._part_with(node)
            ends = f"node {node.name} is lost: {why}; its training goes on unwatched"
            self.sentences.append(node.parting or ends)
            return []
        self._await(node.lines, wanted=node.is_awaited)
        return new

    def _part_with(self, node: "_Node") -> None:
        self._await(node.lines, wanted=False)
        self._nodes.remove(node)
        node.close()

    def _await(self, lines: Lines, *, wanted: bool) -> None:
        is_awaited = lines in self._awaited.get_map()
        if wanted and not is_awaited:
            self._awaited.register(lines, selectors.EVENT_READ)
        elif is_awaited and not wanted:
            self._awaited.unregister(lines)


class _Channel:
    """A connection to a training process on another node."""

    def __init__(self, process: int, node: "_Node") -> None:
        self.process = process
        self.rank = 0
        """The rank that the process reports."""
        self.node = node.name
        self._node = node
        self._arrived: list[bytes] = []
        self.ended = False

    @property
    def filenos(self) -> tuple[int, ...]:
        return ()  # its node has one

    def put(self, said: bytes) -> None:
        """Add a line from the process; an empty one is its last."""
        if said and not self.ended:
            self._arrived.append(said)
        self.ended = self.ended or not said

    def read(self) -> list[bytes]:
        lines, self._arrived = self._arrived, []
        if not lines and self._node.is_closed:
            raise NodeLost
        if not lines and self.ended:
            raise HungUp
        return lines

    def send(self, line: bytes) -> None:
        self._node.say(line_of(self.process, line))

    def close(self) -> None:
        if not self.ended:
            self.ended = True
            self._node.say(line_of(self.process, b""))

    def converted(self, envelope: Envelope) -> Envelope:
        """Raise SourceError for another source's message."""
        if envelope.source != "training":
            raise SourceError(f"it speaks as {plain(envelope.source)[:NAME_LENGTH]!r}")
        self.rank = envelope.rank
        return self._node.converted(envelope)


class _Stranger:
    """A connection without a proof so far."""

    def __init__(self, connection: socket.socket, host: str) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.host = host
        self.lines = Lines(connection, STRANGER_BYTES)
        self.challenge = Challenge(nonce=new_nonce())
        self.asked_s = time.monotonic()
        self.say(self.challenge)

    def say(self, said: Challenge | Denied) -> None:
        self.lines.send(msgspec.json.encode(said))

    def answer(self) -> Credentials | None:
        line = self.lines.read_one()
        return None if line is None else msgspec.json.decode(line, type=Credentials)


class _Node:
    """Another node's gpudash, with the training processes that it relays."""

    def __init__(self, lines: Lines, said: Credentials) -> None:
        name = plain(said.node)[:NAME_LENGTH]
        self.name = UNNAMED if not name else f"another {name}" if name == platform.node() else name
        self.run = said.run
        self.lines = lines
        lines.longest = LINE_BYTES
        self.difference = ClockDifference()
        self.readings: list[Envelope] = []
        self.parting = ""
        """The sentence of its Parting."""
        self.is_awaited = False
        """Whether a Pong is awaited, whose time of arrival counts."""
        self.is_closed = False
        self._channels: dict[int, _Channel] = {}
        self._ranks: dict[str, int] = {}  # which rank trains on a GPU
        self._heard_s = self._asked_s = time.monotonic()

    def turn(self) -> list[_Channel]:
        now_s = time.monotonic()
        new = []
        for line in self.lines.read():
            self._heard_s = now_s
            process, said = parsed(line)
            if process == OURSELVES:
                self._take_own(msgspec.json.decode(said, type=FromRelay), now_s)
                continue
            if process not in self._channels and said:
                self._channels[process] = _Channel(process, self)
                new.append(self._channels[process])
            if process in self._channels:
                self._channels[process].put(said)
                if not said:
                    del self._channels[process]
        if now_s - self._heard_s > SILENT_S:
            raise Lost(f"nothing has come for {SILENT_S:.0f} s")
        if now_s - self._asked_s > PING_S and not self.is_awaited:
            self.is_awaited, self._asked_s = True, now_s
            self.say(own_line(Ping(asked_s=now_s)))
        return new

    def _take_own(self, said: FromRelay, now_s: float) -> None:
        match said:
            case Pong():
                self.difference.take(said.asked_s, said.clock_s, now_s)
                self.is_awaited = False
            case Parting():
                self.parting = f"node {self.name}: {plain(said.text)[:TEXT_LENGTH]}"
            case GpuReading() if said.uuid in self._ranks:
                self._take(said, self._ranks[said.uuid], now_s)
            case HostReading() if said.pid is not None:
                channel = self._channels.get(said.pid)
                if channel is not None and not channel.ended:  # else the process was refused
                    self._take(said, channel.rank, now_s)

    def _take(self, reading: Reading, rank: int, now_s: float) -> None:
        body = moved(reading, self.difference.behind_s)
        envelope = Envelope(source=READ_THERE, rank=rank, seq=0, sent_s=now_s, body=body)
        self.readings.append(envelope)

    def converted(self, envelope: Envelope) -> Envelope:
        body = envelope.body
        if isinstance(body, State) and body.process is not None:
            process = msgspec.structs.replace(body.process, node=self.name)
            body = msgspec.structs.replace(body, process=process)
            if process.device.uuid is not None:
                self._ranks[process.device.uuid] = envelope.rank
        by_s = self.difference.behind_s
        return msgspec.structs.replace(moved(envelope, by_s), body=moved(body, by_s))

    def say(self, line: bytes) -> None:
        with suppress(Lost):  # reading notices that
            self.lines.send(line)

    def close(self) -> None:
        self.is_closed = True
        self.lines.close()
