"""Runs trainings of many shapes in one process, and returns what the tracker found."""

import copy
import gc
import io
import itertools
import os
import pickle
import signal
import sys
import time
import traceback
import types
import weakref
from contextlib import nullcontext
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, default_collate

from gpudash.instrument.guard import OURS
from gpudash.metrics import phases_ms
from gpudash.script import batches, counting, explicit, patches, steps, tracker
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


@shape(12)
def loader(toy):
    model, optimizer = made()
    batches = data()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    losses = []
    for _ in range(2):
        for batch in batches:
            optimizer.zero_grad()
            losses.append(backward(model, batch).item())
            optimizer.step()
            scheduler.step()
    return {"losses": losses}


@shape(60)
def loader_left_within_an_epoch(toy):
    model, optimizer = made()
    for number, batch in enumerate(data()):
        backward(model, batch)
        optimizer.step()
        if number == 4:
            break
    for _ in range(55):
        backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
        optimizer.step()


@shape(10)
def no_loader(toy):
    model, optimizer = made()
    losses = []
    for _ in range(10):
        losses.append(backward(model, (torch.randn(16, 8), torch.randint(2, (16,)))).item())
        optimizer.step()
    return {"losses": losses}


@shape(6)
def accumulation(toy):
    model, optimizer = made()
    for number, batch in enumerate(data(24 * 8), 1):
        backward(model, batch)
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def critics(generator, critic, batches, every=1, *, freeze=False):
    ones = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    for number, (x, _) in enumerate(batches, 1):
        fake = generator(torch.randn(8, 8))
        if freeze:
            with torch.no_grad():
                fake = generator(torch.randn(8, 8))
        ones[0].zero_grad()
        (critic(x).mean() - critic(fake.detach()).mean()).backward()
        ones[0].step()
        if number % every == 0:
            ones[1].zero_grad()
            critic(generator(torch.randn(8, 8))).mean().backward()
            ones[1].step()


@shape(12)
def gan(toy):
    critics(Net(out=8), Net(), data(96))


@shape(30)
def critic_five_times(toy):
    critics(Net(out=8), Net(), data(30 * 8), every=5)


@shape(12)
def gan_with_frozen_generator(toy):
    critics(Net(out=8), Net(), data(96), freeze=True)


@shape(5)
def lbfgs(toy):
    model, _ = made()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x, y = torch.randn(32, 8), torch.randint(2, (32,))

    def closure():
        optimizer.zero_grad()
        return backward(model, (x, y))

    for _ in range(5):
        optimizer.step(closure)


@shape(6)
def scaler(toy):
    model, optimizer = made()
    grad_scaler = torch.amp.GradScaler("cpu")
    losses = []
    for number, (x, y) in enumerate(data()):
        loss = functional.cross_entropy(model(x), y)
        losses.append(loss.item())
        grad_scaler.scale(loss * (float("inf") if number in (1, 3) else 1)).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()
        optimizer.zero_grad()
    return {"losses": losses}


@shape(8)
def optimizer_in_backward(toy):
    model, _ = made()
    ones = {one: torch.optim.SGD([one], lr=0.01) for one in model.parameters()}

    def step(parameter):
        ones[parameter].step()
        ones[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for batch in data(64):
        backward(model, batch)


@shape(12)
def one_optimizer_in_backward(toy):
    model, optimizer = made()

    def step(_parameter):
        optimizer.step()
        optimizer.zero_grad()

    model.one.weight.register_post_accumulate_grad_hook(step)  # whose gradient is among the last
    for batch in data(96):
        backward(model, batch)


@shape(20)
def no_optimizer(toy):
    model, optimizer = made()
    del optimizer
    for batch in data(160):
        model.zero_grad()
        backward(model, batch)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.01 * parameter.grad)


@shape(18)
def evaluation_and_checkpoint(toy):
    model, optimizer = made()
    batches, held_out = data(), data(16)
    for _ in range(3):
        model.train()
        for batch in batches:
            backward(model, batch)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, _ in held_out:
                model(x)
                time.sleep(0.05)
        torch.save(model.state_dict(), io.BytesIO())


