"""`gpudash sweep`: a table of settings, measured in one worker, block by block in turn."""

import argparse
import os
import platform
import shlex
import shutil
import time
from collections.abc import Sequence
from itertools import product, zip_longest
from pathlib import Path

import msgspec

from gpudash import __version__
from gpudash.commands import COMMAND_LINE
from gpudash.commands.headless import News, failure_code, follow
from gpudash.commands.plan import compared_values, make_plan
from gpudash.commands.stdout import complain, say, say_json
from gpudash.compare.sweep import plot
from gpudash.compare.sweep import table as sweep_table
from gpudash.compare.sweep.file import Provenance, SweepFile, writing
from gpudash.compare.sweep.grid import NPROC, Grid, Sweep
from gpudash.compare.sweep.presets import ON_CPU, ON_GPU, Preset
from gpudash.errors import Exit, RecordingError, UsageError
from gpudash.protocol import Block, Event, Plan, Progress, Reading, Settings, Started
from gpudash.recording.files import refuse_existing, shown
from gpudash.recording.provenance import path_beside, plain
from gpudash.run import child
from gpudash.run.session import Session
from gpudash.snapshot import Snapshot, silence, unreadable
from gpudash.telemetry.gpu import list_gpus
from gpudash.telemetry.nvml import GpuUnavailable
from workloads import DEFAULT, Entry, find_workload
from workloads.levers import find, resolve
from workloads.nearest import unknown
from workloads.standard_levers import PROCESSES

MIN_S = 1.0
"""A block lasts this long besides: utilisation is read five times a second."""
ASK_TORCH = "import torch; print(torch.cuda.device_count())"
BAR_WIDTH = 20
SWITCHES = {
    "new loader": "each change waits for a new loader's first batch",
    "rebuilt model": "each change builds the model anew",
}
"""What makes a sweep longer than its blocks, by a lever's effect."""
OF_SEVERAL = frozenset(lever.name for lever in PROCESSES)
BY_MACHINE = "num_workers"
"""The lever whose default depends on the machine."""


def main(arguments: argparse.Namespace) -> int:
    """Sweep. Returns the exit code."""
    outputs = Outputs(
        csv=arguments.csv,
        markdown=arguments.markdown,
        plot=arguments.plot,
        json=arguments.json,
        command=tuple(map(plain, arguments.command)),
    )
    outputs.check(force=arguments.force, resume=arguments.resume)
    plan, grid = _plan_and_grid(arguments)
    provenance = Provenance(
        workload=plan.workload,
        settings=plan.settings,
        grid=grid,
        device=None,
        machine=platform.node(),
        versions={"gpudash": __version__, **_driver()},
        command=outputs.command,
        set_by={key: plain(by) for key, by in arguments.set_by.items()},
    )
    if arguments.dry_run:
        say(foreseen(provenance))
        return Exit.DONE
    file = None
    if outputs.csv is not None:
        file = SweepFile(outputs.csv, provenance, force=arguments.force, resume=arguments.resume)
    sweep = Sweep(grid, file.known if file else ())
    earlier = file.earlier if file else None
    if file and earlier and earlier.device and sweep.blocks_done == sweep.blocks_planned:
        file.close()
        return print_measured(sweep, earlier, outputs)
    session = Session(
        of_count(plan, sweep.nproc), command=arguments.command, set_by=arguments.set_by
    )
    try:
        return run_sweep(session, sweep, provenance, file, outputs, quiet=arguments.quiet)
    finally:
        session.close()


def foreseen(provenance: Provenance) -> str:
    """Return how many settings a sweep has, and about how long it takes."""
    grid = provenance.grid
    blocks = grid.cells * grid.rounds
    settings = "1 setting" if grid.cells == 1 else f"{grid.cells} settings"
    measured = (
        f"{grid.min_steps} steps and {grid.min_s:g} s" if grid.min_s else f"{grid.min_steps} steps"
    )
    least = f"{blocks * grid.min_s:.0f} s" if grid.min_s else f"{blocks * grid.min_steps} steps"
    lines = [
        f"{provenance.workload}: {settings}, {grid.rounds} rounds: {blocks} blocks",
        f"each block measures {measured} at least: {least} in all, and the warm-up of each block",
    ]
    if grid.counts:
        lines.append("nproc: each number of processes is a training of its own")
    levers = {name for cell in range(grid.cells) for name in grid.levers(cell)}
    effects = {
        name: find(find_workload(provenance.workload).levers, name).effect for name in levers
    }
    for effect, cost in SWITCHES.items():
        names = sorted(name for name in levers if effects[name] == effect)
        if names:
            lines.append(f"{', '.join(names)}: {cost}")
    return "\n".join(lines)


