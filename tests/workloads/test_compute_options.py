"""The optimizations change how a step is computed, never what.

Tolerances, of losses (about 2.3) and of weights (up to 0.5): another kernel adds up in another
order, which leaves 1e-5 of a value on a CPU and 1e-4 on a GPU, where no two runs agree to the
bit; bf16 keeps 8 bits, 2e-2 of a loss, and the weights follow within a step's length. The same
kernels in the same order, with pipelining or without, agree to the bit on a CPU.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor, nn

from tests.workloads.trainings import (
    CPU,
    CUDA,
    DEVICES,
    Make,
    Operators,
    deterministic_algorithms,
    needs_cuda,
    never_waiting,
    train,
    weights,
)
from workloads import CATALOGUE
from workloads.compute_options import (
    EAGER_BEFORE_CAPTURE,
    ComputeOptions,
    GraphedStep,
    Learner,
    Net,
)
from workloads.levers import LeverError
from workloads.training import Training
from workloads.workload import unmarked

MAKES = ("encdec", {"precision": "fp32"})

ENTRY = CATALOGUE["encdec"]
PIPELINED = pytest.mark.parametrize("pipelined", ["off", "on"])

REORDERED = {"cpu": 1e-5, "cuda": 1e-4}


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined]  # made at run time
    precision = convolutions.fp32_precision
    with deterministic_algorithms():
        yield
    convolutions.fp32_precision = precision


def parameters(training: Training) -> list[nn.Parameter]:
    return list(training._workload.model.parameters())


def assert_close(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance / 100)


def assert_trained_alike(ours: Training, theirs: Training, steps: int, tolerance: float) -> None:
    assert_close(train(ours, steps), train(theirs, steps), tolerance)
    assert_close(weights(ours), weights(theirs), tolerance)


# ---- the same numbers


@pytest.mark.parametrize("device", DEVICES)
@PIPELINED
@pytest.mark.parametrize("lever", ["channels_last", "fused_optimizer"])
def test_another_way_of_computing_leads_to_the_same_weights(
    make: Make, device: torch.device, pipelined: str, lever: str
) -> None:
    other = make(device, pipelined=pipelined, **{lever: "on"})
    assert_trained_alike(other, make(device), 4, REORDERED[device.type])


@pytest.mark.parametrize("device", DEVICES)
@PIPELINED
def test_moving_levers_mid_run_goes_on_with_the_same_weights(
    make: Make, device: torch.device, pipelined: str
) -> None:
    moved, untouched = make(device, pipelined=pipelined), make(device)
    objects = parameters(moved)
    losses = []
    for lever, value in (
        ("channels_last", "on"),
        ("fused_optimizer", "on"),
        ("channels_last", "off"),
        ("fused_optimizer", "off"),
    ):
        losses += train(moved, 2)
        before = weights(moved)
        moved.change({lever: value})
        assert_close(weights(moved), before, 0)
        assert all(is_now is was for is_now, was in zip(parameters(moved), objects, strict=True))
    losses += train(moved, 2)
    assert_close(losses, train(untouched, 10), REORDERED[device.type])
    assert_close(weights(moved), weights(untouched), REORDERED[device.type])
    (group,) = moved._workload._decoder._optimizer.param_groups
    assert all(trained is was for trained, was in zip(group["params"], objects, strict=True))


@pytest.mark.parametrize(
    ("device", "precision"),
    [
        pytest.param(CPU, "bf16", id="cpu-bf16"),
        pytest.param(CUDA, "bf16", id="cuda-bf16", marks=needs_cuda),
        pytest.param(CUDA, "tf32", id="cuda-tf32", marks=needs_cuda),
    ],
)
def test_fewer_bits_stay_near(make: Make, device: torch.device, precision: str) -> None:
    fewer, full = make(device, precision=precision), make(device)
    start = weights(full)
    losses = train(fewer, 4)
    assert losses[0].dtype == torch.float32
    assert_close(losses, train(full, 4), 2e-2)
    for ours, theirs, began in zip(weights(fewer), weights(full), start, strict=True):
        farthest = (theirs - began).abs().max().item()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=farthest / 2 + 1e-7)


# ---- the levers do something


def test_by_default_the_options_are_pytorchs(make: Make) -> None:
    ours = make()._workload._decoder._optimizer.param_groups[0]
    plain = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-3).param_groups[0]
    assert {**ours, "params": None} == {**plain, "params": None}


def test_channels_last_lays_out_weights_and_images(make: Make) -> None:
    training = make(channels_last="on")
    workload = training._workload
    for module in (workload.encoder, workload.model):
        for parameter in module.parameters():
            assert parameter.dim() != 4 or parameter.is_contiguous(
                memory_format=torch.channels_last
            )
    images = torch.zeros(2, 3, 8, 8)
    assert not images.is_contiguous(memory_format=torch.channels_last)
    laid_out = workload._encode._options.layout(images)
    assert laid_out.is_contiguous(memory_format=torch.channels_last)
    training.change({"channels_last": "off"})
    assert all(parameter.is_contiguous() for parameter in parameters(training))


@pytest.mark.parametrize(("value", "updates"), [("on", 1), ("off", 0)])
def test_a_fused_optimizer_updates_all_weights_in_one_operator(
    make: Make, value: str, updates: int
) -> None:
    training = make(fused_optimizer=value)
    with Operators() as operators:
        training.step()
    assert operators.names.count("aten._fused_sgd_.default") == updates


@pytest.mark.parametrize("value", ["caller", "autograd"])
def test_only_the_backward_pass_may_run_on_a_thread_of_autograds(value: str) -> None:
    model = nn.Conv2d(1, 1, 1)
    allowed: list[bool] = []
    model.weight.register_hook(lambda _: allowed.append(torch._C._is_multithreading_enabled()))
    learner = Learner(model, nn.MSELoss(), CPU)
    learner.configure(ComputeOptions(precision="fp32", backward_thread=value))
    learner.train(torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1), unmarked)
    assert allowed == [value == "autograd"]
    assert torch._C._is_multithreading_enabled()  # PyTorch's default is back


@needs_cuda
@pytest.mark.parametrize("value", ["caller", "autograd"])
def test_the_chosen_thread_enqueues_the_backward_pass(make: Make, value: str) -> None:
    training = make(CUDA, backward_thread=value)
    threads: list[int] = []
    parameters(training)[0].register_hook(lambda _: threads.append(threading.get_ident()))
    train(training, 1)
    assert (threads == [threading.get_ident()]) == (value == "caller")


def test_bf16_computes_in_bf16(make: Make) -> None:
    training = make(precision="bf16")
    features = training._workload._encode(torch.zeros(1, 3, 64, 64))
    assert features.dtype == torch.bfloat16
    assert {p.dtype for p in parameters(training)} == {torch.float32}  # what is trained is not


@pytest.mark.parametrize(("precision", "convolutions"), [("fp32", "ieee"), ("tf32", "tf32")])
def test_the_precision_reaches_the_convolutions(precision: str, convolutions: str) -> None:
    Net(nn.Conv2d(1, 1, 1), CPU).configure(ComputeOptions(precision=precision))
    made_at_run_time: Any = torch.backends.cudnn
    assert made_at_run_time.conv.fp32_precision == convolutions


# ---- refused


@pytest.mark.parametrize(
    ("levers", "message"),
    [
        ({"precision": "tf32"}, "precision=tf32: a CPU has no TF32; valid here: fp32, bf16"),
        ({"cuda_graph": "on"}, "cuda_graph=on: needs a CUDA device"),
        (
            {"backward_thread": "autograd"},
            "backward_thread=autograd: on a CPU the caller's thread runs it in any case",
        ),
    ],
    ids=["tf32", "cuda_graph", "backward_thread"],
)
def test_what_a_cpu_cannot_is_refused_in_one_line(
    make: Make, levers: dict[str, str], message: str
) -> None:
    exactly = f"^{re.escape(message)}$"
    with pytest.raises(LeverError, match=exactly):
        make(**levers)
    training = make()
    before = dict(training.settings)
    with pytest.raises(LeverError, match=exactly):
        training.change(levers)
    assert training.settings == before
    assert len(train(training, 1)) == 1


def test_compiling_without_a_compiler_is_refused_in_one_line(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.compute_options.shutil.which", lambda _name: None)
    with pytest.raises(LeverError, match=r"^compile=on: .*no C\+\+ compiler.*$"):
        make(compile="on")


# ---- compiled


AVAILABLE = CUDA if torch.cuda.is_available() else CPU
needs_compiler = pytest.mark.skipif(
    ComputeOptions(precision="fp32", compile=True).refusal(AVAILABLE) is not None,
    reason="needs a C++ compiler and, with a GPU, triton",
)


@pytest.fixture
def in_graphs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the graphs and run them as they are: to write and build their C++ takes a minute."""
    compile_ = torch.compile

    def without_inductor(module: nn.Module, *, dynamic: bool, options: dict[str, Any]) -> Any:
        return compile_(module, dynamic=dynamic, backend="eager")

    monkeypatch.setattr(torch, "compile", without_inductor)


