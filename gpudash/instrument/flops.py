"""Model flops of one step: counted by the shapes of what its operators multiply, while they run.

A dispatch mode sees each operator below autograd and autocast, runs it as it is, and adds what
torch's own formula says of its shapes. Nothing else is done to the step: torch's `FlopCounterMode`
also hooks all modules, and leaves a Triton kernel out that it has no formula for.

A backward pass on a GPU runs on a thread of autograd's. Its operators are seen too: a mode is part
of `at::ThreadLocalState`, which each graph task keeps and autograd's thread takes over.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from gpudash.protocol import Flops
from gpudash.trace.names import has_product

OWN = frozenset(
    {"aten", "prim", "prims", "profiler", "c10d", "_c10d_functional", "torchvision", "inductor"}
)
"""Namespaces whose operators are told by their names; of any other anything is to be expected."""


class FlopCounter:
    """What was seen of a step so far."""

    def __init__(self) -> None:
        self._flop = 0
        self._products = 0
        self._counted = 0

    def flops(self) -> Flops | None:
        """Return the sum; None where no product was counted, as of a step that a graph replays.

        `covered_pct` is the share of calls that have a formula in those that multiply matrices,
        convolve or attend. Kernels of the user's own have none, and may do all of that: each counts
        as one that does. What is computed again, as by checkpointing, counts again.
        """
        if not self._counted:
            return None
        covered_pct = 100 * self._counted / self._products
        return Flops(step_gflop=self._flop / 1e9, covered_pct=covered_pct)

    def add(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Take an operator that has run."""
        packet = getattr(operator, "_overloadpacket", operator)
        formula = flop_registry.get(packet)
        if formula is None and not multiplies(str(packet)):
            return
        self._products += 1
        if formula is not None:
            try:
                self._flop += int(formula(*args, **kwargs, out_val=out))
            except Exception:  # noqa: BLE001  # not covered; the step is not ours to fail
                return
            self._counted += 1


def multiplies(operator: str) -> bool:
    """Tell by its name, such as `aten.mm`, whether an operator has a matrix product in it."""
    namespace, _, name = operator.rpartition(".")
    if namespace not in OWN:
        return True
    return has_product(name)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]  # in torch
    """Runs what it sees, then has it counted."""

    supports_higher_order_operators = True

    def __init__(self, counter: FlopCounter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # in torch
        self._counter = counter

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Have what is compiled after all be run as it is, instead of refused."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # else autograd has taken `linear` and the like apart already
        if torch.is_inference_mode_enabled() and isinstance(func, OpOverload):
            with _Counting(self._counter):
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = func(*args, **kwargs)
        self._counter.add(func, args, kwargs, out)
        return out


def anything_compiled() -> bool:
    """Tell whether torch.compile has made a graph in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("stats", {}).get("unique_graphs", 0))


@contextmanager
def counting(device: torch.device, *, compiled: bool | None = None) -> Iterator[FlopCounter]:
    """Count one step within, on the thread that trains; the counter knows its flops afterwards.

    Nothing is counted where the step is `compiled`, which torch refuses to run whole under a mode,
    or is being captured in a graph. Where the caller does not know (None), a process in which
    anything was compiled is left alone.
    """
    counter = FlopCounter()
    if compiled is None:
        compiled = anything_compiled()
    if compiled or (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
        yield counter
        return
    with _Counting(counter):
        yield counter
