"""Read a Chrome trace of torch.profiler into columns, in pieces that end between two events."""

import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from gpudash.errors import UsageError
from gpudash.format import plain
from gpudash.input_file import open_input
from gpudash.trace.columns import EventColumns, NoTraceError, TraceDocument
from gpudash.trace.model import (
    Trace,
)

PIECE_BYTES = 512 << 10
LARGEST_BYTES = 1 << 30
"""Most bytes of a file that is decoded at once."""
BORDER = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|cat|name|pid|tid|ts)"\s*:)')
"""Matches the border between two events. In a string its quotes would be escaped. In `args` the
piece cannot be completed, and the file is decoded at once."""
TAIL_BYTES = 16 << 10
"""End of a piece that nearly always contains its last border."""
OPENING = b'{"traceEvents":['
CLOSING = b"]}"
_decode = msgspec.json.Decoder(TraceDocument).decode


def read(path: Path) -> Trace:
    """Read `.json` or `.json.gz`, as far as it goes if it ends early. Raises UsageError."""
    shown = plain(str(path))
    try:
        try:
            return _read(path, _pieces)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _read(path, _at_once)
    except (OSError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {shown}: {_inside(why)}") from error
    except (msgspec.ValidationError, NoTraceError) as error:
        why = f"{_inside(str(error))}; valid: what its export_chrome_trace wrote"
        raise UsageError(f"{shown} is no trace of torch.profiler: {why}") from error
    except (msgspec.DecodeError, RecursionError, ValueError) as error:  # text that is not UTF-8
        raise UsageError(f"{shown} cannot be read as JSON: {_inside(str(error))}") from error


def _inside(sentence: str) -> str:
    begin = sentence[:2]
    return plain((begin.lower() if begin.istitle() else begin) + sentence[2:])


def _read(
    path: Path, documents: Callable[[Iterator[bytes]], Iterator[TraceDocument | None]]
) -> Trace:
    columns = EventColumns()
    with open_input(path) as file:
        is_packed = file.peek(2)[:2] == b"\x1f\x8b"
        for document in documents(
            _unpacked(file) if is_packed else iter(partial(file.read, PIECE_BYTES), b"")
        ):
            columns.add(document)
    return columns.trace(path.name)


def _unpacked(file: IO[bytes]) -> Iterator[bytes]:
    unpack = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)  # gzip format
    while data := file.read(PIECE_BYTES // 8):
        yield unpack.decompress(data)


def _pieces(data: Iterator[bytes]) -> Iterator[TraceDocument | None]:
    """Yield documents of less than a megabyte, and a final None if the file ends early."""
    opening, rest = b"", bytearray()
    for piece in data:
        if border := _last_border(piece):
            whole = memoryview(piece)[: border.start() + 1]
            yield _decode(b"".join((opening, rest, whole, CLOSING)))
            opening, rest = OPENING, bytearray(piece[border.end() :])
        else:
            rest += piece
            _refuse_larger(rest)
    try:
        yield _decode(opening + rest)
    except msgspec.DecodeError as error:
        if not opening or isinstance(error, msgspec.ValidationError):
            raise
        yield None


def _at_once(data: Iterator[bytes]) -> Iterator[TraceDocument]:
    whole = bytearray()
    for piece in data:
        whole += piece
        _refuse_larger(whole)
    if not whole.strip():
        raise NoTraceError("it is empty")
    yield _decode(whole)


def _refuse_larger(data: bytearray) -> None:
    if len(data) > LARGEST_BYTES:
        raise NoTraceError("above 1 GiB its events must be laid out as torch writes them")


def _last_border(data: bytes) -> re.Match[bytes] | None:
    for begin in (len(data) - TAIL_BYTES, 0):
        if found := deque(BORDER.finditer(data, max(begin, 0)), maxlen=1):
            return found[0]
    return None
