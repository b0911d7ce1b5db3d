"""Damage to files: to bytes and lines of any, and to names and values of JSON and CSV."""

import re
from collections.abc import Iterable

from hypothesis import strategies as st

ATOM = rb'"[^"\\\n]*"|-?\d[\d.]*(?:[eE][+-]?\d+)?|null|true|false'
TOKENS = (
    re.compile(ATOM),
    re.compile(rb"\[[^\[\]\n]*\]|\{[^{}\n]*\}|" + ATOM),
)
"""Match names and values, the second one also the innermost of lists and objects."""
KIND = re.compile(rb"[-\d.,\[]+")
"""What differs between lines of a kind."""
ABSURD = (
    *(b"null", b"true", b'""', b'"x"', b'"inf"', b'"nan"', b"[]", b"{}", b"[[1.5]]", b'["x"]'),
    *(b"-1", b"0", b"1", b"-0.0", b"1.5", b"1e-300", b"1e6", b"1e9", b"1e12", b"1e15", b"1e18"),
    *(b"1e300", b"1e999", b"-1e9", b"-1e18", b"-1e300", b"NaN", b"Infinity", b"-inf"),
    *(b"%d" % 10**6, b"%d" % 10**9, b"%d" % 10**12, b"%d" % 2**53, b"%d" % (2**63 - 1)),
    *(b"%d" % 2**63, b"%d" % 2**64, b"-%d" % 2**63, b"9" * 400, b"-" + b"9" * 400, b"9" * 5000),
    *(b"[" * 2000 + b"]" * 2000, b'"' + b"x" * 9000 + b'"', rb'"\u0000\ud800"', b"\xff\xfe"),
)
WAYS = (
    *("cut", "flip", "swap", "double", "drop"),
    *("absurd", "other", "more", "joined", "absurd everywhere", "other everywhere"),
)
DAMAGE = st.lists(
    st.tuples(st.sampled_from(WAYS), st.integers(0, 2**31), st.integers(0, 2**31)),
    min_size=1,
    max_size=6,
)
"""What is done, where, and with what."""


def damaged(whole: bytes, damage: Iterable[tuple[str, int, int]]) -> bytes:
    """Return the file with this damage."""
    for way, place, pick in damage:
        if way == "cut":
            whole = whole[: place % (len(whole) + 1)]
        elif way == "flip":
            at = place % max(len(whole), 1)
            whole = whole[:at] + bytes([pick % 256]) + whole[at + 1 :]
        else:
            whole = b"".join(_in_lines(way, whole.splitlines(keepends=True) or [b""], place, pick))
    return whole


def _in_lines(way: str, lines: list[bytes], place: int, pick: int) -> list[bytes]:
    (one, place), (other, pick) = _chosen(lines, place), _chosen(lines, pick)
    if way == "swap":
        lines[one], lines[other] = lines[other], lines[one]
    elif way == "double":
        lines.insert(other, lines[one])
    elif way == "drop":
        del lines[one]
    else:
        return _with_another(way, lines, one, lines[other], place, pick)
    return lines


def _chosen(lines: list[bytes], place: int) -> tuple[int, int]:
    """Return a line's number, as often of a rare kind as one of many rows; and what is left."""
    kinds: dict[bytes, list[int]] = {}
    for number, line in enumerate(lines):
        kinds.setdefault(KIND.sub(b"", line)[:24], []).append(number)
    place, kind = divmod(place, len(kinds))
    alike = [*kinds.values()][kind]
    place, number = divmod(place, len(alike))
    return alike[number], place


def _with_another(
    way: str, lines: list[bytes], one: int, other: bytes, place: int, pick: int
) -> list[bytes]:
    """Return the lines with an absurd or another value in place of one, or before it."""
    (place, number), (pick, of_its_own) = divmod(place, 2), divmod(pick, 2)
    line, tokens = lines[one], TOKENS[number]
    others = tokens.findall(line if of_its_own else other)
    values = ABSURD if way.startswith("absurd") else others
    found = [*tokens.finditer(line)]
    if not found or not values:
        return lines
    token, new = found[place % len(found)], values[pick % len(values)]
    if way == "joined":
        new = others[pick // 2 % len(others)][:-1] + b"," + new[1:]
    if way.endswith("everywhere"):
        return [line.replace(token[0], new) for line in lines]
    old = b"," + token[0] if way == "more" else b""
    lines[one] = line[: token.start()] + new + old + line[token.end() :]
    return lines
