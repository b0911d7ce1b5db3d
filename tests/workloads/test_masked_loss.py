"""Every form of the masked loss computes the same numbers; some of them make the host wait.

Tolerances: float32 sums over the same pixels in another order differ in the last bits, so
losses, gradients and weights agree to 1e-5 of their size (and 1e-7, below which a gradient is
noise); float64 agrees to 1e-12. Zero means exactly zero. On a GPU cuDNN adds up weight
gradients in any order and multiplies in TF32: 1e-4.
"""

import re
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.conftest import slow_examples
from tests.workloads.trainings import (
    CPU,
    CUDA,
    DEVICES,
    Make,
    needs_cuda,
    train,
    weights,
)
from workloads import CATALOGUE
from workloads.levers import LeverError
from workloads.masked_loss import (
    BACKGROUND,
    IGNORED,
    LOSSES,
    NUM_CLASSES,
    SCALES,
    WAITING,
    MaskedSegmentation,
    RandomLabels,
    build_model,
)
from workloads.training import Training

MAKES = ("masked_loss", {})

ENTRY = CATALOGUE["masked_loss"]
FORMS = pytest.mark.parametrize("form", LOSSES)

SIDE = 4


def labels_of(*choices: int, batch: int = 2, side: int = SIDE) -> Tensor:
    """Labels (B, S, S) in which every one of `choices` occurs, at random places otherwise."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.tensor(choices)[
        torch.randint(len(choices), (batch * side * side,), generator=generator)
    ]
    pixels[: len(choices)] = torch.tensor(choices)
    return pixels.reshape(batch, side, side)


ORDINARY = labels_of(*range(IGNORED, NUM_CLASSES))
TRAINING = {
    "ordinary": ORDINARY,
    "one image": labels_of(*range(IGNORED, NUM_CLASSES), batch=1),
    "two labels": labels_of(0, 8),
    "two labels, one ignored": labels_of(IGNORED, 4),
    "two labels, one background": labels_of(4, BACKGROUND),
    "all but one pixel ignored": labels_of(*[IGNORED] * 31, 3),
}
RESTING = {
    "one label": labels_of(3),
    "one label, one image": labels_of(0, batch=1),
    "one pixel": labels_of(5, batch=1, side=1),
    "all ignored": labels_of(IGNORED),
    "all background": labels_of(BACKGROUND),
    "background and ignored": labels_of(IGNORED, BACKGROUND),
    "one ignored pixel": labels_of(IGNORED, batch=1, side=1),
}
CASES = {name: pytest.param(labels, id=name) for name, labels in (TRAINING | RESTING).items()}


def logits_for(labels: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    batch, side, _ = labels.shape
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(batch, NUM_CLASSES, side, side, generator=generator, dtype=dtype)
    return logits.requires_grad_()


def loss_and_gradient(form: str, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    loss = LOSSES[form](logits, labels)
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient


def by_hand(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss pixel by pixel, and its gradient by its formula: (softmax − one-hot) / N."""
    gradient = torch.zeros_like(logits)
    folded = [IGNORED if label == BACKGROUND else label for label in labels.flatten().tolist()]
    if len(set(folded)) < 2:
        return torch.zeros((), dtype=logits.dtype), gradient
    counted = [pixel for pixel, label in enumerate(folded) if label != IGNORED]
    _, height, width = labels.shape
    losses = []
    for pixel in counted:
        image, row, column = pixel // (height * width), pixel // width % height, pixel % width
        scores = logits[image, :, row, column].detach()
        losses.append(scores.logsumexp(0) - scores[folded[pixel]])
        gradient[image, :, row, column] = scores.softmax(0) / len(counted)
        gradient[image, folded[pixel], row, column] -= 1 / len(counted)
    return torch.stack(losses).mean(), gradient


def assert_close(ours: object, theirs: object, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance / 100)


@FORMS
@pytest.mark.parametrize("labels", CASES.values())
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_each_form_is_the_loss_computed_by_hand(
    form: str, labels: Tensor, dtype: torch.dtype, tolerance: float
) -> None:
    logits = logits_for(labels, dtype)
    loss, gradient = loss_and_gradient(form, logits, labels)
    assert_close((loss, gradient), by_hand(logits, labels), tolerance)
    trains = any(labels is one for one in TRAINING.values())
    assert (bool(loss > 0), bool(gradient.any())) == (trains, trains)


@FORMS
@slow_examples(15)
@given(st.lists(st.integers(IGNORED, BACKGROUND), min_size=8, max_size=8))
def test_each_form_agrees_on_any_labels(form: str, pixels: list[int]) -> None:
    labels = torch.tensor(pixels).reshape(2, 2, 2)
    logits = logits_for(labels)
    assert_close(loss_and_gradient(form, logits, labels), by_hand(logits, labels))


