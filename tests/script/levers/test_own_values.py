"""The values that a script itself has, as its levers name them."""

import functools

import pytest
import torch
from torch import nn
from torch.optim import LBFGS, SGD, Adadelta, Adam

from gpudash.levers.optimizer import default_form
from gpudash.levers.precision import of_layers
from tests.script.levers.scripts import (
    ConvNet,
    Training,
    follow,
    found,
    levers,
    move,
    refuses,
    stepped,
)
from tests.workloads.trainings import needs_cuda


def own(moved, name):
    (offer,) = (one for one in moved.offers if one.name == name)
    assert moved.settings[name] == offer.default
    assert offer.default in (*offer.choices, "off", "on")
    return offer.default


# ── optimizer ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("optimizer", "options", "value"),
    [
        (Adam, {"fused": True}, "fused"),
        (Adam, {"fused": False, "foreach": True}, "foreach"),
        (Adam, {"foreach": True}, "foreach"),
        (Adam, {"foreach": False}, "single"),
        (Adam, {"fused": False}, "single"),
        (Adam, {}, "single"),
        (Adam, {"differentiable": True}, "single"),
        (Adadelta, {}, "single"),  # it has no fused form
        (Adadelta, {"foreach": True}, "foreach"),
        (LBFGS, {}, "–"),  # a class of its own has no known form
    ],
    ids=str,
)
def test_the_form_is_that_of_the_optimizers_flags(optimizer, options, value):
    moved = Training(optimizer=optimizer, **options).levers()
    assert own(moved, "fused_optimizer") == value


@pytest.mark.parametrize(
    ("kinds", "value"),
    [
        ({(nn.Parameter, "cuda")}, "foreach"),
        ({(nn.Parameter, "cpu")}, "single"),
        ({(nn.Parameter, "cuda"), (nn.Parameter, "cpu")}, "single"),
        ({(nn.parameter.UninitializedParameter, "cuda")}, "single"),
    ],
)
def test_without_flags_a_gpu_updates_with_foreach_and_a_cpu_one_by_one(kinds, value):
    assert default_form(kinds) == value


@needs_cuda
def test_without_flags_an_optimizer_on_a_gpu_runs_the_form_that_is_named():
    model = nn.Linear(4, 4).cuda()
    optimizer = Adam(model.parameters())
    assert own(levers(model, optimizers=[optimizer], device="cuda"), "fused_optimizer") == "foreach"
    model(torch.ones(2, 4, device="cuda")).sum().backward()
    with torch.profiler.profile() as profile:
        optimizer.step()
    assert any(event.key.startswith("aten::_foreach_") for event in profile.key_averages())


def test_groups_that_differ_have_the_scripts_own_value_and_get_it_back():
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    groups = [{"params": weights[:1], "fused": True}, {"params": weights[1:], "foreach": True}]
    optimizer = SGD(groups, lr=0.1)
    moved = levers(optimizers=[optimizer])
    assert own(moved, "fused_optimizer") == "script"
    move(moved, fused_optimizer="single")
    move(moved, fused_optimizer="script")
    flags = [(group["fused"], group["foreach"]) for group in optimizer.param_groups]
    assert flags == [(True, None), (None, True)]


def test_a_moved_optimizer_is_not_taken_for_the_scripts_own():
    training = Training(fused=True)
    moved = training.levers()
    move(moved, fused_optimizer="single")
    moved.update(found(training.root, optimizers=[training.optimizer]))
    assert moved.settings["fused_optimizer"] == "single"
    move(moved, fused_optimizer="script")
    assert own(moved, "fused_optimizer") == "fused"
    assert training.optimizer.param_groups[0]["foreach"] is None


# ── precision ───────────────────────────────────────────────────────────────────────────


def precision(*modules, **facts):
    return own(levers(*modules, **facts), "precision")


def within(dtype, model=None):
    """A root that is called inside an autocast."""
    root = follow(model or ConvNet())
    root.autocast = dtype
    root.kept = root.module  # a root does not keep it
    return root


def with_norms_in_float32(dtype):
    model = ConvNet().to(dtype)
    model.norm.float()
    return model


def with_a_head_in_bf16():
    model = ConvNet()
    model.head.bfloat16()
    return model


