"""The base of all messages and readings, and how they become JSON and come back.

gpudash itself takes msgspec. In a training of somebody else, where these modules have another name,
`plain` does the same in the standard library alone: msgspec may be missing there, old or broken.
"""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING or __name__.startswith("gpudash."):
    from msgspec import Meta, Struct
    from msgspec.json import Decoder, encode
    from msgspec.structs import replace
else:
    from .plain import JsonDecoder as Decoder
    from .plain import Meta, Struct, encode, replace

__all__ = ["Decoder", "Meta", "Record", "Settings", "Struct", "encode", "replace"]
Settings: TypeAlias = dict[str, str]
"""Lever name → value in its canonical text form, in the workload's lever order."""


class Record(Struct, frozen=True, kw_only=True, tag=True, tag_field="type"):
    """Base of messages and readings: frozen, compared by value, tagged by type on the wire."""
