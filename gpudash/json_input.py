"""Decode JSON that anybody may have changed or damaged.

Python's whole numbers have no bound, and the first one that becomes a float, a moment or a length
would raise somewhere far from here.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec

from gpudash.errors import UNDECODABLE
from gpudash.input_file import read_input

T = TypeVar("T")
LARGEST = 1 << 63
"""Bound of numbers: nanoseconds since 1970 are the largest, and fit into 64 bits."""
_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
MOST_S = 1e10
"""Bound of moments and times in seconds: 300 years."""
MOST_DIGITS = 100
"""Bound of a whole number in a setting's text: a longer one is soon no float."""


class DamagedError(ValueError):
    """What was read is not what gpudash writes."""


def decoded(data: bytes, kind: type[T]) -> T:
    """May raise DamagedError."""
    try:
        found = msgspec.json.decode(data, type=kind)
        if _may_be_large(data):
            refuse_nonsense(msgspec.json.decode(data))
    except UNDECODABLE as error:
        raise DamagedError(str(error)) from error
    if isinstance(found, msgspec.Struct):
        refuse_impossible(found)
    return found


def _may_be_large(data: bytes) -> bool:
    """Return True for all JSON with a number that is not below `LARGEST`: few lines of a log are.

    Looking at each number of each line would take most of the time of reading.
    """
    found = data.translate(_DIGITS)
    return b"0" * 19 in found or b"0e" in found


def read_json(path: Path, kind: type[T], most: int) -> T:
    """May raise OSError or DamagedError."""
    return decoded(read_input(path, most), kind)


def refuse_nonsense(value: Any) -> None:
    """Raise DamagedError if any number inside is not finite or out of bounds."""
    for one in _inside(value):
        refuse_nonsense(one)
    if isinstance(value, int | float) and not -LARGEST < value < LARGEST:
        raise DamagedError("a number that nothing measures")


def refuse_impossible(record: msgspec.Struct) -> None:
    """Raise DamagedError if anything counts below 0 or names a time that never was.

    Names and types tell: a whole number counts, `_s` is in seconds, texts by name are settings.
    """
    fields = _fields(type(record))
    for name in fields.counts:
        if (count := getattr(record, name)) is not None and count < 0:
            raise DamagedError(f"{name} is below 0")
    for name in fields.seconds:
        if (s := getattr(record, name)) is not None and not -MOST_S < s < MOST_S:
            raise DamagedError(f"{name} is no time")
    for name in fields.settings:
        if any(len(text) > MOST_DIGITS and text.isdecimal() for text in _texts(record, name)):
            raise DamagedError(f"{name} has a number that nothing measures")
    for name in fields.inner:
        for one in _records(getattr(record, name)):
            refuse_impossible(one)


def _texts(record: msgspec.Struct, name: str) -> Iterable[str]:
    return (getattr(record, name) or {}).values()


class _Fields(NamedTuple):
    """Names of a record's fields, by what they hold."""

    counts: tuple[str, ...]
    seconds: tuple[str, ...]
    settings: tuple[str, ...]
    inner: tuple[str, ...]
    """Those that hold records."""


@cache
def _fields(kind: type[msgspec.Struct]) -> _Fields:
    types = {one.name: _members(one.type) for one in msgspec.structs.fields(kind)}
    return _Fields(
        counts=tuple(name for name, found in types.items() if int in found),
        seconds=tuple(name for name, found in types.items() if float in found if name[-2:] == "_s"),
        settings=tuple(name for name, found in types.items() if dict[str, str] in found),
        inner=tuple(name for name, found in types.items() if any(map(_has_record, found))),
    )


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _has_record(kind: Any) -> bool:
    is_one = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return is_one or any(map(_has_record, get_args(kind)))


def _records(value: Any) -> Iterator[msgspec.Struct]:
    if isinstance(value, msgspec.Struct):
        yield value
    else:
        for one in _inside(value):
            yield from _records(one)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value
