"""Runs unusual trainings in one process, and prints the results."""

import contextlib
import gc
import io
import pickle
import queue
import threading
import traceback
import weakref
from collections import deque
from itertools import islice

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from gpudash.levers.script_levers import ScriptLevers
from gpudash.levers.training_objects import NewestCall
from tests.script.toy import Cases

CASES = Cases()
"""`line` is within the newest findings."""
BATCH = torch.ones(8, 8)
OTHERS = "another thread trains too: its steps are not counted"


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


def trained():
    """Return a model after three steps, and its optimizer."""
    model = Net()
    fit(model, optimizer := sgd(model))
    return model, optimizer


@CASES.case(steps=6, shape=[8, 2], holds_ours=False)
def scripted(_toy):
    """The model is turned into TorchScript, and training goes on."""
    model, optimizer = trained()
    saved = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Sequential(model)), saved)
    fit(model, optimizer)
    computed = torch.jit.load(io.BytesIO(saved.getvalue()))(BATCH)
    return {"shape": list(computed.shape), "holds_ours": b"gpudash" in saved.getvalue()}


@CASES.case(same=[True, True, True])
def pickled(_toy):
    """A patched function is pickled for a spawned process, such as one that saves checkpoints."""
    trained()
    patched = [torch.save, torch.autograd.backward, torch.amp.GradScaler.step]
    return {"same": [pickle.loads(pickle.dumps(one)) is one for one in patched]}


class Weighted(nn.Module):
    """Overrides `parameters` with an optimizer's groups."""

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
    """An optimizer that only wraps others."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def zero_grad(self):
        for one in self.optimizers:
            one.zero_grad()

    def step(self):
        for one in self.optimizers:
            one.step()


@CASES.case(steps=3, line="root Named")
def own_parameters(_toy):
    """Modules that override `parameters`, one of them trained."""
    model = Named()
    fit(model, torch.optim.SGD(model.inner.parameters(lr=0.1)))


@CASES.case(steps=3, line="2 × SGD, root Net")
def optimizer_without_groups(_toy):
    model = Net()
    fit(model, Both(sgd(model.one), sgd(model.two)))


@CASES.case(steps=9)
def closure_raises(_toy):
    """The closure raises once in ten steps, and the script goes on."""
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


@CASES.case(steps=9)
def step_raises(_toy):
    """The step raises once in ten, where gradients come without a hooked backward pass."""
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


class Twice(torch.optim.SGD):
    def step(self):
        super().step()


@CASES.case(steps=12)
def step_of_the_base(toy):
    """Both steps call hooks, but count as one, measured in full or not."""
    model = Net()
    toy.tracker.meter.may_skip = True
    sgd(Net())  # hooks the base
    optimizer = Twice(model.parameters(), lr=0.1)
    for _ in range(4):
        fit(model, optimizer)


@CASES.case(evaluated_after=[3, 6, 9, 12])
def loaders_of_an_epoch(toy):
    """Each epoch makes new loaders, and evaluates with functions only."""
    model = Net()
    optimizer = sgd(model)
    for _ in range(4):
        fit(model, optimizer, loader())
        for x, _y in loader(16):
            functional.linear(x, model.one.weight)
    return {"evaluated_after": [step for why, step in toy.asides if why == "evaluation"]}


@CASES.case(is_kept=False)
def loader_of_another_thread(_toy):
    """Another thread exhausts a loader, and the script releases it."""
    _kept = trained()
    aside = loader()
    rows = weakref.ref(aside.dataset)
    thread = threading.Thread(target=deque, args=(aside, 0))
    thread.start()
    thread.join()
    del aside, thread
    return {"is_kept": rows() is not None}


def moved(toy):
    """Put a lever around the calls of the roots."""
    levers = ScriptLevers(toy.newest, toy.tracker.meter.redirects)
    for root in toy.newest.roots:
        root.newest = NewestCall((BATCH,), {})
    levers.enter(levers.resolve({"precision": "bf16"}))


@CASES.case(is_kept=False)
def freed_with_a_lever(toy):
    """The script releases its model while a lever is around its calls."""
    model, optimizer = trained()
    moved(toy)
    fit(model, optimizer)
    gone = weakref.ref(model)
    gc.disable()
    del model, optimizer
    is_kept = gone() is not None
    gc.enable()
    return {"is_kept": is_kept}


@CASES.case(shape=[8, 2])
def outlived(_toy):
    """A shallow copy of a model's dictionary outlives the model."""
    (model, _), other = trained(), Net()
    other.__dict__ = dict(model.__dict__)
    del model
    gc.collect()
    return {"shape": list(other(BATCH).shape)}


@CASES.case(steps=9)
def without_numbers(_toy):
    """Losses that are no real number, such as those on the meta device."""
    model = Net().to("meta")
    fit(model, sgd(model), [(BATCH.to("meta"), torch.ones(8, dtype=torch.long, device="meta"))] * 3)
    model = Net()
    optimizer = sgd(model)
    for _ in range(3):
        model(BATCH).sum().reshape(1).to_sparse().backward(torch.ones(1).to_sparse())
        optimizer.step()
        (model(BATCH).sum() * 1j).backward(torch.ones((), dtype=torch.complex64))
        optimizer.step()


