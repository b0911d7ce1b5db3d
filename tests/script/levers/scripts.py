"""Small trainings like a user's, and the part of the tracker that levers need."""

import hashlib
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from gpudash.levers import rehearsal
from gpudash.levers.script_levers import ScriptLevers
from gpudash.levers.training_objects import Feed, NewestCall, Root, TrainingObjects
from gpudash.training.commanded import Refusal


def follow(module):
    """Wrap a root's calls as the tracker does."""
    if isinstance(module, Root):
        return module
    root = Root(module)
    root.keeps_calls = True

    def wrapper(*args, **kwargs):
        root.newest = NewestCall(args, kwargs, has_gradients=torch.is_grad_enabled())
        call = module._call_impl
        return (root.around(call) if root.around else call)(*args, **kwargs)

    module.__dict__["_compiled_call_impl"] = wrapper
    return root


def found(*modules, optimizers=(), loader=None, iterator=None, device="cpu", **more):
    facts = {"world_size": 1, "backwards": 1, "scaler": False, **more}
    return TrainingObjects(
        optimizer_refs=tuple(map(weakref.ref, optimizers)),
        roots=tuple(follow(module) for module in modules),
        feed=Feed(loader, iterator) if loader is not None else None,
        device=torch.device(device),
        **facts,
    )


def levers(*modules, redirects=None, backend="aot_eager", **facts):
    return ScriptLevers(
        found(*modules, **facts),
        weakref.WeakKeyDictionary() if redirects is None else redirects,
        backend=backend,
    )


def move(levers, **changes):
    levers.enter(levers.resolve(changes))


def refuses(levers, why, **changes):
    """Check that a change is refused for this reason, and moves nothing."""
    before = levers.settings
    with pytest.raises(Refusal, match=why):
        move(levers, **changes)
    assert levers.settings == before


def offered(levers):
    return {offer.name: offer for offer in levers.offers}


def block(levers, **changes):
    """Begin a block, as it is begun between two steps; return the levers."""
    levers.enter(levers.resolve(changes))
    levers.begins(in_blocks=True, anew=False)
    return levers


def begun(redirects=None, data=None, **options):
    """Return a loader, an epoch of it, and the levers that act on it."""
    data = loader(**options) if data is None else data
    iterator = iter(data)
    return data, iterator, levers(redirects=redirects, loader=data, iterator=iterator)


class ConvNet(nn.Module):
    """Has convolution, batch norm and dropout: everything that a rehearsal must put back."""

    flatten = staticmethod(torch.flatten)

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(4 * 6 * 6, 5)
        self.seen = []

    def forward(self, images):
        features = self.norm(self.conv(images))
        self.seen = [features.dtype, features.is_contiguous(memory_format=torch.channels_last)]
        return self.head(self.drop(self.flatten(features, 1)))


class Paced(nn.Module):
    """A layer whose calls take so long by `clock`, a list with the time in ms, by its precision."""

    def __init__(self, clock, **ms):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.clock, self.ms = clock, ms
        self.was = set()

    def forward(self, rows):
        precision = "tf32" if torch.get_float32_matmul_precision() == "high" else "fp32"
        precision = "bf16" if torch.is_autocast_enabled("cpu") else precision
        self.clock[0] += self.ms[precision]
        self.was.add((torch.is_grad_enabled(), self.training))
        return self.layer(rows)


def teacher_and_student(clock, monkeypatch):
    """A frozen model that takes nine times as long as the one that trains; the newest of a step.

    The rehearsal reads this clock, so that nothing depends on how fast they are.
    """
    monkeypatch.setattr(rehearsal, "time", SimpleNamespace(perf_counter=lambda: clock[0] / 1e3))
    models = Paced(clock, fp32=36.0, tf32=4.5, bf16=2.0), Paced(clock, fp32=4.0, tf32=2.0, bf16=1.0)
    teacher, student = map(follow, models)
    teacher.module.eval()
    teacher.is_frozen = teacher.was_called = True
    for root, model in zip((teacher, student), models, strict=True):
        root.kept = model  # a root does not keep it
    rows = torch.ones(2, 3)
    with torch.no_grad():
        teacher.module(rows)
    student.module(rows).sum().backward()
    return teacher, student


def by_view(tensor, start):
    return tensor.view(tensor.size(0), -1)


class Training:
    """A plain loop over random images."""

    def __init__(self, model=ConvNet, optimizer=torch.optim.Adam, **options):
        torch.manual_seed(3)
        self.model = model()
        self.root = follow(self.model)
        self.optimizer = optimizer(self.model.parameters(), lr=1e-2, **options)
        self.losses = []

    def step(self, steps=1):
        for _ in range(steps):
            images, labels = torch.randn(2, 3, 8, 8), torch.randint(0, 5, (2,))
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.detach())
        return self

    def levers(self, **facts):
        return levers(self.root, **{"optimizers": [self.optimizer], **facts})

    @property
    def digest(self):
        """Return a digest of losses, weights, buffers and optimizer, with their layout."""
        tensors = [*self.losses, *self.model.state_dict().values(), torch.get_rng_state()]
        for state in self.optimizer.state.values():
            tensors += state.values()
        digest = hashlib.md5()
        for tensor in tensors:
            digest.update(f"{tensor.dtype}{tensor.stride()}{tensor.device}".encode())
            digest.update(tensor.detach().contiguous().numpy().tobytes())
        return digest.hexdigest()


def stepped(steps=1, model=ConvNet, **options):
    """Return a training after so many steps, and its levers."""
    training = Training(model, **options).step(steps)
    return training, training.levers()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        info = torch.utils.data.get_worker_info()
        return index, info.num_workers if info else 0


def loader(**options):
    return DataLoader(Numbers(), **{"batch_size": 2, **options})
