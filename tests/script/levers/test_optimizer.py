import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop

from tests.script.levers.scripts import Training, levers, move, offered, refuses, stepped
from tests.workloads.trainings import needs_cuda

MOVABLE = [(SGD, {"momentum": 0.9}), (Adam, {}), (AdamW, {"amsgrad": True}), (Adagrad, {})]
WITHOUT_FUSED = [(Adadelta, {}), (Adamax, {}), (NAdam, {}), (RAdam, {}), (RMSprop, {})]
FLAGS = {"fused": (True, False), "foreach": (False, True), "single": (False, False)}


def flags(optimizer):
    return [(group["fused"], group["foreach"]) for group in optimizer.param_groups]


def kernels(training):
    with torch.profiler.profile() as profile:
        training.step()
    return " ".join(event.key for event in profile.key_averages())


@pytest.mark.parametrize("form", FLAGS)
@pytest.mark.parametrize(("optimizer", "options"), MOVABLE, ids=str)
def test_another_form_runs_other_kernels_and_computes_the_same(optimizer, options, form):
    training, moved = stepped(2, optimizer=optimizer, foreach=form == "single", **options)
    move(moved, fused_optimizer=form)
    assert flags(training.optimizer) == [FLAGS[form]]
    ran = kernels(training)
    assert ("aten::_fused_" in ran) == (form == "fused")
    if form != "fused":  # a fused optimizer counts steps with one of these
        assert ("aten::_foreach_" in ran) == (form == "foreach")
    other = Training(optimizer=optimizer, **options).step(3)
    torch.testing.assert_close(list(training.model.parameters()), list(other.model.parameters()))


@pytest.mark.parametrize("form", ["foreach", "single"])
@pytest.mark.parametrize(("optimizer", "options"), WITHOUT_FUSED, ids=str)
def test_an_optimizer_without_a_fused_form_has_the_two_others(optimizer, options, form):
    training, moved = stepped(2, optimizer=optimizer, **options)
    move(moved, fused_optimizer=form)
    assert ("aten::_foreach_" in kernels(training)) == (form == "foreach")
    other = Training(optimizer=optimizer, **options).step(3)
    torch.testing.assert_close(list(training.model.parameters()), list(other.model.parameters()))
    moved.restore()
    other.step()
    assert training.step().optimizer.defaults == other.optimizer.defaults
    groups = zip(training.optimizer.param_groups, other.optimizer.param_groups, strict=True)
    assert all(ours.keys() == own.keys() for ours, own in groups)


@pytest.mark.parametrize(("optimizer", "options"), MOVABLE, ids=str)
def test_restore_gives_the_optimizer_its_own_flags_back(optimizer, options):
    training, moved = stepped(1, optimizer=optimizer, **options)
    before = dict(vars(training.optimizer))
    for form in FLAGS:
        move(moved, fused_optimizer=form)
    moved.restore()
    assert moved.settings["fused_optimizer"] == "single"
    assert vars(training.optimizer).keys() == before.keys()
    assert training.step().digest == Training(optimizer=optimizer, **options).step(2).digest
    assert (
        training.optimizer.defaults == Training(optimizer=optimizer, **options).optimizer.defaults
    )


def test_a_checkpoint_has_the_scripts_flags():
    training, moved = stepped(fused=None, foreach=True)
    own = training.optimizer.state_dict()["param_groups"]
    move(moved, fused_optimizer="fused")
    assert training.optimizer.state_dict()["param_groups"] == own
    assert flags(training.optimizer) == [FLAGS["fused"]]
    moved.restore()
    assert not training.optimizer._optimizer_state_dict_post_hooks
    assert not training.optimizer._optimizer_load_state_dict_post_hooks
    assert flags(training.optimizer) == [(None, True)]


def pickled(optimizer):
    return pickle.loads(pickle.dumps(optimizer))


def saved_whole(optimizer):
    torch.save(optimizer, file := io.BytesIO())
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copy_of", [copy.deepcopy, pickled, saved_whole])
def test_a_copy_steps_like_the_scripts_own_optimizer(copy_of):
    training = Training(fused=None, foreach=True).step()
    plain = Training(fused=None, foreach=True).step()
    move(training.levers(), fused_optimizer="fused")
    ours, own = copy_of(training.optimizer), copy_of(plain.optimizer)
    assert vars(ours).keys() == vars(own).keys()
    assert ours.defaults == own.defaults
    assert flags(ours) == [(None, True)]
    assert ours.state_dict()["state"].keys() == own.state_dict()["state"].keys()
    assert flags(training.optimizer) == [FLAGS["fused"]]
    for weight in (*ours.param_groups[0]["params"], *own.param_groups[0]["params"]):
        weight.grad = torch.ones_like(weight)
    ours.step()
    own.step()
    torch.testing.assert_close(ours.state_dict(), own.state_dict())


