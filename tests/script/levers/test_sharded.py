"""Levers of a model that fully_shard has spread over the ranks."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.optim import SGD

from tests.script.levers.scripts import levers, move, offered, refuses


@pytest.fixture
def of(monkeypatch, group):
    """Return the levers of such a model, as on a GPU with TF32."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device=None: (9, 0))
    kept = []

    def make(*policies):
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in policies))
        for layer, policy in zip(model, policies, strict=True):
            mesh = init_device_mesh("cpu", (1,))
            fully_shard(layer, mesh=mesh, **({"mp_policy": policy} if policy else {}))
        kept.append((model, SGD(model.parameters())))
        return levers(model, optimizers=[kept[-1][1]], world_size=2, device="cuda")

    return make


def test_tf32_is_moved_without_a_rehearsal_which_the_other_ranks_would_have_to_join(of):
    torch.set_float32_matmul_precision("highest")
    moved = of(None)
    assert moved.settings["precision"] == "fp32"
    move(moved, precision="tf32")
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    move(moved, precision="fp32")
    assert torch.backends.cuda.matmul.fp32_precision != "tf32"


@pytest.mark.parametrize("lever", [{"precision": "bf16"}, {"grad_sync": "last"}], ids=str)
def test_other_levers_name_a_reason_of_fsdp(of, lever):
    refuses(of(None), "FSDP", **lever)


BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("policies", "own"),
    [
        ((None, None), "fp32"),
        ((MixedPrecisionPolicy(reduce_dtype=torch.float32),), "fp32"),
        ((BF16, BF16), "bf16"),
        ((BF16, None), "script"),
        ((BF16, MixedPrecisionPolicy(param_dtype=torch.float16)), "script"),
    ],
)
def test_it_computes_in_what_the_policies_say(of, policies, own):
    torch.set_float32_matmul_precision("highest")
    assert offered(of(*policies))["precision"].default == own
