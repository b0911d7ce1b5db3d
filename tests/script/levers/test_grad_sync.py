"""The lever `grad_sync`: weights as without it, and fewer averages. Two ranks on gloo."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from gpudash.levers.training_objects import Root
from tests.script.levers import averaging
from tests.script.levers.scripts import levers, move, offered, refuses

CHANGE = 1e-6
"""Of weights near one, by rounding alone."""
COMPARED = averaging.SHAPES.keys() - {"left_alone"}


@pytest.fixture(scope="module")
def results(results_of):
    return results_of("levers.averaging")


@pytest.mark.parametrize("shape", sorted(COMPARED))
def test_weights_and_buffers_are_those_without_the_lever(results, shape):
    for rank in results:
        assert rank[shape]["differs"] < CHANGE


@pytest.mark.parametrize("shape", averaging.SHAPES)
def test_all_ranks_average_in_the_same_passes(results, shape):
    one, other = (rank[shape].get("sent") for rank in results)
    assert one == other


def test_the_first_step_tells_how_many_passes_there_are_and_the_others_average_once(results):
    assert results[0]["alike"]["sent"] == [3, 3, 1, 1, 1, 1, 3, 3]


def test_of_more_passes_the_later_ones_are_averaged_and_after_fewer_no_pass_was(results):
    """Those are averaged between the passes and the optimizer, or before they are clipped."""
    changing = results[0]["changing"]
    assert changing["plain"] == [3, 3, 3, 5, 2, 1, 4, 3, 3, 1, 1, 3]
    assert changing["sent"] == [3, 3, 1, 3, 0, 0, 4, 0, 1, 0, 1, 3]


def test_nothing_of_it_is_left_on_what_is_saved_or_copied(results):
    assert [any(rank["left_alone"]["traces"]) for rank in results] == [False, False]


# ── where it is refused ─────────────────────────────────────────────────────────────────


def of(model, optimizer=None, **facts):
    """Return the levers of a root, which they keep, and its optimizer."""
    kept = SGD(model.parameters()) if optimizer is None else optimizer
    made = levers(model, **{"optimizers": [kept], "world_size": 2, "backwards": 4, **facts})
    made.root, made.kept = model, kept
    return made


def ddp(net=None, **options):
    return DistributedDataParallel(nn.Linear(4, 4) if net is None else net, **options)


@pytest.mark.usefixtures("group")
def test_it_takes_away_all_passes_but_one():
    moved = of(ddp())
    offer = offered(moved)["grad_sync"]
    assert (offer.default, offer.values, offer.share) == ("each", ("each", "last"), 0.75)
    assert offer.numerics
    move(moved, grad_sync="last")
    assert moved.settings["grad_sync"] == "last"
    move(moved, grad_sync="each")
    assert moved.settings["grad_sync"] == "each"


@pytest.mark.usefixtures("group")
def test_a_rank_does_not_put_it_back_alone():
    """The others would wait for averages that this one does not begin."""
    moved = of(ddp())
    move(moved, grad_sync="last")
    moved.restore()
    assert moved.settings["grad_sync"] == "last"


@pytest.mark.usefixtures("group")
def test_where_the_script_does_so_itself_there_is_nothing_to_move():
    moved = of(ddp(), averages=1)
    assert moved.settings["grad_sync"] == "last"
    refuses(moved, "the script averages them once a step already", grad_sync="each")


def with_a_hook():
    model = ddp()
    model.register_comm_hook(None, lambda _, bucket: bucket.buffer())
    return model


@pytest.mark.parametrize(
    ("model", "facts", "why"),
    [
        (ddp, {"world_size": 1}, "one process trains"),
        (ddp, {"backwards": 1}, "a step has one backward pass"),
        (ddp, {"backwards": None}, "not known, or varies"),
        (ddp, {"scaler": True}, "a GradScaler looks at gradients"),
        (ddp, {"optimizers": []}, "no optimizer was seen"),
        (lambda: nn.Linear(4, 4), {}, "the script calls no DistributedDataParallel"),
        (lambda: ddp(find_unused_parameters=True), {}, "it looks for weights"),
        (lambda: ddp(static_graph=True), {}, "its graph is static"),
        (lambda: ddp(nn.Embedding(4, 4, sparse=True)), {}, "its gradients are sparse"),
        (with_a_hook, {}, "a communication hook averages its gradients"),
    ],
)
@pytest.mark.usefixtures("group")
def test_refusals_name_their_reason(model, facts, why):
    refuses(of(model(), **facts), why, grad_sync="last")


@pytest.mark.usefixtures("group")
def test_a_compiled_call_of_ddp_is_a_reason_and_a_compiled_model_in_it_is_none():
    model = ddp(torch.compile(nn.Linear(4, 4), backend="eager"))
    root = Root(model)
    root.compiled = True
    optimizer = SGD(model.parameters())
    refuses(of(root, optimizer), "compiled already", grad_sync="last")
    move(of(model, optimizer), grad_sync="last")


@pytest.mark.usefixtures("group")
def test_a_second_model_is_a_reason():
    models = ddp(), ddp()
    optimizer = SGD(models[0].parameters())
    moved = levers(*models, optimizers=[optimizer], world_size=2, backwards=4)
    refuses(moved, "several models train", grad_sync="last")


@pytest.mark.usefixtures("group")
def test_an_optimizer_with_a_closure_averages_each_pass_again():
    moved = of(ddp())
    move(moved, grad_sync="last")
    moved.kept.step(lambda: moved.root(torch.ones(1, 4)).sum())
    assert moved.settings["grad_sync"] == "each"
