"""Records as msgspec's, in the standard library alone: what `records` needs of it, and no more.

Differences that nobody here sees: a record may have attributes that are no field, and numbers are
written as Python writes them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations
from math import isfinite
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")
RecordT = TypeVar("RecordT", bound="Struct")
_dump = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode
_NO_TEXT = re.compile("[\ud800-\udfff]")
"""What stands for the bytes of a file's name that are no UTF-8."""


class Meta(NamedTuple):
    """A bound of a number, in an annotation."""

    ge: float


@dataclass(frozen=True)
class _Layout:
    """How records of a class are made and written."""

    fields: tuple[str, ...]
    """Names, those of the base first."""
    positional: tuple[str, ...]
    defaults: dict[str, Any]
    tag: str | None
    tag_field: str
    array_like: bool
    omit_defaults: bool


class Struct:
    """The base of records: frozen, compared by value."""

    __layout__: ClassVar = _Layout((), (), {}, None, "type", array_like=False, omit_defaults=False)

    def __init_subclass__(
        cls,
        *,
        frozen: bool = True,  # all are
        kw_only: bool = False,
        tag: bool | None = None,
        tag_field: str | None = None,
        array_like: bool | None = None,
        omit_defaults: bool | None = None,
        gc: bool = True,  # Python decides
    ) -> None:
        """Find the fields; options that are not given are those of the base."""
        super().__init_subclass__()
        base = next(one for one in cls.__mro__[1:] if issubclass(one, Struct)).__layout__
        own = [one for one in get_annotations(cls) if one not in base.fields]
        is_tagged = base.tag is not None if tag is None else tag
        cls.__layout__ = _Layout(
            fields=(*base.fields, *own),
            positional=base.positional if kw_only else (*base.positional, *own),
            defaults=base.defaults | {one: vars(cls)[one] for one in own if one in vars(cls)},
            tag=cls.__name__ if is_tagged else None,
            tag_field=base.tag_field if tag_field is None else tag_field,
            array_like=base.array_like if array_like is None else array_like,
            omit_defaults=base.omit_defaults if omit_defaults is None else omit_defaults,
        )

    def __init__(self, *values: Any, **named: Any) -> None:
        layout = self.__layout__
        if len(values) > len(layout.positional):
            raise TypeError(f"{type(self).__name__} takes fewer values without a name")
        given = dict(zip(layout.positional, values, strict=False))
        if twice := given.keys() & named.keys() or named.keys() - set(layout.fields):
            raise TypeError(f"{type(self).__name__} does not take {', '.join(sorted(twice))}")
        given |= named
        for name in layout.fields:
            if name in given:
                self.__dict__[name] = given[name]
            elif name in layout.defaults:
                value = layout.defaults[name]
                self.__dict__[name] = value if value or value is None else _anew(value)
            else:
                raise TypeError(f"{type(self).__name__} needs {name}")

    def __setattr__(self, name: str, _value: object = None) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name}")

    __delattr__ = __setattr__

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({', '.join(shown)})"


def replace(record: RecordT, /, **changes: Any) -> RecordT:
    """Return the record with these fields changed."""
    return type(record)(**{**vars(record), **changes})


def encode(value: Any) -> bytes:
    """Return a record as JSON. What is not finite becomes `null`, what is no text `\ufffd`."""
    return _NO_TEXT.sub("\ufffd", _dump(_plain(value))).encode()


class JsonDecoder(Generic[T]):
    """Reads JSON as values of a type: records, unions of them, and what their fields hold."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def decode(self, text: bytes | str) -> T:
        """Return the value. Raises ValueError for one of another type; extra fields are ignored."""
        try:
            found = json.loads(text, parse_constant=_refuse)
        except RecursionError as error:
            raise ValueError("nested too deep") from error
        return _typed(found, self._kind)  # type: ignore[no-any-return]  # of the type asked for


def _anew(value: Any) -> Any:
    """Return an empty default, which no two records share."""
    return type(value)() if isinstance(value, (dict, list, set)) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        layout, found = value.__layout__, dict(_fields(value))
        tag = {} if layout.tag is None else {layout.tag_field: layout.tag}
        return [*tag.values(), *found.values()] if layout.array_like else tag | found
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _fields(record: Struct) -> Iterator[tuple[str, Any]]:
    layout = record.__layout__
    for name, value in vars(record).items():
        is_default = name in layout.defaults and value == layout.defaults[name]
        if not (is_default and layout.omit_defaults) or layout.array_like:
            yield name, _plain(value)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _typed(found: Any, kind: Any) -> Any:  # noqa: PLR0911  # one for each kind of type
    """Return what JSON held as a value of this type. Raises ValueError."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _ATOMS:
        return _atom(found, kind)
    if kind is Any:
        return found
    if origin is Annotated:
        return _bounded(_typed(found, inner[0]), inner[1:])
    if origin is Literal and any(type(found) is type(one) and found == one for one in inner):
        return found
    if origin in (Union, UnionType):
        return _typed(found, _one_of(found, inner))
    if origin is tuple and isinstance(found, list):
        inner = inner[:1] * len(found) if inner[1:] == (...,) else inner
        if len(inner) == len(found):
            return tuple(map(_typed, found, inner))
    if origin is dict and isinstance(found, dict):
        return {name: _typed(one, inner[1]) for name, one in found.items()}
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _record(found, kind)
    raise ValueError(f"{found!r:.80} is no {kind}")


_ATOMS = (NoneType, bool, int, float, str)


def _atom(found: Any, kind: type) -> Any:
    if kind is float and type(found) is int:
        return float(found)
    if type(found) is not kind:
        raise ValueError(f"{found!r:.80} is no {kind.__name__}")
    return found


def _bounded(value: Any, bounds: tuple[Any, ...]) -> Any:
    for bound in bounds:
        if isinstance(bound, Meta) and value < bound.ge:
            raise ValueError(f"{value} is below {bound.ge}")
    return value


def _one_of(found: Any, kinds: tuple[Any, ...]) -> Any:
    """Return the member of a union that the value is of."""
    records = [one for one in kinds if isinstance(one, type) and issubclass(one, Struct)]
    if isinstance(found, dict) and records:
        for one in records:
            if one.__layout__.tag is None or one.__layout__.tag == found.get(
                one.__layout__.tag_field
            ):
                return one
        raise ValueError("a message of no known type")
    if found is None and NoneType in kinds:
        return NoneType
    for one in kinds:
        if one is not NoneType:
            try:
                _typed(found, one)
            except ValueError:
                continue
            return one
    raise ValueError(f"{found!r:.80} is of none of the types")


def _record(found: Any, kind: type[Struct]) -> Struct:
    layout, kinds = kind.__layout__, _kinds(kind)  # type: ignore[arg-type]  # a class is hashable
    if layout.array_like and isinstance(found, list):
        tag = () if layout.tag is None else (layout.tag_field,)
        values = dict(zip((*tag, *layout.fields), found, strict=False))
    elif not layout.array_like and isinstance(found, dict):
        values = found
    else:
        raise ValueError(f"{found!r:.80} is no {kind.__name__}")
    if layout.tag is not None and values.get(layout.tag_field, layout.tag) != layout.tag:
        raise ValueError(f"{values[layout.tag_field]!r:.80} is no {layout.tag}")
    fields = {one: _typed(values[one], kinds[one]) for one in layout.fields if one in values}
    try:
        return kind(**fields)
    except TypeError as error:  # a field is missing
        raise ValueError(str(error)) from error


@cache
def _kinds(kind: type[Struct]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
