"""TF32 through the interface that the script uses. Its switches exist without a GPU too.

They are the process's, and other tests move them: these have one of their own.
"""

from functools import partial

import pytest
import torch
from torch import nn

from gpudash.levers.precision import _Tf32, of_layers
from tests.script.levers.scripts import found, levers, move, teacher_and_student
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


BY_IEEE = partial(setattr, CUDA.matmul, "fp32_precision", "ieee")
OLDER = [by_default, by_the_older_interface, BY_IEEE]


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


BY_HIGH = partial(torch.set_float32_matmul_precision, "high")


@pytest.mark.parametrize(
    ("script", "value"),
    [
        (by_default, "fp32"),
        (BY_HIGH, "tf32"),
        (by_the_older_interface, "tf32"),
        (partial(setattr, CUDA.matmul, "allow_tf32", True), "tf32"),
        (partial(setattr, CUDA.matmul, "fp32_precision", "tf32"), "tf32"),
        (BY_IEEE, "fp32"),
    ],
)
def test_the_scripts_own_precision_is_read_whatever_interface_it_uses(script, value):
    script()
    before = newer()
    assert of_layers([nn.Linear(2, 2)], _Tf32.now().newer) == value
    assert newer() == before


def test_a_cpu_that_may_round_products_has_a_precision_of_the_scripts_own():
    torch.set_float32_matmul_precision("medium")
    assert levers(nn.Linear(2, 2)).settings["precision"] == "script"


@needs_cuda
def test_tf32_that_the_script_turns_on_later_is_read_again_but_not_that_of_the_lever():
    model = nn.Linear(2, 2).cuda()
    moved = levers(model, device="cuda")
    assert moved.settings["precision"] == "fp32"
    move(moved, precision="tf32")
    moved.update(found(model, device="cuda"))
    assert moved.resolve({"precision": "script"})["precision"] == "fp32"
    moved.restore()
    BY_HIGH()
    moved.update(found(model, device="cuda"))
    assert moved.settings["precision"] == "tf32"


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


def test_the_process_switches_act_on_frozen_models_too(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    CUDNN.allow_tf32 = False
    teacher, student = teacher_and_student([0.0], monkeypatch)
    found = levers(student, frozen=(teacher,), device="cuda").timings()
    timings = [one for one in found if one.value == "tf32"]  # a GPU is rehearsed in bf16 too
    assert {one.lever for one in timings} == {"precision"}
    took = {one.is_frozen: (one.before_ms, one.after_ms) for one in timings}
    assert took == {False: pytest.approx((4.0, 2.0)), True: pytest.approx((36.0, 4.5))}
    assert older() == ("highest", False)
