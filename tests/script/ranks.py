"""Runs trainings of several ranks on gloo, and prints what each rank measured."""

import copy
import io
import json
import pickle
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
import torch._dynamo  # as the first optimizer does, but once for all ranks
from torch import distributed, multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from gpudash.metrics import phases_ms
from tests.script.toy import watched

RANKS = 3
SLOW = 1
STEPS = 12
DELAY_S = 0.05
"""Seconds; much longer than a step of these models."""
SHAPES = {}


def shape(function):
    SHAPES[function.__name__] = function
    return function


def on_cpu():
    """Return the mesh of all ranks. Without one, fully_shard takes a GPU if there is one."""
    return init_device_mesh("cpu", (distributed.get_world_size(),))


def late(where, here):
    """Sleep on the slow rank if the delay belongs here."""
    if where == here and distributed.get_rank() == SLOW:
        time.sleep(DELAY_S)


class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where):
        ctx.where = where
        late(where, "forward")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        late(ctx.where, "backward")
        return gradient, None


class Net(nn.Module):
    def __init__(self, where=None):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 2)
        self.where = where

    def forward(self, x):
        return self.three(Late.apply(self.two(self.one(x)).relu(), self.where))


class LateData(TensorDataset):
    def __init__(self, where):
        super().__init__(torch.randn(2 * STEPS, 8), torch.arange(2 * STEPS))
        self.where = where

    def __getitem__(self, index):
        late(self.where, "data" if index % 2 else "")  # once a batch
        return super().__getitem__(index)


class LateSGD(torch.optim.SGD):
    where = None

    def step(self, closure=None):
        late(self.where, "optimizer")
        return super().step(closure)


def train(toy, model, where=None, loss=lambda out: out.square().mean()):
    optimizer = LateSGD(model.parameters(), lr=1e-3)
    optimizer.where = where
    for x, _ in DataLoader(LateData(where), batch_size=2):
        optimizer.zero_grad()
        loss(model(x)).backward()
        optimizer.step()


def slow_in(toy, where):
    train(toy, DistributedDataParallel(Net(where)), where)


SHAPES |= {
    f"slow_in_{where}": partial(slow_in, where=where)
    for where in ("forward", "backward", "optimizer", "data")
}