@shape(10)
def works_after_a_checkpoint(toy):
    model, optimizer = made()
    for number in range(10):
        backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
        optimizer.step()
        if number == 4:
            torch.save(model.state_dict(), io.BytesIO())
            time.sleep(0.02)


def fails_once_trained(toy, steps):
    def fail(step):
        if step == steps:
            toy.at_border, toy.tracker.called = lambda _step: None, failing

    def failing(*args):
        del toy.tracker.called
        toy.tracker.fail("forward", ZeroDivisionError("ours"))
        return False

    toy.at_border = fail


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
def copied_for_another_device(toy):
    """As in `nn.parallel.replicate`."""
    model, optimizer = made()
    copied = Net.__new__(Net)
    for batch in data():
        backward(model, batch)
        optimizer.step()
    copied.__dict__ = model.__dict__.copy()
    copied._modules = model._modules | {"two": nn.Linear(8, 2)}
    computed = copied(batch[0])
    return {"own": torch.equal(computed, Net.forward(copied, batch[0]))}


@shape(6)
def forgotten(toy):
    model, optimizer = made()
    model.compile(backend="eager")
    for batch in data():
        backward(model, batch)
        optimizer.step()
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
def exceptions(toy):
    model, optimizer = made()
    for batch in data(64):
        backward(model, batch)
        optimizer.step()

    def interrupt(*_):
        raise KeyboardInterrupt

    rows = TensorDataset(torch.randn(2, 8))
    iterator = iter(DataLoader(rows, collate_fn=interrupt))
    unsaved = types.SimpleNamespace(__reduce__=interrupt)
    frames = [
        *files_of(model, batch[0][:, :3]),
        *files_of(torch.ones(2, requires_grad=True).backward),
        *files_of(next, iterator),
        *files_of(torch.save, unsaved, "/nonexistent/file"),
    ]
    return {"frames": frames}


