"""`gpudash sweep`: measure a table of settings in one worker, block by block."""

import argparse
import platform
import time
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from gpudash import __version__
from gpudash.cli.headless import complain_of_failure
from gpudash.cli.measure import AskedTraining, Course, Ended, measure, training_of
from gpudash.cli.stdout import complain, say
from gpudash.cli.sweep_grid import grid_of_command, of_count, plan_and_grid
from gpudash.cli.sweep_outputs import Outputs
from gpudash.compare.sweep.file import Provenance, SweepFile
from gpudash.compare.sweep.grid import Sweep
from gpudash.errors import Exit, RecordingError
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import Lever
from gpudash.recording.files import shown
from gpudash.recording.provenance import plain
from gpudash.snapshot import Snapshot, silence
from gpudash.telemetry.gpu import list_gpus
from gpudash.telemetry.nvml import GpuUnavailable

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
        training = training_of(arguments)
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
    sweep = Sweep(grid, file.known if file else (), file)
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


class Sweeping(Course):
    """Goes through the blocks, in a training for each number of processes."""

    def __init__(self, sweep: Sweep, plan: Plan) -> None:
        self.sweep, self._plan = sweep, plan
        self._done_before = sweep.blocks_done
        self._began_s: float | None = None

    def stages(self) -> Iterator[bool]:
        yield from self.await_levers()
        while True:
            self.session.conduct(self.sweep)
            while not self.sweep.done:
                yield False
            following = self.sweep.following
            if following is None:
                return
            self.sweep = following
            self.session.restart(of_count(self._plan, following.nproc))

    def line(self, snapshot: Snapshot) -> str:
        sweep = self.sweep
        if sweep.state is None and self._began_s is None:
            return f"{snapshot.workload}: {snapshot.status_line}"
        if self._began_s is None:
            self._began_s = time.monotonic()
        done, planned = sweep.blocks_done, sweep.blocks_planned
        bar = ("█" * (BAR_WIDTH * done // max(planned, 1))).ljust(BAR_WIDTH, "░")
        line = f"{snapshot.workload} {bar} {done}/{planned} blocks"
        fresh = done - self._done_before
        if fresh:
            elapsed_s = time.monotonic() - self._began_s
            line += f", {elapsed_s / fresh * (planned - done):.0f} s left"
        return ", ".join([line, *silence(snapshot)])


def _conclude_file(sweep: Sweep, file: SweepFile | None) -> None:
    if file is not None and sweep.blocks_done and sweep.refusal is None:
        try:
            file.conclude(tuple(chain(*sweep.results())))
        except RecordingError as error:
            sweep.failure = sweep.failure or str(error)


def run_sweep(
    training: AskedTraining,
    arguments: argparse.Namespace,
    sweep: Sweep,
    provenance: Provenance,
    file: SweepFile | None,
    outputs: Outputs,
) -> int:
    plan = msgspec.structs.replace(training.plan, settings=provenance.settings)
    course = Sweeping(sweep, plan)
    try:
        ended = measure(training, arguments, course)
        sweep = course.sweep
        _conclude_file(sweep, file)
    finally:
        if file is not None:
            file.close()
    refusal = sweep.refusal
    if sweep.refusals:
        refusal = f"no setting could be run: {'; '.join(sweep.refusals)}"
    if refusal is not None:
        complain(f"gpudash: {refusal}")
        return Exit.REFUSED
    unwritten = None
    if sweep.blocks_done and (state := sweep.state) is not None:
        run = provenance.on(state)
        run = msgspec.structs.replace(run, skipped_samples=sweep.skipped_samples)
        unwritten = outputs.publish(sweep, run)
    why = sweep.failure or unwritten
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
