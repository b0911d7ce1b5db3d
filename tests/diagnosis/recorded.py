"""Trainings of benchmarks/causes as an H200 recorded them: their steps, profile and true gains.

benchmarks/record_causes.py made them. `NAME.jsonl.gz` is the log of a few seconds, every step,
without the answers of that time. `NAME.json` has what is right to say, the levers, the profile's
summary, and what each value of each lever changed in an A/B.
"""

import gzip
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpudash.protocol.training import Lever
from gpudash.run.replayed import replayed
from gpudash.snapshot import Snapshot
from gpudash.trace.summary import Summary

FOLDER = Path(__file__).parent / "recordings"
OWN_CODE_US = 1_000.0
"""A device that idles for longer waits for no launch."""
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


class Trial(msgspec.Struct, frozen=True):
    """What one value of a lever changes."""

    lever: str
    before: str
    value: str
    change: float | None = None
    """Steps a second with the value over those without, less 1; None if not measured."""
    low: float | None = None
    high: float | None = None


class Known(msgspec.Struct, frozen=True):
    """What is known of a recorded training beside its steps."""

    limits: tuple[str, ...]
    """Each of them is right."""
    best: tuple[str, ...]
    """The levers of which each is right to propose first."""
    cores: int
    levers: tuple[Lever, ...]
    summary: Summary | None
    trials: tuple[Trial, ...]


class Recorded(NamedTuple):
    """A recorded training."""

    known: Known
    snapshot: Snapshot
    """At its end, as one that still trains: levers can be moved, and an aside is just over."""


@cache
def recorded(name: str) -> Recorded:
    """Replay a recording to its end."""
    known = msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Known)
    known = replace(known, summary=known.summary and with_own_code(known.summary))
    return Recorded(known, at_end(FOLDER / f"{name}.jsonl.gz", known.levers))


def with_own_code(summary: Summary) -> Summary:
    """Give a summary of that time what the device idled in each step for the script's own code."""
    long = ((each, ms) for least_us, each, ms in summary.gaps if least_us >= OWN_CODE_US)
    idle_ms = sum(ms for each, ms in long if each >= 1)  # the profile begins with an idle device
    return replace(summary, own_code_ms=max(idle_ms - (summary.loader_ms or 0.0), 0.0))


def at_end(packed: Path, levers: tuple[Lever, ...]) -> Snapshot:
    """Replay a packed log; its training shall seem to go on."""
    with TemporaryDirectory() as folder:
        log = Path(folder, packed.stem)
        log.write_bytes(gzip.decompress(packed.read_bytes()))
        snapshot = replayed(log).snapshot
    can = frozenset({*snapshot.can, "blocks", "levers", "profile"})
    return replace(snapshot, can=can, levers=levers, doing=None)