@needs_compiler
def test_compiling_mid_run_computes_the_same(make: Make, in_graphs_alone: None) -> None:
    compiled, eager = make(data="cached"), make(data="cached")
    objects = parameters(compiled)
    losses = train(compiled, 1)  # as a user does: first look, then compile
    compiled.change({"compile": "on"})
    losses += train(compiled, 2)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs >= 2  # encoder and decoder
    compiled.change({"compile": "off"})
    losses += train(compiled, 1)
    compiled.change({"compile": "on", "pipelined": "on"})
    losses += train(compiled, 2)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs  # none anew
    assert_close(losses, train(eager, 6), 1e-5)
    assert_close(weights(compiled), weights(eager), 1e-5)
    assert all(is_now is was for is_now, was in zip(parameters(compiled), objects, strict=True))


@needs_compiler
def test_compiling_takes_no_other_process_however_late_it_is_asked_for() -> None:
    """Of a product of matrices alone, for which no C++ has to be built."""
    learners = []
    for _ in range(2):
        torch.manual_seed(0)
        learners.append(Learner(nn.Linear(4, 4, bias=False), nn.MSELoss(), CPU))
    batch = torch.rand(2, 4), torch.rand(2, 4)
    options, losses = ComputeOptions(precision="fp32"), []
    for compiles in (False, True):  # the first step imports the compiler, and its settings
        learners[0].configure(replace(options, compile=compiles))
        learners[1].configure(options)
        before = psutil.Process().children(recursive=True)
        losses += [[learner.train(*batch, unmarked) for _ in range(2)] for learner in learners]
        assert psutil.Process().children(recursive=True) == before
    assert_close(*losses[2:], 1e-5)
    assert learners[0]._net._compiled is not None
    assert torch._inductor.config.compile_threads == 1


