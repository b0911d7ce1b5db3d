"""What trainings of many shapes have in common, and how the tests run them in one process."""

import gc
import itertools
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from gpudash.metrics import phases_ms
from gpudash.script import batches, counting, patches, steps, tracker
from tests.script.toy import watched

torch.set_num_threads(1)
SHAPES = {}
ACTS_S = 0.005
"""How long a training acts before it learns."""
TICK_MS = 2.0
"""The fake clock moves on by so much at each call."""
CALLS_A_BATCH = 20
"""Calls of the clock while a slow batch is made."""


def shape(steps, **more):
    def decorate(function):
        SHAPES[function.__name__] = (function, {"expected": steps, **more})
        return function

    return decorate


class Net(nn.Module):
    def __init__(self, width=8, out=2):
        super().__init__()
        self.one = nn.Linear(8, width)
        self.norm = nn.BatchNorm1d(width)
        self.two = nn.Linear(width, out)

    def forward(self, x):
        return self.two(self.norm(self.one(x)).relu())


class Pair(nn.Module):
    """Like a LightningModule: the script calls `training_step`, which calls the children."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"encoder": Net(out=8), "decoder": Net()})

    def training_step(self, batch):
        x, y = batch
        return functional.cross_entropy(self.inner["decoder"](self.inner["encoder"](x)), y)


def data(count=48, batch=8):
    torch.manual_seed(0)
    return DataLoader(TensorDataset(torch.randn(count, 8), torch.randint(2, (count,))), batch)


def made(width=8):
    torch.manual_seed(0)
    model = Net(width)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def backward(model, batch):
    x, y = batch
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    return loss


def keeps_optimizers(name):
    """Return whether the optimizers stay in memory, where later trainings would wait for them."""
    return "compiled" in name or name.endswith("optimizer_in_backward")


def train(names, *, together=False):
    """Return the results of each shape; `together`: similar steps are timed together."""
    toy = watched()
    toy.tracker.may_skip = together
    if together:  # a fake clock, the same on every machine
        passing = SimpleNamespace(monotonic=itertools.count(step=TICK_MS / 1e3).__next__)
        for module in (batches, counting, patches, steps, tracker):
            module.time = passing
    results = {}
    for name in sorted(names, key=keeps_optimizers):
        run, expected = SHAPES[name]
        toy.clear()
        gc.collect()
        toy.tracker.reset()
        toy.tracker.active = True
        torch.compiler.reset()
        if torch._dynamo.utils:
            torch._dynamo.utils.counters.clear()
        more = run(toy) or {}
        toy.tracker.finish()
        if toy.tracker.clock is not None:
            toy.look()
        results[name] = (
            expected
            | more
            | {
                "steps": toy.tracker.steps,
                "found": toy.founds,
                "samples": toy.tracker.samples,
                "feeds": toy.feeds,
                "borders": toy.borders,
                "closed": toy.closed,
                "asides": toy.asides,
                "failures": toy.failures,
                "reported_losses": toy.losses,
                "records": [
                    {
                        **{
                            name: getattr(one, name)
                            for name in ("step", "count", "step_ms", "samples", "tokens")
                        },
                        **one.values,
                        "phases_ms": phases_ms(one.values),
                    }
                    for one in toy.records
                ],
            }
        )
    return results
