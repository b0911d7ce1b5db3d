"""Levers with a rehearsal: precision, channels_last, compile."""

import copy
import io
import pickle
import random
import weakref
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

from gpudash.training.commanded import Refusal
from tests.script.levers.scripts import (
    ConvNet,
    Training,
    by_view,
    follow,
    found,
    levers,
    move,
    offered,
    refuses,
    stepped,
)

MOVES = [{"precision": "bf16"}, {"channels_last": "on"}, {"compile": "on"}]


@pytest.fixture(autouse=True)
def _own_compiler():
    torch._dynamo.reset()  # other tests compile the same calls
    with torch._dynamo.config.patch(recompile_limit=8):
        yield
    torch._dynamo.reset()


def plain(steps, **options):
    return Training(**options).step(steps)


@pytest.mark.parametrize("change", MOVES, ids=str)
def test_a_lever_computes_the_same_training_up_to_rounding(change):
    training, moved = stepped()
    move(moved, **change)
    training.step(2)
    assert moved.settings.items() >= change.items()
    torch.testing.assert_close(training.losses, plain(3).losses, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("change", MOVES, ids=str)
def test_a_lever_put_back_before_a_step_leaves_nothing(change):
    training, moved = stepped(2)
    move(moved, **change)
    moved.restore()
    assert training.step(2).digest == plain(4).digest
    assert moved.settings == training.levers().settings


def test_bf16_is_active_inside_the_model_only():
    training, moved = stepped()
    move(moved, precision="bf16")
    outputs = training.model(torch.randn(2, 3, 8, 8))
    assert (training.model.seen[0], outputs.dtype) == (torch.bfloat16, torch.float32)
    assert not torch.is_autocast_enabled("cpu")


def test_channels_last_is_active_inside_the_model_only():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    moved = levers(model)
    model(torch.randn(2, 3, 8, 8))
    seen = []
    model[1].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    move(moved, channels_last="on")
    outputs = model(torch.randn(2, 3, 8, 8))
    assert seen[-1].is_contiguous(memory_format=torch.channels_last)
    assert outputs.is_contiguous()
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_the_optimizers_state_moves_with_the_weights_and_is_saved_in_the_scripts_order():
    training, moved = stepped()
    move(moved, channels_last="on")
    training.step()
    weight = training.model.conv.weight
    assert training.optimizer.state[weight]["exp_avg"].stride() == weight.stride()
    saved = training.optimizer.state_dict()["state"][0]["exp_avg"]
    assert saved.is_contiguous()
    assert torch.equal(saved, training.optimizer.state[weight]["exp_avg"])
    moved.restore()
    assert training.optimizer.state[weight]["exp_avg"].is_contiguous()
    assert not training.optimizer._optimizer_state_dict_post_hooks


def test_weights_saved_under_channels_last_load_anywhere():
    training, moved = stepped()
    move(moved, channels_last="on")
    file = io.BytesIO()
    torch.save(training.model.state_dict(), file)
    file.seek(0)
    other = ConvNet()
    other.load_state_dict(torch.load(file))
    assert other.conv.weight.is_contiguous()
    assert torch.equal(other.conv.weight, training.model.conv.weight)


def test_a_model_that_the_script_has_in_channels_last_can_be_moved_to_plain_order_and_back():
    training = Training(lambda: ConvNet().to(memory_format=torch.channels_last))
    before = training.step().model.conv.weight.stride()
    moved = training.levers()
    assert moved.settings["channels_last"] == "on"
    training.step()
    move(moved, channels_last="off")
    assert training.model.conv.weight.is_contiguous()
    training.step()
    moved.restore()
    assert training.model.conv.weight.stride() == before


def test_compile_changes_neither_the_module_nor_its_pickles():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    keys, kind = list(model.state_dict()), type(model)
    moved = levers(model)
    inputs = torch.randn(2, 3)
    outputs = model(inputs)
    move(moved, compile="on")
    compiled_frames = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch.testing.assert_close(model(inputs), outputs)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled_frames > 0
    assert (list(model.state_dict()), type(model)) == (keys, kind)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.__dict__.keys() == model.__dict__.keys() - {"_compiled_call_impl"}
        assert torch.equal(other(inputs), outputs)


def test_compile_keeps_no_model_alive():
    torch._dynamo.reset()
    model = nn.Linear(3, 4)
    gone = weakref.ref(model)
    moved = levers(model)
    model(torch.randn(2, 3))
    move(moved, compile="on")
    model(torch.randn(2, 3))
    del model.__dict__["_compiled_call_impl"]  # this test's own wrapper holds it
    del model
    torch._dynamo.reset()
    assert gone() is None


def test_the_limit_of_recompilations_is_the_scripts_own_again():
    _training, moved = stepped()
    config, own = torch._dynamo.config, torch._dynamo.config.recompile_limit
    move(moved, compile="on")
    assert config.recompile_limit > own
    moved.restore()
    assert config.recompile_limit == own


class _Viewing(ConvNet):
    flatten = staticmethod(by_view)


class _Inside(ConvNet):
    def forward(self, images):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(images).float()


BROKEN = [
    (_Viewing, {"channels_last": "on"}, "RuntimeError: view size is not compatible"),
    (ConvNet, {"compile": "on"}, "not me"),
    (_Inside, {"precision": "bf16"}, "an autocast is active already"),
]


@pytest.mark.parametrize(("model", "change", "why"), BROKEN, ids=lambda one: str(one)[:30])
def test_a_failing_rehearsal_refuses_the_lever_and_changes_no_bit(model, change, why):
    training = Training(model).step(3)
    refuses(training.levers(backend=Mock(side_effect=ValueError("not me"))), why, **change)
    assert training.step(3).digest == plain(6, model=model).digest


def test_a_rehearsal_changes_no_random_numbers_and_no_gradients():
    class Noisy(ConvNet):
        def forward(self, images):
            return super().forward(images) + random.random() + np.random.random()  # noqa: NPY002  # a script's

    training, moved = stepped(2, Noisy)
    before = random.getstate(), str(np.random.get_state())  # noqa: NPY002  # same
    gradients = [weight.grad.clone() for weight in training.model.parameters()]
    move(moved, precision="bf16")
    assert (random.getstate(), str(np.random.get_state())) == before  # noqa: NPY002  # same
    after = [weight.grad for weight in training.model.parameters()]
    assert all(map(torch.equal, gradients, after))


def test_a_rehearsal_restores_buffers_that_a_model_replaces_in_each_call():
    class Averaging(ConvNet):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(()))
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, images):
            self.mean = 0.9 * self.mean + images.detach().mean()
            self.scale = nn.Parameter(self.scale * 0.9)
            return super().forward(images) * self.scale

    training, moved = stepped(2, Averaging)
    scale, before = training.model.scale, copy.deepcopy(training.model.state_dict())
    move(moved, precision="bf16")
    after = training.model.state_dict()
    assert training.model.scale is scale
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_rehearsal_does_not_break_a_graph_that_saved_the_buffers():
    training = Training(lambda: ConvNet().eval())
    moved = training.levers()
    loss = training.model(torch.randn(2, 3, 8, 8)).sum()
    move(moved, precision="bf16")
    loss.backward()