# ---- recorded


class FakeGraph:
    """What the device was told while this was being recorded; nothing of it ran."""

    recording: "FakeGraph | None" = None
    made = 0

    def __init__(self) -> None:
        FakeGraph.made += 1
        self.kernels: list[Callable[[], None]] = []

    def replay(self) -> None:
        for kernel in self.kernels:
            kernel()


@pytest.fixture
def fake_graphs(monkeypatch: pytest.MonkeyPatch) -> type[FakeGraph]:
    @contextmanager
    def record(graph: FakeGraph, **_options: object) -> Iterator[None]:
        FakeGraph.recording = graph
        yield
        FakeGraph.recording = None

    monkeypatch.setattr(FakeGraph, "made", 0)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr("workloads.compute_options.training_stream", lambda _device: None)
    return FakeGraph


def test_recording_trains_on_every_batch_once(fake_graphs: type[FakeGraph]) -> None:
    trained: list[float] = []

    def step(mark: object, inputs: Tensor, targets: Tensor) -> Tensor:
        loss = torch.empty(())

        def kernel() -> None:
            trained.append(inputs[0].item())
            loss.copy_((inputs + targets).sum())

        if fake_graphs.recording is None:
            kernel()
        else:
            fake_graphs.recording.kernels.append(kernel)
        return loss

    phases: list[str] = []
    graphed = GraphedStep(step)
    batches = [torch.full((2 if n < 8 else 3,), float(n)) for n in range(16)]
    losses = [graphed(phases.append, batch, torch.zeros_like(batch)) for batch in batches]
    assert trained == list(range(16))
    assert [loss.item() for loss in losses] == [batch.sum().item() for batch in batches]
    assert fake_graphs.made == 2  # one for each batch size
    assert phases == ["graph"] * (16 - 2 * EAGER_BEFORE_CAPTURE)


