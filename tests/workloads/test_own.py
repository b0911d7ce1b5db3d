"""A user's function as a workload: its levers, its batches, and what it may return."""

import inspect
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gpudash import workload
from gpudash.testing import check_levers, check_variants
from tests.workloads.trainings import CPU, CUDA, needs_cuda
from workloads import compute_options
from workloads.compute_options import ComputeOptions
from workloads.levers import Count, Lever, LeverError, Switch, find
from workloads.own import adapter, optimizers
from workloads.own.adapter import OwnSamples
from workloads.own.checks import _entry
from workloads.own.declaration import STANDARD
from workloads.training import Training
from workloads.workload import unmarked

SMALL = {"batch_size": "2", "num_workers": "0"}


class Pair(NamedTuple):
    x: Any
    y: Any


class Points(Dataset):
    """Samples in the form that a test asks for."""

    def __init__(self, form: Callable[[Any, Any], Any] = lambda x, y: (x, y), size: int = 40):
        self.form, self.size = form, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        x = torch.rand(4, generator=torch.Generator().manual_seed(index))
        return self.form(x, x.sum())


def mse(model: nn.Module, batch: Any) -> torch.Tensor:
    x, y = (batch["x"], batch["y"]) if isinstance(batch, dict) else batch
    return (model(x).squeeze(1) - y).square().mean()


def linear(data: Any = None, loss: Any = mse, optimizer: Any = torch.optim.SGD, **levers: Any):
    """Return a workload of these parts, a linear model between them."""
    samples = Points() if data is None else data

    @workload(**levers)
    def fit(values, device):
        model = nn.Linear(4, 1).to(device)
        return model, optimizer(model.parameters(), lr=0.01), samples, loss

    return fit


def train(own: Any, steps: int = 3, **settings: str) -> list[float]:
    with closing(Training(_entry(own), SMALL | settings, CPU)) as training:
        return [training.step().loss.item() for _ in range(steps)]


def levers(**declared: Any) -> dict[str, Lever]:
    return {lever.name: lever for lever in _entry(linear(**declared)).levers}


# ── levers ──────────────────────────────────────────────────────────────────────────────


def test_a_workload_of_ones_own_has_every_standard_lever() -> None:
    assert list(levers()) == [lever.name for lever in STANDARD]


def test_a_keyword_is_a_lever_of_its_own_that_builds_the_model_anew() -> None:
    own = levers(bias=True, depth=2, width=(64, 128), rate=(0.1, 0.01), kind=("a", "b"))
    assert (type(own["bias"]), type(own["depth"])) == (Switch, Count)
    assert (own["width"].values, own["rate"].values) == (("64", "128"), ("0.1", "0.01"))
    defaults = {name: own[name].default_text for name in ("bias", "depth", "width", "rate", "kind")}
    assert defaults == {"bias": "on", "depth": "2", "width": "64", "rate": "0.1", "kind": "a"}
    assert {own[name].effect for name in defaults} == {"rebuilt model"}


def test_the_keyword_of_a_standard_lever_is_its_default() -> None:
    own = levers(batch_size=7, precision="bf16", channels_last=True)
    texts = [own[name].default_text for name in ("batch_size", "precision", "channels_last")]
    assert texts == ["7", "bf16", "on"]
    assert find(STANDARD, "batch_size").default_text == "32"


