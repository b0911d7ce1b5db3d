"""The optimizations: how a model is computed, never what.

`ComputeOptions` are their values. `Net` is a model computed with them, `TrainStep` a model and
optimizer trained with them, and `Learner` a TrainStep whose loss compares an output with a target.
A change of these levers keeps the weights' tensors, so it can happen between two steps.
"""

import importlib.util
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from workloads.levers import Value
from workloads.processes import GradientOptions
from workloads.schedule import training_stream
from workloads.workload import Mark

Criterion = Callable[[Tensor, Tensor], Tensor]
"""Outputs and targets → loss ()."""
Compute = Callable[..., Tensor]
"""Batch → output, or the loss ()."""

COMPILED_VARIANTS = 64
"""Most variants (shapes, precisions, layouts) that torch.compile keeps. With its default of 8 it
falls back to eager silently."""
EAGER_BEFORE_CAPTURE = 3
"""Eager steps in which cuDNN and cuBLAS choose kernels, as torch.cuda.graph requires."""


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """Values of the optimizations; PyTorch's defaults but for `backward_thread`."""

    precision: str = "tf32"
    channels_last: bool = False
    fused_optimizer: bool = False
    backward_thread: str = "caller"
    compile: bool = False
    cuda_graph: bool = False
    gradients: GradientOptions | None = None
    """How several processes average gradients; None for a single process."""

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "ComputeOptions":
        """Return the options among all levers' values."""
        return cls(
            precision=str(values["precision"]),
            channels_last=bool(values["channels_last"]),
            fused_optimizer=bool(values["fused_optimizer"]),
            backward_thread=str(values["backward_thread"]),
            compile=bool(values["compile"]),
            cuda_graph=bool(values["cuda_graph"]),
            gradients=GradientOptions.of(values),
        )

    def refusal(self, device: torch.device) -> str | None:
        """Return why this device cannot use these options; None if it can."""
        if self.cuda_graph and self.gradients is not None:
            return "cuda_graph=on: not with several processes, whose all-reduce is not recorded"
        if device.type != "cuda":
            return self._refusal_on_cpu() or self._refusal_to_compile(device)
        if self.precision == "bf16" and not torch.cuda.is_bf16_supported(False):
            return "precision=bf16: this GPU computes in fp32 and tf32 only"
        return self._refusal_to_compile(device)

    def _refusal_on_cpu(self) -> str | None:
        if self.precision == "tf32":
            return "precision=tf32: a CPU has no TF32; valid here: fp32, bf16"
        if self.cuda_graph:
            return "cuda_graph=on: needs a CUDA device"
        if self.backward_thread == "autograd":
            return "backward_thread=autograd: on a CPU the caller's thread runs it in any case"
        return None

    def _refusal_to_compile(self, device: torch.device) -> str | None:
        if self.compile and not _can_compile(device):
            return "compile=on: torch.compile finds no C++ compiler here (or, on a GPU, no triton)"
        return None

    def layout(self, images: Tensor) -> Tensor:
        """Return images (B, C, H, W) in the memory order of the model."""
        return images.contiguous(memory_format=self._memory_format)

    @cached_property
    def _memory_format(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def arrange(self, module: nn.Module) -> None:
        """Put a model's weights into the memory order, in place."""
        module.to(memory_format=self._memory_format)

    def run(self, device: torch.device, compute: Compute, *inputs: Any) -> Tensor:
        """Run a forward pass, or one with its loss, in the precision.

        In fp32 and tf32 it is only called: a context costs the host time in every step, even one
        that does nothing.
        """
        if self.precision != "bf16":
            return compute(*inputs)
        # each weight is used once a step, so a cache is useless; and a graph must not contain one
        with torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False):
            return compute(*inputs)


class Net:
    """A model computed with the optimizations."""

    def __init__(self, module: nn.Module, device: torch.device, *, trained: bool = False) -> None:
        self.module = module
        self.averaged = module  # wrapped in DDP, if several processes train it
        self._trained = trained
        self._device = device
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self._options = ComputeOptions()

    def configure(self, options: ComputeOptions) -> None:
        """Use these options from now on."""
        reordered = options.channels_last != self._options.channels_last
        if reordered:
            self._compiled = None  # compiled for the other memory order
        options.arrange(self.module)
        if self._trained and (reordered or options.gradients != self._options.gradients):
            self.average(options.gradients)
        self._options = options
        convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined]  # made at run time
        convolutions.fp32_precision = "ieee" if options.precision == "fp32" else "tf32"
        if options.compile and self._compiled is None:
            self._compiled = _compiled(self.averaged)

    def average(self, how: GradientOptions | None) -> None:
        """Wrap the module in DDP with these options and new buckets."""
        if how is not None:
            self.averaged, self._compiled = self.module, None  # frees the previous DDP first
            self.averaged = how.averaged(self.module, self._device)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the model's output for images (B, C, H, W)."""
        return self._options.run(self._device, self.laid_out, images)

    def laid_out(self, images: Tensor) -> Tensor:
        """Return the output for images (B, C, H, W) in the precision of the caller."""
        output: Tensor = self.forward(self._options.layout(images))
        return output

    @property
    def forward(self) -> Callable[..., Any]:
        """The model to call, compiled if `compile` is on."""
        compiled = self._compiled if self._options.compile else None
        return self.averaged if compiled is None else compiled  # a model may have no truth value


