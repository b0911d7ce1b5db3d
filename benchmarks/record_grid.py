"""Record how long a step takes with every setting of a grid, for tunes that are replayed from it.

    python -m benchmarks.record_grid FILE WORKLOAD --vary LEVER=START,B,… [--set LEVER=VALUE …]
    python -m benchmarks.record_grid FILE --vary LEVER=START,B,… -- train.py ARGS

Every setting is measured once a round, in random order, in blocks as short as those of a tune. The
first value of each lever is that of the start. A second run of the same command goes on with the
rounds of the first, if that was interrupted or out of time. A script is ended as by Ctrl-C.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpudash.cli.measure import AskedTraining, Course, measure
from gpudash.cli.user_training import plan_of
from gpudash.compare.experiment import BLOCK_S, RUN_S
from gpudash.compare.sweep.grid import BlockRow, Grid, Sweep, whole_rounds
from gpudash.compare.tune.tuning import MIN_STEPS
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import State
from gpudash.run.user_command import understand
from gpudash.snapshot import Snapshot
from tests.compare.recorded_grids import NEW_LOADER_LEVERS, Recording


class Walk:
    """The walk over the grid, of which each block is in the file at once."""

    skipped_samples: int | None = None

    def __init__(self, path: Path, recording: Recording, rounds: int) -> None:
        self._path, self._recording = path, recording
        known = recording.rows() if path.exists() else []
        rebuilds = not NEW_LOADER_LEVERS.isdisjoint(recording.values)
        columns = [dict(zip(recording.values, one, strict=True)) for one in recording.settings]
        grid = Grid(
            rows=({},),
            columns=tuple(columns),
            rounds=rounds,
            min_steps=MIN_STEPS,
            min_s=RUN_S if rebuilds else BLOCK_S,
        )
        self._rows = whole_rounds(grid, known)
        self.sweep = Sweep(grid, self._rows, self)
        self.began_s = time.monotonic()

    def started_on(self, state: State) -> None:
        """See RowFile."""
        process = state.process
        assert process is not None
        self._recording = msgspec.structs.replace(
            self._recording, device=process.device.name, versions=process.versions
        )

    def append(self, row: BlockRow) -> None:
        """See RowFile."""
        self._rows.append(row)
        self._recording.with_rows(self._rows).write(self._path)

    def note_skipped(self, samples: int | None) -> None:
        """Do nothing: no sample of these is skipped."""

    def line(self, _snapshot: Snapshot) -> str:
        """Return the progress."""
        sweep, lasted_s = self.sweep, time.monotonic() - self.began_s
        return f"{sweep.blocks_done} of {sweep.blocks_planned} blocks, {lasted_s:.0f} s"


class Walking(Course):
    """The walk over a training, which begins once its levers are known."""

    def __init__(self, walk: Walk, seconds: float) -> None:
        self._walk, self._seconds = walk, seconds

    def stages(self) -> Iterator[bool]:
        """Wait until it is done, or has lasted so long."""
        walk = self._walk
        yield from self.await_levers()
        self.session.conduct(walk.sweep)
        while not walk.sweep.done and time.monotonic() - walk.began_s <= self._seconds:
            yield False

    def line(self, snapshot: Snapshot) -> str:
        """Return the progress."""
        return self._walk.line(snapshot)


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("workload", nargs="?", default="")
    parser.add_argument("--vary", action="append", required=True, metavar="LEVER=START,B,…")
    parser.add_argument("--set", action="append", default=[], metavar="LEVER=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rounds", type=int, default=6)
    own, script = sys.argv[1:], list[str]()
    if "--" in own:
        at = own.index("--")
        own, script = own[:at], own[at + 1 :]
    asked = parser.parse_args(own)
    values = {name: tuple(texts.split(",")) for name, _, texts in map(_parted, asked.vary)}
    recording = Recording(
        training=" ".join(script) or " ".join([asked.workload, *asked.set]),
        values=values,
        load=os.getloadavg()[0],
    )
    if asked.file.exists():
        before = Recording.read(asked.file)
        if (before.training, before.values) != (recording.training, recording.values):
            sys.exit(f"{asked.file} is of another grid: {before.training}, {before.values}")
        recording = before
    walk = Walk(asked.file, recording, asked.rounds)
    if script:
        command = understand(script)
        training = AskedTraining(plan_of(command), command)
    else:
        fixed = dict(text.split("=", 1) for text in asked.set)
        start = fixed | {name: texts[0] for name, texts in values.items()}
        training = AskedTraining(Plan(workload=asked.workload, settings=start, device=asked.device))
    how = argparse.Namespace(command=(), set_by={}, json=True, quiet=not script)
    measure(training, how, Walking(walk, asked.seconds))
    found = Recording.read(asked.file) if asked.file.exists() else recording
    print(json.dumps({"rounds": len(found.rounds), "settings": len(found.settings)}))


def _parted(text: str) -> tuple[str, str, str]:
    return text.partition("=")


if __name__ == "__main__":
    main()