def test_a_combination_is_rehearsed_once_and_keeps_no_batch():
    training, moved = stepped()
    wanted = moved.resolve({"precision": "bf16"})
    assert moved.needs_call(wanted)
    moved.enter(wanted)
    assert training.root.newest is None
    assert moved.timings() == ()  # without a call
    moved.restore()
    assert not moved.needs_call(wanted)
    assert moved.needs_call({**wanted, "channels_last": "on"})


def test_without_a_call_to_rehearse_a_lever_is_refused():
    moved = levers(nn.Linear(2, 2))
    refuses(moved, "the model was not called in the newest step", precision="bf16")


def test_all_levers_work_together():
    training, moved = stepped(2)
    move(moved, precision="bf16", channels_last="on", compile="on", fused_optimizer="foreach")
    training.step(2)
    torch.testing.assert_close(training.losses, plain(4).losses, rtol=0.1, atol=0.1)


def test_a_new_model_begins_with_the_scripts_settings():
    (training, moved), other = stepped(), Training()
    move(moved, channels_last="on", fused_optimizer="single")
    for one, value in ((training, "on"), (other, "off")):
        moved.update(found(one.root, optimizers=[one.optimizer]))
        assert moved.settings["channels_last"] == value
    assert training.model.conv.weight.is_contiguous()
    assert training.root.around is None
    assert training.optimizer.param_groups[0]["foreach"] is None


