"""What a device has free is that of all processes: nothing else may use it meanwhile."""

import torch

from gpudash.instrument.flops import ALL, begin_measuring
from tests.workloads.trainings import CUDA, needs_cuda


@needs_cuda
def test_measuring_a_devices_best_leaves_its_free_memory_as_it_was():
    begin_measuring(CUDA, ALL)()  # cuBLAS keeps its workspace from the first matmul on
    before = torch.cuda.mem_get_info(CUDA)
    begin_measuring(CUDA, ALL)()
    assert torch.cuda.mem_get_info(CUDA) == before
