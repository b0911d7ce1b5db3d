"""What looking for waits costs a training meanwhile: with the window against without it.

    python benchmarks/bench_syncs.py --waits 0,1,10 --pairs 40

An MLP whose loss is read so many times a step, by one line. Blocks of as many steps as a profile
has take turns, in an order drawn for each pair, each between borders at which the device has
finished; opening and closing the window is timed apart. On a GPU alone: a CPU never waits.
"""

import argparse
import statistics
import time

import torch
from ratios import ratio_with_interval, show
from torch import nn

from gpudash.compare.paired_t import block_order
from gpudash.instrument.syncs import SyncWindow

WARMUP_STEPS = 50
WIDTH = 512
BATCH_SIZE = 64


class Script:
    """A training that reads its loss `waits` times a step."""

    def __init__(self, layers: int, waits: int) -> None:
        hidden = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(layers)]
        self._model = nn.Sequential(*hidden).to("cuda")
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)
        self._batch = torch.randn(BATCH_SIZE, WIDTH, device="cuda")
        self._waits = waits

    def train(self, steps: int) -> None:
        """Train so many steps."""
        for _ in range(steps):
            self._optimizer.zero_grad()
            loss = self._model(self._batch).square().mean()
            loss.backward()
            self._optimizer.step()
            for _ in range(self._waits):
                loss.item()

    def step_us(self, steps: int) -> float:
        """Return the microseconds that a step takes."""
        torch.cuda.synchronize()
        began_s = time.perf_counter()
        self.train(steps)
        torch.cuda.synchronize()
        return (time.perf_counter() - began_s) / steps * 1e6


def compare(waits: int, pairs: int, steps: int, layers: int) -> None:
    """Take turns; print the cost."""
    script = Script(layers, waits)
    script.train(WARMUP_STEPS)
    times_us: dict[bool, list[float]] = {False: [], True: []}
    switches_ms = []
    for order in block_order(pairs, seed=0):
        for is_on in (False, True) if order == "AB" else (True, False):
            if not is_on:
                times_us[is_on].append(script.step_us(steps))
                continue
            window = SyncWindow()
            began_s = time.perf_counter()
            window.start()
            started_s = time.perf_counter()
            times_us[is_on].append(script.step_us(steps))
            ended_s = time.perf_counter()
            calls = window.stop()
            switches_ms.append((started_s - began_s + time.perf_counter() - ended_s) * 1e3)
            found = sum(call.what == "item" for call in calls)
            if found != waits * steps:
                raise SystemExit(f"{found} of {waits * steps} waits were seen")
    off, on = times_us[False], times_us[True]
    off_us = sum(off) / len(off)
    cost_us, low_us, high_us = ((one - 1) * off_us for one in ratio_with_interval(on, off))
    switch_ms = statistics.median(switches_ms)
    what = f"window on over off, {waits} waits in a step of {off_us / 1e3:.2f} ms"
    print(f"{what}: {cost_us:+.1f} µs a step [{low_us:+.1f}, {high_us:+.1f}]", end="")
    print(f"; opening and closing it {switch_ms:.2f} ms")
    show(what, on, off, cost_us=[cost_us, low_us, high_us], off_us=off_us, switch_ms=switch_ms)


def main() -> None:
    """Print two lines for each number of waits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waits", default="0,1,10", help="a step")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10, help="a block, as in a profile")
    parser.add_argument("--layers", type=int, default=20)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device here: on a CPU nothing waits, and the window is empty")
    for waits in arguments.waits.split(","):
        compare(int(waits), arguments.pairs, arguments.steps, arguments.layers)


if __name__ == "__main__":
    main()
