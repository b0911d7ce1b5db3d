"""A DDP training in which one rank after another is slower in a part of its step, for a while.

benchmarks/bench_stragglers.py has torchrun start it. On a CPU most of a step is slept away, so that
two cores are enough for some ranks. A clock of its own says how late each rank is: from the end of
a step's collectives to the last gradient of the next one no rank waits for another.
"""

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from bench_stragglers import LEARNING, PARTS, case_of
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if ON_GPU else torch.device("cpu")
CYCLES = 10**8
AT_ONCE = 4
"""Batches that come at once, or loader workers."""
SLEPT_MS = {"data": 10, "code": 10, "forward": 25, "backward": 50, "optimizer": 10}
"""What a step sleeps on a CPU."""
OF_CLOCK = {"forward": 0.3, "backward": 0.6, "optimizer": 0.1}
"""Where a slower clock takes longer."""


class Delays:
    """What this rank is late in, now."""

    def __init__(self) -> None:
        self.ms = dict.fromkeys(PARTS, 0.0)
        self.made_ms: Tensor = torch.zeros(1).share_memory_()  # type: ignore[no-untyped-call]  # in torch
        """What a batch takes each loader worker."""
        self._factors = torch.randn(256, 256)
        self._extra = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=ON_GPU)
        if ON_GPU:
            self._copy(len(self._extra))
            self._bytes_a_ms = len(self._extra) / timed_ms(lambda: self._copy(len(self._extra)))
            self._cycles_a_ms = CYCLES / timed_ms(lambda: spin(CYCLES))

    def plant(self, number: int, usual_ms: float) -> None:
        """Take this rank's delays in a case."""
        self.ms, slowed = dict.fromkeys(PARTS, 0.0), case_of(number, distributed.get_world_size())
        if slowed is not None and slowed[0] == distributed.get_rank():
            self.ms[slowed[1]] = slowed[2] / 100 * usual_ms
        late_ms = self.ms["data"] + self.ms["batches"]
        self.made_ms.fill_(AT_ONCE * (usual_ms + late_ms) if late_ms else 0.0)

    def late(self, part: str, times: int = 1) -> None:
        """Take longer in this part, if it is the slow one."""
        if not ON_GPU:
            time.sleep(SLEPT_MS.get(part, 0) / 1e3)
        self._compute(self.ms["clock"] * OF_CLOCK.get(part, 0.0))
        if not (ms := self.ms[part] * times):
            return
        if part in ("before", "code"):
            busy(ms)
        elif part in ("data", "batches", "host") or not ON_GPU:
            time.sleep(ms / 1e3)
        elif part == "copy":
            self._copy(int(self._bytes_a_ms * ms))
        else:
            spin(int(self._cycles_a_ms * ms))

    def _compute(self, ms: float) -> None:
        if ON_GPU and ms:
            spin(int(self._cycles_a_ms * ms))
        until_s = time.perf_counter() + (0.0 if ON_GPU else ms / 1e3)
        while time.perf_counter() < until_s:
            self._factors @ self._factors

    def _copy(self, size: int) -> None:
        self._extra[:size].to(DEVICE, non_blocking=True)


def busy(ms: float) -> None:
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
    """Layers; in their middle they are late."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the last layer's output."""
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number == len(self.layers) // 2:
                x = Late.apply(x)
        return x


