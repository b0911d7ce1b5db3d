"""What a device has free is that of all processes: nothing else may use it meanwhile."""

import torch

from gpudash.instrument.flops import ALL, begin_measuring
from tests.workloads.trainings import CUDA, needs_cuda


@needs_cuda
def test_measuring_a_devices_best_leaves_its_free_memory_as_it_was():
    found = []
    for _ in range(2):  # cuBLAS keeps its workspace from the first matmul on
        begin_measuring(CUDA, ALL)()
        found.append(torch.cuda.mem_get_info(CUDA)[0])
    assert found[0] == found[1]