@shape
def no_sync(toy):
    """Three of four backward passes send nothing; the slow rank is late in one of those."""
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(4 * STEPS):
        late("silent pass", "silent pass" if number % 4 == 0 else "")
        if number % 4 < 3:
            with model.no_sync():
                loss = model(torch.randn(1, 8)).mean()
            loss.backward()  # as DDP has it, it is the forward pass that says
        else:
            model(torch.randn(1, 8)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()


@shape
def sends_each_pass(toy):
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        for _ in range(2):
            model(torch.randn(1, 8)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


class Branches(Net):
    """Every other pass leaves out the layer whose gradient would be the last."""

    passes = 0

    def forward(self, x):
        self.passes += 1
        return (
            super().forward(x) if self.passes % 2 else self.three(self.two(x.repeat(1, 2)).relu())
        )


@shape
def branches(toy):
    train(toy, DistributedDataParallel(Branches(), find_unused_parameters=True))


@shape
def frozen(toy):
    model = Net()
    model.one.requires_grad_(requires_grad=False)
    train(toy, DistributedDataParallel(model))


@shape
def groups(toy):
    """Two optimizers, each with two groups."""
    model = DistributedDataParallel(Net())
    net = model.module
    optimizers = [
        torch.optim.SGD([{"params": [net.one.weight]}, {"params": [net.one.bias], "lr": 0.1}], 0.1),
        torch.optim.SGD([*net.two.parameters(), *net.three.parameters()], lr=1e-3),
    ]
    for _ in range(STEPS):
        model(torch.randn(1, 8)).mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


@shape
def buffers(toy):
    """DDP broadcasts rank 0's buffers before each forward pass."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    train(toy, DistributedDataParallel(model), loss=lambda out: out.mean())


@shape
def unwrapped(toy):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        model(torch.randn(1, 8)).mean().backward()
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad)
        optimizer.step()


@shape
def sharded(toy):
    from torch.distributed.fsdp import fully_shard

    model, mesh = Net("backward"), on_cpu()
    for layer in (model.one, model.two, model.three, model):
        fully_shard(layer, mesh=mesh)
    train(toy, model)


@shape
def gathered(toy):
    """The parameters of all ranks stay on the modules while the optimizer steps."""
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(Net(), mesh=on_cpu())
    model.set_reshard_after_backward(False)
    train(toy, model)


@shape
def compiled(toy):
    compiled = []
    also(toy, lambda: compiled.append(torch._dynamo.utils.counters["frames"]["total"]))
    train(toy, torch.compile(DistributedDataParallel(Net()), backend="eager"))
    return {"compiled": compiled}


def traces(model):
    """Return what gpudash has left on the parameters."""
    return [
        [hooks for hooks in (one._backward_hooks, one._post_accumulate_grad_hooks) if hooks]
        for one in model.parameters()
    ]


@shape
def left_alone(toy):
    """The model is saved and copied between steps."""
    model = DistributedDataParallel(Net())
    found = []
    also(
        toy,
        lambda: found.append(
            [*filter(None, traces(model)), b"gpudash" in pickle.dumps(model.module)]
        ),
    )
    train(toy, model)
    file = io.BytesIO()
    torch.save(model.module, file)
    found.append(
        [b"gpudash" in file.getvalue(), *filter(None, traces(copy.deepcopy(model.module)))]
    )
    return {"traces": [one for one in found if any(one)]}


@shape
def fails_in_backward(toy):
    """The last backward pass fails."""
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    train(toy, model)
    loss = model(torch.randn(1, 8)).mean()
    loss.register_hook(lambda _: 1 / 0)
    try:
        loss.backward()
    except ZeroDivisionError:
        return {"traces": [*filter(None, traces(model))], "error": "the script's own"}


def also(toy, action):
    """Run the action at each border too."""
    before = toy.at_border
    toy.at_border = lambda step: (before(step), action())


def look(toy, collectives, _step):
    """Measure every step, and read the collectives while the model exists."""
    toy.tracker.meter.clock.sample.every_s = 0.0
    collectives.append(toy.tracker.collectives())


def watched_shapes(shapes):
    """Train each with a tracker; return what it measured."""
    toy = watched()
    results = {}
    for name, shape in shapes.items():
        toy.clear()
        toy.tracker.reset()
        toy.tracker.meter.active = True
        collectives = []
        toy.at_border = partial(look, toy, collectives)
        torch.manual_seed(0)
        more = shape(toy) or {}
        toy.tracker.finish()
        toy.look()
        results[name] = more | {
            "steps": toy.tracker.meter.steps,
            "found": toy.founds[-1],
            "failures": toy.failures,
            "collectives": collectives[-1:],
            "data_ms": [one.values["data_ms"] for one in toy.records],
            "phases_ms": [found for one in toy.records if (found := phases_ms(one.values))],
            "parts_ms": [one.parts_ms for one in toy.records if one.parts_ms],
        }
        distributed.barrier()
    return results


def one_rank(rank, folder, ranks, run, shapes):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks
    )
    Path(folder, f"{rank}.json").write_text(json.dumps(run(shapes)))
    # the group outlives DDP, which as its last owner may wait for ever


def main(shapes, ranks, run=watched_shapes):
    """Print what `run` returns on each rank of these shapes, or of those that are named."""
    shapes = {name: shapes[name] for name in sys.argv[1:] or shapes}
    with tempfile.TemporaryDirectory() as folder:
        # forked: torch is imported once, and nothing of it runs before
        multiprocessing.start_processes(
            one_rank, (folder, ranks, run, shapes), ranks, start_method="fork"
        )
        print(json.dumps([json.loads(Path(folder, f"{n}.json").read_text()) for n in range(ranks)]))


if __name__ == "__main__":
    if not torch.cuda.device_count():  # with a GPU that begins CUDA, which no fork outlives
        torch.compile(torch.add, backend="eager")(torch.ones(1), 1)
    main(SHAPES, RANKS)