def _plan_and_grid(arguments: argparse.Namespace) -> tuple[Plan, Grid]:
    """Return what is trained and what is swept. Raises LeverError or UsageError."""
    preset = _preset(arguments)
    asked = arguments.workload if arguments.set_by.get("workload") == COMMAND_LINE else None
    if preset is not None and asked not in (None, preset.workload):
        raise UsageError(
            f"preset {arguments.preset} sweeps {preset.workload}, not {arguments.workload}"
        )
    arguments.workload = preset.workload if preset else arguments.workload or DEFAULT
    counts: Sequence[int] = arguments.nproc or (1,)
    plan = make_plan(arguments, decided_by(preset, arguments.vary), nproc=max(counts))
    entry = find_workload(plan.workload)
    steps = arguments.steps
    if preset is None:
        rows, columns = vary(entry, arguments.vary)
        preset = Preset(workload=entry.name, rows=rows, columns=columns)
    else:
        plan = msgspec.structs.replace(plan, settings=preset.settings | plan.settings)
        rows = _other_rows(entry, arguments.vary)
        preset = (ON_GPU if trains_on_gpu(plan.device) else ON_CPU)[arguments.preset]
    rows = rows or preset.rows
    if len(counts) > 1:
        rows = tuple({NPROC: str(count)} | row for count in counts for row in rows)
    grid = Grid(
        rows=rows,
        columns=preset.columns,
        rounds=arguments.rounds or preset.rounds,
        min_steps=steps or preset.min_steps,
        min_s=0.0 if steps else MIN_S,
    )
    check_grid(entry, plan.settings, grid)
    if grid.counts:
        _check_scaling(grid)
    return plan, grid


def of_count(plan: Plan, nproc: int | None) -> Plan:
    """Return the plan of the training with so many processes; None: as it is."""
    if nproc is None:
        return plan
    settings = dict(plan.settings)
    if nproc == 1:
        settings = {name: value for name, value in settings.items() if name not in OF_SEVERAL}
    return msgspec.structs.replace(plan, nproc=nproc, settings=settings)


def _check_scaling(grid: Grid) -> None:
    """Refuse what goes with one number of processes alone. Raises UsageError."""
    if 1 not in grid.counts:
        raise UsageError("--nproc with several numbers needs 1 too, which the others scale from")
    varied = {name for cell in range(grid.cells) for name in grid.levers(cell)} & OF_SEVERAL
    if varied:
        raise UsageError(f"--vary {min(varied)}: one process does not have it; valid: one --nproc")


def decided_by(preset: Preset | None, varied: Sequence[str]) -> set[str]:
    """Return the levers that a preset sets or varies, and those that `NAME=A,B,…` texts vary."""
    sets = (preset.settings, *preset.rows, *preset.columns) if preset else ()
    return {name for one in sets for name in one} | {text.partition("=")[0] for text in varied}


def _preset(arguments: argparse.Namespace) -> Preset | None:
    """Return the preset that is meant; workload and settings are the same for every size."""
    if arguments.preset is None and not arguments.vary and len(arguments.nproc or ()) < 2:
        raise UsageError(f"say what to sweep: --vary LEVER=A,B,… or --preset {'|'.join(ON_GPU)}")
    if arguments.preset is None:
        return None
    if arguments.preset == "trade":  # its first name, a promise of the command line
        arguments.preset = "optimizations"
    if arguments.preset not in ON_GPU:
        raise UsageError(unknown("preset", arguments.preset, ON_GPU))
    return ON_GPU[arguments.preset]


def _other_rows(entry: Entry, texts: Sequence[str]) -> tuple[Settings, ...]:
    """Return the batch sizes to sweep a preset over instead of its own; none if not said."""
    if not texts:
        return ()
    _, rows = vary(entry, texts)
    if any(set(row) != {"batch_size"} for row in rows):
        raise UsageError("a preset has its own variants; valid beside it: --vary batch_size=A,B,…")
    return rows


def trains_on_gpu(device: str) -> bool:
    """Tell whether the worker will train on a GPU; takes as long as torch's import.

    Torch, which decides it, is asked in a process of its own: from it, a GPU that NVML lists may
    be hidden, or it may be built without CUDA.
    """
    if device != "auto":
        return device != "cpu"
    asked = child.ask(ASK_TORCH)
    return asked.stdout.split()[-1:] not in ([], ["0"])  # the worker says why, where torch fails


