"""Counts the model flops of one step from the shapes of its operators' arguments.

A dispatch mode sees each operator below autograd and autocast, and adds the flops of torch's own
formula. torch's `FlopCounterMode` would also hook all modules, and would not see Triton kernels
without a formula. The mode is part of `at::ThreadLocalState`, which autograd's thread takes from
the graph task, so the backward pass on a GPU is seen too.

`begin_measuring` finds what the device reaches at its best, by large products and a copy.
"""

import math
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ..protocol.inspections import Flops, Peak
from ..trace.names import has_product
from .private_torch import has_newer_precision

OWN = frozenset(
    {"aten", "prim", "prims", "profiler", "c10d", "_c10d_functional", "torchvision", "inductor"}
)
"""Namespaces whose operators' names say what they do. In others anything may multiply."""


class _FlopCounter:
    """The flops counted so far, by the phase that was marked before them on whatever thread."""

    def __init__(self) -> None:
        self._names = [""]  # of the phases, in order; nothing is marked at first
        self._flop = [0]  # in each of them
        self._products = 0
        self._counted = 0

    def flops(self) -> Flops | None:
        """None without a counted product, as in a CUDA graph's replay.

        Each of the user's own kernels counts as a call without a formula in `covered_pct`.
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
        self._names.append(phase)
        self._flop.append(0)

    def rename(self, phase: str) -> None:
        self._names[-1] = phase

    def add(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
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
    namespace, _, name = operator.rpartition(".")
    if namespace not in OWN:
        return True
    return has_product(name)


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]  # in torch
    """Runs each operator, then has it counted."""

    supports_higher_order_operators = True

    def __init__(self, counter: _FlopCounter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # in torch
        self._counter = counter

    @classmethod
    def ignore_compile_internals(cls) -> bool:
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
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("stats", {}).get("unique_graphs", 0))


@contextmanager
def counting(device: torch.device, *, compiled: bool | None = None) -> Iterator[_FlopCounter]:
    """Count nothing while a CUDA graph is captured, or if the step is `compiled`.

    None: it is compiled if anything in the process is. torch runs no compiled code under a mode.
    """
    counter = _FlopCounter()
    if compiled is None:
        compiled = anything_compiled()
    if compiled or (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
        yield counter
        return
    with _Counting(counter):
        yield counter


PRECISIONS = {
    "fp32": (torch.float32, 4096),
    "tf32": (torch.float32, 8192),
    "bf16": (torch.bfloat16, 8192),
}
"""The dtype of the elements, and the side of matrices that fill any GPU."""
ALL = tuple(PRECISIONS)
SMALLEST_SIDE = 1024
REPEATS = 3
"""Runs, of which the best counts. The first one also loads the kernel."""
MOST_ROOM = 3 * 8192**2 * 4
LEAST_ROOM = 3 * SMALLEST_SIDE**2 * 4
CPU_COPY_BYTES = 32 << 20
CPU_SIDE = 1024
CPU_BUDGET_S = 0.05
"""Seconds to repeat for, with one run at least. A CPU has other work too."""


def begin_measuring(device: torch.device, precisions: Collection[str]) -> Callable[[], Peak | None]:
    """Begin on an idle device; the function returned waits for it. Until then the host is free.

    It returns None if there is too little memory. torch's peak of memory includes what was used.
    """
    wanted = [name for name in PRECISIONS if name in precisions]
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            read = _of_cpu(wanted) if device.type == "cpu" else _of_gpu(device, wanted)
    except (RuntimeError, AttributeError):  # out of memory, or no pools in allocator or torch
        return lambda: None

    def found() -> Peak | None:
        try:
            return read()
        except RuntimeError:
            return None

    return found


def side(precision: str, room_bytes: int) -> int | None:
    dtype, fitting = PRECISIONS[precision]
    while fitting >= SMALLEST_SIDE:
        if 3 * fitting**2 * dtype.itemsize <= room_bytes:
            return fitting
        fitting //= 2
    return None


@contextmanager
def multiplying(precision: str) -> Iterator[None]:
    """Use torch's older interface if it works; it raises once the script has used the newer one."""
    backends: Any = torch.backends
    places: list[Any] = []
    if has_newer_precision():
        places = [backends.cuda.matmul, backends.mkldnn.matmul]
    before = [place.fp32_precision for place in places]
    is_tf32 = precision == "tf32"
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:
        older = None
    try:
        if older:
            torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
        else:
            places[0].fp32_precision = "tf32" if is_tf32 else "ieee"
        yield
    finally:
        if older:
            torch.set_float32_matmul_precision(older)
        for place, value in zip(places, before, strict=True):
            if not older:
                place.fp32_precision = "none"  # perhaps it followed another setting
            if place.fp32_precision != value:
                place.fp32_precision = value


