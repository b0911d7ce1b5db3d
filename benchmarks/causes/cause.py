"""What the scripts in this folder share: arguments, small networks, a loop that ends in time."""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, SupportsFloat, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

T = TypeVar("T")
STEPS = 8
"""Are timed together, so that what comes before the first launch hardly counts."""


class Setting(NamedTuple):
    """Where and for how long a script trains."""

    device: torch.device
    seconds: float
    mended_while: Path
    """As long as this file is there, the cause is not."""

    @property
    def is_mended(self) -> bool:
        """Whether the script is to do without what makes it slow, now."""
        return self.mended_while.is_file()

    def size(self, on_gpu: T, on_cpu: T) -> T:
        """Return the size for this device: an H200, or two cores."""
        return on_gpu if self.device.type == "cuda" else on_cpu


def setting(description: str | None) -> Setting:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--mended-while", type=Path, default=Path("mended"), metavar="FILE")
    arguments = parser.parse_args()
    return Setting(torch.device(arguments.device), arguments.seconds, arguments.mended_while)


def mlp(width: int, layers: int, inputs: int | None = None) -> nn.Sequential:
    """Return linear layers with a ReLU between them."""
    hidden = ((nn.Linear(width, width), nn.ReLU()) for _ in range(layers - 1))
    return nn.Sequential(nn.Linear(inputs or width, width), nn.ReLU(), *chain.from_iterable(hidden))


def for_ever(batches: Iterable[T]) -> Iterable[T]:
    """Return the batches of one epoch after the other."""
    return chain.from_iterable(repeat(batches))


def until_over(seconds: float, batches: Iterable[T]) -> Iterator[T]:
    """Yield batches until the time is over."""
    until_s = time.monotonic() + seconds
    for batch in batches:
        yield batch
        if time.monotonic() > until_s:
            return


def train(
    seconds: float,
    model: nn.Module,
    batches: Iterable[Any],
    loss_of: Callable[[Any], Tensor],
    optimizer: torch.optim.Optimizer | None = None,
    after_step: Callable[[int], object] = lambda _: None,
) -> None:
    """Train until the time is over, or Ctrl-C."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-4)
    with suppress(KeyboardInterrupt):  # the benchmark has seen enough
        for step, batch in enumerate(until_over(seconds, batches)):
            optimizer.zero_grad()
            loss_of(batch).backward()  # type: ignore[no-untyped-call]  # in torch
            optimizer.step()
            after_step(step)


def step_s(model: nn.Module, batch: Tensor) -> float:
    """Return how long the device works on a step: it never waits for the host here."""
    optimizer, times_s = torch.optim.SGD(model.parameters(), lr=1e-4), []
    for _ in range(5):
        began_s = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
        next(model.parameters()).sum().item()  # the device has finished
        times_s.append((time.perf_counter() - began_s) / STEPS)
    return median(times_s)


class Sums(nn.Module):
    """Running sums over long rows: much work for few SMs, from few launches."""

    def __init__(self, length: int, layers: int) -> None:
        super().__init__()
        weights = (nn.Parameter(torch.randn(length) / length) for _ in range(layers))
        self._weights = nn.ParameterList(weights)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the rows (rows, length) after all layers."""
        for weight in self._weights:
            rows = (rows * weight).cumsum(-1)
        return rows


class Late(Dataset[Tensor]):
    """The same batch each time, after a while."""

    def __init__(self, batch: Tensor, late_s: SupportsFloat) -> None:
        self._batch, self._late_s = batch, late_s

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, _index: int) -> Tensor:
        time.sleep(float(self._late_s))
        return self._batch


class Pace:
    """Two rests in each step, as long as each other: a batch is late, and the script is busy.

    Both are a share of the step as it just was, and what a batch takes from its worker to the
    training is made up for. So the shares are the same on a fast host, on a slow one and on a busy
    one.
    """

    SHARE = 0.07
    GAIN = 0.1
    """Of what a batch was early, the next one is later: what is prefetched comes first."""
    LONGEST = 5.0
    """In shares. A batch that is later was held up by something else."""

    def __init__(self, setting: Setting, work_s: float) -> None:
        self._device_s = setting.size(work_s, 0.0)  # a CPU has done its work when a call returns
        self._came_s = self._asked_s = time.monotonic()
        self.late_s = torch.tensor([work_s])
        """How long the next batch takes to make."""
        self.late_s.share_memory_()  # type: ignore[no-untyped-call]  # in torch

    def timed(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches; see when each came."""
        for batch in batches:
            self._came_s = time.monotonic()
            yield batch

    def rest(self, _step: int) -> None:
        """Let the device finish, and rest; make the next batches later, or less late."""
        done_s = max(time.monotonic(), self._came_s + self._device_s)
        share_s = (done_s - self._came_s) * self.SHARE / (1 - 2 * self.SHARE)
        early_s = share_s - (self._came_s - self._asked_s)
        self.late_s += self.GAIN * max(early_s, -self.LONGEST * share_s)
        self.late_s.clamp_(min=0.0)
        time.sleep(max(done_s + share_s - time.monotonic(), 0.0))
        self._asked_s = time.monotonic()