def test_a_shallow_copy_shares_groups_and_state_as_in_a_plain_run_and_is_put_back():
    training = Training(fused=None, foreach=True).step()
    early = copy.copy(training.optimizer)  # found at its steps, like the training's own
    moved = training.levers(optimizers=[training.optimizer, early])
    own = training.optimizer.state_dict()["param_groups"]
    move(moved, fused_optimizer="fused")
    move(moved, fused_optimizer="single")
    late = copy.copy(training.optimizer)
    for one in (early, late):
        assert one.param_groups is training.optimizer.param_groups
        assert one.state is training.optimizer.state
        assert one.state_dict()["param_groups"] == own
    late.step()
    moved.restore()
    assert early.defaults == late.defaults == Training(fused=None, foreach=True).optimizer.defaults
    assert flags(early) == flags(late) == [(None, True)]
    assert vars(late).keys() == vars(copy.copy(training.optimizer)).keys()
    assert not late._optimizer_state_dict_post_hooks


def test_a_shallow_copy_is_put_back_though_only_it_is_left():
    training, moved = stepped(fused=None, foreach=True)
    move(moved, fused_optimizer="fused")
    training.optimizer = copy.copy(training.optimizer)
    moved.restore()
    assert flags(training.optimizer) == [(None, True)]
    assert training.optimizer.defaults["fused"] is None


def test_a_state_loaded_meanwhile_is_moved_too_and_put_back():
    training = Training()
    saved = training.step().optimizer.state_dict()
    moved = training.levers()
    move(moved, fused_optimizer="fused")
    training.optimizer.load_state_dict(saved)
    assert flags(training.optimizer) == [FLAGS["fused"]]
    moved.restore()
    assert flags(training.optimizer) == [(None, None)]


def test_a_group_added_meanwhile_is_moved_too_and_put_back():
    training, moved = stepped()
    move(moved, fused_optimizer="fused")
    training.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    assert flags(training.optimizer) == [FLAGS["fused"]] * 2
    assert [g["fused"] for g in training.optimizer.state_dict()["param_groups"]] == [None] * 2
    moved.restore()
    assert flags(training.optimizer) == [(None, None)] * 2


def test_a_script_may_remove_groups_meanwhile():
    training = Training()
    training.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "foreach": True})
    moved = training.step().levers()
    move(moved, fused_optimizer="single")
    training.optimizer.state.clear()
    del training.optimizer.param_groups[0]
    assert [g["foreach"] for g in training.optimizer.state_dict()["param_groups"]] == [True]
    moved.restore()
    assert flags(training.optimizer) == [(None, True)]


def test_a_scaler_leaves_unscaling_only_to_the_fused_form():
    training, moved = stepped()
    for form, unscales in (("fused", True), ("foreach", False)):
        move(moved, fused_optimizer=form)
        assert training.optimizer._step_supports_amp_scaling is unscales


class _Lion(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})


def of_complex_weights():
    return Training(lambda: nn.ParameterList([torch.ones(2, dtype=torch.complex64)]), SGD)


def of_sparse_gradients():
    return Training(lambda: nn.Embedding(3, 2, sparse=True), SGD)


@pytest.mark.parametrize(
    ("training", "value", "why"),
    [
        (of_complex_weights, "fused", "its weights are not all real numbers"),
        (of_sparse_gradients, "fused", "its gradients are sparse"),
        (lambda: Training(optimizer=_Lion), "fused", "_Lion has no fused form"),
        (lambda: Training(optimizer=_Lion), "single", "_Lion has no fused form"),
        (lambda: Training(optimizer=RAdam), "fused", "RAdam has no fused form"),
        (lambda: Training(differentiable=True), "fused", "`fused` does not support `different"),
        (lambda: Training(differentiable=True), "foreach", "its steps are differentiable"),
    ],
)
def test_refusals_name_their_reason(training, value, why):
    kept = training()
    refuses(kept.levers(), f"fused_optimizer={value}: .*{why}", fused_optimizer=value)


def test_without_an_optimizer_none_is_offered():
    offer = offered(levers(nn.Linear(1, 1)))["fused_optimizer"]
    assert (offer.refusal, offer.default) == ("no optimizer was seen", "–")


@needs_cuda
def test_the_step_count_moves_to_the_gpu_and_back_and_is_saved_on_the_scripts_device():
    model = nn.Linear(2, 2).cuda()
    optimizer = Adam(model.parameters())
    moved = levers(model, optimizers=[optimizer], device="cuda")

    def step():
        model(torch.ones(2, 2, device="cuda")).sum().backward()
        optimizer.step()

    step()
    move(moved, fused_optimizer="fused")
    assert {state["step"].device.type for state in optimizer.state.values()} == {"cuda"}
    step()
    saved = optimizer.state_dict()["state"].values()
    assert {state["step"].device.type for state in saved} == {"cpu"}
    moved.restore()
    assert {state["step"].device.type for state in optimizer.state.values()} == {"cpu"}
    step()
    assert {state["step"].item() for state in optimizer.state.values()} == {3}