@CASES.case(steps=6, has_loss=[False, True, False, True, False])
def scaled(toy):
    """A GradScaler scales the loss, which is then divided for accumulation."""
    model = Net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu")
    for step in range(6):
        loss = loss_of(model)
        backed = scaler.scale(loss)
        (backed / 2 if step % 2 else backed).backward()
        scaler.step(optimizer)
        scaler.update()
    toy.look()
    return {"has_loss": [loss is not None for loss in toy.losses]}


@CASES.case(steps=9)
def thread_after_thread(_toy):
    """Threads that all live from the start, and train one after the other."""

    begun = threading.Event()

    def trial(before):
        begun.wait()  # else a later thread could reuse the identity of an ended one
        if before is not None:
            before.join()
        trained()

    trials = [None]
    for _ in range(3):
        trials.append(threading.Thread(target=trial, args=(trials[-1],)))
    for one in trials[1:]:
        one.start()
    begun.set()
    trials[-1].join()


class Beside:
    """A second thread that trains its own model on request."""

    def __init__(self):
        self._model = Net()
        self._optimizer = sgd(self._model)
        self._asked, self._done = queue.Queue(), queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while (batches := self._asked.get()) is not None:
            fit(self._model, self._optimizer, batches)
            self._done.put(None)

    def fit(self, steps):
        """Let the thread train, and wait for it."""
        self._asked.put([(BATCH, torch.ones(8, dtype=torch.long))] * steps)
        self._done.get()

    def end(self):
        self._asked.put(None)


@CASES.case(
    steps=9, line=f"SGD, root Net, 1 backward pass a step, DataLoader with 0 workers, {OTHERS}"
)
def two_threads(_toy):
    """Two threads take turns, also while the first is in a backward pass."""
    model, beside = Net(), Beside()
    optimizer = sgd(model)
    fit(model, optimizer)
    beside.fit(2)
    model.one.weight.register_hook(lambda _: beside.fit(2))
    fit(model, optimizer)
    fit(model, optimizer)
    beside.end()


@CASES.case(line=OTHERS)
def another_thread_goes_on(_toy):
    """The first thread trains three steps and then only waits."""
    beside = Beside()
    trained()
    beside.fit(20)
    beside.end()


@CASES.case(is_root=[True], is_kept=False)
def frozen(toy):
    """The script calls `gc.freeze`."""
    model, beside = Net(), nn.Linear(2, 1)
    optimizer = sgd(model)
    gc.freeze()
    fit(model, optimizer)
    is_root = [root.module is model for root in toy.newest.roots]
    gone = weakref.ref(beside)
    del beside
    return {"is_root": is_root, "is_kept": gone() is not None}


class Orders(list):
    """Indices of batches that record which frames ask for them."""

    def __iter__(self):
        self.stack = [frame.filename for frame in traceback.extract_stack()]
        return super().__iter__()


@CASES.case(ours=[])
def iterator_made(_toy):
    """Warnings find their line by a number of frames, so we must add none."""
    model, orders = Net(), Orders([[0, 1], [2, 3]])
    rows = TensorDataset(torch.ones(8, 8), torch.ones(8, dtype=torch.long))
    fit(
        model,
        sgd(model),
        [(x.repeat(4, 1), y.repeat(4)) for x, y in DataLoader(rows, batch_sampler=orders)],
    )
    return {"ours": [name for name in orders.stack if "gpudash/hooks" in name]}


class Reordered(_SingleProcessDataLoaderIter):
    """Takes the loader as a keyword argument."""

    def __init__(self, epoch, *, of):
        self.epoch = epoch
        super().__init__(of)


class Made(_SingleProcessDataLoaderIter):
    """Has a `__new__` that passes nothing on."""

    def __new__(cls, _loader):
        return super().__new__(cls)


class Remembering(_SingleProcessDataLoaderIter, dict):
    """Has a base class with memory of its own."""

    __hash__ = object.__hash__


@CASES.case(steps=9, line="DataLoader")
def iterators_of_the_scripts_own(_toy):
    model, batches = Net(), loader()
    optimizer = sgd(model)
    fit(model, optimizer, Reordered(1, of=batches))
    fit(model, optimizer, Made(batches))
    fit(model, optimizer, Remembering(batches))


@CASES.case(line="SGD, root Net, ", called=[True])
def begun_anew(toy):
    """As in a forked child: training goes on with a model that is already hooked."""
    model, optimizer = trained()
    toy.tracker.reset()
    toy.tracker.meter.may_skip = False
    fit(model, optimizer)
    fit(model, optimizer)
    return {"called": [root.was_called for root in toy.newest.roots]}


@CASES.case(news=1, autocasts=["torch.bfloat16"])
def autocast_later(toy):
    """The script begins to use an autocast."""
    model = Net()
    optimizer = sgd(model)
    batches = iter(loader(8 * 40))
    fit(model, optimizer, islice(batches, 20))
    before = len(toy.founds)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fit(model, optimizer, batches)
    autocasts = [str(root.autocast) for root in toy.newest.roots]
    return {"news": len(toy.founds) - before, "autocasts": autocasts}


def told(toy):
    return {
        "steps": toy.tracker.meter.steps,
        "samples": toy.tracker.meter.samples,
        "found": toy.founds,
        "failures": toy.failures,
    }


if __name__ == "__main__":
    CASES.main(told)
