"""Any record of a class, whatever its fields hold."""

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(-(2**53), 2**53)
ATOMS = {str: TEXT, int: WHOLE, float: NUMBERS, bool: st.booleans(), types.NoneType: st.none()}


def values(kind: Any) -> st.SearchStrategy:  # noqa: PLR0911  # one for each kind
    """Any value of an annotation."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in ATOMS:
        return ATOMS[kind]
    if origin is Annotated:
        return values(inner[0]).filter(lambda value: value >= inner[1].ge)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, inner))
    if origin is tuple and inner[1:] == (...,):
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, inner))
    if origin is dict:
        return st.dictionaries(TEXT, values(inner[1]), max_size=2)
    return st.deferred(lambda: made(kind))


def made(kind: type) -> st.SearchStrategy:
    """Any record of a class, fields with a default left out now and then."""
    hints = get_type_hints(kind, include_extras=True)
    fields = {one.name: one for one in msgspec.structs.fields(kind)}
    needed = {name: values(hints[name]) for name, one in fields.items() if one.required}
    optional = {name: values(hints[name]) for name, one in fields.items() if not one.required}
    return st.fixed_dictionaries(needed, optional=optional).map(lambda given: kind(**given))
