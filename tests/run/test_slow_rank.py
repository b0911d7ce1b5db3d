"""A slow rank of a real training is named: four processes under torchrun, on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_stragglers.py"
SLOW_BY_20_PCT = "24"
"""The first case: three slowdowns, and a quiet time."""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_each_of_three_slowdowns_is_named_with_its_rank_and_phase() -> None:
    cases = ("--first", SLOW_BY_20_PCT, "--cases", "4", "--seconds", "14")
    command = (sys.executable, str(BENCHMARK), "--ranks", "4", *cases)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["cases"], result["right"]) == (3, 3), done.stdout
