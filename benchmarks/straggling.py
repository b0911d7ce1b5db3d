"""A DDP training in which one rank after another is slower in a part of its step, for a while.

benchmarks/bench_stragglers.py has torchrun start it.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import torch
from bench_stragglers import LEARNING, PARTS, case_of
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if ON_GPU else torch.device("cpu")
WIDTH, BATCH = (4096, 8192) if ON_GPU else (256, 32)
CYCLES = 10**8
AT_ONCE = 4
"""Batches that come at once."""


class Delays:
    """What this rank is late in, now."""

    def __init__(self) -> None:
        self.ms = dict.fromkeys(PARTS, 0.0)
        self._extra = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=ON_GPU)
        if ON_GPU:
            self._copy(len(self._extra))
            self._bytes_a_ms = len(self._extra) / timed_ms(lambda: self._copy(len(self._extra)))
            self._cycles_a_ms = CYCLES / timed_ms(lambda: spin(CYCLES))

    def late(self, part: str, times: int = 1) -> None:
        """Take longer in this part, if it is the slow one."""
        ms = self.ms[part] * times
        if not ms:
            return
        if part == "code":
            compute(ms)
        elif part in ("data", "batches", "host") or not ON_GPU:
            time.sleep(ms / 1e3)
        elif part == "copy":
            self._copy(int(self._bytes_a_ms * ms))
        else:
            spin(int(self._cycles_a_ms * ms))

    def _copy(self, size: int) -> None:
        self._extra[:size].to(DEVICE, non_blocking=True)


def compute(ms: float) -> None:
    """Keep a core busy, while the device has nothing to do: it would hide that."""
    if ON_GPU:
        torch.cuda.synchronize()
    until_s = time.perf_counter() + ms / 1e3
    while time.perf_counter() < until_s:
        pass


def spin(cycles: int) -> None:
    """Keep the GPU busy."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # noqa: SLF001  # as in torch's own tests


def timed_ms(work: Callable[[], None]) -> float:
    """Return what it takes the GPU."""
    torch.cuda.synchronize()
    began_s = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began_s)


class Late(torch.autograd.Function):
    """The identity, late in both directions."""

    delays: Delays

    @staticmethod
    def forward(_ctx: object, x: Tensor) -> Tensor:
        """Pass it on."""
        Late.delays.late("forward")
        return x.clone()

    @staticmethod
    def backward(_ctx: object, gradient: Tensor) -> Tensor:
        """Pass it on."""
        Late.delays.late("backward")
        return gradient


class Net(nn.Module):
    """Eight layers; in their middle they are late."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        """Return the last layer's output."""
        for number, layer in enumerate(self.layers):
            x = layer(x).relu()
            if number == 4:
                x = Late.apply(x)
        return x


class Sgd(torch.optim.SGD):
    """Is late before it steps."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure is passed here
        """Step."""
        Late.delays.late("optimizer")
        super().step(closure)


class Batches(IterableDataset[Tensor]):
    """The same batch for ever, late."""

    def __iter__(self) -> Iterator[Tensor]:
        batch = torch.randn(BATCH, WIDTH, pin_memory=ON_GPU)
        for number in count():
            Late.delays.late("data")
            if number % AT_ONCE == 0:
                Late.delays.late("batches", AT_ONCE)
            yield batch


def main() -> None:
    """Train, and write how many steps a case has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schedule", type=Path)
    parser.add_argument("--first", type=int)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    if ON_GPU:
        torch.cuda.set_device(DEVICE)
    torch.set_num_threads(1)
    distributed.init_process_group("nccl" if ON_GPU else "gloo")
    delays = Late.delays = Delays()
    model = DistributedDataParallel(Net().to(DEVICE), device_ids=[DEVICE.index] if ON_GPU else None)
    optimizer = Sgd(model.parameters(), lr=1e-4)
    steps_a_case, usual_ms, began_s = 0, 0.0, 0.0
    for step, held in enumerate(DataLoader(Batches(), batch_size=None), 1):
        x = held.to(DEVICE, non_blocking=True)
        delays.late("copy")
        delays.late("code")
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=ON_GPU):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()  # as many scripts log it: the host cannot run ahead and hide a delay
        delays.late("host")
        if step == LEARNING // 2:
            began_s = time.monotonic()
        if step == LEARNING:
            told = torch.tensor([2e3 * (time.monotonic() - began_s) / LEARNING], device=DEVICE)
            distributed.broadcast(told, 0)
            usual_ms = told.item()
            steps_a_case = int(1e3 * options.seconds / usual_ms)
            if distributed.get_rank() == 0:
                options.schedule.write_text(json.dumps([steps_a_case, usual_ms]))
        if step >= LEARNING and (step - LEARNING) % steps_a_case == 0:
            number = (step - LEARNING) // steps_a_case
            if number == options.cases:
                break
            delays.ms = delays_ms(options.first + number, usual_ms)
    distributed.destroy_process_group()


def delays_ms(number: int, usual_ms: float) -> dict[str, float]:
    """Return this rank's delays in a case."""
    delays = dict.fromkeys(PARTS, 0.0)
    slowed = case_of(number, distributed.get_world_size())
    if slowed is not None and slowed[0] == distributed.get_rank():
        delays[slowed[1]] = slowed[2] / 100 * usual_ms
    return delays


if __name__ == "__main__":
    main()
