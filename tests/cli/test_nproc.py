"""`--nproc N`: its plan, and refusals before anything starts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpudash.cli.main import main
from gpudash.cli.sweep_grid import of_count
from gpudash.protocol.commands import Plan
from tests.cli.conftest import Refused
from workloads.standard_levers import PROCESSES

pytestmark = pytest.mark.usefixtures("own_catalogue")
"""The command line adds the levers of several processes to it."""


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
def test_errors_are_one_line(line: str, why: str, refused: Refused):
    assert why in refused(*line.split())


def test_a_sweep_over_numbers_of_processes_needs_nothing_else_to_vary(
    printed: Callable[..., str],
):
    how = ("--rounds", "3", "--steps", "5", "--dry-run")
    said = printed("sweep", "encdec", "--nproc", "1,2", *how)
    assert "2 settings, 3 rounds: 6 blocks" in said
    assert "nproc: each number of processes is a training of its own" in said


def test_one_process_gets_no_levers_of_several():
    settings = {lever.name: lever.default_text for lever in PROCESSES} | {"batch_size": "4"}
    plan = Plan(workload="encdec", settings=settings, nproc=2)
    assert of_count(plan, 1) == Plan(workload="encdec", settings={"batch_size": "4"})
    assert of_count(plan, 2) == plan


@pytest.mark.usefixtures("called_with_double")
def test_two_processes_are_ranks_that_are_recorded_without_a_screen(
    private: Path, capsys: pytest.CaptureFixture[str]
):
    """For real ones see tests/run/test_rank_processes.py."""
    plan = ["encdec", "--nproc", "2", "--device", "cpu", "--steps", "20"]
    assert main([*plan, "--set", "bucket_cap_mb=4", "--record", "r.csv"]) == 0
    assert capsys.readouterr().err.splitlines()[-1].startswith("trained 20 steps")
    assert ";bucket_cap_mb=4" in (private / "r.csv").read_text()
