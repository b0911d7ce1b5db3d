"""A training of several ranks, one of which is slowed down in one part of its step, on request.

    torchrun --nproc-per-node=2 slowed_training.py --delay FILE --slow-rank 1

FILE holds two numbers, which part and by how many milliseconds; `bench_stragglers.py` writes them
while this trains. The loss is read each step, as many scripts do: no run-ahead hides the host.
"""

import argparse
import mmap
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
import torch.distributed as dist
from delays import DELAY, PARTS
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

_sleep: Callable[[int], None] = torch.cuda._sleep  # noqa: SLF001  # as torch's own tests
"""Keeps the current stream busy for so many cycles."""


class Delay:
    """What this rank is to be slowed down by."""

    def __init__(self, file: Path, device: torch.device, *, is_slow: bool) -> None:
        with file.open("rb") as opened:
            self._bytes = mmap.mmap(opened.fileno(), DELAY.size, prot=mmap.PROT_READ)
        self._device, self._is_slow = device, is_slow
        self._cycles_per_ms = _cycles_per_ms(device)

    def __call__(self, part: str, *, on_device: bool = True) -> None:
        """Lose the time, if it is to be lost here."""
        index, ms = DELAY.unpack(self._bytes[: DELAY.size])
        if not self._is_slow or PARTS[index] != part:
            return
        if on_device and self._device.type == "cuda":
            _sleep(int(ms * self._cycles_per_ms))
        else:
            time.sleep(ms / 1e3)


def _cycles_per_ms(device: torch.device) -> float:
    if device.type != "cuda":
        return 0.0
    begin, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    _sleep(1 << 20)
    begin.record()
    _sleep(1 << 24)
    end.record()
    end.synchronize()
    return (1 << 24) / float(begin.elapsed_time(end))


class Rows(Dataset[Tensor]):
    """Random rows; a batch may come late."""

    def __init__(self, delay: Delay, width: int, rows: int) -> None:
        self._delay, self._batch = delay, torch.randn(rows, width)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, _index: int) -> Tensor:
        self._delay("input", on_device=False)
        return self._batch


class Slowed(nn.Module):
    """A layer's input as it is; a delay in its forward pass, or in its backward pass."""

    def __init__(self, delay: Delay) -> None:
        super().__init__()
        self._delay = delay

    def forward(self, rows: Tensor) -> Tensor:
        """Return the rows."""
        self._delay("forward")
        if rows.requires_grad:
            rows.register_hook(lambda _gradient: self._delay("backward"))  # type: ignore[no-untyped-call]
        return rows


class SlowedSGD(torch.optim.SGD):
    """With a delay in its step."""

    def __init__(self, weights: Iterable[nn.Parameter], delay: Delay) -> None:
        super().__init__(weights, lr=1e-6)
        self._delay = delay

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure here
        """Lose the time, and step."""
        self._delay("optimizer")
        super().step(closure)


def main() -> None:
    """Train until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--delay", type=Path, required=True)
    parser.add_argument("--slow-rank", type=int, default=1)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=8)
    arguments = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    torch.set_num_threads(1)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    delay = Delay(arguments.delay, device, is_slow=dist.get_rank() == arguments.slow_rank)
    width = arguments.width
    layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(arguments.layers)]
    layers.insert(len(layers) // 2, nn.Sequential(Slowed(delay)))
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    optimizer = SlowedSGD(model.parameters(), delay)
    for batch in DataLoader(Rows(delay, width, arguments.rows), batch_size=None):
        rows = batch.to(device)
        delay("copy")
        optimizer.zero_grad()
        loss = model(rows).square().mean()
        loss.backward()
        optimizer.step()
        delay("host", on_device=False)
        loss.item()


if __name__ == "__main__":
    main()
