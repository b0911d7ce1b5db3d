"""All messages, and the envelope in which each travels: one JSON line on the wire."""

from typing import TypeAlias

from .answer import AnswerShown
from .commands import AnyCommand, Plan
from .inspections import CodeLines, MemoryOwners, Profiled, Rehearsed, Stack
from .readings import EnergyTick, GpuMissing, OtherJobs, Reading
from .records import Struct
from .session import (
    ComparisonShown,
    NewRow,
    Notice,
    Playback,
    SlowingShown,
    StragglerShown,
)
from .training import (
    BlocksEnded,
    Hello,
    Offered,
    Printed,
    Progress,
    Refused,
    State,
    Status,
    Timed,
    TooLate,
)

Event: TypeAlias = (
    Hello
    | Printed
    | Status
    | State
    | Offered
    | Progress
    | Timed
    | Refused
    | TooLate
    | BlocksEnded
    | Profiled
    | MemoryOwners
    | Stack
    | CodeLines
    | Rehearsed
    | AnyCommand
    | GpuMissing
    | OtherJobs
    | EnergyTick
    | Plan
    | NewRow
    | Notice
    | ComparisonShown
    | SlowingShown
    | StragglerShown
    | AnswerShown
    | Playback
)


class Envelope(Struct, frozen=True, kw_only=True, array_like=True):
    """A message and its origin; one JSON line on the wire."""

    source: str
    """`training` for the worker, `telemetry` for the sampler, `node` for other nodes' samplers,
    `session` for gpudash itself, …"""
    rank: int = 0
    seq: int
    """Counts up for each source and rank."""
    sent_s: float
    body: Event | Reading