@FORMS
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("labels", [CASES[name] for name in RESTING])
def test_fewer_than_two_labels_change_nothing_and_make_no_nan(
    form: str, device: torch.device, labels: Tensor
) -> None:
    torch.manual_seed(0)
    model = build_model(SCALES["small"]).to(device)
    images = torch.randn(len(labels), 3, *labels.shape[1:], device=device)
    loss = LOSSES[form](model(images), labels.to(device))
    loss.backward()
    assert loss == 0
    assert not any(one.grad.any() for one in model.parameters())  # a NaN would count as any


@FORMS
@pytest.mark.parametrize("labels", [CASES["ordinary"], CASES["one label"], CASES["all ignored"]])
def test_each_gradient_is_its_own_losss(form: str, labels: Tensor) -> None:
    tiny = labels[:1, :2, :2]
    logits = logits_for(tiny, torch.float64)
    assert torch.autograd.gradcheck(lambda logits: LOSSES[form](logits, tiny), (logits,))


@FORMS
@pytest.mark.parametrize("device", DEVICES)
def test_each_form_gives_the_weights_the_firsts_gradients(form: str, device: torch.device) -> None:
    torch.manual_seed(0)
    model = build_model(SCALES["small"]).to(device)
    images = torch.randn(2, 3, SIDE, SIDE, device=device)

    def gradients(of: str) -> tuple[Tensor, ...]:
        loss = LOSSES[of](model(images), ORDINARY.to(device))
        return loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))

    assert_close(gradients(form), gradients("nonzero"), 1e-5 if device == CPU else 1e-4)


@FORMS
def test_logits_may_come_in_any_memory_order_and_no_form_writes_into_the_batch(form: str) -> None:
    labels, same = labels_of(2, BACKGROUND), labels_of(2, BACKGROUND)
    loss_and_gradient(form, logits_for(labels), labels)
    assert labels.equal(same)
    logits = logits_for(ORDINARY)
    other = logits.detach().to(memory_format=torch.channels_last).requires_grad_()
    assert_close(
        loss_and_gradient(form, other, ORDINARY), loss_and_gradient(form, logits, ORDINARY)
    )


# ---- who waits


class HostReads(TorchDispatchMode):
    """Counts the operators whose result's size or value the host has to learn."""

    SIZES = ("nonzero", "_unique2", "masked_select", "_local_scalar_dense", "equal")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put", "index_put_", "_index_put_impl_") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        self.count += name in self.SIZES or by_mask
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("form", "forward", "backward"),
    [
        ("nonzero", 4, 1),
        ("where", 3, 1),
        ("counted", 2, 1),
        ("ignore_index", 0, 0),
        ("minmax", 0, 0),
    ],
)
def test_each_form_waits_less_than_the_one_before(form: str, forward: int, backward: int) -> None:
    logits = logits_for(ORDINARY)
    with HostReads() as reads:
        loss = LOSSES[form](logits, ORDINARY)
    assert reads.count == forward
    with HostReads() as reads:
        loss.backward()
    assert reads.count == backward


@FORMS
def test_without_a_gpu_too_it_shows_which_forms_a_graph_can_record(form: str) -> None:
    with FakeTensorMode():  # tensors of a GPU that holds no values for the host to read
        logits = torch.empty(2, NUM_CLASSES, SIDE, SIDE, device="cuda", requires_grad=True)
        labels = torch.empty(2, SIDE, SIDE, device="cuda", dtype=torch.int64)
        if form in WAITING:
            with pytest.raises(DynamicOutputShapeException):
                LOSSES[form](logits, labels)
        else:
            assert LOSSES[form](logits, labels).device.type == "cuda"


@needs_cuda
def test_on_a_gpu_exactly_the_waiting_forms_wait() -> None:
    model = build_model(SCALES["small"]).to(CUDA)
    images, labels = torch.randn(2, 3, SIDE, SIDE, device=CUDA), ORDINARY.to(CUDA)

    def waits(form: str) -> int:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                LOSSES[form](model(images), labels).backward()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(warning.message) for warning in caught)

    waits("minmax")  # what is done once is done
    counted = {form: waits(form) for form in LOSSES}
    assert counted["nonzero"] > counted["where"] > counted["counted"] >= 2, counted
    assert counted["ignore_index"] == counted["minmax"] == 0, counted


# ---- trained