class Pair(nn.Module):
    """Like a LightningModule: the script calls `training_step`, which calls the children."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"encoder": Net(out=8), "decoder": Net()})

    def training_step(self, batch):
        x, y = batch
        return functional.cross_entropy(self.inner["decoder"](self.inner["encoder"](x)), y)


@shape(12)
def children_called(toy):
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for batch in data():
            model.training_step(batch).backward()
            optimizer.step()
            time.sleep(0.02)
    hooked = [name for name, one in model.named_modules() if "_compiled_call_impl" in vars(one)]
    return {"hooked": hooked}


@shape(12)
def nobody_called(toy):
    model = Pair()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for x, y in data():
            functional.cross_entropy(x @ model.inner["decoder"].two.weight.t(), y).backward()
            optimizer.step()
    hooked = [name for name, one in model.named_modules() if "_compiled_call_impl" in vars(one)]
    return {"hooked": hooked}


@shape(12)
def compiled_child(toy):
    model = Pair()
    model.inner["encoder"] = torch.compile(model.inner["encoder"], backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for batch in data():
            model.training_step(batch).backward()
            optimizer.step()
            time.sleep(0.02)
    return {"recompiles": count_compiled()}


@shape(20)
def evaluation_without_a_loader(toy):
    model, optimizer = made()
    for number in range(20):
        if number % 5 == 0:
            model.eval()
            with torch.no_grad():
                model(torch.randn(8, 8))
                time.sleep(0.02)
            model.train()
        backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
        optimizer.step()


@shape(40)
def evaluation_beside_a_loader(toy):
    """The training has a loader, the evaluation has none."""
    model, optimizer = made()
    for number, batch in enumerate(data(40 * 8)):
        backward(model, batch)
        optimizer.step()
        if number % 10 == 5:
            model.eval()
            with torch.no_grad():
                model(torch.randn(8, 8))
            model.train()


@shape(20)
def compares_in_some_steps(toy):
    """Some steps call the model without gradients too, which is no evaluation."""
    model, optimizer = made()
    for number in range(20):
        loss = functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(2, (16,)))
        if number % 4 == 3:
            with torch.no_grad():
                model(torch.randn(16, 8))
        loss.backward()
        optimizer.step()


@shape(12)
def compares_in_each_step(toy):
    model, optimizer = made()
    for x, y in data(96):
        loss = functional.cross_entropy(model(x), y)
        with torch.no_grad():
            model(x)
        loss.backward()
        optimizer.step()


@shape(25)
def batches_of_many_kinds(toy):
    """Tensors, dicts, and a last batch that is smaller."""
    model, optimizer = made()
    for _ in range(2):
        for x, y in data(92):
            backward(model, (x, y))
            optimizer.step()
    named = [{"x": torch.randn(8), "y": torch.tensor(number % 2)} for number in range(8)]
    for batch in DataLoader(named, 8):
        backward(model, (batch["x"], batch["y"]))
        optimizer.step()


@shape(16)
def slow_dicts(toy):
    def collated(samples):
        for _ in range(CALLS_A_BATCH):
            batches.time.monotonic()
        return default_collate(samples)

    model, optimizer = made()
    named = [{"x": torch.randn(8), "y": torch.tensor(number % 2)} for number in range(128)]
    for batch in DataLoader(named, 8, collate_fn=collated):
        backward(model, (batch["x"], batch["y"]))
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
            batch = next(waiting)
            backward(model, batch)
            optimizer.step()
        except StoppedError as error:
            stopped += 1
            seen += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    signal.signal(signal.SIGUSR1, before)
    counting.get_ident = patches.get_ident = get_ident
    ours = [name for name in seen if name.startswith(OURS)]
    return {"expected": 40 - stopped, "stopped": stopped, "ours": ours}


class SlowToEnd(torch.utils.data.Sampler):
    """Takes its time to say that no batch is left, as loader workers do that end."""

    def __init__(self, samples=96):
        self.samples = samples

    def __iter__(self):
        yield from range(self.samples)
        for _ in range(CALLS_A_BATCH):
            batches.time.monotonic()


@shape(11)
def leaves_a_step(toy):
    model, optimizer = made()
    for number, batch in enumerate(data(8 * 20)):
        if number == 11:
            break
        backward(model, batch)
        optimizer.step()


@shape(36)
def slow_ends(toy):
    model, optimizer = made()
    for _ in range(3):
        for batch in DataLoader(data(96).dataset, 8, sampler=SlowToEnd()):
            backward(model, batch)
            optimizer.step()


@shape(sum(range(15, 20)))
def slow_ends_after_any_step(toy):
    """Some epochs end after a step that is measured in full. The host's times are of one clock."""
    model, optimizer = made()
    for batches_an_epoch in range(15, 20):
        loader = DataLoader(data(8 * 24).dataset, 8, sampler=SlowToEnd(8 * batches_an_epoch))
        for batch in loader:
            backward(model, batch)
            optimizer.step()
            toy.tracker.clock._now = batches.time.monotonic


@shape(16)
def nested_tensors(toy):
    def collated(samples):
        return torch.nested.nested_tensor([x for x, _ in samples]), [y for _, y in samples]

    model, optimizer = made()
    rows = [(torch.randn(1 + number % 3, 8), number % 2) for number in range(128)]
    for x, y in DataLoader(rows, 8, collate_fn=collated):
        means = torch.stack([one.mean(0) for one in x.unbind()])
        backward(model, (means, torch.tensor(y)))
        optimizer.step()


