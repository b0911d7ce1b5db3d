"""Trainings of all other shapes, and in `SHAPES` those of all modules of shapes."""

import copy
import gc
import io
import pickle
import signal
import sys
import time
import traceback
import types
import weakref
from pathlib import Path
from threading import get_ident

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from gpudash.instrument.guard import OURS
from gpudash.script import counting, patches, tracker
from tests.script import (  # noqa: F401  # they add theirs
    shapes_compiled,
    shapes_fed,
    shapes_libraries,
    shapes_optimizers,
    shapes_watched,
)
from tests.script.shape import (
    ACTS_S,
    SHAPES,  # noqa: F401  # tests read it here
    Net,
    Pair,
    backward,
    data,
    evaluate,
    fit,
    made,
    random_batch,
    random_batches,
    shape,
)
from tests.script.shapes_optimizers import critics, no_optimizer


@shape(10)
def no_loader(toy, model, optimizer):
    losses = []
    for _ in range(10):
        losses.append(backward(model, random_batch()).item())
        optimizer.step()
    return {"losses": losses}


@shape(18)
def evaluation_and_checkpoint(toy, model, optimizer):
    batches, others = data(), data(16)
    for _ in range(3):
        fit(model, optimizer, batches)
        evaluate(model, others, lasts_s=0.05)
        torch.save(model.state_dict(), io.BytesIO())


@shape(12)
def validates_before_its_first_step(toy, model, optimizer):
    """As Lightning does, to see early whether a validation fails."""
    with torch.no_grad():
        for x, _ in data(16):
            model(x)
    fit(model, optimizer, data(96))


FLUSHES_S = 1.0
"""Longer by far than a step, on a busy machine too."""


@shape(10)
def flushes_a_checkpoint(toy, model, optimizer):
    fit(model, optimizer, random_batches(5))
    torch.save(model.state_dict(), io.BytesIO())
    time.sleep(FLUSHES_S)
    fit(model, optimizer, random_batches(5))


def fails_once_trained(toy, steps):
    def failing(*args):
        if toy.tracker.meter.steps < steps:
            return begins(*args)
        tracker.HANDLERS["forward: begins"] = begins
        raise ZeroDivisionError("ours")

    begins, tracker.HANDLERS["forward: begins"] = tracker.HANDLERS["forward: begins"], failing


def what_failed(toy):
    failures, toy.failures = toy.failures, []
    return {"results": failures}


@shape(6)
def a_hook_fails(toy):
    fails_once_trained(toy, 6)
    critics(Net(out=8), Net(), data(96))
    return what_failed(toy)


@shape(12)
def a_hook_fails_bare(toy):
    fails_once_trained(toy, 12)
    no_optimizer(toy)
    return what_failed(toy)


@shape(6)
def copied_for_another_device(toy, model, optimizer):
    """As in `nn.parallel.replicate`."""
    copied = Net.__new__(Net)
    fit(model, optimizer, data())
    copied.__dict__ = model.__dict__.copy()
    copied._modules = model._modules | {"two": nn.Linear(8, 2)}
    x, _ = random_batch()
    return {"own": torch.equal(copied(x), Net.forward(copied, x))}


@shape(6)
def forgotten(toy):
    model, optimizer = made()
    model.compile(backend="eager")
    fit(model, optimizer, data())
    kept = [weakref.ref(one) for one in (model, optimizer)]
    del model, optimizer
    torch.compiler.reset()
    gc.collect()
    return {"kept": [one() is not None for one in kept]}


def files_of(run, *args):
    try:
        run(*args)
    except BaseException as error:  # noqa: BLE001  # whatever the script would see
        frames = traceback.extract_tb(error.__traceback__)
        return [Path(frame.filename).parts[-3:-1] for frame in frames]


@shape(8)
def exceptions(toy, model, optimizer):
    fit(model, optimizer, data(64))

    def interrupt(*_):
        raise KeyboardInterrupt

    iterator = iter(DataLoader(TensorDataset(torch.randn(2, 8)), collate_fn=interrupt))
    unsaved = types.SimpleNamespace(__reduce__=interrupt)
    frames = [
        *files_of(model, torch.ones(8, 3)),
        *files_of(torch.ones(2, requires_grad=True).backward),
        *files_of(next, iterator),
        *files_of(torch.save, unsaved, "/nonexistent/file"),
    ]
    return {"frames": frames}


def hooked_in(model):
    modules = model.named_modules()
    return {"hooked": [name for name, one in modules if "_compiled_call_impl" in vars(one)]}


@shape(12)
def children_called(toy):
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for batch in data():
            model.training_step(batch).backward()
            optimizer.step()
            time.sleep(0.02)
    return hooked_in(model)


