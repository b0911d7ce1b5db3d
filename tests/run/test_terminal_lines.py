"""Bytes to a terminal become lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.run.terminal_lines import KEPT_ROWS, LINE_LIMIT, MOST_ROWS, TerminalLines


def shown(*pieces):
    """Return the lines that a reader of all results has in the end."""
    terminal, lines = TerminalLines(), []
    for piece in pieces:
        answer = terminal.feed(piece)
        assert answer.replaces <= len(lines)
        del lines[len(lines) - answer.replaces :]
        lines += answer.lines
    return lines


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\r\ntwo\r\n"], ["one", "two"]),
        ([b"a\n\nb\n"], ["a", "", "b"]),
        ([b"name? ", b"Eve\r\n"], ["name? Eve"]),
        ([b" 10%|#  |", b"\r 50%|## |", b"\r100%|###|\r\ndone\r\n"], ["100%|###|", "done"]),
        ([b"loss 1.25\b\b\b\b0.50"], ["loss 0.50"]),
        ([b"a\r\nb\r\n", b"\x1b[2AA\r\nB"], ["A", "B"]),
        ([b"bar 1\r\nbar 2", b"\x1b[A\rBAR 1\r\nBAR 2"], ["BAR 1", "BAR 2"]),
        ([b"long line\rshort\x1b[K"], ["short"]),
        ([b"epoch 1: 50%", b"\r\x1b[2K", b"epoch 1 done\n"], ["epoch 1 done"]),
        ([b"above\nbelow\nlast", b"\x1b[2A\r\x1b[J"], []),
        ([b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;u\x1b\\link"], ["red link"]),
        ([b"\x1b", b"[3", b"1mre", b"d"], ["red"]),
        ([b"\xe2\x96", b"\x88"], ["█"]),
        ([b"\x1b\nbad escape", b"\xff\n"], ["", "bad escape\N{REPLACEMENT CHARACTER}"]),
        ([b"a\tb"], ["a       b"]),
    ],
)
def test_a_reader_sees_what_a_terminal_shows(pieces, lines):
    assert shown(*pieces) == lines


def test_a_bar_that_goes_away_takes_its_line_with_it():
    assert shown(b"50%", b"\r   \r", b"next\n") == ["next"]


MOVES = st.sampled_from(
    [b"\n", b"\r", b"\b", b"\t", b"\x1b[A", b"\x1b[3A", b"\x1b[B", b"\x1b[K", b"\x1b[J", b"\x1b]"]
)


@given(st.lists(st.one_of(MOVES, st.binary(max_size=20), st.just(b"word")), max_size=60))
def test_any_bytes_give_printable_lines_whatever_pieces_they_come_in(pieces):
    lines = shown(*pieces)
    assert all(line.isprintable() and len(line) <= LINE_LIMIT for line in lines)
    whole = b"".join(pieces)
    assert lines[-KEPT_ROWS:] == shown(whole)[-KEPT_ROWS:]
    assert lines[-KEPT_ROWS:] == shown(*(bytes([byte]) for byte in whole))[-KEPT_ROWS:]


@pytest.mark.parametrize(
    "flood", [b"x" * 9, b"line\n", b"\n", b"\x1b]0;", b"\x1b[999B", b"\x1b[999C#", b"\rab\t"]
)
def test_a_flood_stays_bounded(flood):
    terminal = TerminalLines()
    for _ in range(3):
        answer = terminal.feed(flood * 6_000)
        assert len(answer.lines) <= MOST_ROWS
        assert max(map(len, answer.lines), default=0) <= LINE_LIMIT
    assert len(terminal._rows) <= KEPT_ROWS + 1
    assert len(terminal._escape) <= 2048
