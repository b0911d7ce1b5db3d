"""Decode JSON that anybody may have changed: of the expected type, or damaged.

A number that nothing measures is damage too. Python's whole numbers have no bound, and the first
one that becomes a float, a moment or a length would raise somewhere far from here.
"""

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpudash.errors import UNDECODABLE
from gpudash.input_file import read_input

T = TypeVar("T")
LARGEST = 1 << 63
"""Bound of numbers: nanoseconds since 1970 are the largest, and fit into 64 bits."""
MAY_BE_LARGE = re.compile(rb"\d{19}|\d[eE]")
"""Matches all JSON with a number that is not below `LARGEST`. Most lines of a log have none, and
looking at each of their numbers took a fifth of the time of reading."""


class DamagedError(ValueError):
    """What was read is not what gpudash writes."""


def decoded(data: bytes, kind: type[T]) -> T:
    """Return the JSON as a value of this type. Raises DamagedError."""
    try:
        found = msgspec.json.decode(data, type=kind)
        if MAY_BE_LARGE.search(data):
            refuse_nonsense(msgspec.json.decode(data))
    except UNDECODABLE as error:
        raise DamagedError(str(error)) from error
    return found


def read_json(path: Path, kind: type[T], most: int) -> T:
    """Return what a file of at most so many bytes has. Raises OSError and DamagedError."""
    return decoded(read_input(path, most), kind)


def refuse_nonsense(value: Any) -> None:
    """Raise DamagedError if any number inside is not finite or out of bounds."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for one in value:
            refuse_nonsense(one)
    elif isinstance(value, int | float) and not -LARGEST < value < LARGEST:
        raise DamagedError("a number that nothing measures")
