"""Counts the model flops of one step from the shapes of its operators' arguments.

A dispatch mode sees each operator below autograd and autocast, runs it unchanged, and adds the
flops of torch's own formula. torch's `FlopCounterMode` would also hook all modules, and would not
see Triton kernels without a formula.

On a GPU the backward pass runs on autograd's thread. Its operators are seen too: the mode is part
of `at::ThreadLocalState`, which autograd's thread takes from the graph task.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ..protocol.inspections import Flops
from ..trace.names import has_product

OWN = frozenset(
    {"aten", "prim", "prims", "profiler", "c10d", "_c10d_functional", "torchvision", "inductor"}
)
"""Namespaces whose operators' names say what they do. In others anything may multiply."""


class FlopCounter:
    """The flops counted so far, by the phase that was marked before them on whatever thread."""

    def __init__(self) -> None:
        self._names = [""]  # of the phases, in order; nothing is marked at first
        self._flop = [0]  # in each of them
        self._products = 0
        self._counted = 0

    def flops(self) -> Flops | None:
        """Return the step's flops; None without a counted product, as in a CUDA graph's replay.

        `covered_pct` is the share of calls with a formula among those that multiply matrices,
        convolve or attend. The user's own kernels have no formula. Each counts as one such call.
        Recomputation, as in checkpointing, counts again.
        """
        if not self._counted:
            return None
        phases = dict[str, int]()
        for name, flop in zip(self._names, self._flop, strict=True):
            if name and flop:
                phases[name] = phases.get(name, 0) + flop
        return Flops(
            step_gflop=sum(self._flop) / 1e9,
            covered_pct=100 * self._counted / self._products,
            phases_gflop={name: flop / 1e9 for name, flop in phases.items()},
        )

    def mark(self, phase: str) -> None:
        """Begin a phase."""
        self._names.append(phase)
        self._flop.append(0)

    def rename(self, phase: str) -> None:
        """Rename the phase in progress, where only its end shows what it was."""
        self._names[-1] = phase

    def add(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Count an operator that has run."""
        packet = getattr(operator, "_overloadpacket", operator)
        formula = flop_registry.get(packet)
        if formula is None and not multiplies(str(packet)):
            return
        self._products += 1
        if formula is not None:
            try:
                self._flop[-1] += int(formula(*args, **kwargs, out_val=out))
            except Exception:  # noqa: BLE001  # not covered, but the step must not fail
                return
            self._counted += 1


def multiplies(operator: str) -> bool:
    """Return whether an operator, by a name such as `aten.mm`, has a matrix product in it."""
    namespace, _, name = operator.rpartition(".")
    if namespace not in OWN:
        return True
    return has_product(name)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]  # in torch
    """Runs each operator, then has it counted."""

    supports_higher_order_operators = True

    def __init__(self, counter: FlopCounter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # in torch
        self._counter = counter

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Run compiled code unchanged, where torch would raise."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # inference mode skips autograd, which otherwise decomposes `linear` and the like
        if torch.is_inference_mode_enabled() and isinstance(func, OpOverload):
            with _Counting(self._counter):
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = func(*args, **kwargs)
        self._counter.add(func, args, kwargs, out)
        return out


def anything_compiled() -> bool:
    """Return whether torch.compile has made a graph in this process."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("stats", {}).get("unique_graphs", 0))


@contextmanager
def counting(device: torch.device, *, compiled: bool | None = None) -> Iterator[FlopCounter]:
    """Count one step inside the block, on the thread that trains; read the counter afterwards.

    Nothing is counted while a CUDA graph is captured, or if the step is `compiled`: torch refuses
    to run compiled code under a mode. With None, a process in which anything was compiled counts as
    compiled.
    """
    counter = FlopCounter()
    if compiled is None:
        compiled = anything_compiled()
    if compiled or (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
        yield counter
        return
    with _Counting(counter):
        yield counter
