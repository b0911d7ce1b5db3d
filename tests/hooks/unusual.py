"""What few scripts do, one after the other in one process; prints what came of it."""

import contextlib
import gc
import io
import json
import pickle
import threading
import weakref
from collections import deque

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from gpudash.hooks import tracker
from gpudash.hooks.found import NewestCall
from gpudash.hooks.levers import ScriptLevers
from tests.hooks.toy import watched

torch.set_num_threads(1)
CASES = {}
BATCH = torch.ones(8, 8)


def case(function):
    CASES[function.__name__] = function
    return function


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 8)
        self.two = nn.Linear(8, 2)

    def forward(self, x):
        return self.two(self.one(x).relu())


def loader(count=24):
    return DataLoader(TensorDataset(torch.ones(count, 8), torch.ones(count, dtype=torch.long)), 8)


def loss_of(model, x=BATCH, y=None):
    return functional.cross_entropy(model(x), torch.ones(8, dtype=torch.long) if y is None else y)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def fit(model, optimizer, batches=None):
    """Train for three steps."""
    for x, y in loader() if batches is None else batches:
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()


@case
def scripted(_toy):
    """The model is turned into TorchScript, and trained on."""
    model = Net()
    optimizer = sgd(model)
    fit(model, optimizer)
    saved = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Sequential(model)), saved)
    fit(model, optimizer)
    computed = torch.jit.load(io.BytesIO(saved.getvalue()))(BATCH)
    return {"shape": list(computed.shape), "holds_ours": b"gpudash" in saved.getvalue()}


@case
def pickled(_toy):
    """What is patched goes to a process that is spawned, as one that saves beside the training."""
    fit(model := Net(), sgd(model))
    patched = [torch.save, torch.autograd.backward, torch.amp.GradScaler.step]
    return {"same": [pickle.loads(pickle.dumps(one)) is one for one in patched]}


@case
def folds(toy):
    """Models one after the other, each freed before the next one is made."""

    def fold():
        model = Net()
        fit(model, sgd(model))
        return [root.name for root in toy.newest.roots if root.module is model]

    return {"roots": [fold() for _ in range(5)]}


class Weighted(nn.Module):
    """Gives an optimizer's groups where torch gives parameters."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def parameters(self, lr):
        return [{"params": [self.weight], "lr": lr}]


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Weighted()
        self.net = Net()
        self.parameters = {"depth": 2}

    def forward(self, x):
        return self.net(x) * self.inner.weight


class Both(torch.optim.Optimizer):
    """An optimizer that is one by name alone."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def zero_grad(self):
        for one in self.optimizers:
            one.zero_grad()

    def step(self):
        for one in self.optimizers:
            one.step()


@case
def own_parameters(_toy):
    """Modules with another `parameters` than torch's, one of them trained."""
    model = Named()
    fit(model, torch.optim.SGD(model.inner.parameters(lr=0.1)))
    return {}


@case
def optimizer_without_groups(_toy):
    model = Net()
    fit(model, Both(sgd(model.one), sgd(model.two)))
    return {}


@case
def closure_raises(_toy):
    """Once in ten steps, and the script goes on."""
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    for step in range(10):

        def closure(step=step):
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            if step == 3:
                raise ArithmeticError
            return loss

        with contextlib.suppress(ArithmeticError):
            optimizer.step(closure)
    return {}


