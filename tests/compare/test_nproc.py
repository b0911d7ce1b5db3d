"""A sweep over numbers of processes: which cells run together, and the efficiency."""

from pathlib import Path

import msgspec
import pytest

from gpudash.compare.sweep import table
from gpudash.compare.sweep.file import Provenance, SweepFile
from gpudash.compare.sweep.grid import BlockRow, Grid, Sweep, whole_rounds
from gpudash.errors import UsageError
from gpudash.protocol.training import Device, State
from tests.compare.test_sweep_table import of
from tests.lives import in_process
from tests.scripted_run import started

GRID = Grid(rows=({"nproc": "1"}, {"nproc": "2"}), columns=({},), rounds=3, min_steps=5, min_s=0.0)


def measured(*seconds: float) -> list[BlockRow]:
    """Return three rounds: blocks of 10 steps with 8 samples in each process."""
    return [
        BlockRow(round=turn, cell=cell, steps=10, samples=80 * (cell + 1), busy_s=busy_s)
        for cell, own in enumerate((seconds[:3], seconds[3:]))
        for turn, busy_s in enumerate(own)
    ]


def test_a_resumed_sweep_goes_on_with_the_number_of_processes_that_it_broke_off_in():
    rows = measured(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert whole_rounds(GRID, rows[:4]) == rows[:4]
    both = msgspec.structs.replace(GRID, columns=({}, {"precision": "bf16"}))
    cells = [msgspec.structs.replace(row, cell=cell) for row in rows for cell in (0, 1)]
    unfinished = msgspec.structs.replace(rows[3], cell=2)  # cell 3 is missing
    assert whole_rounds(both, [*cells[:6], unfinished]) == cells[:6]
    sweep = Sweep(GRID, rows[:4])
    assert sweep.nproc == 2
    assert len(sweep.begin(started_with(2, threads=2), 1)) == 2


def test_a_number_of_processes_has_its_own_threads_and_defaults(tmp_path: Path):
    """A resumed sweep may begin with another number than its last one, as for more rounds."""
    asked = Provenance(
        workload="encdec", settings={}, grid=GRID, device=None, versions={}, command=()
    )
    file = SweepFile(tmp_path / "s.csv", asked, force=False, resume=False)
    for count in (1, 2):
        file.started_on(started_with(count, threads=4 // count))
        file.append(BlockRow(round=0, cell=count - 1, steps=10, samples=80, busy_s=1.0))
    file.close()
    again = SweepFile(tmp_path / "s.csv", asked, force=False, resume=True)
    again.started_on(started_with(1, threads=4))
    why = "measured with CPU, 2 threads, num_workers=2; this is CPU, 3 threads, num_workers=3"
    with pytest.raises(UsageError, match=why):
        again.started_on(started_with(2, threads=3))
    again.close()


def started_with(count: int, threads: int) -> State:
    """Return a start that divides the cores."""
    device = Device(kind="cpu", name=f"CPU, {threads} threads")
    start = started(0.0, {"num_workers": str(threads)})
    return in_process(start, device=device, world_size=count)


def test_twice_the_samples_in_the_same_time_is_an_efficiency_of_1():
    ((alone,), (both,)) = Sweep(GRID, measured(1.0, 1.01, 0.99, 1.0, 1.01, 0.99)).results()
    assert alone.efficiency is None
    assert both.efficiency == pytest.approx(1.0)
    assert both.efficiency_low < 1 < both.efficiency_high
    assert both.samples_per_s == pytest.approx(2 * alone.samples_per_s)


def test_the_table_has_rates_of_all_processes_and_the_efficiency():
    results = Sweep(GRID, measured(1.0, 1.0, 1.0, 1.25, 1.25, 1.25)).results()
    cells = [cell for _, cell in table.cells(GRID, results)[1:]]
    assert cells == [
        "10.0 steps/s, 80.0 samples/s",
        "8 steps/s, 128.0 samples/s, efficiency 80.0 % [80.0, 80.0]",
    ]
    assert [row[0].settings for row in results] == [{"nproc": "1"}, {"nproc": "2"}]
    assert results[1][0].efficiency == pytest.approx(0.8)


def test_the_first_of_one_process_is_the_base_of_each_variant():
    """Cells count row by row: the second variant is compared with the second of one process."""
    grid = msgspec.structs.replace(GRID, columns=({}, {"precision": "bf16"}))
    seconds = (1.0, 0.5, 1.0, 0.8)
    rows = [
        BlockRow(round=turn, cell=cell, steps=10, samples=80 * (1 + cell // 2), busy_s=busy_s)
        for cell, busy_s in enumerate(seconds)
        for turn in range(3)
    ]
    blind = [msgspec.structs.replace(row, samples=None) for row in rows[:3]]
    _, (first, second) = Sweep(grid, rows).results()
    assert (first.efficiency, second.efficiency) == (1.0, pytest.approx(0.625))
    _, (first, second) = Sweep(grid, [*blind, *rows[3:]]).results()
    assert (first.efficiency, second.efficiency) == (None, pytest.approx(0.625))
    (alone, _), _ = Sweep(grid, blind).results()
    assert (alone.steps_per_s, alone.samples_per_s) == (pytest.approx(10.0), None)


def test_an_efficiency_without_an_interval_stands_alone():
    alone = of(steps_per_s=1.0, samples_per_s=8.0, efficiency=0.8)
    both = msgspec.structs.replace(alone, efficiency_low=0.75, efficiency_high=0.85)
    assert table.cell(alone) == "1, efficiency 80.0 %"
    assert table.cell(both) == "1, efficiency 80.0 % [75.0, 85.0]"
