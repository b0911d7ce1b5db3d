"""Write each row's values as an event file of TensorBoard.

Its records have a length, a body and two checksums, and have had them since 2015. A library that
writes them would do so on a thread of its own, and print a traceback where a disk is full.
"""

import os
import socket
import struct
from pathlib import Path

from gpudash.errors import RecordingError
from gpudash.protocol.envelope import Envelope
from gpudash.recording.files import Output, reason, shown
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.sinks.current import subjects, wall_s
from gpudash.sinks.sink import Sink
from gpudash.views.time_breakdown import TimeBreakdown

VERSION = b"brain.Event:2"
POLYNOMIAL = 0x82F63B78
"""Of CRC-32C, bits reversed."""
LENGTH_DELIMITED = 2
"""Protocol Buffers' wire type of text and of nested messages."""


class Tensorboard(Sink):
    """Adds one file to a folder; a scalar for each number of a row, at its step."""

    every_step = False

    def __init__(self, target: str, origin: Origin, /, *, force: bool = False) -> None:
        del force
        self._origin = origin
        began_s = origin.began_utc.timestamp()
        name = f"events.out.tfevents.{began_s:.6f}.{socket.gethostname()}.{os.getpid()}.gpudash"
        try:
            Path(target).mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise RecordingError(
                f"cannot write to {shown(target)}: {reason(error)}; valid: a folder's name"
            ) from error
        self._file = Output(Path(target) / name, draft=False)
        self._file.append(record(_event(began_s, 0, _field(3, VERSION))))

    @property
    def failed(self) -> bool:
        return self._file.failed

    def take(self, item: Envelope | Interval, /) -> None:
        if isinstance(item, Interval):
            at_s = wall_s(self._origin, item.ended_s)
            values = b"".join(
                _field(1, _field(1, subject.tag(metric, name).encode()) + b"\x15" + _float(value))
                for subject in subjects(item, self._origin)
                for metric, name, value in subject.numbers()
            )
            self._file.append(record(_event(at_s, item.step, _field(5, values))))

    def close(self, _account: TimeBreakdown | None, /) -> None:
        self._file.close()

    def discard(self) -> None:
        """Keep the folder, which others may use."""
        self._file.discard()


def record(body: bytes) -> bytes:
    length = struct.pack("<Q", len(body))
    return length + _checksum(length) + body + _checksum(body)


def _event(at_s: float, step: int, what: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", at_s) + b"\x10" + _varint(max(step, 0)) + what


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | LENGTH_DELIMITED) + _varint(len(content)) + content


def _float(value: float) -> bytes:
    return struct.pack("<f", min(max(value, -3.4e38), 3.4e38))


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
    return byte


REMAINDERS = tuple(map(_remainder, range(256)))


def _checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C of the data."""
    found = 0xFFFFFFFF
    for byte in data:
        found = REMAINDERS[(found ^ byte) & 0xFF] ^ found >> 8
    found ^= 0xFFFFFFFF
    return struct.pack("<I", ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF)
