"""How often planted faults move the losses, and how often equal sides seem to.

    python benchmarks/bench_losses.py --equal 34
    python benchmarks/bench_losses.py --equal 0 --simulated 200

Small real trainings on the CPU, four starts a side, 64 steps. `repeats` computes the same again.
`rounds` is a device that does not: each gradient has an error of 1e-7, as from sums in another
order, and training makes it grow. `other seeds` also begins each start elsewhere, with other
batches: faults of this size are not expected to be found there, and not planted. `--simulated` has
equal sides of many starts without a training, whose noise has heavy tails.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudash.compare.losses import MOST_STEPS, compare_losses, sentence

Array: TypeAlias = npt.NDArray[np.float64]
Draw: TypeAlias = Callable[[tuple[int, int]], Array]
FALLING = 2.3 * np.exp(-np.arange(MOST_STEPS) / 40)
DEVICES = ("repeats", "rounds", "other seeds")
STARTS = 4
ROUNDING = 1e-7


class Fault(NamedTuple):
    """What B does otherwise."""

    rate: float = 1.0
    """Of learning, times A's."""
    dropped_at: int | None = None
    """The step in which a gradient of the last layer is dropped."""
    twice_at: int | None = None
    """The step that trains on the batch before once more."""
    is_bf16: bool = False
    """Weights are rounded to bf16 after each step, which small updates do not survive."""


FAULTS = {
    "learning rate 2 % off": [Fault(rate=one) for one in (0.98, 1.02, 0.98, 1.02, 1.02)],
    "a gradient dropped": [Fault(dropped_at=one) for one in (1, 2, 5, 20, 50)],
    "a batch used twice": [Fault(twice_at=one) for one in (2, 5, 10, 30, 60)],
    "bf16 that it does not bear": [Fault(is_bf16=True)] * 5,
}


def perceptron() -> nn.Module:
    """Take 64 values; there are 10 classes."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def convolutions() -> nn.Module:
    """Take an image of 8 by 8."""
    layers = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), *layers, nn.Linear(512, 10))


def attention() -> nn.Module:
    """Take eight tokens of 8 values."""
    block = nn.TransformerEncoderLayer(8, 2, 32, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (8, 8)), block, nn.Flatten(), nn.Linear(64, 10))


class Task(NamedTuple):
    """One training."""

    model: int
    seed: int
    adam: bool


def task(number: int) -> Task:
    """Return another model, seed and optimizer for each number."""
    return Task(number % 3, number, number % 2 == 1)


def batches(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what a fixed task draws with this seed."""
    rule = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    drawn = torch.Generator().manual_seed(seed)
    while True:
        values = torch.randn(32, 64, generator=drawn)
        yield values, (values @ rule).argmax(1)


