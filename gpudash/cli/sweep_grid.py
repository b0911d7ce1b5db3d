"""Make the plan and the grid of a sweep from a command line."""

import argparse
from collections.abc import Mapping, Sequence
from itertools import product

import msgspec

from gpudash.cli.options import COMMAND_LINE
from gpudash.cli.plan import compared_values, make_plan
from gpudash.compare.sweep.grid import NPROC, Grid
from gpudash.compare.sweep.presets import ON_CPU, ON_GPU, Preset
from gpudash.errors import UsageError
from gpudash.offers import check_for_script
from gpudash.protocol.commands import Plan
from gpudash.protocol.records import Settings
from gpudash.reference_levers import reference_levers
from gpudash.run import child
from gpudash.workload_levers import levers_of
from workloads import DEFAULT, Entry, find_workload
from workloads.levers import find, resolve
from workloads.nearest import unknown
from workloads.standard_levers import PROCESSES

MIN_S = 1.0
"""Least seconds of a block: utilisation is read five times a second."""
ASK_TORCH = "import torch; print(torch.cuda.device_count())"
OF_SEVERAL = frozenset(lever.name for lever in PROCESSES)


def grid_of_command(arguments: argparse.Namespace) -> Grid:
    """Raise UsageError, as far as the levers of a command are known before it trains."""
    if arguments.preset is not None or not arguments.vary:
        raise UsageError("say what to sweep in a command of yours: --vary LEVER=A,B,…")
    axes = _axes(arguments.vary)
    for name, values in axes.items():
        check_for_script(name, values)
    return _grid(arguments, Preset(workload="", rows=({},), columns=_table(axes)))


def plan_and_grid(arguments: argparse.Namespace) -> tuple[Plan, Grid]:
    preset = _preset(arguments)
    asked = arguments.workload if arguments.set_by.get("workload") == COMMAND_LINE else None
    if preset is not None and asked not in (None, preset.workload):
        raise UsageError(
            f"preset {arguments.preset} sweeps {preset.workload}, not {arguments.workload}"
        )
    arguments.workload = preset.workload if preset else arguments.workload or DEFAULT
    counts: Sequence[int] = arguments.nproc or (1,)
    plan = make_plan(
        arguments,
        decided_by(preset, arguments.vary),
        nproc=max(counts),
        trains=not arguments.dry_run,
    )
    entry = find_workload(plan.workload)
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
    grid = _grid(arguments, preset._replace(rows=rows))
    check_grid(entry, plan.settings, grid)
    if grid.counts:
        _check_scaling(grid)
    return plan, grid


def _grid(arguments: argparse.Namespace, preset: Preset) -> Grid:
    steps = arguments.steps
    return Grid(
        rows=preset.rows,
        columns=preset.columns,
        rounds=arguments.rounds or preset.rounds,
        min_steps=steps or preset.min_steps,
        min_s=0.0 if steps else MIN_S,
    )


def _preset(arguments: argparse.Namespace) -> Preset | None:
    if arguments.preset is None and not arguments.vary and len(arguments.nproc or ()) < 2:
        raise UsageError(f"say what to sweep: --vary LEVER=A,B,… or --preset {'|'.join(ON_GPU)}")
    if arguments.preset is None:
        return None
    if arguments.preset == "trade":  # its first name, kept for compatibility
        arguments.preset = "optimizations"
    if arguments.preset not in ON_GPU:
        raise UsageError(unknown("preset", arguments.preset, ON_GPU))
    return ON_GPU[arguments.preset]


def _other_rows(entry: Entry, texts: Sequence[str]) -> tuple[Settings, ...]:
    if not texts:
        return ()
    _, rows = vary(entry, texts)
    if any(set(row) != {"batch_size"} for row in rows):
        raise UsageError("a preset has its own variants; valid beside it: --vary batch_size=A,B,…")
    return rows


def vary(entry: Entry, texts: Sequence[str]) -> tuple[tuple[Settings, ...], tuple[Settings, ...]]:
    """Return batch sizes as rows, other levers as columns. Raises LeverError or UsageError."""
    axes = _axes(texts, entry)
    down = axes.pop("batch_size", None) if len(axes) > 1 else None
    rows = tuple({"batch_size": size} for size in down) if down else ({},)
    return rows, _table(axes)


def _axes(texts: Sequence[str], entry: Entry | None = None) -> dict[str, list[str]]:
    """Return the values of each lever, as the entry spells them."""
    axes: dict[str, list[str]] = {}
    for text in texts:
        name, separator, values = text.partition("=")
        if not separator:
            raise UsageError(f"--vary {text!r} is not valid; valid: LEVER=A,B,…")
        if name in axes:
            raise UsageError(f"--vary {name} is given twice; valid: once with all its values")
        axes[name] = values.split(",")
        if entry is not None:
            lever = find(reference_levers(entry.name, {}), name)
            axes[name] = compared_values("--vary", text, lever, axes[name])
        for value in axes[name]:
            if axes[name].count(value) > 1:
                raise UsageError(f"--vary {text} names {value} twice; valid: each value once")
    return axes


def _table(axes: Mapping[str, Sequence[str]]) -> tuple[Settings, ...]:
    return tuple(dict(zip(axes, one, strict=True)) for one in product(*axes.values()))


def decided_by(preset: Preset | None, varied: Sequence[str]) -> set[str]:
    sets = (preset.settings, *preset.rows, *preset.columns) if preset else ()
    return {name for one in sets for name in one} | {text.partition("=")[0] for text in varied}


def of_count(plan: Plan, nproc: int | None) -> Plan:
    if nproc is None:
        return plan
    settings = dict(plan.settings)
    if nproc == 1:
        settings = {name: value for name, value in settings.items() if name not in OF_SEVERAL}
    return msgspec.structs.replace(plan, nproc=nproc, settings=settings)


def _check_scaling(grid: Grid) -> None:
    if 1 not in grid.counts:
        raise UsageError("--nproc with several numbers needs 1 too, which the others scale from")
    varied = grid.named & OF_SEVERAL
    if varied:
        raise UsageError(f"--vary {min(varied)}: one process does not have it; valid: one --nproc")


def check_grid(entry: Entry, settings: Settings, grid: Grid) -> None:
    """Raise LeverError, and UsageError for a lever that is both fixed and varied."""
    for cell in range(grid.cells):
        changes = grid.levers(cell)
        both = settings.keys() & changes.keys()
        if both:
            raise UsageError(f"lever {min(both)} is both set and varied; valid: one of the two")
        resolve(levers_of(entry), settings | changes)


def trains_on_gpu(device: str) -> bool:
    """Ask torch in a child: a GPU that NVML lists may be hidden, or torch built without CUDA."""
    if device != "auto":
        return device != "cpu"
    asked = child.run("-c", ASK_TORCH)
    return asked.stdout.split()[-1:] not in ([], ["0"])  # if torch fails, the worker reports why
