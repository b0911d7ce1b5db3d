"""Trainings that a dashboard watches, stops watching, or looks at closely."""

import os

import torch
from torch import nn

from tests.script.shape import (
    backward,
    data,
    fit,
    made,
    random_batches,
    shape,
    shapes,
)
from tests.script.shapes_fed import loader


def switched_off(toy, until, **meanwhile):
    """Measure nothing from step 10 to that one."""

    def flip(step):
        if step in (10, until):
            toy.tracker.meter.active = step == until
            vars(toy.tracker.meter).update(meanwhile)

    toy.at_border, toy.tracker.meter.border_at = flip, 10
    fit(*made(), random_batches(40))
    toy.tracker.meter.closely_until = 0


shapes(
    40,
    switched_off_and_on=lambda toy: switched_off(toy, 20, border_at=20),
    # as in a block by the wall clock whose end must be seen, because batches come in bursts
    switched_off_and_looked_at_closely=lambda toy: switched_off(toy, 30, closely_until=30),
)


@shape(160, asked=[43, 97])
def borders_asked_for(toy, model, optimizer):
    toy.tracker.meter.border_at = 43
    for batch in data(160 * 8):
        backward(model, batch)
        if toy.borders and toy.borders[-1] == 43:
            toy.tracker.meter.border_at = 97
        optimizer.step()


def is_hooked(model):
    """Whether calls of the model and backward passes are."""
    return "_compiled_call_impl" in vars(model), hasattr(torch.autograd.backward, "__wrapped__")


def is_backward_hooked_in_child():
    read, write = os.pipe()
    if not os.fork():
        os.write(write, str(is_hooked(nn.Module())[1]).encode())
        os._exit(0)
    os.wait()
    return os.read(read, 8) == b"True"


@shape(40)
def hooks_in_and_out(toy, model, optimizer):
    at_borders, in_steps, in_children = [], [], set()
    toy.at_border = lambda _step: at_borders.append(is_hooked(model))
    for batch in data(40 * 8):
        in_steps.append(is_hooked(model))
        if not in_children and in_steps[-1] == (False, False):
            in_children.add(is_backward_hooked_in_child())
        backward(model, batch)
        optimizer.step()
    toy.tracker.finish()
    return {
        "at_borders": at_borders,
        "in_steps": in_steps,
        "in_children": [*in_children],
        "at_the_end": is_hooked(model),
    }


@shape(40)
def backward_of_another_tool(toy):
    ours, calls = torch.autograd.backward, []

    def theirs(*args, **kwargs):
        calls.append(1)
        return ours(*args, **kwargs)

    torch.autograd.backward = theirs
    loader(toy)
    model, optimizer = made()
    fit(model, optimizer, data(28 * 8))
    kept, torch.autograd.backward = torch.autograd.backward is theirs, ours
    return {"calls": len(calls), "kept": kept}


@shape(40)
def lever_on_calls(toy, model, optimizer):
    calls = []

    def put(step):
        if step == 10:
            toy.newest.roots[0].around = lambda call: calls.append(1) or call

    toy.at_border, toy.tracker.meter.border_at = put, 10
    fit(model, optimizer, data(40 * 8))
    return {"calls": len(calls)}