def test_while_a_graph_is_captured_nothing_is_moved(monkeypatch):
    _training, moved = stepped()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    refuses(moved, "a CUDA graph is being captured", precision="bf16")


def test_bf16_is_refused_inside_an_autocast_of_the_scripts():
    training = Training()
    assert "bf16" not in offered(training.levers(scaler=True))["precision"].choices
    training.root.autocast = torch.float16
    why = "precision=bf16: an autocast is active already"
    refuses(training.levers(), why, precision="bf16")


@pytest.mark.parametrize(
    ("make", "name", "why"),
    [
        (lambda: nn.Linear(2, 2), "channels_last", "the model has no 4-D weights"),
        (lambda: torch.compile(nn.Linear(2, 2)), "compile", "the model is compiled already"),
        (lambda: torch.jit.script(nn.Linear(2, 2)), "compile", "the model is a ScriptModule"),
        (lambda: nn.DataParallel(nn.Linear(2, 2)), "compile", "DataParallel runs the model"),
        (
            lambda: nn.Linear(2, 2).bfloat16(),
            "precision",
            "the script computes in bf16",
        ),
        (
            lambda: Training(optimizer=torch.optim.LBFGS),
            "channels_last",
            "LBFGS may need weights in their own order",
        ),
    ],
)
def test_refusals_name_their_reason(make, name, why):
    model = make()
    moved = model.levers() if isinstance(model, Training) else levers(model)
    assert why in offered(moved)[name].refusal


def test_with_graphs_every_lever_is_refused():
    offers = offered(Training().levers(graphs=True))
    said = {offer.refusal for name, offer in offers.items() if name != "batch_size"}
    assert said == {"the script replays its steps as CUDA graphs"}


def test_with_several_ranks_unsafe_levers_are_refused():
    training = Training()
    offers = offered(training.step().levers(world_size=2))
    assert "each rank would compile for itself" in offers["compile"].refusal
    assert "exchange gradients in the order" in offers["channels_last"].refusal
    assert (offers["precision"].refusal, offers["fused_optimizer"].refusal) == (None, None)


class Averaged(nn.Linear):
    """A model with a collective in its forward pass, like SyncBatchNorm's."""

    def forward(self, batch):
        torch.distributed.all_reduce(batch.mean())
        return super().forward(batch)


@pytest.mark.usefixtures("group")
def test_a_collective_in_a_rehearsal_is_refused_before_another_rank_has_to_take_part():
    model = Averaged(4, 4)
    moved = levers(model, world_size=2)
    model(torch.randn(2, 4))
    refuses(moved, "the model's forward pass waits for other ranks", precision="bf16")


@pytest.mark.usefixtures("group")
def test_a_model_in_ddp_is_rehearsed_without_its_wrapper():
    inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    inner.register_parameter("unused", nn.Parameter(torch.zeros(2)))
    model = nn.parallel.DistributedDataParallel(inner, find_unused_parameters=True)
    moved = levers(model, world_size=2)
    model(torch.randn(2, 4)).sum().backward()
    move(moved, precision="bf16")
    model(torch.randn(2, 4)).sum().backward()
    assert inner[0].weight.grad is not None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"speed": "9"}, "there is no lever 'speed' here; valid: batch_size, compile"),
        ({"compile": "maybe"}, "compile: 'maybe' is not valid; valid: off, on"),
        ({"precision": "fp8"}, "precision: 'fp8' is not valid; valid: fp32, bf16"),
        ({"precision": "tf32"}, "precision=tf32: TF32 needs a GPU"),
        ({"batch_size": "8"}, "batch_size: the script sets its batch size itself"),
    ],
)
def test_bad_values_are_refused_with_the_valid_ones(changes, says):
    with pytest.raises(Refusal, match=says):
        Training().levers().resolve(changes)


def test_levers_that_change_numerics_are_marked():
    offers = offered(Training().levers()).items()
    changing = {name for name, offer in offers if offer.numerics}
    assert changing == {"precision", "channels_last", "compile", "fused_optimizer", "grad_sync"}


