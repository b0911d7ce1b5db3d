"""`gpudash sweep`: measure a table of settings in one worker, block by block."""

import argparse
import platform
import time
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from gpudash import __version__
from gpudash.cli.headless import News, complain_of_failure
from gpudash.cli.measure import AskedTraining, Course, Ended, measure, training_of
from gpudash.cli.stdout import complain, say
from gpudash.cli.sweep_grid import grid_of_command, of_count, plan_and_grid
from gpudash.cli.sweep_outputs import Outputs
from gpudash.compare.sweep.file import Provenance, SweepFile
from gpudash.compare.sweep.grid import Sweep
from gpudash.errors import Exit, RecordingError, UsageError
from gpudash.protocol.commands import Block, Plan
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Progress, State
from gpudash.recording.files import shown
from gpudash.recording.provenance import plain
from gpudash.run.session import Session
from gpudash.snapshot import Snapshot, silence
from gpudash.telemetry.gpu import list_gpus
from gpudash.telemetry.nvml import GpuUnavailable
from workloads.levers import Lever

BAR_WIDTH = 20
SWITCHES = {
    "new loader": "each change waits for a new loader's first batch",
    "rebuilt model": "each change builds the model anew",
}
"""The additional time of a lever's changes, by its effect."""


def main(arguments: argparse.Namespace) -> int:
    outputs = Outputs(
        csv=arguments.csv,
        markdown=arguments.markdown,
        plot=arguments.plot,
        json=arguments.json,
        command=tuple(map(plain, arguments.command)),
    )
    outputs.check(force=arguments.force, resume=arguments.resume)
    if arguments.user_command:
        grid = grid_of_command(arguments)
        training = training_of(arguments, grid.named)
    else:
        plan, grid = plan_and_grid(arguments)
        training = AskedTraining(plan)
    plan = training.plan
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
        say(foreseen(provenance, training.levers or ()))
        return Exit.DONE
    file = None
    if outputs.csv is not None:
        file = SweepFile(outputs.csv, provenance, force=arguments.force, resume=arguments.resume)
    sweep = Sweep(grid, file.known if file else ())
    earlier = file.earlier if file else None
    if file and earlier and earlier.device and sweep.blocks_done == sweep.blocks_planned:
        file.close()
        return _print_measured(sweep, earlier, outputs)
    training = training._replace(plan=of_count(plan, sweep.nproc))
    return run_sweep(training, arguments, sweep, provenance, file, outputs)


def foreseen(provenance: Provenance, levers: Sequence[Lever]) -> str:
    """Leave out what changes take if the levers are not known."""
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
    effects = {lever.name: lever.effect for lever in levers if lever.name in grid.named}
    for effect, cost in SWITCHES.items():
        names = sorted(name for name, one in effects.items() if one == effect)
        if names:
            lines.append(f"{', '.join(names)}: {cost}")
    return "\n".join(lines)


def _driver() -> dict[str, str]:
    try:
        version, _ = list_gpus()
    except GpuUnavailable:
        return {}
    return {"driver": version}