def test_a_recording_outlives_its_switch_and_nothing_else() -> None:
    on = ComputeOptions(precision="fp32", cuda_graph=True)
    learner = Learner(nn.Conv2d(1, 1, 3), nn.MSELoss(), CPU)
    learner.configure(on)
    recorded = learner._graph
    learner.configure(replace(on, cuda_graph=False))
    image = torch.ones(1, 1, 3, 3)
    learner.train(image, torch.zeros(1, 1, 1, 1), unmarked)  # not by the graph
    assert recorded._shapes is None
    learner.configure(on)
    assert learner._graph is recorded
    learner.configure(replace(on, backward_thread="autograd"))  # the same kernels
    assert learner._graph is recorded
    for changed in ({"precision": "bf16"}, {"channels_last": True}, {"fused_optimizer": True}):
        learner.configure(replace(on, **changed))
        assert learner._graph is not recorded
        recorded = learner._graph


@needs_cuda
@PIPELINED
@pytest.mark.parametrize("data", ["loader", "resident"])
def test_a_graph_computes_what_its_steps_do(make: Make, pipelined: str, data: str) -> None:
    graph = make(CUDA, data=data, pipelined=pipelined, cuda_graph="on")
    eager = make(CUDA, data=data)
    assert_trained_alike(graph, eager, 12, 1e-4)
    assert graph.trained_steps == 12  # each batch of the loader is another: none was left out


@needs_cuda
@PIPELINED
@pytest.mark.parametrize(
    ("ours", "others"),
    [
        ([{"batch_size": "4"}, {"batch_size": "2"}], [{"batch_size": "4"}, {"batch_size": "2"}]),
        ([{"cuda_graph": "off"}, {"cuda_graph": "on"}], [{}, {}]),
        ([{"channels_last": "on"}], [{"channels_last": "on"}]),
        ([{"fused_optimizer": "on"}], [{"fused_optimizer": "on"}]),
        ([{"precision": "bf16"}], [{"precision": "bf16"}]),
    ],
    ids=[
        "recorded anew for another batch size",
        "off and on",
        "channels_last",
        "fused_optimizer",
        "bf16",
    ],
)
def test_a_graph_goes_on_with_the_weights_through(
    make: Make, pipelined: str, ours: list[dict[str, str]], others: list[dict[str, str]]
) -> None:
    graph, eager = make(CUDA, pipelined=pipelined, cuda_graph="on"), make(CUDA)
    assert_trained_alike(graph, eager, 6, 1e-4)
    for change, same in zip(ours, others, strict=True):
        graph.change(change)
        eager.change(same)
        assert_trained_alike(graph, eager, 6, 1e-4)


@needs_cuda
def test_no_replay_makes_the_host_wait(make: Make) -> None:
    training = make(CUDA, data="resident", cuda_graph="on", pipelined="on")
    train(training, 6)
    with never_waiting():
        for _ in range(3):
            training.step()


@needs_cuda
@needs_compiler
@PIPELINED
@pytest.mark.timeout(600)
def test_a_compiled_model_can_be_recorded(make: Make, pipelined: str) -> None:
    both = make(CUDA, pipelined=pipelined, compile="on", cuda_graph="on")
    assert_trained_alike(both, make(CUDA), 12, 1e-4)
