"""What page-locked memory would cost: to put a step's batch there, and to copy it to the GPU.

Tensors as large as the step's are handled as a loader does it.
"""

import mmap
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from gpudash.protocol import Pinning

MOST_BYTES = 64 << 20
"""Of a larger batch a part stands for all of it. With what it is copied to, and with what loader
workers share, it fills the caches of most CPUs: what is pinned in a training comes from memory."""
FREE_TIMES = 4
"""So many times the batch has to be free on the GPU: where a request fails, torch first gives up
what it keeps for the script."""
REPEATS = 3
"""The best of them counts; the first also locks memory."""
SERIAL = 1 << 14
"""Elements: torch copies fewer than twice as many on one thread, as a loader's own thread does."""
WIDE = torch.complex128
"""The largest elements."""


def measure(device: torch.device, copies: Sequence[int], steps: int) -> Pinning | None:
    """Return what a step's copies would cost, by their bytes in so many steps.

    None where there is too little memory. What the measurement took is free again, unless torch is
    too old to unlock memory.
    """
    sizes = sample(sorted(copies, reverse=True)[::steps])  # steps may copy unlike often
    times = sum(copies) / steps / sum(sizes)
    try:
        free_bytes, _ = torch.cuda.mem_get_info(device)
        if FREE_TIMES * sum(sizes) > free_bytes:
            return None
        main_ms, thread_ms, copy_ms = _measured(device, sizes)
    except (OSError, RuntimeError):
        return None
    finally:
        _give_back()
    return Pinning(pin_ms=main_ms * times, thread_pin_ms=thread_ms * times, copy_ms=copy_ms * times)


def sample(copies: Sequence[int]) -> list[int]:
    """Return as many of these sizes as are measured, in whole elements."""
    sizes, left = [], MOST_BYTES
    for size in copies:
        if left > 0:
            sizes.append(-(-min(size, left) // WIDE.itemsize) * WIDE.itemsize)
        left -= size
    return sizes


def _measured(device: torch.device, sizes: list[int]) -> tuple[float, float, float]:
    """Return what the thread that trains needs to pin, what a loader's own needs, and the copy."""
    batch = [torch.ones(size, dtype=torch.uint8, device="cpu") for size in sizes]
    locked: list[Tensor] = []
    main_ms, thread_ms = [], []
    file = os.memfd_create("gpudash")
    try:
        os.ftruncate(file, sum(sizes))
        _shared(file).fill_(1)
        for _ in range(REPEATS):
            locked.clear()  # for the next ones
            main_ms.append(_ms(lambda: locked.extend(each.pin_memory() for each in batch)))
            thread_ms.append(_by_one_thread_ms(locked, file))
    finally:
        os.close(file)
    return min(main_ms), min(thread_ms), _to_device_ms(locked, device)


def _by_one_thread_ms(locked: list[Tensor], file: int) -> float:
    """Copy what another process has written: it is in memory, but not mapped here yet."""
    batch = torch.split(_shared(file), [each.numel() for each in locked])
    pairs = [
        pair
        for target, source in zip(locked, batch, strict=True)
        for pair in zip(_pieces(target), _pieces(source), strict=True)
    ]
    return _ms(lambda: [to.copy_(of) for to, of in pairs])


def _shared(file: int) -> Tensor:
    """Map it anew."""
    return torch.frombuffer(mmap.mmap(file, 0), dtype=torch.uint8)


def _pieces(memory: Tensor) -> tuple[Tensor, ...]:
    return torch.split(memory.view(WIDE), SERIAL)


def _to_device_ms(locked: list[Tensor], device: torch.device) -> float:
    """Return what a batch takes until it is on the device, each tensor waited for."""
    pool = torch.cuda.MemPool()
    with torch.cuda.device(device), torch.cuda.use_mem_pool(pool):
        held = [torch.empty(len(each), dtype=torch.uint8, device=device) for each in locked]
    try:  # sync: copies that block, once a profile, between two steps
        return min(
            _ms(lambda: [to.copy_(of) for to, of in zip(held, locked, strict=True)])
            for _ in range(REPEATS)
        )
    finally:
        held.clear()  # before their pool, which then gives the memory back to the driver


def _ms(run: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    run()
    return (time.perf_counter() - began_s) * 1e3


def _give_back() -> None:
    """Unlock what torch would keep locked for later."""
    empty = getattr(torch.accelerator, "empty_host_cache", None)  # an older torch has none
    if empty is not None:
        with suppress(RuntimeError):
            empty()