def _of_gpu(device: torch.device, wanted: list[str]) -> Callable[[], Peak | None]:
    free_bytes, _ = torch.cuda.mem_get_info(device)
    room_bytes = min(MOST_ROOM, free_bytes // 64 * 16)  # whole elements in both halves
    if room_bytes < LEAST_ROOM:
        return lambda: None
    pool = torch.cuda.MemPool()
    with torch.cuda.device(device):
        with torch.cuda.use_mem_pool(pool):
            held: list[Any] = [torch.empty(room_bytes, dtype=torch.uint8, device=device), pool]
        read = _in_room(held[0], wanted)

    def found() -> Peak:
        try:
            return read()
        finally:
            del held[0]  # before its pool, which then gives the memory back to the driver
            held.clear()

    return found


def _in_room(room: Tensor, wanted: list[str]) -> Callable[[], Peak]:
    device = room.device
    is_new = torch.cuda.get_device_capability(device) >= (8, 0)  # Ampere
    random = torch.Generator(device).manual_seed(0)
    timed = {}
    for precision in wanted:
        n = side(precision, room.numel())
        if n and (is_new or precision == "fp32"):
            dtype, _ = PRECISIONS[precision]
            a, b, c = room.view(dtype)[: 3 * n * n].view(3, n, n)
            for factor in (a, b):  # zeros would need less power, and be faster
                factor.uniform_(-1, 1, generator=random)
            with multiplying(precision):
                timed[precision] = 2 * n**3, _timed(device, partial(torch.mm, a, b, out=c))
    source, target = room.view(2, -1)
    copied, size = _timed(device, partial(target.copy_, source)), room.numel()

    def read() -> Peak:
        copied[-1].synchronize()  # sync: once a profile, between two steps
        tflops = {name: flop / _best_s(events) / 1e12 for name, (flop, events) in timed.items()}
        return Peak(matmul_tflops=tflops, memory_gb_s=size / _best_s(copied) / 1e9)

    return read


def _timed(device: torch.device, run: Callable[[], Tensor]) -> list[torch.Event]:
    events = [torch.Event(device, enable_timing=True) for _ in range(REPEATS + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    return events


def _best_s(events: list[torch.Event]) -> float:
    return min(float(begin.elapsed_time(end)) for begin, end in pairwise(events)) / 1e3


def _of_cpu(wanted: list[str]) -> Callable[[], Peak]:
    random = torch.Generator().manual_seed(0)
    tflops = {
        precision: _cpu_tflops(PRECISIONS[precision][0], random)
        for precision in wanted
        if precision != "tf32"
    }
    source, target = torch.ones(2, CPU_COPY_BYTES, dtype=torch.uint8)  # zeros may share one page
    copied_s = _cpu_s(partial(target.copy_, source))
    peak = Peak(matmul_tflops=tflops, memory_gb_s=2 * CPU_COPY_BYTES / copied_s / 1e9)
    return lambda: peak


def _cpu_tflops(dtype: torch.dtype, random: torch.Generator) -> float:
    a, b = torch.empty(2, CPU_SIDE, CPU_SIDE, dtype=dtype).uniform_(-1, 1, generator=random)
    return 2 * CPU_SIDE**3 / _cpu_s(partial(torch.mm, a, b)) / 1e12


def _cpu_s(run: Callable[[], Tensor]) -> float:
    best_s, until_s = math.inf, time.perf_counter() + CPU_BUDGET_S
    while best_s == math.inf or time.perf_counter() < until_s:
        began_s = time.perf_counter()
        run()
        best_s = min(best_s, time.perf_counter() - began_s)
    return best_s
