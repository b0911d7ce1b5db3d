"""The adapter from a user's function to a workload, on which all standard levers act.

`prepare` copies the batch, so that pipelining copies one batch ahead; `train` does the rest.
"""

import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten
from torch.utils.data import DataLoader, IterableDataset

from workloads.batches import moved
from workloads.compute_options import ComputeOptions, GraphedStep, TrainStep
from workloads.levers import LeverError, Value
from workloads.own import optimizers
from workloads.workload import Mark, Samples, Workload

Loss = Callable[[Callable[..., Any], Any], Tensor]
"""The model to call and a batch → loss ()."""
RETURNS = "model, optimizer, data, loss"


class Parts(NamedTuple):
    """The return value of the user's function."""

    model: nn.Module
    optimizer: Optimizer
    data: Any
    """A Dataset with a length, or a DataLoader over one."""
    loss: Loss


def adapted(function: Callable[..., Any]) -> type[Workload]:
    """Return a workload class around the user's function."""
    return type(function.__name__, (OwnWorkload,), {"function": staticmethod(function)})


class OwnWorkload:
    """A user's model, optimizer, data and loss."""

    function: ClassVar[Callable[..., Any]]

    def __init__(self, values: Mapping[str, Value], device: torch.device) -> None:
        seed = int(values["seed"])
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # a user's dataset may use it
        name = self.function.__name__
        parts = checked(self.function(dict(values), device), place(self.function), device)
        self.model = parts.model
        self._samples = OwnSamples(parts.data)
        self._train_step = OwnTrainStep(parts, name, device)
        self._device = device
        self._options = ComputeOptions()

    def configure(self, values: Mapping[str, Value]) -> None:
        """Configure the optimizations. Raises LeverError for one that cannot be used here."""
        options = ComputeOptions.of(values)
        if options.channels_last and not any(p.ndim == 4 for p in self.model.parameters()):
            raise LeverError("channels_last=on: the model has no weights of four dimensions")
        if options.cuda_graph and not self._samples.are_tensors:
            raise LeverError("cuda_graph=on: the batches hold more than tensors")
        self._train_step.configure(options)
        self._options = options

    def samples(self, _values: Mapping[str, Value]) -> Samples:
        """Return the user's dataset."""
        return self._samples

    @staticmethod
    def refusal(_values: Mapping[str, Value], _device: torch.device) -> str | None:
        """Return None: a combination is only checked when it is built."""
        return None

    @staticmethod
    def host_bytes(_values: Mapping[str, Value], _device: torch.device) -> tuple[int, int]:
        """Return zeros: the sizes are not known before it is built."""
        return 0, 0

    def prepare(self, batch: Any, mark: Mark) -> Any:
        """Copy the batch to the device; put images into the model's memory order."""
        mark("copy")
        batch = moved(batch, self._device, non_blocking=True)
        return tree_map(_channels_last, batch) if self._options.channels_last else batch

    def train(self, prepared: Any, mark: Mark) -> Tensor:
        """Train on a batch. Returns the loss ()."""
        return self._train_step.train(prepared, mark)


class OwnTrainStep(TrainStep):
    """The user's model, loss and optimizer."""

    def __init__(self, parts: Parts, name: str, device: torch.device) -> None:
        super().__init__(parts.model, parts.optimizer, device)
        self._user_loss = parts.loss
        self._name = name
        self._shape: TreeSpec | None = None  # the structure of a batch around its leaves

    def configure(self, options: ComputeOptions) -> None:
        """Use these options from now on. Raises LeverError if the optimizer lacks one of them."""
        if options.cuda_graph != self._options.cuda_graph:
            self._graph = None  # the optimizer's state moves between host and device
        super().configure(options)

    def train(self, batch: Any, mark: Mark) -> Tensor:
        """Train on a batch. Returns the loss ()."""
        leaves, shape = tree_flatten(batch)
        if shape != self._shape:
            self._shape = shape
            if self._graph is not None:
                self._graph = GraphedStep(self._step)
        return self._train(mark, *leaves)

    def _loss(self, *inputs: Any) -> Tensor:
        assert self._shape is not None, "it has been flattened"
        batch = tree_unflatten(inputs, self._shape)
        loss = self._user_loss(self._net.forward, batch)
        if not isinstance(loss, Tensor) or loss.ndim:
            got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else _kind(loss)
            raise TypeError(f"the loss of {self._name} returned {got}; valid: a tensor of shape ()")
        return loss

    def _arrange_optimizer(self, options: ComputeOptions) -> None:
        optimizers.arrange(
            self._optimizer, fused=options.fused_optimizer, capturable=options.cuda_graph
        )