@shape(12)
def nobody_called(toy):
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for x, y in data():
            functional.cross_entropy(x @ model.inner["decoder"].two.weight.t(), y).backward()
            optimizer.step()
    return hooked_in(model)


@shape(20)
def evaluation_without_a_loader(toy, model, optimizer):
    for _ in range(4):
        evaluate(model, lasts_s=0.02)
        fit(model, optimizer, random_batches(5))


@shape(20)
def compares_in_some_steps(toy, model, optimizer):
    """Some steps call the model without gradients too, which is no evaluation."""
    for number in range(20):
        loss = functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(2, (16,)))
        if number % 4 == 3:
            with torch.no_grad():
                model(torch.randn(16, 8))
        loss.backward()
        optimizer.step()


@shape(12)
def compares_in_each_step(toy, model, optimizer):
    for x, y in data(96):
        loss = functional.cross_entropy(model(x), y)
        with torch.no_grad():
            model(x)
        loss.backward()
        optimizer.step()


class StoppedError(Exception):
    """Raised by the script's signal handler."""


@shape(40)
def stopped_by_signals(toy):
    """A signal comes once in each function that counts plain steps, where there are such steps."""

    def handler(_number, _frame):
        raise StoppedError

    def interrupted():
        if moments and sys._getframe(1).f_code.co_name == moments[0]:
            moments.pop(0)
            signal.raise_signal(signal.SIGUSR1)
        return get_ident()

    moments = ["hooked", "count_backward", "before", "after"]  # the first: a batch
    before = signal.signal(signal.SIGUSR1, handler)
    counting.get_ident = patches.get_ident = interrupted
    stopped, seen = 0, []
    model, optimizer = made()
    waiting = iter(data(8 * 44))
    for _ in range(40):
        try:
            backward(model, next(waiting))
            optimizer.step()
        except StoppedError as error:
            stopped += 1
            seen += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    signal.signal(signal.SIGUSR1, before)
    counting.get_ident = patches.get_ident = get_ident
    ours = [name for name in seen if name.startswith(OURS)]
    return {"expected": 40 - stopped, "stopped": stopped, "ours": ours}


@shape(20)
def acts_before_it_learns(toy, model, optimizer):
    for _ in range(20):
        with torch.no_grad():
            model(torch.randn(4, 8))
            time.sleep(ACTS_S)
        backward(model, random_batch())
        optimizer.step()


@shape(10)
def saved_whole(toy):
    model, optimizer = made()
    fit(model, optimizer, random_batches(6))
    torch.save(model, saved := io.BytesIO())
    pickled = pickle.dumps((model, optimizer, copy.deepcopy(model)))
    fit(model, optimizer, random_batches(4))
    pickled += pickle.dumps({**model.__dict__})
    ours = [b"gpudash" in one for one in (saved.getvalue(), pickled)]
    return {"holds_ours": ours, "copy": copy.deepcopy(model).__dict__.get("_compiled_call_impl")}


@shape(20)
def a_graph_replayed(toy, model, optimizer):
    """Calls the patches of `torch.cuda.CUDAGraph` without a GPU."""
    batch = random_batch()
    fit(model, optimizer, [batch] * 3)
    graph, idle = torch.nn.Identity(), torch.nn.Identity()
    for one, run in (
        (graph, lambda: fit(model, optimizer, [batch])),
        (idle, lambda: model(batch[0])),
    ):
        toy.tracker.tell("CUDA graph: capture begins")
        run()
        toy.tracker.tell("CUDA graph: capture ends", one)
    for _ in range(17):
        assert not toy.tracker.tell("CUDA graph: replay begins", idle)
        assert toy.tracker.tell("CUDA graph: replay begins", graph)
        toy.tracker.tell("CUDA graph: replay ends", graph)


@shape(45)
def closure_that_evaluates(toy, model, optimizer):
    """Comes after plain steps of the same optimizer."""
    batch = random_batch()

    def closure():
        with torch.no_grad():
            model(batch[0])
        optimizer.zero_grad()
        return backward(model, batch)

    fit(model, optimizer, [batch] * 40)
    for _ in range(5):
        optimizer.step(closure)


@shape(40)
def attributed(toy):
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(40 * 64, 256), torch.randint(8, (40 * 64,)))
    for x, y in DataLoader(rows, 64):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        time.sleep(0.01)  # on a busy machine a step without a loss of its cores is among them


@shape(8)
def step_takes_a_number(toy):
    class Scaled(torch.optim.SGD):
        def step(self, factor):
            for group in self.param_groups:
                group["lr"] = 0.01 * factor
            super().step()

    model, _ = made()
    optimizer = Scaled(model.parameters())
    for batch in data(64):
        backward(model, batch)
        optimizer.step(2)
