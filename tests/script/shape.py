"""What trainings of many shapes have in common, and how the tests run them in one process."""

import time
from functools import wraps
from inspect import signature

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from gpudash.instrument import timestamps
from gpudash.instrument.clock import Clock
from gpudash.instrument.loss import HostLoss
from gpudash.metrics import phases_ms
from gpudash.script import batches, counting, declared, meter, passes, steps
from tests.script.toy import results, watched

SHAPES = {}
BATCH = torch.ones(8, 8)
ACTS_S = 0.005
"""How long a training acts before it learns."""
TICK_MS, SHORT_TICK_MS = 2.0, 0.001
"""Fake clocks move on by so much at each call: one for the tracker where steps are timed together,
one for all that measures where parts of a step take their time."""
LONG_S = 0.01
"""How long a slow part of a step takes."""
CALLS_A_BATCH = 20
"""Calls of the clock while a slow batch is made."""


class Passing:
    """A fake clock, the same on every machine: only calls and what is slow take time."""

    def __init__(self, tick_ms):
        self.tick_s, self.now_s = tick_ms / 1e3, 0.0

    def monotonic(self):
        self.now_s += self.tick_s
        return self.now_s

    process_time = monotonic

    def thread_time(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds

    def instruments(self, _device, phases):
        return Clock(timestamps.HostTimestamps(), phases, now=self.monotonic), HostLoss()


passing = time


def takes(seconds=LONG_S):
    """Let a slow part of a step take its time, by the fake clock if there is one."""
    passing.sleep(seconds)


def use(clock, *modules):
    """Have the tracker and these modules read this fake clock."""
    global passing  # noqa: PLW0603  # of this process
    passing = clock
    for module in (batches, counting, declared, meter, passes, steps, *modules):
        module.time = clock


def shape(steps, **more):
    """A shape that takes a model and its optimizer is handed new ones."""

    def decorate(function):
        run = with_model(function) if "model" in signature(function).parameters else function
        SHAPES[function.__name__] = (run, {"expected": steps, **more})
        return function

    return decorate


def shapes(steps, **runs):
    """Add these, which have so many steps each."""
    for name, run in runs.items():
        SHAPES[name] = (run, {"expected": steps})


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


def random_batch(samples=16):
    return torch.randn(samples, 8), torch.randint(2, (samples,))


def random_batches(count):
    return (random_batch() for _ in range(count))


def fit(model, optimizer, batches):
    for batch in batches:
        backward(model, batch)
        optimizer.step()


def with_model(function):
    return wraps(function)(lambda toy: function(toy, *made()))


def evaluate(model, batches=((BATCH, None),), lasts_s=0.0):
    """Evaluate the model."""
    model.eval()
    with torch.no_grad():
        for x, _ in batches:
            model(x)
            time.sleep(lasts_s)
    model.train()


def keeps_optimizers(name):
    """Return whether the optimizers stay in memory, where later trainings would wait for them."""
    return "compiled" in name or name.endswith("optimizer_in_backward")


def train(names, *, together=False, slowly=False):
    """Return the results of each shape.

    `together`: similar steps are timed together. `slowly`: parts of steps take their time.
    """
    toy = watched()
    if together:
        use(Passing(TICK_MS))
        meter.instruments = Passing(SHORT_TICK_MS).instruments
    if slowly:
        use(clock := Passing(SHORT_TICK_MS), timestamps)
        meter.instruments = clock.instruments
    cases = {name: SHAPES[name][0] for name in sorted(names, key=keeps_optimizers)}
    found = results(toy, cases, told, together=together)
    return {name: SHAPES[name][1] | one for name, one in found.items()}


def told(toy):
    return {
        "steps": toy.tracker.meter.steps,
        "found": toy.founds,
        "samples": toy.tracker.meter.samples,
        "feeds": toy.feeds,
        "complete": toy.complete,
        "borders": toy.borders,
        "closed": [one.step for one in toy.records],
        "asides": toy.asides,
        "failures": toy.failures,
        "reported_losses": toy.losses,
        "first_loss": toy.requested,
        "untimed": [one._asdict() for one in toy.untimed],
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