@pytest.mark.parametrize("device", DEVICES)
def test_twenty_steps_lead_to_the_same_weights_under_every_loss(
    make: Make, device: torch.device
) -> None:
    tolerance = 1e-5 if device == CPU else 1e-4
    trainings = {form: make(device, loss=form, data="cached") for form in LOSSES}
    start = weights(trainings["nonzero"])
    losses = {form: train(training, 20) for form, training in trainings.items()}
    assert not any(map(torch.equal, weights(trainings["nonzero"]), start))
    for form, training in trainings.items():
        assert_close(losses[form], losses["nonzero"], tolerance)
        assert_close(weights(training), weights(trainings["nonzero"]), tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("data", ["cached", "resident"])
def test_exchanging_the_loss_goes_on_with_the_weights_and_keeps_the_batches(
    make: Make, device: torch.device, data: str
) -> None:
    exchanged, same = make(device, data=data), make(device, data=data)
    batches = [next(exchanged._batches) for _ in range(4)]  # all it has: it starts over
    before = [labels.clone() for _, labels in batches]
    losses = []
    for form in ("where", "counted", "ignore_index", "minmax", "nonzero"):
        losses += train(exchanged, 2)
        exchanged.change({"loss": form})
    losses += train(exchanged, 2)
    tolerance = 1e-5 if device == CPU else 1e-4
    assert_close(losses, train(same, 12), tolerance)
    assert_close(weights(exchanged), weights(same), tolerance)
    for (_, labels), as_it_was in zip(batches, before, strict=True):
        assert labels.equal(as_it_was)
        assert (labels == BACKGROUND).any()


def test_an_exchanged_loss_is_in_force_at_the_next_step(make: Make) -> None:
    training = make(data="cached")
    for form in ("minmax", "nonzero", "ignore_index", "counted"):
        training.change({"loss": form})
        with HostReads() as reads:
            training.step()
        assert (reads.count > 0) == (form in WAITING)


@FORMS
def test_bf16_is_near_fp32(make: Make, form: str) -> None:
    half, full = make(loss=form, precision="bf16"), make(loss=form)
    losses = train(half, 2)
    assert losses[0].dtype == torch.float32  # the loss itself is not computed in 8 bits
    assert_close(losses, train(full, 2), 1e-2)


@FORMS
def test_a_waiting_loss_cannot_be_recorded_and_says_which_can(form: str) -> None:
    values = {"loss": form, "cuda_graph": True}
    said = rf"loss={form}: selecting by a mask.*valid with cuda_graph=on: ignore_index, minmax"
    refusal = MaskedSegmentation.refusal(values, CUDA)
    assert re.fullmatch(said, refusal) if form in WAITING else refusal is None
    assert MaskedSegmentation.refusal(values | {"cuda_graph": False}, CUDA) is None


def test_a_recorded_graph_is_forgotten_with_its_loss_only(make: Make) -> None:
    training = make(loss="ignore_index")
    learner = training._workload._learner
    learner._graph = recorded = object()
    training.change({"pipelined": "on"})
    assert learner._graph is recorded
    training.change({"loss": "minmax"})
    assert learner._graph is None


@needs_cuda
@pytest.mark.parametrize("pipelined", ["off", "on"])
def test_graphs_follow_the_loss(make: Make, pipelined: str) -> None:
    graph = make(CUDA, data="resident", loss="ignore_index", pipelined=pipelined, cuda_graph="on")
    eager = make(CUDA, data="resident", loss="ignore_index", pipelined=pipelined)
    for form in ("minmax", "ignore_index"):
        assert_close(train(graph, 6), train(eager, 6), 1e-4)
        graph.change({"loss": form})
        eager.change({"loss": form})
    assert_close(train(graph, 6), train(eager, 6), 1e-4)
    assert_close(weights(graph), weights(eager), 1e-4)
    with pytest.raises(LeverError, match="cannot record"):
        graph.change({"loss": "counted"})


# ---- as the source has it


def test_the_full_model_is_the_sources() -> None:
    model = build_model(SCALES["full"])
    convolutions = [layer for layer in model if isinstance(layer, torch.nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == [(3, 10)] + 11 * [(10, 10)]
    assert len(model) == 12 + 11  # a ReLU between any two
    assert model(torch.zeros(1, 3, 8, 8)).shape == (1, NUM_CLASSES, 8, 8)


def test_samples_are_random_and_the_same_every_time() -> None:
    samples = RandomLabels(SCALES["full"].image_size, seed=0)
    image, labels = samples[3]
    assert (image.shape, image.dtype) == ((3, 256, 256), torch.float32)
    assert (labels.shape, labels.dtype) == ((256, 256), torch.int64)
    assert labels.unique().tolist() == list(range(IGNORED, NUM_CLASSES))
    assert all(map(torch.equal, samples[3], (image, labels)))
    assert not samples[4][1].equal(labels)


def test_a_cpu_takes_smaller_batches_by_default() -> None:
    training = Training(ENTRY, {"num_workers": "0", "data": "cached"}, CPU)
    assert (training.settings["batch_size"], training.settings["model_scale"]) == ("16", "small")


def test_a_batch_that_cannot_fit_the_host_is_refused(make: Make) -> None:
    with pytest.raises(LeverError, match="GiB are available"):
        make(batch_size="1000000", model_scale="full")
