"""Trainings whose models, functions or optimizers are compiled."""

import time

import torch
from torch import nn
from torch.nn import functional

from gpudash.instrument.guard import OURS
from tests.script.shape import Pair, backward, data, fit, made, shape


@shape(12)
def compiled_child(toy):
    model = Pair()
    model.inner["encoder"] = torch.compile(model.inner["encoder"], backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for batch in data():
            model.training_step(batch).backward()
            optimizer.step()
            time.sleep(0.02)
    return {"recompiles": count_compiled()}


@shape(12)
def compiled(toy):
    model, optimizer = made()
    fast = torch.compile(model, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        fit(fast, optimizer, data())
    return {"recompiles": count_compiled()}


@shape(12)
def compiled_in_place(toy, model, optimizer):
    for number, batch in enumerate([*data(), *data()]):
        if number == 3:
            model.compile(backend="eager", fullgraph=True)
        backward(model, batch)
        optimizer.step()
    return {"recompiles": count_compiled()}


@shape(12)
def compiled_function(toy, model, optimizer):
    frozen = nn.Dropout().eval()

    @torch.compile(backend="eager", fullgraph=True)
    def loss_of(x, y):
        frozen.eval()  # in each call, as some do
        return functional.cross_entropy(model(frozen(x)), y)

    for _ in range(2):
        for batch in data():
            loss_of(*batch).backward()
            optimizer.step()
    return {"recompiles": count_compiled()}


@shape(16)
def backward_in_fast_code(toy, model, optimizer):

    @torch.compile(backend="eager")
    def learn(x, y):
        functional.cross_entropy(model(x), y).backward()

    for batch in data(128):
        learn(*batch)
        optimizer.step()
    return {"graphs": count_compiled()}


@shape(40)
def all_in_fast_code(toy, model, optimizer):
    """Without a dashboard from step 3 to step 30."""

    def flip(step):
        if step in (3, 30):
            toy.tracker.meter.active, toy.tracker.meter.border_at = step == 30, 30

    @torch.compile(backend="eager")
    def learn(waiting):
        backward(model, next(waiting))
        optimizer.step()

    toy.at_border, toy.tracker.meter.border_at = flip, 3
    waiting = iter(data(8 * 40))
    for _ in range(40):
        learn(waiting)
    codes = [code() for code in torch._dynamo.convert_frame.input_codes.seen]
    return {"ours": [one.co_name for one in codes if one.co_filename.startswith(OURS)]}


@shape(12)
def compiled_optimizer(toy, model, optimizer):

    @torch.compile(backend="eager")
    def step():
        optimizer.step()

    for _ in range(2):
        for batch in data():
            backward(model, batch)
            step()
    return {"recompiles": count_compiled()}


def count_compiled():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"], sum(
        torch._dynamo.utils.counters["graph_break"].values()
    )
