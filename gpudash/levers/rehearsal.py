"""Repeats a root's newest call, as the step has it, to see whether a lever breaks it.

Random numbers and buffers are put back, and gradients are dropped. Python state that the script's
`forward` keeps, such as a counter of calls, does change. For DistributedDataParallel the inner
model is called, as the wrapper would wait for a backward pass. A collective is refused: the
rehearsal of another rank may fail before it, and then this rank would wait in vain.
"""

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median, quantiles
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..instrument.guard import is_from_handler
from ..training.commanded import Refusal
from .training_objects import Call, Root

COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional")
"""Namespaces of operators in which other ranks take part."""
OWNED = ("_parameters", "_buffers")
"""Where a module keeps them by name. Some models replace one in each call."""
REPEATS = 7
"""How often a call is timed."""
MAX_REASON = 160
"""Characters of an error in a refusal."""


def rehearse(
    root: Root,
    around: Callable[[Call], Call],
    clock: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Undo the effects of the call; `clock` times it with its backward pass. Raises Refusal."""
    module, newest = root.module, root.newest
    if module is None or newest is None:
        raise Refusal("the model was not called in the newest step")
    called: Any = module.module if isinstance(module, DistributedDataParallel) else module
    call = around(called._call_impl)  # noqa: SLF001  # without the tracker's hook
    why = None
    try:
        mode = torch.enable_grad() if newest.has_gradients else torch.no_grad()
        with undone(module), _no_collectives(), torch.inference_mode(False), mode, clock():
            with torch.autocast(*newest.autocast) if newest.autocast else nullcontext():
                outputs = call(*newest.args, **newest.kwargs)
            if newest.has_gradients:
                _backward(module, (newest.args, newest.kwargs), outputs)
    except Refusal:
        raise
    except Exception as error:  # any error of the model's is a reason
        if is_from_handler(error):
            raise
        why = reason(error)
    if why:  # outside of `except`, so that the error's frames are released
        raise Refusal(why)


class Took(NamedTuple):
    """What the roots' calls take."""

    ms: float
    """On the device; the median of the repeats."""
    spread: float
    """Half of the distance between the quartiles, as a part of `ms`."""
    host_ms: float
    """For how long the host launches; 0 on a CPU."""


def timed(calls: Iterable[tuple[Root, Callable[[Call], Call]]]) -> Took:
    """Repeat the newest call of each root, and time them together. Raises Refusal."""
    called, repeats = list(calls), []
    for _ in range(1 + REPEATS):  # the first one warms up
        watch = _Stopwatch()
        for root, around in called:
            rehearse(root, around, watch)
        repeats.append(watch)
    taken = sorted(watch.ms for watch in repeats[1:])
    low_ms, ms, high_ms = quantiles(taken, n=4)  # other jobs make a few of them longer
    host_ms = median(watch.host_ms for watch in repeats[1:])
    return Took(ms, (high_ms - low_ms) / 2 / max(ms, 1e-6), host_ms)


class _Stopwatch:
    """Adds up what blocks take: by events where there is a GPU, which is waited for."""

    def __init__(self) -> None:
        self.ms = self.host_ms = 0.0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # in torch
        if on_gpu:
            torch.cuda.synchronize()  # sync: only when asked to rehearse
        began_s = time.perf_counter()
        yield
        launched_s = time.perf_counter()
        if on_gpu:
            torch.cuda.synchronize()  # sync: as above
            self.host_ms += (launched_s - began_s) * 1e3
        self.ms += (time.perf_counter() - began_s) * 1e3


class _NoCollectives(TorchDispatchMode):  # type: ignore[no-untyped-call]  # in torch
    """Raises Refusal at a collective, before it reaches another rank."""

    def __torch_dispatch__(
        self,
        func: Any,  # torch's signature
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func.namespace in COLLECTIVES:
            raise Refusal(f"the model's forward pass waits for other ranks ({func.__name__})")
        return func(*args, **(kwargs or {}))


def _no_collectives() -> AbstractContextManager[object]:
    distributed = torch.distributed
    is_shared = distributed.is_available() and distributed.is_initialized()
    return _NoCollectives() if is_shared else nullcontext()  # type: ignore[no-untyped-call]  # same


def reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
    name = type(error).__name__
    return shortened(f"{name}: {said}" if said else name)


def shortened(text: str) -> str:
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"


@contextmanager
def undone(module: nn.Module) -> Iterator[None]:
    """Restore at the end: random numbers, buffers, and parameters that the module has replaced."""
    owned = [(vars(one)[kind], {**vars(one)[kind]}) for one in module.modules() for kind in OWNED]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    devices = {t.device for t in (*nn.Module.parameters(module), *module.buffers()) if t.is_cuda}
    python = random.getstate()
    numpy: Any = sys.modules.get("numpy")
    numpys = numpy.random.get_state() if numpy else None
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield
    finally:
        random.setstate(python)
        if numpy:
            numpy.random.set_state(numpys)
        for names, own in owned:
            names.clear()
            names.update(own)
        for buffer, before in buffers:
            buffer.data.copy_(before)  # through .data, so that a graph that saved it stays valid


def _backward(module: nn.Module, inputs: Any, outputs: Any) -> None:
    """Compute the gradients of the weights, or through a model without any those of the inputs."""
    computed = _with_gradients(outputs)
    wanted = _with_gradients(list(nn.Module.parameters(module))) or _with_gradients(inputs)
    if computed and wanted:
        ones = [torch.ones_like(output) for output in computed]
        torch.autograd.grad(computed, wanted, ones, allow_unused=True)


def _with_gradients(tree: Any) -> list[Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, Tensor) and one.requires_grad]