def decorated():
    """Its forward is decorated by an autocast."""
    model = ConvNet()
    decorated = torch.autocast("cpu", dtype=torch.bfloat16)(model.forward)

    @functools.wraps(decorated)
    def forward(*args):
        return decorated(*args)

    model.forward = forward
    return model


class Inside(ConvNet):
    """Any autocast may be in the code of its forward."""

    def forward(self, images):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(images)


PRECISIONS = {
    "float32 on a CPU": (lambda: [ConvNet()], "fp32"),
    "float32, compiled": (lambda: [torch.compile(nn.Linear(2, 2))], "fp32"),
    "bf16, whatever the norms have": (lambda: [with_norms_in_float32(torch.bfloat16)], "bf16"),
    "fp16, whatever the norms have": (lambda: [with_norms_in_float32(torch.float16)], "fp16"),
    "several": (lambda: [with_a_head_in_bf16()], "script"),
    "double": (lambda: [ConvNet().double()], "script"),
    "within an autocast to bf16": (lambda: [within(torch.bfloat16)], "bf16"),
    "within an autocast to fp16": (lambda: [within(torch.float16)], "fp16"),
    "within an autocast to fp32": (lambda: [within(torch.float32)], "fp32"),
    "roots that differ": (lambda: [within(torch.bfloat16), ConvNet()], "script"),
    "a decorated forward": (lambda: [decorated()], "bf16"),
    "a decorated forward in parallel": (lambda: [nn.DataParallel(decorated())], "bf16"),
    "in the code of the forward": (lambda: [Inside()], "script"),
}


@pytest.mark.parametrize(("make", "value"), PRECISIONS.values(), ids=PRECISIONS)
def test_the_precision_is_that_of_weights_and_autocasts(make, value):
    assert precision(*make()) == value


def test_a_scaler_means_an_autocast_that_was_not_seen():
    assert precision(ConvNet(), scaler=True) == "script"


@pytest.mark.parametrize(
    ("make", "switches", "value"),
    [
        (lambda: nn.Linear(2, 2), ("none", "tf32", "tf32"), "fp32"),
        (lambda: nn.Linear(2, 2), ("tf32", "none", "none"), "tf32"),
        (lambda: nn.Conv2d(2, 2, 1), ("none", "tf32", "tf32"), "tf32"),
        (lambda: nn.Conv2d(2, 2, 1), ("tf32", "ieee", "tf32"), "fp32"),
        (lambda: nn.LSTM(2, 2), ("ieee", "tf32", "tf32"), "tf32"),
        (ConvNet, ("none", "tf32", "tf32"), "cudnn_tf32"),
        (ConvNet, ("tf32", "tf32", "tf32"), "tf32"),
        (ConvNet, ("tf32", "ieee", "ieee"), "script"),
    ],
)
def test_on_a_gpu_the_switches_of_the_models_own_layers_count(make, switches, value):
    assert of_layers([make()], switches) == value


# ── the others ──────────────────────────────────────────────────────────────────────────


def test_a_model_that_becomes_channels_last_later_is_read_again():
    training = Training()
    moved = training.levers()
    assert own(moved, "channels_last") == "off"
    training.model.to(memory_format=torch.channels_last)
    moved.update(found(training.root, optimizers=[training.optimizer]))
    assert own(moved, "channels_last") == "on"


def test_a_model_that_the_script_has_compiled_is_on():
    moved = levers(torch.compile(nn.Linear(2, 2)))
    assert own(moved, "compile") == "on"
    moved.restore()
    moved.update(found(nn.Linear(2, 2)))
    assert own(moved, "compile") == "off"


# ── commands ────────────────────────────────────────────────────────────────────────────


def test_every_lever_has_the_scripts_own_value_under_its_name():
    _training, moved = stepped(fused=True)
    before = moved.settings
    move(moved, fused_optimizer="foreach", precision="bf16", channels_last="on")
    assert moved.resolve(dict.fromkeys(before, "script")) == before
    move(moved, **dict.fromkeys(before, "script"))
    assert moved.settings == before


def test_a_value_that_the_script_has_no_more_is_refused():
    root = follow(ConvNet())
    root.autocast = torch.bfloat16
    refuses(levers(root), "precision: the script computes in bf16", precision="fp32")