def _driver() -> dict[str, str]:
    """Return the NVIDIA driver's version, where there is one."""
    try:
        version, _ = list_gpus()
    except GpuUnavailable:
        return {}
    return {"driver": version}


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sweep's table goes, besides the terminal."""

    csv: Path | None = None
    markdown: Path | None = None
    plot: Path | None = None
    json: bool = False
    """The terminal gets one JSON document."""
    command: tuple[str, ...] = ()
    """The command line, which the Markdown names."""

    def check(self, *, force: bool, resume: bool) -> None:
        """Refuse what could not be written at the end. Raises GpudashError."""
        if resume and self.csv is None:
            raise UsageError("--resume goes with --csv FILE.csv, the file of the sweep to finish")
        if self.plot is not None:
            plot.check(self.plot)
        at_the_end = [path for path in (self.markdown, self.plot) if path is not None]
        at_once = [self.csv, path_beside(self.csv)] if self.csv is not None else []
        places = [path.absolute() for path in (*at_once, *at_the_end)]
        for path in at_the_end:
            if places.count(path.absolute()) > 1:
                raise UsageError(f"{shown(path)} is named twice; valid: a file for each output")
            _check_place(path, replace=force or resume)

    def publish(self, sweep: Sweep, provenance: Provenance) -> str | None:
        """Write and print the table of this provenance.

        Returns why a file could not be written. Raises OutputError.
        """
        unwritten, title = None, title_of(provenance)
        results, legend = sweep.results(), sweep_table.legend(sweep.grid)
        table = sweep_table.cells(sweep.grid, results)
        remarks = unreadable(provenance.skipped_samples or 0)
        try:  # the files first: they are kept, whatever becomes of the output
            if self.markdown is not None:
                line = shlex.join(self.command)
                head = f"## {title}\n\n`{line}`: {legend}."
                parts = [head, sweep_table.as_markdown(table), *remarks]
                with writing(self.markdown):
                    self.markdown.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
            if self.plot is not None:
                plot.draw(self.plot, title, sweep.grid, results)
        except RecordingError as error:
            unwritten = str(error)
        if self.json:
            data = sweep_table.data(sweep.grid, results)
            say_json(msgspec.structs.replace(provenance, table=data))
            return unwritten
        columns = shutil.get_terminal_size((160, 24)).columns
        text = sweep_table.as_text(table, columns, sweep_table.unit(sweep.grid))
        say("\n".join([title, legend, "", text, *remarks]))
        return unwritten


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
        axes[name] = compared_values("--vary", text, lever, values)
        for value in axes[name]:
            if axes[name].count(value) > 1:
                raise UsageError(f"--vary {text} names {value} twice; valid: each value once")
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
        self._skipped_before = (file.skipped_samples if file else None) or 0
        self.skipped_samples = self._skipped_before
        """Unreadable ones, those of earlier runs included."""
        self.done = False
        self.verdict: str | None = None
        self.failure: str | None = None
        """Why it ended early."""
        self.started: Started | None = None
        """What the worker said when it was ready."""
        self._waits = False  # for the training with the next number of processes
        self.refusal: str | None = None
        """Why it was not begun: the file's blocks were measured elsewhere."""

    def begin(self, started: Started, run: int, /) -> tuple[Block, ...]:
        """Return what the worker is to run, under this number."""
        self._began_s = self._began_s or time.monotonic()
        self.started, self._waits = started, False
        try:
            if self._file is not None:
                self._file.started_on(started)
        except UsageError as error:
            self.done, self.refusal = True, str(error)
            return ()
        except RecordingError as error:
            return self._fail(str(error))
        blocks = self._sweep.begin(run, started.world_size)
        self.done = self._sweep.done
        return blocks

    def fold(self, item: Event | Reading, /) -> tuple[Block, ...] | None:
        """Take one record."""
        if self.done or self._waits:
            return None
        if isinstance(item, Progress):
            self.skipped_samples = self._skipped_before + item.skipped_samples
        rows, blocks = self._sweep.fold(item)
        try:
            if self._file is not None and rows:
                for row in rows:
                    self._file.append(row)
                self._file.note_skipped(self.skipped_samples)
        except RecordingError as error:
            return self._fail(str(error))
        self.done, self.failure = self._sweep.done, self._sweep.failure
        return blocks

    def is_over(self, session: Session, plan: Plan) -> bool:
        """Go on with the next number of processes; return whether there is none."""
        following = self._sweep.next_nproc
        if not self.done or following is None or self.failure or self.refusal:
            return self.done
        self._sweep.nproc = following
        self._waits, self.done = True, False
        session.restart(of_count(plan, following))
        session.conduct(self)
        return False

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
        return ", ".join([line, *silence(snapshot)])

    def conclude(self) -> None:
        """Add the table to the file of a sweep that measured anything."""
        if self._file is not None and self._sweep.blocks_done and self.refusal is None:
            try:
                self._file.conclude(sweep_table.data(self._sweep.grid, self._sweep.results()))
            except RecordingError as error:
                self._fail(self.failure or str(error))

    def _fail(self, reason: str) -> tuple[Block, ...]:
        self.done, self.failure = True, reason
        return ()