class RecordedSweep:
    """The sweep as a session's experiment, which writes every block to the file first."""

    def __init__(self, sweep: Sweep, file: SweepFile | None) -> None:
        self._sweep = sweep
        self._file = file
        self._began_s: float | None = None
        self._done_before = sweep.blocks_done
        self._skipped_before = (file.skipped_samples if file else None) or 0
        self.skipped_samples = self._skipped_before
        """Unreadable samples, including earlier runs'."""
        self.done = False
        self.verdict: str | None = None
        self.failure: str | None = None
        """Why the sweep ended early."""
        self.state: State | None = None
        """The worker's state when the blocks began."""
        self._waits = False  # for the training with the next number of processes
        self.refusal: str | None = None
        """Why the sweep was not begun: the file's blocks have other circumstances."""

    def begin(self, state: State, run: int, /) -> tuple[Block, ...]:
        self._began_s = self._began_s or time.monotonic()
        self.state, self._waits = state, False
        try:
            if self._file is not None:
                self._file.started_on(state)
        except UsageError as error:
            self.done, self.refusal = True, str(error)
            return ()
        except RecordingError as error:
            return self._fail(str(error))
        blocks = self._sweep.begin(run, state)
        self.done = self._sweep.done
        return blocks

    def fold(self, item: Event | Reading, /) -> tuple[Block, ...] | None:
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
        """Go on with the next number of processes; return whether the sweep is over."""
        following = self._sweep.next_nproc
        if not self.done or following is None or self.failure or self.refusal:
            return self.done
        self._sweep.nproc = following
        self._waits, self.done = True, False
        session.restart(of_count(plan, following))
        session.conduct(self)
        return False

    def shown(self) -> None:
        """Return None: a sweep is not shown on the dashboard."""

    def line(self, snapshot: Snapshot) -> str:
        if self._began_s is None:
            return f"{snapshot.workload}: {snapshot.status_line}"
        done, planned = self._sweep.blocks_done, self._sweep.blocks_planned
        bar = ("█" * (BAR_WIDTH * done // max(planned, 1))).ljust(BAR_WIDTH, "░")
        line = f"{snapshot.workload} {bar} {done}/{planned} blocks"
        fresh = done - self._done_before
        if fresh:
            elapsed_s = time.monotonic() - self._began_s
            line += f", {elapsed_s / fresh * (planned - done):.0f} s left"
        return ", ".join([line, *silence(snapshot)])

    def conclude(self) -> None:
        if self._file is not None and self._sweep.blocks_done and self.refusal is None:
            try:
                self._file.conclude(tuple(chain(*self._sweep.results())))
            except RecordingError as error:
                self._fail(self.failure or str(error))

    def _fail(self, reason: str) -> tuple[Block, ...]:
        self.done, self.failure = True, reason
        return ()


class _Sweeping(Course):
    """Goes through the blocks, in a training for each number of processes."""

    def __init__(
        self, session: Session, news: News, recorded: RecordedSweep, training: AskedTraining
    ) -> None:
        super().__init__(session, news)
        self._recorded, self._training = recorded, training

    def stages(self) -> Iterator[bool]:
        while self._training.levers is None and not self.has_levers:
            yield False
        self.session.conduct(self._recorded)
        while not self._recorded.is_over(self.session, self._training.plan):
            yield False

    def line(self, snapshot: Snapshot) -> str:
        return self._recorded.line(snapshot)


def run_sweep(
    training: AskedTraining,
    arguments: argparse.Namespace,
    sweep: Sweep,
    provenance: Provenance,
    file: SweepFile | None,
    outputs: Outputs,
) -> int:
    recorded = RecordedSweep(sweep, file)
    plan = msgspec.structs.replace(training.plan, settings=provenance.settings)

    def begin(session: Session, news: News) -> _Sweeping:
        return _Sweeping(session, news, recorded, training._replace(plan=plan))

    try:
        _, ended = measure(training, arguments, begin)
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
    if sweep.blocks_done and (state := recorded.state) is not None:
        run = provenance.on(state)
        run = msgspec.structs.replace(run, skipped_samples=recorded.skipped_samples)
        unwritten = outputs.publish(sweep, run)
    why = recorded.failure or unwritten
    return _conclude(ended, sweep, why, outputs)


def _print_measured(sweep: Sweep, provenance: Provenance, outputs: Outputs) -> int:
    if outputs.csv is not None:
        complain(f"{shown(outputs.csv)} has all {sweep.blocks_planned} blocks; none is measured")
    unwritten = outputs.publish(sweep, provenance)
    if unwritten is None:
        return Exit.DONE
    complain(f"gpudash: {unwritten}")
    return Exit.FAILED


def _conclude(ended: Ended, sweep: Sweep, why: str | None, outputs: Outputs) -> int:
    kept = ""
    if 0 < sweep.blocks_done < sweep.blocks_planned:
        kept = f" after {sweep.blocks_done} of {sweep.blocks_planned} blocks"
        if outputs.csv is not None and outputs.csv.exists():
            kept += f"; --resume finishes {shown(outputs.csv)}"
    if ended.failed is not None:
        complain(f"gpudash: {ended.why}{kept}")
        return ended.failed
    if ended.failure is not None:
        return complain_of_failure(ended.failure, kept)
    why = "interrupted" if ended.interrupted else why
    if why is None and sweep.done:
        return Exit.DONE
    why = why or ended.why
    complain(f"gpudash: {why}{kept}")
    return Exit.INTERRUPTED if ended.interrupted else Exit.FAILED