class Gan:
    """Two models, each with an optimizer; the graph of one runs through the other."""

    def __init__(self, flatten=torch.flatten):
        torch.manual_seed(2)
        self.maker = nn.ConvTranspose2d(2, 3, 5)
        self.judge = ConvNet()
        self.judge.flatten = flatten
        self.roots = [follow(self.maker), follow(self.judge)]
        self.optimizers = [torch.optim.Adam(m.parameters()) for m in (self.maker, self.judge)]
        self.losses = []

    def step(self):
        images, noise = torch.randn(2, 3, 8, 8), torch.randn(2, 2, 4, 4)
        for optimizer, made in zip(
            self.optimizers, (self.maker(noise), self.maker(noise).detach()), strict=True
        ):
            optimizer.zero_grad()
            loss = (self.judge(made) - self.judge(images)).mean()
            loss.backward()
            optimizer.step()
            self.losses.append(loss.item())
        return self

    def levers(self):
        return levers(*self.roots, optimizers=self.optimizers)


@pytest.mark.parametrize("change", [{"channels_last": "on"}, {"precision": "bf16"}], ids=str)
def test_several_models_are_rehearsed_each(change):
    other = Gan().step().step()
    gan = Gan().step()
    state = torch.get_rng_state()
    move(gan.levers(), **change)
    assert torch.equal(torch.get_rng_state(), state)
    assert gan.step().losses == pytest.approx(other.losses, abs=0.05)


def test_one_model_that_breaks_keeps_the_lever_from_all():
    other = Gan(by_view).step().step()
    gan = Gan(by_view).step()
    refuses(gan.levers(), "view size is not compatible", channels_last="on")
    assert gan.step().losses == other.losses


class _Halves(nn.Module):
    """Works only inside an autocast."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, inputs):
        return self.head(inputs.bfloat16())


def test_a_call_is_rehearsed_inside_the_autocast_that_the_script_has_around_it():
    model = _Halves()
    root = follow(model)
    moved = levers(root)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.randn(2, 8))
    root.newest = root.newest._replace(autocast=("cpu", torch.bfloat16))
    move(moved, compile="on")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.randn(2, 8)).dtype == torch.bfloat16


def operations(traced):
    return [node.kind() for node in traced.inlined_graph.nodes()]


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("change", MOVES, ids=str)
def test_tracing_a_model_sees_it_without_levers(change):
    model, images = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), torch.randn(2, 3, 8, 8)
    model(images)
    own = operations(torch.jit.trace(model, images))
    moved = levers(model)
    model(images)
    move(moved, **change)
    assert operations(torch.jit.trace(model, images, check_trace=False)) == own
    assert torch.func.vmap(lambda image: model(image[None]))(images).shape == (2, 1, 144)


@pytest.mark.usefixtures("shared_memory")
def test_weights_that_other_processes_share_stay_where_they_are():
    model = nn.Conv2d(3, 4, 3).share_memory()
    refuses(levers(model), "other processes share the weights' memory", channels_last="on")


def test_values_are_timed_on_the_newest_batch_and_leave_nothing():
    training, timed = stepped(2)
    values = {(one.lever, one.value): one for one in timed.timings()}
    assert set(values) == {("precision", "bf16"), ("channels_last", "on")}  # nothing is compiled
    assert all(one.before_ms > 0 and one.after_ms > 0 for one in values.values())
    if not torch.cuda.is_available():  # a CPU is one resource: its host has no time of its own
        assert all(one.before_host_ms == 0 for one in values.values())
    assert training.step(2).digest == plain(4).digest


def test_a_value_that_fails_is_not_timed_and_leaves_nothing():
    training, timed = stepped(2, _Viewing)  # fails on channels_last
    assert {one.lever for one in timed.timings()} == {"precision"}
    assert training.step(2).digest == plain(4, model=_Viewing).digest


@pytest.mark.parametrize("call", [3, 12, 22])  # of the own values, and of two that are tried
def test_ctrl_c_while_values_are_timed_leaves_nothing(call):
    training, timed = stepped(2)
    before = timed.settings
    interrupted = Mock(side_effect=[None] * (call - 1) + [KeyboardInterrupt])
    hook = training.model.register_forward_pre_hook(interrupted)
    with pytest.raises(KeyboardInterrupt):
        timed.timings()
    hook.remove()
    assert timed.settings == before
    assert training.step(2).digest == plain(4).digest