def run_sweep(
    session: Session,
    sweep: Sweep,
    provenance: Provenance,
    file: SweepFile | None,
    outputs: Outputs,
    *,
    quiet: bool = False,
) -> int:
    """Run what is missing of the sweep and print its table. Returns the exit code."""
    news = News(quiet=quiet)
    recorded = RecordedSweep(sweep, file)
    plan = msgspec.structs.replace(session.plan, settings=provenance.settings)
    session.conduct(recorded)
    try:
        interrupted = follow(session, news, recorded.line, lambda: recorded.is_over(session, plan))
        recorded.conclude()
    finally:
        if file is not None:
            file.close()
    refusal = recorded.refusal
    if sweep.refusals:
        refusal = f"no setting could be run: {'; '.join(sweep.refusals)}"
    if refusal is not None:
        complain(f"gpudash: {refusal}")
        return Exit.REFUSED
    unwritten = None
    if sweep.blocks_done and (started := recorded.started) is not None:
        run = provenance.on(started)
        run = msgspec.structs.replace(run, skipped_samples=recorded.skipped_samples)
        unwritten = outputs.publish(sweep, run)
    why = recorded.failure or unwritten
    return _conclude(session, sweep, why, outputs, interrupted=interrupted)


def print_measured(sweep: Sweep, provenance: Provenance, outputs: Outputs) -> int:
    """Print the table of a sweep whose file holds all its blocks. Returns the exit code."""
    if outputs.csv is not None:
        complain(f"{shown(outputs.csv)} has all {sweep.blocks_planned} blocks; none is measured")
    unwritten = outputs.publish(sweep, provenance)
    if unwritten is None:
        return Exit.DONE
    complain(f"gpudash: {unwritten}")
    return Exit.FAILED


def title_of(ran: Provenance) -> str:
    """Return, in a line, what was measured beside what the table says.

    Named are the levers that were set, the active ones with another value than `gpudash list`
    says, and the one whose default is this machine's; the worker's notes tell of some of them.
    """
    varied = ran.grid.varied
    silent = varied | {"batch_size"} if NPROC in varied else varied  # it tells the last number's
    notes = [both for both in zip_longest(ran.notes, ran.noted) if both[1] not in silent]
    told = {lever for _, lever in notes}
    default = {lever.name: lever.default_text for lever in find_workload(ran.workload).levers}
    fixed = {
        name: value
        for name, value in (ran.in_force or {}).items()
        if name not in told | varied
        and (name in ran.settings or name == BY_MACHINE or value != default[name])
    }
    head = f"{ran.workload} on {ran.device.name if ran.device else 'an unknown device'}"
    head = f"{head}: {sweep_table.pairs(fixed)}" if fixed else head
    return "; ".join([head, *(text or "" for text, _ in notes)])


def _conclude(
    session: Session, sweep: Sweep, why: str | None, outputs: Outputs, *, interrupted: bool
) -> int:
    """Say what went wrong, if anything did. Returns the exit code."""
    failed = session.failure
    why = failed.sentence if failed else "interrupted" if interrupted else why
    if why is None:
        return Exit.DONE
    if sweep.blocks_done < sweep.blocks_planned and sweep.blocks_done:
        there = outputs.csv is not None and outputs.csv.exists()
        kept = f"; --resume finishes {shown(outputs.csv)}" if outputs.csv and there else ""
        why += f" after {sweep.blocks_done} of {sweep.blocks_planned} blocks{kept}"
    complain(f"gpudash: {why}")
    if failed:
        return failure_code(failed)
    return Exit.INTERRUPTED if interrupted else Exit.FAILED


def check_grid(entry: Entry, settings: Settings, grid: Grid) -> None:
    """Refuse a cell with an unknown lever or value before anything runs.

    Raises LeverError, and UsageError for a lever that is both fixed and varied.
    """
    for cell in range(grid.cells):
        changes = grid.levers(cell)
        both = settings.keys() & changes.keys()
        if both:
            raise UsageError(f"lever {min(both)} is both set and varied; valid: one of the two")
        resolve(entry.levers, settings | changes)


def _check_place(path: Path, *, replace: bool) -> None:
    """Refuse a file that could not be written at the end. Raises RecordingError."""
    why = None
    if path.is_dir():
        why = "it is a folder"
    elif not path.parent.is_dir():
        why = f"the folder {shown(path.parent)} does not exist"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "permission denied"
    if why is not None:
        raise RecordingError(f"cannot write {shown(path)}: {why}")
    if not replace:
        refuse_existing(path)