class TrainStep(ABC):
    """A model and its optimizer: the second half of a step, eager or replayed as a CUDA graph."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, device: torch.device) -> None:
        self._optimizer = optimizer
        self._net = Net(model, device, trained=True)
        self._device = device
        self._options = ComputeOptions()
        self._graph: GraphedStep | None = None  # kept while cuda_graph is off

    @property
    def module(self) -> nn.Module:
        """The model; with several processes, wrapped in DDP."""
        return self._net.averaged

    @abstractmethod
    def _loss(self, *inputs: Any) -> Tensor:
        """Return the loss () of a batch, in the precision of the caller."""

    def configure(self, options: ComputeOptions) -> None:
        """Use these options from now on; weights and optimizer are kept."""
        if _kernels(options) != _kernels(self._options):
            self._graph = None  # it has recorded other kernels
        self._options = options
        self._net.configure(options)
        self._arrange_optimizer(options)
        if options.cuda_graph and self._graph is None:
            self._graph = GraphedStep(self._step)

    def average_anew(self) -> None:
        """Make new DDP buckets after a failed step, of whose gradients some may be averaged."""
        self._net.average(self._options.gradients)

    def _arrange_optimizer(self, options: ComputeOptions) -> None:
        for group in self._optimizer.param_groups:
            group["fused"] = (
                options.fused_optimizer or None
            )  # None: torch chooses, foreach on a GPU

    def _train(self, mark: Mark, *inputs: Tensor) -> Tensor:
        if self._options.cuda_graph and self._graph is not None:
            return self._graph(mark, *inputs)
        return self._step(mark, *inputs)

    def _step(self, mark: Mark, *inputs: Any) -> Tensor:
        mark("forward")
        self._optimizer.zero_grad()
        loss = self._options.run(self._device, self._loss, *inputs)
        mark("backward")
        with torch.autograd.set_multithreading_enabled(self._options.backward_thread == "autograd"):
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        mark("optimizer")
        self._optimizer.step()
        return loss.detach()


class Learner(TrainStep):
    """A model, its loss and its optimizer."""

    def __init__(self, model: nn.Module, criterion: Criterion, device: torch.device) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)  # torch's default lr
        super().__init__(model, optimizer, device)
        self._criterion = criterion

    def minimise(self, criterion: Criterion) -> None:
        """Use this loss from now on; call `configure` next."""
        if criterion != self._criterion:
            self._criterion = criterion
            self._graph = None  # it replays the previous loss

    def train(self, inputs: Tensor, targets: Tensor, mark: Mark) -> Tensor:
        """Train on inputs (B, …) and targets (B, …). Returns the loss ()."""
        return self._train(mark, inputs, targets)

    def _loss(self, *inputs: Tensor) -> Tensor:
        images, targets = inputs
        return self._criterion(self._net.laid_out(images), targets)  # ()


def _kernels(options: ComputeOptions) -> ComputeOptions:
    """Return the options that affect a step's kernels; the others are set to constants."""
    return replace(options, backward_thread="caller", cuda_graph=False)


class GraphedStep:
    """A step recorded as a CUDA graph, anew for each shape of its inputs, then replayed.

    Source: PyTorch, CUDA semantics, "Whole-network capture". The eager steps before the recording
    train too, so every batch is trained on once.
    """

    def __init__(self, step: Callable[..., Tensor]) -> None:
        self._step = step  # (mark, *inputs) → loss ()
        self._shapes: list[torch.Size] | None = None
        self._eager_left = EAGER_BEFORE_CAPTURE
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, mark: Mark, *inputs: Tensor) -> Tensor:
        """Train on a batch. Returns the loss ()."""
        shapes = [one.shape for one in inputs]
        if self._shapes != shapes:
            self._shapes = shapes
            self._eager_left, self._graph = EAGER_BEFORE_CAPTURE, None
        if self._eager_left:
            self._eager_left -= 1
            return self._step(mark, *inputs)
        if self._graph is None:
            self._graph = self._capture(*inputs)
        mark("graph")
        for recorded, given in zip(self._inputs, inputs, strict=True):
            recorded.copy_(given)
        self._graph.replay()
        return self._loss.clone()  # the next replay overwrites it

    def _capture(self, *inputs: Tensor) -> torch.cuda.CUDAGraph:
        self._inputs = [one.clone() for one in inputs]
        graph = torch.cuda.CUDAGraph()
        # sync: entering waits for the device, once per graph. Kernels keep the priority of the
        # stream they are recorded on. thread_local: the loader's pinning thread may go on
        stream = training_stream(inputs[0].device)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self._loss = self._step(_unrecorded, *self._inputs)
        return graph


def _unrecorded(_phase: str, /) -> None:
    """Do nothing: an event recorded into a graph has no time."""


def _compiled(module: nn.Module) -> Callable[[Tensor], Tensor]:
    # compile in this process: a pool of compilers would outlive a killed worker
    torch._inductor.config.compile_threads = 1  # noqa: SLF001  # its public place
    torch.compiler.reset()
    torch._dynamo.config.recompile_limit = COMPILED_VARIANTS  # noqa: SLF001  # its public place
    # the lever channels_last chooses the memory order; inductor's own choice also fails on 2×2
    # images in torch 2.11 (convolution_backward: "expected size 2048==2048, stride 4==1")
    options: dict[str, str | int | bool | Callable[..., Any]] = {"layout_optimization": False}
    compiled: Callable[[Tensor], Tensor] = torch.compile(module, dynamic=False, options=options)
    return compiled


def _can_compile(device: torch.device) -> bool:
    compiler = os.environ.get("CXX") or "c++"
    found = any(shutil.which(name) for name in (compiler, "g++", "clang++", "gcc"))
    return found and (device.type != "cuda" or importlib.util.find_spec("triton") is not None)
