"""`--nproc N`: its plan, and refusals before anything starts."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudash.cli.main import main
from gpudash.commands.sweep_grid import of_count
from gpudash.compare.sweep import table
from gpudash.compare.sweep.file import Provenance, SweepFile
from gpudash.compare.sweep.grid import BlockRow, Grid, Sweep, whole_rounds
from gpudash.errors import UsageError
from gpudash.protocol import Device, Plan, Started
from tests.scripted_run import started
from workloads import CATALOGUE
from workloads.standard_levers import PROCESSES

GRID = Grid(rows=({"nproc": "1"}, {"nproc": "2"}), columns=({},), rounds=3, min_steps=5, min_s=0.0)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Restore the catalogue: the command line adds the levers of several processes to it."""
    before = dict(CATALOGUE)
    yield
    CATALOGUE.clear()
    CATALOGUE.update(before)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("encdec --nproc 0 --jsonl", "--nproc 0 is not valid; valid: a whole number from 1 to"),
        ("encdec --nproc two --jsonl", "--nproc two is not valid; valid: a whole number"),
        ("encdec --nproc 1,2 --jsonl", "--nproc 1,2 is not valid; valid: a whole number"),
        (
            "encdec --nproc 2 --device cuda:1 --jsonl",
            "--device cuda:1 is one GPU, and --nproc takes one for each process; valid with it:",
        ),
        (
            "encdec --set bucket_cap_mb=4 --jsonl",
            "lever bucket_cap_mb goes with several processes: --nproc N",
        ),
        (
            "encdec --nproc 1 --set static_graph=on --jsonl",
            "lever static_graph goes with several processes: --nproc N",
        ),
        (
            "encdec --nproc 2 --set bucket_cap_mb=0 --jsonl",
            "lever bucket_cap_mb: '0' is not valid; valid: a whole number from 1 to 4096",
        ),
        (
            "ab --nproc 2 --lever num_workers=1,2 -- train.py",
            "--nproc does not go with a command of yours, which sets that",
        ),
        ("sweep encdec --nproc 2", "say what to sweep"),
        ("sweep encdec --nproc 2,4", "--nproc with several numbers needs 1 too"),
        ("sweep encdec --nproc 1,1", "--nproc 1,1 names a number twice; valid: each once"),
        ("sweep encdec --nproc 1,x", "--nproc x is not valid; valid: a whole number"),
        (
            "sweep encdec --nproc 1,2 --vary bucket_cap_mb=1,25",
            "--vary bucket_cap_mb: one process does not have it; valid: one --nproc",
        ),
    ],
)
def test_errors_are_one_line(line: str, why: str, capsys: pytest.CaptureFixture[str]):
    assert main(line.split()) == 2
    printed = capsys.readouterr()
    assert why in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not printed.out


def test_a_sweep_over_numbers_of_processes_needs_nothing_else_to_vary(
    capsys: pytest.CaptureFixture[str],
):
    assert (
        main(["sweep", "encdec", "--nproc", "1,2", "--rounds", "3", "--steps", "5", "--dry-run"])
        == 0
    )
    printed = capsys.readouterr().out
    assert "2 settings, 3 rounds: 6 blocks" in printed
    assert "nproc: each number of processes is a training of its own" in printed


def test_one_process_gets_no_levers_of_several():
    settings = {lever.name: lever.default_text for lever in PROCESSES} | {"batch_size": "4"}
    plan = Plan(workload="encdec", settings=settings, nproc=2)
    assert of_count(plan, 1) == Plan(workload="encdec", settings={"batch_size": "4"})
    assert of_count(plan, 2) == plan


# ── scaling ───────────────────────────────────────────────────────────────────────


def measured(*seconds: float) -> list[BlockRow]:
    """Return three rounds: blocks of 10 steps with 8 samples in each process."""
    return [
        BlockRow(round=turn, cell=cell, steps=10, samples=80 * (cell + 1), busy_s=busy_s)
        for cell, own in enumerate((seconds[:3], seconds[3:]))
        for turn, busy_s in enumerate(own)
    ]


def test_each_number_of_processes_runs_its_own_cells_alone():
    sweep = Sweep(GRID)
    sweep.nproc = 2
    blocks = sweep.begin(1, ranks=2)
    assert [block.changes for block in blocks] == [{}] * 3
    assert (sweep.blocks_done, sweep.blocks_planned) == (0, 6)


def test_a_resumed_sweep_goes_on_with_the_number_of_processes_that_it_broke_off_in():
    rows = measured(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert whole_rounds(GRID, rows[:4]) == rows[:4]
    both = msgspec.structs.replace(GRID, columns=({}, {"precision": "bf16"}))
    cells = [msgspec.structs.replace(row, cell=cell) for row in rows for cell in (0, 1)]
    unfinished = msgspec.structs.replace(rows[3], cell=2)  # cell 3 is missing
    assert whole_rounds(both, [*cells[:6], unfinished]) == cells[:6]
    sweep = Sweep(GRID, rows[:4])
    assert sweep.nproc == 2
    assert len(sweep.begin(1, ranks=2)) == 2


def test_a_sweep_that_broke_off_with_one_process_begins_with_it():
    sweep = Sweep(GRID, measured(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)[:2])
    assert (sweep.nproc, len(sweep.begin(1))) == (1, 1)


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


def started_with(count: int, threads: int) -> Started:
    """Return a start that divides the cores."""
    device = Device(kind="cpu", name=f"CPU, {threads} threads")
    start = started(0.0, {"num_workers": str(threads)})
    return msgspec.structs.replace(start, device=device, world_size=count)


def test_twice_the_samples_in_the_same_time_is_an_efficiency_of_1():
    ((alone,), (both,)) = Sweep(GRID, measured(1.0, 1.01, 0.99, 1.0, 1.01, 0.99)).results()
    assert alone.efficiency is None
    assert both.efficiency is not None
    assert both.efficiency.ratio == pytest.approx(1.0)
    assert both.efficiency.low < 1 < both.efficiency.high
    assert both.samples_per_s == pytest.approx(2 * alone.samples_per_s)


def test_the_table_has_rates_of_all_processes_and_the_efficiency():
    results = Sweep(GRID, measured(1.0, 1.0, 1.0, 1.25, 1.25, 1.25)).results()
    cells = [cell for _, cell in table.cells(GRID, results)[1:]]
    assert cells == [
        "10.0 steps/s, 80.0 samples/s",
        "8 steps/s, 128.0 samples/s, efficiency 80.0 % [80.0, 80.0]",
    ]
    found = table.data(GRID, results)
    assert [one.settings for one in found] == [{"nproc": "1"}, {"nproc": "2"}]
    assert found[1].efficiency == pytest.approx(0.8)


def test_a_training_that_did_not_run_has_no_efficiency():
    ((_,), (both,)) = Sweep(GRID, measured(1.0, 1.0, 1.0)).results()
    assert both.efficiency is None


# ── the real program ────────────────────────────────────────────────────────────────────


def test_two_processes_are_recorded_without_a_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    record = tmp_path / "r.csv"
    plan = "encdec --nproc 2 --device cpu --batch-size 2 --steps 20"
    small = "--set num_workers=0 --set model_scale=small --set data=cached"
    assert main([*plan.split(), *small.split(), "--record", str(record)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("trained 20 steps")
    of_ours = ("encdec: ", "precision=", "batch_size=")  # and nothing of torchrun's or a library's
    assert [line for line in said[:-1] if not line.startswith(of_ours)] == []
    lines = record.with_suffix(".jsonl").read_text().splitlines()
    assert any('"world_size":2' in line for line in lines)