def test_the_function_gets_values_of_the_kind_it_declared() -> None:
    seen: list[dict] = []

    @workload(width=(64, 128), rate=(0.5, 1.0), kind=("a", "b"), bias=False)
    def fit(values, device):
        seen.append(values)
        model = nn.Linear(4, 1)
        return model, torch.optim.SGD(model.parameters()), Points(), mse

    train(fit, width="128", bias="on")
    assert {name: seen[0][name] for name in ("width", "rate", "kind", "bias")} == {
        "width": 128,
        "rate": 0.5,
        "kind": "a",
        "bias": True,
    }


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"rate": 0.5}, "lever rate: 0.5 is not valid; valid: True or False, a whole number"),
        ({"width": (64,)}, "at least two different"),
        ({"width": (64, "64")}, "at least two different"),
        ({"kind": ("a,b", "c")}, "lever kind"),
        ({"kind": ("auto", "c")}, "lever kind"),
        ({"kind": "a"}, "lever kind: 'a' is not valid"),
        ({"depth": -1}, "lever depth: -1 is not valid"),
        ({"batch_size": 0}, "lever batch_size: '0' is not valid; valid: a whole number from 1"),
        ({"precision": "fp8"}, "lever precision: 'fp8' is not valid; valid: fp32, tf32, bf16"),
        ({"instruments": True}, "lever instruments: gpudash uses this name"),
    ],
)
def test_what_can_be_no_lever_is_refused_where_it_is_declared(declared: dict, why: str) -> None:
    with pytest.raises(LeverError, match=why):
        linear(**declared)


def test_the_decorator_leaves_the_function_as_it_is_and_its_docstring_says_what_it_is() -> None:
    def function(values, device):
        """Fit a line.

        And more.
        """
        return values

    assert workload(function) is workload(width=3)(function) is function
    assert function(1, 2) == 1
    assert _entry(function).summary == "Fit a line."


def test_a_class_has_to_follow_the_protocol() -> None:
    with pytest.raises(LeverError, match="class Half has no configure, samples, refusal"):

        @workload
        class Half:
            def prepare(self, batch, mark): ...
            def train(self, prepared, mark): ...


def test_a_class_that_follows_the_protocol_is_trained_itself() -> None:
    from workloads.encdec import EncoderDecoder

    calls: list[str] = []

    @workload(model_size=("small", "large"))
    class Own(EncoderDecoder):
        def __init__(self, values, device):
            assert values["model_size"] == "small"
            super().__init__({**values, "model_scale": "small"}, device)

        @staticmethod
        def host_bytes(values, device):
            return 0, 0

        def prepare(self, batch, mark):
            calls.append("prepare")
            return super().prepare(batch, mark)

    assert all(loss > 0 for loss in train(Own, steps=1))
    assert calls == ["prepare"]


# ── training ────────────────────────────────────────────────────────────────────────────


def test_it_trains_what_a_plain_loop_would() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for batch, _ in zip(DataLoader(Points(), batch_size=2), range(3), strict=False):
        optimizer.zero_grad()
        loss = mse(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert train(linear()) == losses


FORMS = {
    "tuple": lambda x, y: (x, y),
    "named tuple": Pair,
    "dict": lambda x, y: {"x": x, "y": y},
    "with a name": lambda x, y: {"x": x, "y": y, "name": "point"},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("data", ["loader", "cached", "resident"])
def test_a_batch_may_have_any_form_from_every_source(form: Any, data: str) -> None:
    own = linear(Points(form))
    assert train(own, data=data) == train(linear())


def test_a_batch_may_be_one_tensor() -> None:
    own = linear(Points(lambda x, y: x), lambda model, x: model(x).square().mean())
    assert len(train(own)) == 3


def test_a_loaders_own_collate_function_makes_the_batches() -> None:
    def collate(samples):
        xs, ys = zip(*samples, strict=True)
        return {"x": torch.stack(xs) + 1, "y": torch.stack(ys)}

    own = linear(DataLoader(Points(), batch_size=5, collate_fn=collate))
    assert train(own) != train(linear())
    assert train(own, num_workers="1") == train(own)


def test_of_a_loader_is_said_once_what_levers_replace(capsys) -> None:
    adapter._say.cache_clear()
    own = linear(DataLoader(Points(), batch_size=5))
    train(own)
    train(own, seed="1")
    said = capsys.readouterr().out
    assert said.count("the dataset and collate_fn are used; batch size, workers") == 1


def test_a_dataset_that_fetches_whole_batches_is_asked_for_them() -> None:
    class Batched(Points):
        def __getitems__(self, indices):
            return [self[i] for i in indices]

    assert OwnSamples(Batched()).__getitems__([1, 2])
    assert not hasattr(OwnSamples(Points()), "__getitems__")


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "Adam", "Adagrad"])
def test_an_optimizer_may_become_fused_and_go_back_while_it_trains(optimizer: str) -> None:
    own = linear(optimizer=getattr(torch.optim, optimizer))

    losses = []
    with closing(Training(_entry(own), SMALL, CPU)) as training:
        for value in ("on", "off", "on"):
            losses += [training.step().loss.item() for _ in range(2)]
            training.change({"fused_optimizer": value})
    assert losses == pytest.approx(train(own, 6), rel=1e-5)


