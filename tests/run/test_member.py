"""The connection to a process that trains."""

import socket
from collections.abc import Iterator

import msgspec
import pytest

from gpudash.errors import SourceError
from gpudash.protocol.commands import Figures, Pause
from gpudash.protocol.session import Notice
from gpudash.protocol.training import Hello
from gpudash.run import lines
from gpudash.run.lines import Lines
from gpudash.run.member import MOST_UNREAD, Member
from tests.lives import said

LONGEST_BYTES = 2000


@pytest.fixture
def pair() -> Iterator[tuple[Member, socket.socket]]:
    ours, theirs = socket.socketpair()
    member = Member("key", 1, Lines(ours, LONGEST_BYTES))
    with ours, theirs:
        yield member, theirs


def line(seq: int, body: object) -> bytes:
    return msgspec.json.encode(said(body, seq=seq)) + b"\n"


def test_the_last_messages_are_read_before_the_end(pair) -> None:
    member, process = pair
    process.sendall(line(0, Hello()) + line(1, Notice(text="bye")))
    process.close()
    assert [type(one.body) for one in member.read()] == [Hello, Notice]
    assert member.read() == []
    assert member.ended
    assert not member.is_lost


def test_an_endless_line_is_an_error(pair) -> None:
    member, process = pair
    process.sendall(b"x" * 2 * LONGEST_BYTES)
    with pytest.raises(SourceError, match="a line of it is too long"):
        member.read()


def test_a_process_that_reads_no_commands_is_disconnected(pair, monkeypatch) -> None:
    monkeypatch.setattr(lines, "UNSENT_BYTES", 100)
    member, _process = pair
    for number in range(100_000):
        member.send(Pause(id=number))
        if member.ended:
            break
    assert member.ended


def test_figures_for_a_process_that_reads_nothing_do_not_disconnect_it(pair, monkeypatch) -> None:
    """As in a long evaluation: rows go on."""
    monkeypatch.setattr(lines, "UNSENT_BYTES", 100)
    member, process = pair
    process.settimeout(10.0)
    row = Figures(step=1, values={"loss": 1.0})
    for _ in range(100_000):
        member.track(row)
    member.read()
    assert not member.ended
    assert process.recv(1 << 20).count(b"\n") == MOST_UNREAD
    process.sendall(line(0, Hello()))
    member.read()
    member.track(row)
    assert process.recv(1 << 20).count(b"\n") == 1


@pytest.mark.parametrize("text", [b'"\xff"', b"[" * 1500])
def test_an_invalid_message_is_an_error(pair, text) -> None:
    member, process = pair
    process.sendall(b'["Envelope",' + text + b"]\n")
    with pytest.raises(SourceError, match="it does not speak gpudash's protocol"):
        member.read()
