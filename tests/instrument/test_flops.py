"""Flops are counted from shapes, and counting does not change the step."""

from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear, scaled_dot_product_attention
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.flop_counter import flop_registry

from gpudash.instrument import flops
from gpudash.instrument.flops import counting, multiplies
from gpudash.protocol.inspections import Flops
from tests.warm import python
from tests.workloads.trainings import CPU, needs_cuda


def model(device: torch.device = CPU) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(64, 128), nn.Dropout(), nn.ReLU(), nn.Linear(128, 10)
    return nn.Sequential(*layers).to(device)


def gflop(step) -> float | None:
    with counting(CPU, compiled=False) as counter:
        step()
    found = counter.flops()
    return None if found is None else found.step_gflop


IMAGE, KERNEL = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)
TAPS = (2 * 4 * 6 * 6) * (3 * 3 * 3)
QUERY = torch.ones(1, 2, 16, 8)
HAS_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu in flop_registry


@pytest.mark.parametrize(
    ("step", "products"),
    [
        (lambda: torch.ones(3, 5) @ torch.ones(5, 7), 3 * 5 * 7),
        (lambda: conv2d(IMAGE, KERNEL), TAPS),
        (lambda: conv2d(IMAGE.to(memory_format=torch.channels_last), KERNEL), TAPS),
        pytest.param(
            lambda: scaled_dot_product_attention(QUERY, QUERY, QUERY),
            2 * 2 * (16 * 8 * 16),  # both of its products
            marks=pytest.mark.skipif(not HAS_ATTENTION, reason="this torch has no formula"),
        ),
    ],
)
def test_two_are_counted_for_each_multiply_add(step, products):
    assert gflop(step) == 2 * products / 1e9


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=needs_cuda)])
def test_flops_belong_to_the_phase_that_was_marked_before_them(name: str):
    device = torch.device(name)
    net, teacher = model(device), nn.Linear(64, 64, device=device)
    with counting(device, compiled=False) as counter:
        counter.mark("frozen")
        with torch.no_grad():
            batch = teacher(torch.ones(32, 64, device=device))
        counter.mark("forward")
        loss = net(batch).sum()
        counter.mark("backward")  # on a GPU it runs on autograd's thread
        loss.backward()
        counter.mark("optimizer")
    found = counter.flops()
    assert found.phases_gflop == {
        "frozen": 2 * 32 * 64 * 64 / 1e9,
        "forward": 2 * 32 * (64 * 128 + 128 * 10) / 1e9,
        "backward": 2 * 32 * (64 * 128 + 2 * 128 * 10) / 1e9,  # the batch needs no gradient
    }
    assert sum(found.phases_gflop.values()) == pytest.approx(found.step_gflop)
    assert found.covered_pct == 100.0


def test_what_is_seen_to_be_of_another_phase_counts_there():
    one = torch.ones(2, 2)
    with counting(CPU, compiled=False) as counter:
        for phase, shown in (("forward", None), ("your_code", "forward"), ("backward", None)):
            counter.mark(phase)
            torch.mm(one, one)
            if shown is not None:
                counter.rename(shown)
    assert counter.flops().phases_gflop == {"forward": 32 / 1e9, "backward": 16 / 1e9}


def test_precision_and_inference_do_not_change_the_count():
    net, batch = model(), torch.ones(4, 64)
    expected = 2 * 4 * (64 * 128 + 128 * 10) / 1e9
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert gflop(lambda: net(batch)) == expected
    with torch.inference_mode():
        assert gflop(lambda: net(batch)) == expected


def trained(*, counted: bool) -> tuple[list[Tensor], Tensor]:
    net, batch = model(), torch.ones(16, 64)
    optimizer = torch.optim.AdamW(net.parameters())
    with counting(CPU, compiled=not counted), torch.autocast("cpu", dtype=torch.bfloat16):
        net(batch).sum().backward()
        optimizer.step()
    return [parameter.detach() for parameter in net.parameters()], torch.get_rng_state()


def test_counting_changes_no_weights_and_no_random_numbers():
    (plain, state), (counted, counted_state) = trained(counted=False), trained(counted=True)
    assert all(map(torch.equal, plain, counted))
    assert torch.equal(state, counted_state)


def test_a_step_that_fails_leaves_nothing_behind():
    with pytest.raises(RuntimeError, match="shape"), counting(CPU, compiled=False):
        linear(torch.ones(2, 3), torch.ones(4, 5))
    assert _get_current_dispatch_mode() is None


def test_a_formula_that_fails_is_an_operator_not_covered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(flops.flop_registry, torch.ops.aten.bmm, Mock(side_effect=TypeError))
    with counting(CPU, compiled=False) as counter:
        torch.ones(2, 2) @ torch.ones(2, 2)
        torch.ones(1, 2, 2) @ torch.ones(1, 2, 2)
    assert counter.flops() == Flops(step_gflop=16 / 1e9, covered_pct=50.0)


def test_a_kernel_of_the_users_own_runs_and_lowers_the_share_covered():
    @torch.library.custom_op("gpudash_test::mix", mutates_args=())
    def mix(left: Tensor) -> Tensor:
        return left + 1

    with counting(CPU, compiled=False) as counter:
        mixed = mix(torch.zeros(2, 2))
        torch.mm(mixed, mixed)
    assert mixed.sum() == 4.0
    assert counter.flops() == Flops(step_gflop=16 / 1e9, covered_pct=50.0)


def test_a_step_without_a_product_that_could_be_counted_is_not_measured():
    assert gflop(lambda: torch.ones(3) + 1) is None
    cell = nn.LSTM(8, 8)
    assert gflop(lambda: cell(torch.ones(3, 4, 8))) is None


COMPILED = """
import torch
from gpudash.instrument.flops import counting

CPU = torch.device("cpu")
double = torch.compile(lambda left: left @ left, backend="eager", fullgraph=True)
with counting(CPU) as counter:
    torch.ones(2, 2) @ torch.ones(2, 2)
assert counter.flops() is not None
double(torch.ones(2, 2))
with counting(CPU) as counter:
    double(torch.ones(2, 2))
assert counter.flops() is None
"""


def test_after_any_compilation_nothing_is_counted():
    python("-c", COMPILED)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten.mm", True),
        ("aten.addmm_", True),
        ("aten._grouped_mm", True),
        ("aten.mkldnn_linear", True),
        ("aten._conv_depthwise2d", True),
        ("aten._cudnn_rnn", True),
        ("aten._scaled_dot_product_cudnn_attention_backward", True),
        ("flash_attn._flash_attn_forward", True),
        ("mylib.anything", True),
        ("triton_kernel_wrapper_mutation", True),
        ("aten.add", False),
        ("aten._cudnn_rnn_flatten_weight", False),
        ("aten._thnn_fused_lstm_cell", False),
        ("aten.upsample_bilinear2d", False),
        ("aten.upsample_linear1d", False),
        ("prims.convert_element_type", False),
        ("profiler._record_function_enter_new", False),
        ("c10d.allreduce_", False),
    ],
)
def test_operators_with_a_matrix_product_are_recognised_by_name(operator: str, *, expected: bool):
    assert multiplies(operator) is expected