class Block(nn.Module):
    """Two convolutions, and what they are added to."""

    def __init__(self, width: int) -> None:
        super().__init__()
        convolution = (nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
        self.added = nn.Sequential(*convolution, nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Add them."""
        added: Tensor = self.added(x)
        return x + added


def mlp() -> tuple[nn.Module, Tensor]:
    """Return eight layers, and a batch."""
    width, batch = (4096, 8192) if ON_GPU else (256, 32)
    layers = (nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(8))
    return Net(*layers), torch.randn(batch, width)


def resnet() -> tuple[nn.Module, Tensor]:
    """Return residual blocks, and a batch of pictures."""
    width, blocks, size, batch = (128, 12, 56, 48) if ON_GPU else (8, 4, 16, 4)
    blocks_of = (Block(width) for _ in range(blocks))
    return Net(nn.Conv2d(3, width, 1), *blocks_of), torch.randn(batch, 3, size, size)


def transformer() -> tuple[nn.Module, Tensor]:
    """Return an encoder with its embedding, and a batch of words."""
    width, words, batch = (1024, 512, 16) if ON_GPU else (64, 16, 4)
    layers = (nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True) for _ in range(8))
    return Net(nn.Embedding(8000, width), *layers), torch.randint(8000, (batch, words))


MODELS = {"mlp": mlp, "resnet": resnet, "transformer": transformer}


class Sgd(torch.optim.SGD):
    """Is late before it steps."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure is passed here
        """Step."""
        Late.delays.late("optimizer")
        super().step(closure)


class Batches(IterableDataset[Tensor]):
    """The same batch for ever, late."""

    def __init__(self, batch: Tensor) -> None:
        self.batch = batch.pin_memory() if ON_GPU else batch

    def __iter__(self) -> Iterator[Tensor]:
        for number in count():
            Late.delays.late("data")
            if number % AT_ONCE == 0:
                Late.delays.late("batches", AT_ONCE)
            yield self.batch


class Made(Dataset[Tensor]):
    """The same batch, which a loader worker is late with."""

    def __init__(self, batch: Tensor, made_ms: Tensor) -> None:
        self.batch, self.made_ms = batch, made_ms

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, _index: int) -> Tensor:
        time.sleep(self.made_ms.item() / 1e3)
        return self.batch.clone()


def between_ms(begin: Any, end: Any) -> float:
    """Return the time between two moments of the clock."""
    took_ms: float = begin.elapsed_time(end) if ON_GPU else 1e3 * (end - begin)
    return took_ms


class OutsideClock:
    """How long this rank takes from the end of a step's collectives to its next last gradient."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.own_ms = defaultdict[int, list[float]](list)
        """By case."""
        self._began = self._freed = self._ready = self._called = self._entered = self._now()
        model.register_forward_pre_hook(self._is_called)
        model.module.register_forward_pre_hook(self._is_entered)
        next(model.parameters()).register_post_accumulate_grad_hook(self._is_ready)  # type: ignore[no-untyped-call]  # in torch

    def _now(self) -> Any:
        if not ON_GPU:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # in torch
        event.record()
        return event

    def _is_called(self, _model: nn.Module, _args: object) -> None:
        self._called = self._now()

    def _is_entered(self, _model: nn.Module, _args: object) -> None:
        self._entered = self._now()

    def _is_ready(self, _weight: Tensor) -> None:
        self._ready = self._now()

    def freed(self) -> None:
        """Note that the collectives of a step are over."""
        self._freed = self._now()

    def read(self, case: int) -> None:
        """Read the time of the step, which the device has done."""
        buffers_ms = between_ms(self._called, self._entered)  # rank 0 sends them to the others
        self.own_ms[case].append(between_ms(self._began, self._ready) - buffers_ms)
        self._began = self._freed


def main() -> None:
    """Train; write the schedule, and what the clock outside says of each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--first", type=int)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--after", type=Path)
    options = parser.parse_args()
    if ON_GPU:
        torch.cuda.set_device(DEVICE)
    torch.set_num_threads(1)
    distributed.init_process_group("nccl" if ON_GPU else "gloo")
    Late.delays = Delays()
    schedule = train(options)
    told_to: Path = options.folder / f"schedule-{distributed.get_rank()}.json"
    told_to.write_text(json.dumps(schedule))
    distributed.barrier()
    distributed.destroy_process_group()


def train(options: argparse.Namespace) -> dict[str, object]:
    """Return the schedule, with the time of this rank alone by case."""
    net, batch = MODELS[options.model]()
    model = DistributedDataParallel(net.to(DEVICE), device_ids=[DEVICE.index] if ON_GPU else None)
    clock = OutsideClock(model)
    optimizer = Sgd(model.parameters(), lr=1e-5)
    batches = loader(batch, has_workers=ON_GPU and options.model == "resnet")
    while options.after is not None and not options.after.exists():
        time.sleep(0.1)
    learning = LEARNING if ON_GPU else LEARNING // 10
    case, steps, usual_ms, began_s = -1, 0, 0.0, 0.0
    for step, held in enumerate(batches, 1):
        train_on(held, model, optimizer, clock, case)
        if step == learning // 2:
            began_s = time.monotonic()
        if step == learning:
            told = torch.tensor([2e3 * (time.monotonic() - began_s) / learning], device=DEVICE)
            distributed.broadcast(told, 0)
            usual_ms = told.item()
            steps = int(1e3 * options.seconds / usual_ms)
        if step >= learning and (step - learning) % steps == 0:
            case += 1
            if case == options.cases:
                break
            Late.delays.plant(options.first + case, usual_ms)
    own_ms = {case: fmean(ms[len(ms) // 10 :]) for case, ms in clock.own_ms.items()}
    return {"learning": learning, "steps": steps, "step_ms": usual_ms, "own_ms": own_ms}


def loader(batch: Tensor, *, has_workers: bool) -> DataLoader[Tensor]:
    """Return one whose workers are late, or that is late itself."""
    if not has_workers:
        return DataLoader(Batches(batch), batch_size=None)
    made = Made(batch, Late.delays.made_ms)
    return DataLoader(made, batch_size=None, num_workers=AT_ONCE, pin_memory=True)


def train_on(
    held: Tensor, model: DistributedDataParallel, optimizer: Sgd, clock: OutsideClock, case: int
) -> None:
    """Train a step."""
    late = Late.delays.late
    late("before")
    x = held.to(DEVICE, non_blocking=True)
    late("copy")
    late("code")
    optimizer.zero_grad()
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=ON_GPU):
        loss = model(x).square().mean()
    loss.backward()
    clock.freed()
    optimizer.step()
    loss.item()  # as many scripts log it: the host cannot run ahead and hide a delay
    clock.read(case)
    late("host")


if __name__ == "__main__":
    main()