@case
def step_raises(_toy):
    """Once in ten steps, where gradients come from no backward pass that is heard of."""
    model = Net()
    optimizer = sgd(model)
    for step in range(10):
        optimizer.zero_grad()
        weights = [*model.parameters()]
        gradients = torch.autograd.grad(loss_of(model), weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        optimizer.param_groups[0]["lr"] = "none" if step == 3 else 0.1
        with contextlib.suppress(Exception):
            optimizer.step()
    return {}


class Twice(torch.optim.SGD):
    def step(self):
        super().step()


@case
def step_of_the_base(toy):
    """Both are told by their class's hooks: it is one step, measured closely or not."""
    model = Net()
    toy.tracker.may_skip = True
    sgd(Net())  # hooks the base
    optimizer = Twice(model.parameters(), lr=0.1)
    for _ in range(4):
        fit(model, optimizer)
    return {}


@case
def loaders_of_an_epoch(toy):
    """Each epoch makes its loaders anew, and evaluates by functions alone."""
    model = Net()
    optimizer = sgd(model)
    for _ in range(4):
        fit(model, optimizer, loader())
        for x, _y in loader(16):
            functional.linear(x, model.one.weight)
    return {"evaluated_after": [step for why, step in toy.asides if why == "evaluation"]}


@case
def loader_of_another_thread(_toy):
    """Whose batches nobody trains on; the script lets go of it."""
    model = Net()
    optimizer = sgd(model)
    fit(model, optimizer)
    aside = loader()
    rows = weakref.ref(aside.dataset)
    thread = threading.Thread(target=deque, args=(aside, 0))
    thread.start()
    thread.join()
    del aside, thread
    return {"is_kept": rows() is not None}


def moved(toy):
    """Have a lever around the calls of what was found."""
    levers = ScriptLevers(toy.newest, toy.tracker.redirects)
    for root in toy.newest.roots:
        root.newest = NewestCall((BATCH,), {})
    levers.enter(levers.resolve({"precision": "bf16"}))


@case
def freed_with_a_lever(toy):
    """The script lets go of its model while a lever is around its calls."""
    model = Net()
    optimizer = sgd(model)
    fit(model, optimizer)
    moved(toy)
    fit(model, optimizer)
    gone = weakref.ref(model)
    gc.disable()
    del model, optimizer
    is_kept = gone() is not None
    gc.enable()
    return {"is_kept": is_kept}


@case
def outlived(_toy):
    """A shallow copy of a model's dictionary, which the model itself is gone from."""
    model, other = Net(), Net()
    fit(model, sgd(model))
    other.__dict__ = dict(model.__dict__)
    del model
    gc.collect()
    return {"shape": list(other(BATCH).shape)}


@case
def without_numbers(_toy):
    """On the meta device, as a script tries out shapes, and what else no number is read of."""
    model = Net().to("meta")
    fit(model, sgd(model), [(BATCH.to("meta"), torch.ones(8, dtype=torch.long, device="meta"))] * 3)
    model = Net()
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        model(BATCH).sum().reshape(1).to_sparse().backward(torch.ones(1).to_sparse())
        optimizer.step()
    for _ in range(3):
        optimizer.zero_grad()
        (model(BATCH).sum() * 1j).backward(torch.ones((), dtype=torch.complex64))
        optimizer.step()
    return {}


@case
def scaled(toy):
    """By a GradScaler, and then divided, as by scripts that accumulate."""
    model = Net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu")
    for step in range(6):
        loss = loss_of(model)
        backed = scaler.scale(loss)
        (backed / 2 if step % 2 else backed).backward()
        scaler.step(optimizer)
        scaler.update()
    toy.look()
    return {"losses": toy.losses}


@case
def thread_after_thread(_toy):
    """Each trains a model when the one before has ended; all live from the begin."""

    def trial(before):
        if before is not None:
            before.join()
        model = Net()
        fit(model, sgd(model))

    trials = [None]
    for _ in range(3):
        trials.append(threading.Thread(target=trial, args=(trials[-1],)))
    for one in trials[1:]:
        one.start()
    trials[-1].join()
    return {}


def main():
    toy = watched()
    tracker.LOSS_EVERY_S = 0.0  # each is kept
    told = {}
    for name, run in CASES.items():
        toy.clear()
        gc.collect()
        toy.tracker.begin_anew()
        toy.tracker.active, toy.tracker.may_skip = True, False
        more = run(toy)
        toy.tracker.finish()
        toy.look()
        told[name] = {
            "steps": toy.tracker.steps,
            "samples": toy.tracker.samples,
            "found": toy.founds,
            "failures": toy.failures,
            **more,
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
