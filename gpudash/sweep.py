"""`gpudash sweep`: a table of settings, measured in one worker, block by block in turn."""

import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import msgspec

from gpudash import plotting, tables
from gpudash.analysis.sweep import BlockRow, Grid, Sweep
from gpudash.errors import GpudashError, RecordingError, UsageError
from gpudash.headless import News, follow
from gpudash.recording.files import reason, refuse_existing, shown
from gpudash.recording.sweep_file import SweepFile
from gpudash.records import Blocks, Event, Sample, Settings, Started
from gpudash.session import Session
from gpudash.snapshot import Snapshot
from workloads import Entry
from workloads.levers import find, resolve

BAR_WIDTH = 20


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sweep's table goes, besides the terminal."""

    csv: Path | None = None
    markdown: Path | None = None
    plot: Path | None = None

    def check(self, *, force: bool, resume: bool) -> None:
        """Refuse what could not be written at the end. Raises GpudashError."""
        if resume and self.csv is None:
            raise UsageError("--resume goes with --csv FILE.csv, the file of the sweep to finish")
        if self.plot is not None:
            plotting.check(self.plot)
        if not force and not resume:
            for path in (self.markdown, self.plot):
                if path is not None:
                    refuse_existing(path)


def vary(entry: Entry, texts: Sequence[str]) -> tuple[tuple[Settings, ...], tuple[Settings, ...]]:
    """Return rows and columns of `NAME=A,B,…` texts: batch sizes down, the rest across.

    Raises LeverError or UsageError.
    """
    axes: dict[str, list[str]] = {}
    for text in texts:
        name, separator, values = text.partition("=")
        if not separator:
            raise UsageError(f"--vary {text!r} is not valid; valid: LEVER=A,B,…")
        if name in axes:
            raise UsageError(f"--vary {name} is given twice; valid: once with all its values")
        lever = find(entry.levers, name)
        axes[name] = list(dict.fromkeys(lever.canonical(value) for value in values.split(",")))
    down = axes.pop("batch_size", None) if len(axes) > 1 else None
    rows = tuple({"batch_size": size} for size in down) if down else ({},)
    columns = tuple(dict(zip(axes, one, strict=True)) for one in product(*axes.values()))
    return rows, columns


class RecordedSweep:
    """A sweep as the session runs it: every block goes to the file first."""

    def __init__(self, sweep: Sweep, file: SweepFile | None) -> None:
        self._sweep = sweep
        self._file = file
        self._began_s: float | None = None
        self._done_before = sweep.blocks_done
        self.done = False
        self.failure: str | None = None
        """Why it ended early."""

    def begin(self, started: Started, first_number: int, /) -> Blocks:
        """Return what the worker is to run."""
        self._began_s = time.monotonic()
        try:
            if self._file is not None:
                self._file.started_on(started.device, started.versions)
        except GpudashError as error:
            return self._fail(str(error))
        command = self._sweep.begin(first_number)
        self.done = self._sweep.done
        return command

    def fold(self, item: Event | Sample, /) -> Blocks | None:
        """Take one record."""
        if self.done:
            return None
        rows, command = self._sweep.fold(item)
        try:
            for row in rows:
                self._write(row)
        except RecordingError as error:
            return self._fail(str(error))
        self.done, self.failure = self._sweep.done, self._sweep.failure
        return command

    def shown(self) -> None:
        """Return nothing: a sweep has no place on the dashboard."""

    def line(self, snapshot: Snapshot) -> str:
        """Return the progress bar, the blocks and the time left."""
        if self._began_s is None:
            return f"{snapshot.workload}: {snapshot.status}"
        done, planned = self._sweep.blocks_done, self._sweep.blocks_planned
        bar = ("█" * (BAR_WIDTH * done // max(planned, 1))).ljust(BAR_WIDTH, "░")
        line = f"{snapshot.workload} {bar} {done}/{planned} blocks"
        fresh = done - self._done_before
        if fresh:
            elapsed_s = time.monotonic() - self._began_s
            line += f", {elapsed_s / fresh * (planned - done):.0f} s left"
        return line

    def _write(self, row: BlockRow) -> None:
        if self._file is not None:
            self._file.append(row)

    def _fail(self, reason: str) -> Blocks:
        self.done, self.failure = True, reason
        return Blocks(blocks=())


def run_sweep(
    session: Session, sweep: Sweep, file: SweepFile | None, outputs: Outputs, command: Sequence[str]
) -> int:
    """Run what is missing of the sweep and print its table. Returns the exit code."""
    news = News()
    recorded = RecordedSweep(sweep, file)
    session.conduct(recorded)
    interrupted = follow(session, news, recorded.line, lambda: recorded.done)
    if file is not None:
        file.close()
    snapshot, results = news.snapshot, sweep.results()
    table = tables.cells(sweep.grid, results)
    device = snapshot.device.name if snapshot.device else "no device"
    fixed = [f"{name}={value}" for name, value in session.plan.settings.items()]
    title = " ".join([f"{session.plan.workload} on {device}", *fixed])
    if sweep.blocks_done:
        print(f"{title}\n{tables.LEGEND}\n\n{tables.as_text(table)}")
        if outputs.markdown is not None:
            _write_markdown(outputs.markdown, title, table, command)
        if outputs.plot is not None:
            plotting.draw(outputs.plot, title, sweep.grid, results)
    if session.failure is not None:
        print(f"gpudash: {session.failure.sentence}", file=sys.stderr)
        return 2 if session.failure.kind == "bad_setting" else 1
    if interrupted or recorded.failure is not None:
        kept = f"; --resume finishes {shown(outputs.csv)}" if outputs.csv else ""
        why = "interrupted" if interrupted else recorded.failure
        of = f"{sweep.blocks_done} of {sweep.blocks_planned} blocks"
        print(f"gpudash: {why} after {of}{kept}", file=sys.stderr)
        return 130 if interrupted else 1
    return 0


def check_grid(entry: Entry, settings: Settings, grid: Grid) -> None:
    """Refuse a cell with an unknown lever or value before anything runs. Raises LeverError."""
    for cell in range(grid.cells):
        resolve(entry.levers, settings | grid.changes(cell))


def _write_markdown(
    path: Path, title: str, table: Sequence[Sequence[str]], command: Sequence[str]
) -> None:
    text = f"## {title}\n\n`{' '.join(command)}`: {tables.LEGEND}.\n\n{tables.as_markdown(table)}\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordingError(f"cannot write {shown(path)}: {reason(error)}") from error