@pytest.mark.parametrize(
    ("own", "settings", "why"),
    [
        (linear(), {"channels_last": "on"}, "channels_last=on: the model has no weights of four"),
        (
            linear(optimizer=torch.optim.RMSprop),
            {"fused_optimizer": "on"},
            "fused_optimizer=on: RMSprop has no fused form",
        ),
        (linear(), {"cuda_graph": "on"}, "cuda_graph=on: needs a CUDA device"),
        (linear(), {"precision": "tf32"}, "precision=tf32: a CPU has no TF32"),
    ],
    ids=["channels_last", "fused", "graph", "tf32"],
)
def test_a_lever_that_cannot_act_is_refused_with_the_reason(own, settings, why) -> None:
    with pytest.raises(LeverError, match=why):
        train(own, **settings)


class Recorded:
    """Stands in for a CUDA graph; knows how many tensors each batch had."""

    made: ClassVar[list["Recorded"]] = []

    def __init__(self, step: Any) -> None:
        self.step = step
        self.trained: list[int] = []

    def __call__(self, mark: Any, *inputs: torch.Tensor) -> torch.Tensor:
        self.made += [self] * (not self.trained)
        self.trained.append(len(inputs))
        return self.step(mark, *inputs)


def test_a_graph_is_recorded_for_each_form_of_a_batch_and_each_kind_of_kernel(monkeypatch) -> None:
    monkeypatch.setattr(Recorded, "made", [])
    monkeypatch.setattr(compute_options, "GraphedStep", Recorded)
    monkeypatch.setattr(adapter, "GraphedStep", Recorded)
    model = nn.Linear(4, 1)
    parts = adapter.Parts(model, torch.optim.SGD(model.parameters()), Points(), mse)
    step = adapter.OwnTrainStep(parts, "fit", CPU)
    x, y = torch.ones(2, 4), torch.ones(2)
    eager = ComputeOptions(precision="fp32")
    graphed = replace(eager, cuda_graph=True)
    step.configure(graphed)
    for batch in ((x, y), (x, y), {"x": x, "y": y}):
        step.train(batch, unmarked)
    step.configure(replace(graphed, fused_optimizer=True))
    step.train({"x": x, "y": y}, unmarked)
    step.configure(eager)
    step.train({"x": x, "y": y, "name": "point"}, unmarked)
    step.configure(graphed)
    step.train((x, y), unmarked)
    assert [one.trained for one in Recorded.made] == [[2, 2], [2], [2], [2]]


def test_a_graph_needs_batches_of_tensors_alone() -> None:
    built = adapter.adapted(linear(Points(FORMS["with a name"])))
    values = {lever.name: lever.default for lever in STANDARD} | {"precision": "fp32"}
    own = built(values, CPU)
    with pytest.raises(LeverError, match="cuda_graph=on: the batches hold more than tensors"):
        own.configure(values | {"cuda_graph": True})


def test_an_optimizer_that_counts_on_the_host_cannot_be_recorded() -> None:
    weights = [torch.zeros(1, requires_grad=True)]
    optimizers.check(torch.optim.AdamW(weights), fused=True, capturable=True)
    with pytest.raises(LeverError, match="cuda_graph=on: Adagrad cannot be recorded in a CUDA"):
        optimizers.check(torch.optim.Adagrad(weights), fused=False, capturable=True)