class OwnSamples(Samples):
    """The user's dataset and collate function."""

    def __init__(self, data: Any) -> None:
        self._dataset = data
        self._collate: Callable[[list[Any]], Any] = super().collate
        if isinstance(data, DataLoader):
            self._dataset = data.dataset
            self._collate = data.collate_fn
        if hasattr(self._dataset, "__getitems__"):  # it can return a whole batch at a time
            self.__getitems__ = self._dataset.__getitems__

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index]

    def collate(self, samples: list[Any]) -> Any:
        """Make a batch by the user's collate function."""
        return self._collate(samples)

    @property
    def are_tensors(self) -> bool:
        """Whether a batch of the first sample has only tensors."""
        batch = self.collate([self[0]])
        return all(isinstance(leaf, Tensor) for leaf in tree_leaves(batch))


def place(function: Callable[..., Any]) -> str:
    """Return a function's file, line and name."""
    code = getattr(function, "__code__", None)
    where = f"{Path(code.co_filename).name}:{code.co_firstlineno}: " if code else ""
    return f"{where}{function.__name__}"


def checked(returned: Any, name: str, device: torch.device) -> Parts:
    """Return the parts that the function returned. Raises LeverError for invalid ones."""
    if not isinstance(returned, tuple) or len(returned) != len(Parts._fields):
        raise LeverError(f"{name} returned {_kind(returned)}; valid: {RETURNS}")
    parts = Parts(*returned)
    valid = {
        "model": (isinstance(parts.model, nn.Module), "a torch.nn.Module"),
        "optimizer": (isinstance(parts.optimizer, Optimizer), "a torch.optim.Optimizer"),
        "loss": (callable(parts.loss), "a function of model and batch"),
        "data": (_is_indexed(parts.data), "a Dataset with a length, or a DataLoader over one"),
    }
    for part, (is_valid, what) in valid.items():
        if not is_valid:
            given = _kind(getattr(parts, part))
            raise LeverError(f"{name} returned {given} as {part}; valid: {what}")
    if not len(OwnSamples(parts.data)):
        raise LeverError(f"{name} returned data without a sample")
    for weight in parts.model.parameters():
        if weight.device != device:
            raise LeverError(
                f"{name} returned a model on {weight.device}, to be trained on {device}; "
                "move it with model.to(device) before the optimizer is made"
            )
    optimizers.check(parts.optimizer, fused=False, capturable=False)
    if isinstance(parts.data, DataLoader):
        _say(
            f"{name}: of its DataLoader, the dataset and collate_fn are used; batch size, workers, "
            "pinning and prefetching are levers; the order is the dataset's"
        )
    return parts


def _is_indexed(data: Any) -> bool:
    """Return whether samples have indices, so that a new loader can go on at the cursor."""
    if isinstance(data, DataLoader):
        if data.batch_sampler is None:  # batch_size=None: the dataset makes the batches
            return False
        data = data.dataset
    has_length = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    return has_length and not isinstance(data, IterableDataset)


def _kind(value: Any) -> str:
    if isinstance(value, DataLoader):
        return f"a DataLoader over {_kind(value.dataset)}"
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return "nothing" if value is None else f"an object of class {type(value).__name__}"


@cache
def _say(text: str) -> None:
    """Print a text only once, as models are built many times."""
    print(text, flush=True)


def _channels_last(leaf: Any) -> Any:
    if isinstance(leaf, Tensor) and leaf.ndim == 4:
        return leaf.contiguous(memory_format=torch.channels_last)
    return leaf
