"""TF32 through the interface that the script uses. Its switches exist without a GPU too.

They are the process's, and other tests move them: these have one of their own.
"""

import pytest
import torch
from torch import nn

from gpudash.levers.precision import _Tf32
from tests.script.levers.scripts import levers, move
from tests.workloads.trainings import needs_cuda

CUDA, CUDNN, MKLDNN = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
PLACES = (CUDA.matmul, CUDNN.conv, CUDNN.rnn, MKLDNN.matmul)


def newer():
    return [place.fp32_precision for place in PLACES]


def older():
    return torch.get_float32_matmul_precision(), CUDNN.allow_tf32


@pytest.fixture(autouse=True)
def _own_switches():
    before = newer()
    yield
    torch.set_float32_matmul_precision("highest")
    CUDNN.allow_tf32 = True
    for place, precision in zip(PLACES, before, strict=True):
        place.fp32_precision = precision


def by_default():
    pass


def by_the_older_interface():
    CUDNN.allow_tf32 = False
    torch.set_float32_matmul_precision("medium")


def by_ieee_through_the_newer_interface():
    CUDA.matmul.fp32_precision = "ieee"


OLDER = [by_default, by_the_older_interface, by_ieee_through_the_newer_interface]


@pytest.mark.parametrize("script", OLDER)
def test_what_the_older_interface_reads_stays_readable(script):
    script()
    before = newer(), older()
    tf32 = _Tf32.now()
    tf32.switch_on()
    assert older() == ("high", True)
    assert newer()[:2] == ["tf32", "tf32"]
    tf32.put_back()
    assert (newer(), older()) == before


def test_a_script_of_the_newer_interface_is_moved_through_it():
    CUDA.matmul.fp32_precision = "tf32"
    CUDNN.conv.fp32_precision = "ieee"
    before = newer()
    tf32 = _Tf32.now()
    assert tf32.older is None
    tf32.switch_on()
    assert newer()[:3] == ["tf32"] * 3
    tf32.put_back()
    assert newer() == before


@needs_cuda
def test_tf32_rounds_matrix_products_on_the_gpu():
    model = nn.Linear(512, 512).cuda()
    inputs = torch.randn(64, 512, device="cuda")
    moved = levers(model, device="cuda")
    exact = model(inputs)
    move(moved, precision="tf32")
    assert not torch.equal(model(inputs), exact)
    moved.restore()
    assert torch.equal(model(inputs), exact)