# ── what is returned ────────────────────────────────────────────────────────────────────


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(4), torch.zeros(())


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (linear(Endless()), "returned an object of class Endless as data; valid: a Dataset"),
        (linear(DataLoader(Endless())), "a DataLoader over an object of class Endless as data"),
        (linear(DataLoader(Points(), batch_size=None)), "as data; valid: a Dataset"),
        (linear(Points(size=0)), "returned data without a sample"),
        (linear(loss=3), "returned an object of class int as loss; valid: a function"),
        (linear(optimizer=lambda *_, **__: None), "returned nothing as optimizer; valid: a torch"),
        (linear(optimizer=torch.optim.LBFGS), "LBFGS computes the loss several times a step"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_what_can(own: Any, why: str) -> None:
    with pytest.raises(LeverError, match=why):
        train(own)


@pytest.mark.parametrize(
    ("returned", "got"), [(None, "nothing"), ((1, 2), "2 values"), (3, "an object of class int")]
)
def test_a_function_returns_four_things(returned: Any, got: str) -> None:
    @workload
    def fit(values, device):
        return returned

    line = inspect.getsourcelines(fit)[1]
    why = rf"test_own.py:{line}: fit returned {got}; valid: model, optimizer, data, loss"
    with pytest.raises(LeverError, match=why):
        train(fit)


@pytest.mark.parametrize(
    ("loss", "got"), [(lambda m, b: m(b[0]), r"shape \(2, 1\)"), (lambda m, b: 0.5, "class float")]
)
def test_a_loss_is_one_number(loss: Any, got: str) -> None:
    with pytest.raises(TypeError, match=rf"the loss of fit returned .*{got}; valid: a tensor of"):
        train(linear(loss=loss))


# ── gpudash.testing ─────────────────────────────────────────────────────────────────────


def test_variants_that_compute_the_same_pass_and_refused_ones_are_returned() -> None:
    refused = check_variants(linear(), {"batch_size": "2"})
    assert set(refused) == {"channels_last=on", "backward_thread=autograd", "cuda_graph=on"}


def test_a_variant_that_computes_something_else_fails_by_its_name() -> None:
    def loss(model, batch):
        return mse(model, batch) * (2 if torch.is_autocast_enabled("cpu") else 1)

    with pytest.raises(AssertionError, match="precision=bf16 gives losses"):
        check_variants(linear(loss=loss), SMALL, also={"precision": ("bf16",)})


def test_every_lever_is_moved_to_every_value() -> None:
    seen = set()

    @workload(width=(4, 8), bias=True)
    def fit(values, device):
        seen.add((values["width"], values["bias"], values["seed"]))
        model = nn.Linear(4, 1, bias=values["bias"])
        return model, torch.optim.SGD(model.parameters()), Points(), mse

    refused = check_levers(fit, SMALL)
    assert seen == {(4, True, 0), (8, True, 0), (4, False, 0), (4, True, 1)}
    assert "channels_last=on" in refused


def test_a_lever_under_which_the_loss_is_no_number_fails_by_its_name() -> None:
    @workload(rate=(0.1, 1e38))
    def fit(values, device):
        model = nn.Linear(4, 1)

        def loss(model, batch):
            return mse(model, batch) * values["rate"] * 10

        return model, torch.optim.SGD(model.parameters()), Points(), loss

    with pytest.raises(AssertionError, match="fit: rate=1e"):
        check_levers(fit, SMALL)


@needs_cuda
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_every_variant_computes_the_same_on_a_gpu(optimizer: str) -> None:
    own = linear(Points(FORMS["dict"]), optimizer=getattr(torch.optim, optimizer))
    refused = check_variants(own, {"batch_size": "2", "precision": "fp32"}, device=str(CUDA))
    assert set(refused) == {"channels_last=on"}
