"""Grids that `benchmarks/record_grid.py` has recorded, as trainings for simulated tunes.

A step takes the median of what it took with these settings. Its noise is that of the recording:
each round of the grid has its own pace, which is the machine's drift, and each block its own
remainder.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

import msgspec

from gpudash.compare.sweep.grid import BlockRow
from gpudash.compare.tune.tunable import Tunable
from tests.compare.tunes import NEW_LOADER, NEXT_STEP, Grid, choice, count

PLACE = Path(__file__).parents[2] / "benchmarks" / "grids"
NEW_LOADER_LEVERS = frozenset({"num_workers", "prefetch_factor", "pin_memory"})


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a file."""

    training: str
    """The workload with its settings, or the command."""
    values: dict[str, tuple[str, ...]]
    """Each lever's values, that of the start first."""
    load: float
    """Runnable processes of the machine when it began."""
    device: str = ""
    versions: dict[str, str] = {}
    rounds: tuple[tuple[float | None, ...], ...] = ()
    """Ms a step of each setting, round by round; None: not measured."""
    failures: dict[int, str] = {}
    """Settings that cannot be run, by number."""

    @classmethod
    def read(cls, path: Path) -> "Recording":
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def write(self, path: Path) -> None:
        """Write the file anew; a line for each round."""
        head = msgspec.to_builtins(msgspec.structs.replace(self, rounds=()), str_keys=True)
        del head["rounds"]
        lines = [
            f"{msgspec.json.encode(name).decode()}: {msgspec.json.encode(value).decode()}"
            for name, value in head.items()
        ]
        rounds = (
            "[" + ", ".join("null" if ms is None else f"{ms:.4g}" for ms in one) + "]"
            for one in self.rounds
        )
        lines.append('"rounds": [\n  ' + ",\n  ".join(rounds) + "\n]")
        partial = path.with_suffix(".partial")
        partial.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        partial.replace(path)

    @property
    def settings(self) -> list[tuple[str, ...]]:
        """Every setting, in the order of the rounds; the start comes first."""
        return [*product(*self.values.values())]

    def rows(self) -> list[BlockRow]:
        """Return the blocks so far."""
        measured = [
            BlockRow(round=turn, cell=cell, steps=1, busy_s=ms / 1e3)
            for turn, one in enumerate(self.rounds)
            for cell, ms in enumerate(one)
            if ms is not None
        ]
        failed = [
            BlockRow(round=0, cell=cell, failure=why, failure_kind="bad_setting")
            for cell, why in self.failures.items()
        ]
        return measured + failed

    def with_rows(self, rows: Sequence[BlockRow]) -> "Recording":
        """Return a recording of these blocks."""
        last = max((row.round for row in rows), default=-1)
        rounds: list[list[float | None]] = [[None] * len(self.settings) for _ in range(last + 1)]
        for row in rows:
            if row.busy_s and row.steps:
                rounds[row.round][row.cell] = row.busy_s * 1e3 / row.steps
        failures = {row.cell: row.failure for row in rows if row.failure is not None}
        return msgspec.structs.replace(self, rounds=tuple(map(tuple, rounds)), failures=failures)

    @property
    def _possible(self) -> list[int]:
        """The numbers of the settings that can be run."""
        return [cell for cell in range(len(self.settings)) if cell not in self.failures]

    def _whole(self) -> list[list[float]]:
        """Return the rounds in which each of these was measured, as logarithms."""
        rounds = ([one[cell] for cell in self._possible] for one in self.rounds)
        return [[math.log(ms) for ms in one if ms] for one in rounds if None not in one]

    def grid(self, name: str, *, from_slowest: bool = False) -> Grid:
        """Return the training; a setting that cannot be run takes for ever.

        It starts as recorded, or with its slowest setting, from which there is more to gain.
        """
        known = zip(self._possible, zip(*self._whole(), strict=True), strict=True)
        took_ms = {self.settings[cell]: math.exp(median(logs)) for cell, logs in known}
        start = max(took_ms, key=lambda one: took_ms[one]) if from_slowest else self.settings[0]
        tunables = {
            lever: _tunable(lever, first, values)
            for (lever, values), first in zip(self.values.items(), start, strict=True)
        }

        def step_ms(settings: Mapping[str, str]) -> float:
            return took_ms.get(tuple(settings[lever] for lever in tunables), math.inf)

        return Grid(name, tuple(self.values), step_ms, tunables, self.values)

    def noise(self, seed: int) -> "RecordedNoise":
        """Return the noise of the recording, which begins in another round for each seed."""
        logs = self._whole()
        paces = [median(one) for one in logs]
        level, usual = median(paces), [median(one) for one in zip(*logs, strict=True)]
        rest = [
            log - of_setting - (pace - level)
            for one, pace in zip(logs, paces, strict=True)
            for log, of_setting in zip(one, usual, strict=True)
        ]
        return RecordedNoise(tuple(pace - level for pace in paces), tuple(rest), seed)


class RecordedNoise(NamedTuple):
    """What disturbed the blocks of a recording."""

    paces: tuple[float, ...]
    rest: tuple[float, ...]
    first: int
    pace_s: float = 15.0
    """How long a pace lasts: about as long as a round took."""

    @property
    def spread(self) -> float:
        """By how much half of the blocks differ from their pace at most, either way."""
        return median(map(abs, self.rest))

    def factor(self, random: Random, at_s: float) -> float:
        """Return by how much a block that begins now takes longer."""
        at = (self.first + int(at_s / self.pace_s)) % len(self.paces)
        return math.exp(self.paces[at] + random.choice(self.rest))


def recorded() -> dict[str, Recording]:
    """Return every recording, by its name."""
    return {path.stem: Recording.read(path) for path in sorted(PLACE.glob("*.json"))}


def _tunable(name: str, first: str, values: Sequence[str]) -> Tunable:
    effect = NEW_LOADER if name in NEW_LOADER_LEVERS else NEXT_STEP
    if all(value.isdecimal() for value in values):
        most = max(map(int, values))
        unknown = {*map(str, range(most))} - {*values}
        lever = count(
            name, first, most, impossible=tuple((value, "") for value in unknown), **effect
        )
        return Tunable(lever, most=most)
    return Tunable(choice(name, *dict.fromkeys((first, *values)), **effect))