def losses(task: Task, fault: Fault, device: str, start: int) -> Mapping[int, float]:
    """Train, and return the loss of each step."""
    seed = 1000 * task.seed + start if device == "other seeds" else task.seed
    torch.manual_seed(seed)
    model = (perceptron, convolutions, attention)[task.model]()
    rate = (1e-3 if task.adam else 0.05) * fault.rate
    method = torch.optim.Adam if task.adam else torch.optim.SGD
    optimizer = method(model.parameters(), lr=rate)
    rounding = torch.Generator().manual_seed(10_000 * task.seed + start + 1)
    found: dict[int, float] = {}
    before = None
    drawn = batches(seed)
    for step in range(1, MOST_STEPS + 1):
        batch = next(drawn)
        values, labels = before if step == fault.twice_at and before else batch
        before = batch
        loss = functional.cross_entropy(model(values), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # in torch
        parameters = [*model.parameters()]
        if step == fault.dropped_at:
            parameters[-2].grad = None
        if device != "repeats":
            for one in parameters:
                if one.grad is not None:
                    noise = torch.randn(one.grad.shape, generator=rounding)
                    one.grad += ROUNDING * one.grad.abs().max() * noise
        optimizer.step()
        if fault.is_bf16:
            with torch.no_grad():
                for one in parameters:
                    one.copy_(one.bfloat16())
        found[step] = loss.item()
    return found


def side(task: Task, fault: Fault, device: str, first: int) -> list[Mapping[int, float]]:
    """Return the starts of a side; those of a device that repeats are the same."""
    if device == "repeats":
        return [losses(task, fault, device, first)] * STARTS
    return [losses(task, fault, device, first + one) for one in range(STARTS)]


def of_paths(draw: Draw, starts: int) -> Array:
    """Each start has a path of its own, as with another seed."""
    return FALLING * (1 + 0.02 * (draw((starts, 1)) + draw((starts, MOST_STEPS)).cumsum(1) / 8))


def of_rounding(draw: Draw, starts: int) -> Array:
    """Let starts part by rounding, each at its own pace."""
    grown = (0.1 + 0.1 * np.abs(draw((starts, MOST_STEPS)))).cumsum(1).clip(max=14)
    noisy = FALLING * (1 + ROUNDING * np.exp(grown) * draw((starts, MOST_STEPS)))
    return np.asarray(noisy.astype(np.float32), float)


def of_bf16(draw: Draw, starts: int) -> Array:
    """Losses have eight bits, and their noise is less than the last."""
    share, exponent = np.frexp(FALLING * (1 + 1e-4 * draw((starts, MOST_STEPS))))
    return np.asarray(np.ldexp(np.round(share * 256), exponent - 8), float)


def of_two_kernels(draw: Draw, starts: int) -> Array:
    """Each start takes one of two kernels, by chance: its limit."""
    taken = np.sign(draw((starts, 1)))
    return FALLING * (1 + 1e-4 * taken + ROUNDING * draw((starts, MOST_STEPS)))


def simulated(times: int) -> None:
    """Print how often equal sides moved, at most over the tails."""
    rng = np.random.default_rng(0)
    tails: dict[str, Draw] = {
        "normal": lambda shape: rng.normal(size=shape),
        "Student's, three degrees": lambda shape: rng.standard_t(3, shape),
        "Cauchy's": rng.standard_cauchy,
        "bursts": lambda shape: (
            rng.normal(size=shape) * np.where(rng.random(shape) < 0.05, 10, 0.5)
        ),
    }
    for shape in (of_paths, of_rounding, of_bf16, of_two_kernels):
        for starts in (2, 3, 4, 12):
            moved = {
                name: sum(_moves(shape(draw, 2 * starts), starts) for _ in range(times)) / times
                for name, draw in tails.items()
            }
            each = ", ".join(f"{name} {100 * share:.1f} %" for name, share in moved.items())
            print(f"{shape.__name__}, {starts} starts a side: {each}", flush=True)


def _moves(losses: Array, starts: int) -> bool:
    both = [dict(enumerate(map(float, one), 1)) for one in losses]
    found = compare_losses(both[:starts], both[starts:])
    return found is not None and found.kind == "moved"


def main() -> None:
    """Print how often what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--equal", type=int, default=34)
    parser.add_argument("--simulated", type=int, default=0)
    parser.add_argument("devices", nargs="*", metavar="device", help=", ".join(DEVICES))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.simulated:
        simulated(asked.simulated)
    if not asked.equal:
        return
    for device in asked.devices or DEVICES:
        kinds = Counter[str]()
        for number in range(asked.equal):
            a, b = (side(task(number), Fault(), device, first) for first in (0, 100))
            found = compare_losses(a, b)
            kinds[found.kind if found else "not compared"] += 1
        print(f"{device}, equal sides: {dict(kinds)}", flush=True)
        if device == "other seeds":
            continue
        numbers = count()
        for name, faults in FAULTS.items():
            moved, said = 0, ""
            for fault in faults:
                one = task(next(numbers))
                found = compare_losses(side(one, Fault(), device, 0), side(one, fault, device, 100))
                moved += found is not None and found.kind == "moved"
                said = sentence(found)
            print(f"{device}, {name}: moved in {moved} of {len(faults)}; {said}", flush=True)


if __name__ == "__main__":
    main()
