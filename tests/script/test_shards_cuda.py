"""On two GPUs the time of fully_shard's collectives is that of NCCL's kernels in a trace."""

from pathlib import Path

import pytest
import torch

from tests.warm import python

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench_collectives.py"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_the_time_of_a_steps_collectives_is_that_of_their_kernels():
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
    assert python(*torchrun, str(SCRIPT), "--steps=10").stdout.count("they agree in") == 2
