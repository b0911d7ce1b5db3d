"""Calls of modules are marked by name in a trace, also for the backward pass."""

import copy
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

from gpudash.instrument import flops
from gpudash.instrument.module_marks import ModuleMarks, name_of
from gpudash.instrument.profiler import Profiler
from gpudash.trace.nesting import modules_around
from gpudash.trace.read import read


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


def marked():
    model = Net()
    marks = ModuleMarks([model])
    marks.start()
    return model, marks


def hooks(model):
    return sum(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.modules())


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch):
    monkeypatch.setattr(flops, "anything_compiled", lambda: False)


def test_operators_of_both_passes_are_within_their_modules(tmp_path):
    model, path = Net(), tmp_path / "trace.json"
    profiler = Profiler(torch.device("cpu"), 1, path, [model])
    profiler.begin(1)
    model(torch.ones(4, 8)).sum().backward()
    assert profiler.step()
    profiler.end("fp32")
    trace = read(path)
    products = np.isin(
        trace.events.name, [trace.names.index(f"aten::{op}") for op in ("mm", "addmm")]
    )
    found = [trace.names[trace.events.name[one]] for one in modules_around(trace, products)]
    # forward: one product each; backward: of the weights, and of the inputs but the first one's
    assert Counter(found) == {"nn.Module: encoder.Linear": 2 + 3, "nn.Module: head": 1 + 2}
    assert hooks(model) == 0


def test_no_number_changes():
    def gradients(*, marked):
        torch.manual_seed(0)
        model = Net()
        marks = ModuleMarks([model] if marked else [])
        marks.start()
        model(torch.randn(4, 8)).sum().backward()
        marks.stop()
        return [one.grad for one in model.parameters()]

    for one, other in zip(gradients(marked=True), gradients(marked=False), strict=True):
        assert torch.equal(one, other)


def test_a_call_that_fails_or_is_stopped_within_leaves_nothing_open():
    model, marks = marked()
    with pytest.raises(RuntimeError):
        model(torch.ones(4, 7))
    assert not any(marks._open.values())
    model.head.register_forward_pre_hook(lambda *_: marks.stop())
    model(torch.ones(4, 8))
    assert not marks._open
    marks.stop()
    assert hooks(model) == 1


def test_a_copy_of_a_marked_model_works_and_has_no_hooks_of_ours():
    model, marks = marked()
    batch, pickled = torch.ones(4, 8), pickle.dumps(model)
    copies = [copy.deepcopy(model), copy.copy(model), pickle.loads(pickled)]
    assert all(torch.equal(one(batch), model(batch)) for one in copies)
    assert b"gpudash" not in pickled
    marks.stop()


def test_compiled_modules_are_not_marked(monkeypatch):
    monkeypatch.setattr(flops, "anything_compiled", lambda: True)
    model, _ = marked()
    assert hooks(model) == 0


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("", "Linear"),
        ("head", "head"),
        ("layers.3.attention", "layers.attention"),
        ("features.4", "features.Linear"),
        ("0", "Linear"),
    ],
)
def test_similar_layers_share_a_name(path, name):
    assert name_of(path, nn.Linear(1, 1)) == name
