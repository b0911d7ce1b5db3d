"""A root's newest training call once more, forward and backward, to see whether a lever breaks it.

Random numbers and buffers are put back, and gradients go nowhere. What else a script's `forward`
keeps in Python, such as a counter of calls, is changed by the rehearsal too.

Of a model in DistributedDataParallel the inner one is called: the wrapper would wait for a backward
pass. A collective in a rehearsal is a refusal: on a rank whose rehearsal fails before it, nobody
would take part in it.
"""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpudash.hooks.found import Call, Root
from gpudash.hooks.levers.offers import Refusal
from gpudash.hooks.signals import is_from_handler

COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional")
"""Namespaces of operators that other ranks take part in."""
OWNED = ("_parameters", "_buffers")
"""Where a module has them by name: some models replace one at each call."""
MAX_REASON = 160
"""Characters of an error that become a refusal's reason."""


def rehearse(root: Root, around: Callable[[Call], Call]) -> None:
    """Compute a root's newest call with `around` put around it, and undo it. Raises Refusal."""
    module, newest = root.module, root.newest
    if module is None or newest is None:
        raise Refusal("the model was not called in the newest step")
    called: Any = module.module if isinstance(module, DistributedDataParallel) else module
    call = around(called._call_impl)  # noqa: SLF001  # its call without the tracker's own
    why = None
    try:
        with undone(module), _alone(), torch.inference_mode(False), torch.enable_grad():
            with torch.autocast(*newest.autocast) if newest.autocast else nullcontext():
                outputs = call(*newest.args, **newest.kwargs)
            _backward(module, outputs)
    except Refusal:
        raise
    except Exception as error:  # whatever the model raises is a reason
        if is_from_handler(error):
            raise
        why = reason(error)
    if why:  # the error is gone by now, and what its frames held
        raise Refusal(why)


class _NoCollectives(TorchDispatchMode):  # type: ignore[no-untyped-call]  # in torch
    """Raises Refusal at a collective, before any rank is asked for its part."""

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


def _alone() -> AbstractContextManager[object]:
    distributed = torch.distributed
    is_shared = distributed.is_available() and distributed.is_initialized()
    return _NoCollectives() if is_shared else nullcontext()  # type: ignore[no-untyped-call]  # same


def reason(error: BaseException) -> str:
    """Return an error as a clause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
    name = type(error).__name__
    return shortened(f"{name}: {said}" if said else name)


def shortened(text: str) -> str:
    """Return a text that is no longer than a reason may be."""
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"


@contextmanager
def undone(module: nn.Module) -> Iterator[None]:
    """Put random numbers and the module's buffers back at the end, and what it has replaced."""
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
            buffer.data.copy_(before)  # through .data: a graph that saved it is still valid


def _backward(module: nn.Module, outputs: Any) -> None:
    computed = [t for t in tree_leaves(outputs) if isinstance(t, Tensor) and t.requires_grad]
    weights = [weight for weight in nn.Module.parameters(module) if weight.requires_grad]
    if computed and weights:
        ones = [torch.ones_like(output) for output in computed]
        torch.autograd.grad(computed, weights, ones, allow_unused=True)
