"""Measures what page-locked memory would cost: pinning a step's batch, and copying it to the GPU.

It handles tensors of the step's sizes as a loader does.
"""

import mmap
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache

import torch
from torch import Tensor

from ..protocol.inspections import Pinning

MOST_BYTES = 64 << 20
"""Of a larger batch a part stands for all. Together with its copies this exceeds the caches of most
CPUs, as in a training, where what is pinned comes from memory."""
FREE_TIMES = 4
"""Free GPU memory needed, in batches. If a request failed, torch would first release memory that it
caches for the script."""
REPEATS = 3
"""Runs. The best counts, and the slowest says how much they vary. The first one to pin also locks
memory, so it only can be the best."""
SERIAL = 1 << 14
"""Elements. torch copies fewer than twice as many on one thread, like a loader's own thread."""
WIDE = torch.complex128
"""The largest element type."""


def measure(device: torch.device, copies: Sequence[int], steps: int) -> Pinning | None:
    """Return what a step's copies would cost; `copies` has the bytes of each copy in `steps` steps.

    Takes 0.1 s of the training's time, once in a process for batches of the same sizes. None if
    there is too little memory. Page-locked memory stays in an older torch.
    """
    sizes = tuple(sample(sorted(copies, reverse=True)[::steps]))  # steps may differ in their copies
    times = sum(copies) / steps / sum(sizes)
    try:
        runs_ms = _measured(device, sizes)
    except (OSError, RuntimeError):
        return None
    pin_ms, thread_pin_ms, copy_ms = (min(each) * times for each in runs_ms)
    slower = max(max(each[1:]) / min(each) for each in runs_ms)
    return Pinning(pin_ms=pin_ms, thread_pin_ms=thread_pin_ms, copy_ms=copy_ms, slower=slower)


def sample(copies: Sequence[int]) -> list[int]:
    sizes, left = [], MOST_BYTES
    for size in copies:
        if left > 0:
            sizes.append(-(-min(size, left) // WIDE.itemsize) * WIDE.itemsize)
        left -= size
    return sizes


@lru_cache(maxsize=16)
def _measured(device: torch.device, sizes: tuple[int, ...]) -> tuple[list[float], ...]:
    """Return the ms of each run: pinning on the training thread, on a loader's, and the copy."""
    free_bytes, _ = torch.cuda.mem_get_info(device)
    if FREE_TIMES * sum(sizes) > free_bytes:
        raise RuntimeError("it would leave the script too little memory")
    try:
        return _runs_ms(device, sizes)
    finally:
        _give_back()


def _runs_ms(device: torch.device, sizes: tuple[int, ...]) -> tuple[list[float], ...]:
    batch = [torch.ones(size, dtype=torch.uint8, device="cpu") for size in sizes]
    locked: list[Tensor] = []
    main_ms, thread_ms = [], []
    file = os.memfd_create("gpudash")
    try:
        os.ftruncate(file, sum(sizes))
        _shared(file).fill_(1)
        for _ in range(REPEATS):
            locked.clear()  # reused by the next run
            main_ms.append(_ms(lambda: locked.extend(each.pin_memory() for each in batch)))
            thread_ms.append(_by_one_thread_ms(locked, file))
    finally:
        os.close(file)
    return main_ms, thread_ms, _to_device_ms(locked, device)


def _by_one_thread_ms(locked: list[Tensor], file: int) -> float:
    batch = torch.split(_shared(file), [each.numel() for each in locked])
    pairs = [
        pair
        for target, source in zip(locked, batch, strict=True)
        for pair in zip(_pieces(target), _pieces(source), strict=True)
    ]
    return _ms(lambda: [to.copy_(of) for to, of in pairs])


def _shared(file: int) -> Tensor:
    return torch.frombuffer(mmap.mmap(file, 0), dtype=torch.uint8)


def _pieces(memory: Tensor) -> tuple[Tensor, ...]:
    return torch.split(memory.view(WIDE), SERIAL)


def _to_device_ms(locked: list[Tensor], device: torch.device) -> list[float]:
    pool = torch.cuda.MemPool()
    with torch.cuda.device(device), torch.cuda.use_mem_pool(pool):
        held = [torch.empty(len(each), dtype=torch.uint8, device=device) for each in locked]
    try:  # sync: blocking copies, once a profile, between two steps
        return [
            _ms(lambda: [to.copy_(of) for to, of in zip(held, locked, strict=True)])
            for _ in range(REPEATS)
        ]
    finally:
        held.clear()  # before their pool, which then returns the memory to the driver


def _ms(run: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    run()
    return (time.perf_counter() - began_s) * 1e3


def _give_back() -> None:
    accelerator = getattr(torch, "accelerator", None)  # both are missing in an older torch
    empty = getattr(accelerator, "empty_host_cache", None)
    if empty is not None:
        with suppress(RuntimeError):
            empty()
