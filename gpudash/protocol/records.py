"""The base of all messages and readings."""

from typing import TypeAlias

import msgspec

Settings: TypeAlias = dict[str, str]
"""Lever name → value in its canonical text form, in the workload's lever order."""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="type"):
    """Base of messages and readings: frozen, compared by value, tagged by type on the wire."""