class Nested(torch.utils.data.Dataset):
    """Has a loader of its own."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        if index % 24 == 23:
            return next(iter(DataLoader(torch.randn(4, 8), 4)))[0], index % 2
        return torch.randn(8), index % 2


@shape(12)
def loader_within_a_loader(toy):
    model, optimizer = made()
    for batch in DataLoader(Nested(), 8):
        backward(model, batch)
        optimizer.step()


@shape(20)
def acts_before_it_learns(toy):
    model, optimizer = made()
    for _ in range(20):
        with torch.no_grad():
            model(torch.randn(4, 8))
            time.sleep(ACTS_S)
        backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
        optimizer.step()


@shape(12)
def compiled(toy):
    model, optimizer = made()
    fast = torch.compile(model, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        for batch in data():
            backward(fast, batch)
            optimizer.step()
    return {"recompiles": count_compiled()}


@shape(12)
def compiled_in_place(toy):
    model, optimizer = made()
    for number, batch in enumerate([*data(), *data()]):
        if number == 3:
            model.compile(backend="aot_eager", fullgraph=True)
        backward(model, batch)
        optimizer.step()
    return {"recompiles": count_compiled()}


@shape(12)
def compiled_function(toy):
    model, optimizer = made()
    frozen = nn.Dropout().eval()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss_of(x, y):
        frozen.eval()  # in each call, as some do
        return functional.cross_entropy(model(frozen(x)), y)

    for _ in range(2):
        for batch in data():
            loss_of(*batch).backward()
            optimizer.step()
    return {"recompiles": count_compiled()}


@shape(16)
def backward_in_fast_code(toy):
    model, optimizer = made()

    @torch.compile(backend="eager")
    def learn(x, y):
        functional.cross_entropy(model(x), y).backward()

    for batch in data(128):
        learn(*batch)
        optimizer.step()
    return {"graphs": count_compiled()}


@shape(40)
def all_in_fast_code(toy):
    """Without a dashboard from step 3 to step 30."""
    model, optimizer = made()

    def flip(step):
        if step in (3, 30):
            toy.tracker.active, toy.tracker.border_at = step == 30, 30

    @torch.compile(backend="eager")
    def learn(waiting):
        backward(model, next(waiting))
        optimizer.step()

    toy.at_border, toy.tracker.border_at = flip, 3
    waiting = iter(data(8 * 40))
    for _ in range(40):
        learn(waiting)
    codes = [code() for code in torch._dynamo.convert_frame.input_codes.seen]
    return {"ours": [one.co_name for one in codes if one.co_filename.startswith(OURS)]}


@shape(12)
def compiled_optimizer(toy):
    model, optimizer = made()

    @torch.compile(backend="aot_eager")
    def step():
        optimizer.step()

    for _ in range(2):
        for batch in data():
            backward(model, batch)
            step()
    return {"recompiles": count_compiled()}


@shape(22)
def one_training_after_the_other(toy):
    first, second = made(), made(16)
    for (model, optimizer), count in ((first, 10), (second, 12)):
        for batch in data(count * 8):
            backward(model, batch)
            optimizer.step()


@shape(22)
def one_training_after_the_other_without_loader(toy):
    first, second = made(), made(16)
    for (model, optimizer), count in ((first, 10), (second, 12)):
        for _ in range(count):
            backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
            optimizer.step()


@shape(40)
def another_optimizer_within_an_epoch(toy):
    model, first = made()
    second = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(data(8 * 40)):
        backward(model, batch)
        (first if number < 20 else second).step()


@shape(40)
def declares_its_later_steps(toy):
    explicit.listener = toy.tracker
    model, optimizer = made()
    waiting = iter(data(8 * 40))
    for number in range(40):
        with explicit.step() if number >= 25 else nullcontext():
            backward(model, next(waiting))
            optimizer.step()
    explicit.listener = None


@shape(10)
def saved_whole(toy):
    model, optimizer = made()
    for number in range(10):
        backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
        optimizer.step()
        if number == 5:
            saved = io.BytesIO()
            torch.save(model, saved)
            pickled = pickle.dumps((model, optimizer, copy.deepcopy(model)))
    pickled += pickle.dumps({**model.__dict__})
    ours = [b"gpudash" in one for one in (saved.getvalue(), pickled)]
    return {"holds_ours": ours, "copy": copy.deepcopy(model).__dict__.get("_compiled_call_impl")}


@shape(12)
def an_exception_half_way(toy):
    model, optimizer = made()
    for number, batch in enumerate(data(96)):
        try:
            if number == 4:
                model(batch[0][:, :3])
            backward(model, batch)
        except RuntimeError:
            optimizer.step()
            continue
        optimizer.step()


@shape(20)
def a_graph_replayed(toy):
    """Calls the patches of `torch.cuda.CUDAGraph` without a GPU."""
    model, optimizer = made()
    batch = torch.randn(16, 8), torch.randint(2, (16,))

    def step():
        backward(model, batch)
        optimizer.step()

    for _ in range(3):
        step()
    graph, idle = torch.nn.Identity(), torch.nn.Identity()
    for one, run in ((graph, step), (idle, lambda: model(batch[0]))):
        toy.tracker.capture_begins()
        run()
        toy.tracker.capture_ends(one)
    for _ in range(17):
        assert not toy.tracker.replay_begins(idle)
        assert toy.tracker.replay_begins(graph)
        toy.tracker.update_ended()


@shape(40)
def switched_off_and_on(toy):
    model, optimizer = made()

    def flip(step):
        if step in (10, 20):
            toy.tracker.active = step == 20
            toy.tracker.border_at = 20

    toy.at_border, toy.tracker.border_at = flip, 10
    for _ in range(40):
        backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
        optimizer.step()


@shape(40)
def switched_off_and_looked_at_closely(toy):
    """As in a block by the wall clock whose end must be seen, because batches come in bursts."""
    model, optimizer = made()

    def flip(step):
        if step in (10, 30):
            toy.tracker.active, toy.tracker.closely_until = step == 30, 30

    toy.at_border, toy.tracker.border_at = flip, 10
    for _ in range(40):
        backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
        optimizer.step()
    toy.tracker.closely_until = 0


@shape(45)
def closure_that_evaluates(toy):
    """Comes after plain steps of the same optimizer."""
    model, optimizer = made()
    batch = torch.randn(16, 8), torch.randint(2, (16,))

    def closure():
        with torch.no_grad():
            model(batch[0])
        optimizer.zero_grad()
        return backward(model, batch)

    for _ in range(40):
        backward(model, batch)
        optimizer.step()
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


@shape(400, asked=[123, 257])
def borders_asked_for(toy):
    model, optimizer = made()
    toy.tracker.border_at = 123
    for batch in data(3200):
        backward(model, batch)
        if toy.borders and toy.borders[-1] == 123:
            toy.tracker.border_at = 257
        optimizer.step()


@shape(60)
def second_optimizer_now_and_then(toy):
    """It steps in no rhythm; the training evaluates, and ends where a step may go on."""
    model, optimizer = made()
    scale = nn.Linear(8, 8)
    second = torch.optim.SGD(scale.parameters(), lr=0.01)
    rows = data(32)
    for number, (x, y) in enumerate(data(60 * 8)):
        backward(model, (scale(x), y))
        optimizer.step()
        if number in (2, 5, 7, 12, 14, 25, 27, 30, 31, 45, 50, 56, 57):
            second.step()
        if number % 7 == 5:
            model.eval()
            with torch.no_grad():
                for held_out, _ in rows:
                    model(scale(held_out))
            model.train()


@shape(40)
def second_optimizer_without_a_loader(toy):
    """As an actor that is updated now and then, and its critic in each step."""
    critic, optimizer = made()
    actor = Net()
    second = torch.optim.SGD(actor.parameters(), lr=0.01)
    for number in range(40):
        batch = torch.randn(8, 8), torch.randint(2, (8,))
        optimizer.zero_grad()
        backward(critic, batch)
        optimizer.step()
        if number in (3, 4, 9, 17, 18, 19, 33):
            second.zero_grad()
            backward(actor, batch)
            second.step()


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
def hooks_in_and_out(toy):
    model, optimizer = made()
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
    for batch in data(28 * 8):
        backward(model, batch)
        optimizer.step()
    kept, torch.autograd.backward = torch.autograd.backward is theirs, ours
    return {"calls": len(calls), "kept": kept}


@shape(40)
def lever_on_calls(toy):
    model, optimizer = made()
    calls = []

    def put(step):
        if step == 10:
            toy.newest.roots[0].around = lambda call: calls.append(1) or call

    toy.at_border, toy.tracker.border_at = put, 10
    for batch in data(40 * 8):
        backward(model, batch)
        optimizer.step()
    return {"calls": len(calls)}


def count_compiled():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"], sum(
        torch._dynamo.utils.counters["graph_break"].values()
    )


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
