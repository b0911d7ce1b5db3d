"""What the always-on diagnosis costs: a training with it on against off, in one process.

    python benchmarks/bench_diagnosis.py --pairs 200

The session looks for the answer with each snapshot, four times a second, and it is found anew once
a second. That alone is too little for an A/B to see. So here it is
asked for after every step, the training waits for it, and the cost is told for as many times as the
dashboard asks. Really it is given in another process, beside the training: this is the most that it
can cost, on a host whose cores are all taken. The snapshots are of a long run: every series is
full, and there is a profile.
Blocks with it on and off take turns, in an order drawn for each pair.
"""

import argparse
import time
from itertools import count, cycle
from typing import NamedTuple

import msgspec
import torch
from ratios import ratio_with_interval, show
from torch import nn

from gpudash.compare.paired_t import block_order
from gpudash.diagnosis.answer import Answers
from gpudash.snapshot import Snapshot
from gpudash.trace.accounting import summarise
from gpudash.trace.read import read
from gpudash.tui.app import RATE_HZ
from gpudash.views.timeseries import CAPACITY, MERGED, TICK_S
from tests.trace.made import H200
from tests.tui.fake_engine import training, wave, with_recent, with_series

WARMUP_STEPS = 50
LOOKS = round(TICK_S * RATE_HZ)
"""At a series: until a tick is over it is the same."""
TICKS = CAPACITY + MERGED
"""Of a long run's series."""
CORES = 16


class Cost(NamedTuple):
    """What a step took."""

    wall_s: float
    cpu_s: float
    """Of the process: what else runs on the machine hardly touches it."""


def long_run(moved: float) -> Snapshot:
    """Return what is shown after hours, with all that is measured of a GPU."""
    clock = wave(TICKS, 1900, phase=moved, swing=0.01)
    share = wave(TICKS, 40, phase=moved)
    more = dict.fromkeys(("tensor_active_pct", "dram_active_pct"), share)
    return with_recent(with_series(training(TICKS, moved=moved), sm_clock_mhz=clock, **more))


class Diagnosis:
    """Finds answers as the session does."""

    def __init__(self) -> None:
        runs = [long_run(moved=0.5 * i) for i in range(40)]
        self._snapshots = cycle([one for one in runs for _ in range(LOOKS)])
        self._profile = summarise(read(H200))
        self._answers = Answers()
        self._numbers = count()

    def look(self) -> None:
        """Look for the answer in the next snapshot."""
        snapshot, number = next(self._snapshots), next(self._numbers)
        msgspec.structs.force_setattr(snapshot, "elapsed_s", number / RATE_HZ)
        self._answers.look(snapshot, CORES, self._profile)
        if self._answers.newest is None:
            raise SystemExit("there was no answer to measure")


class Training:
    """An MLP."""

    def __init__(self) -> None:
        layers = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(6)]
        self._model = nn.Sequential(*layers)
        self._optimizer = torch.optim.AdamW(self._model.parameters())
        self._batch = torch.randn(64, 256)

    def step(self) -> None:
        """Train one step."""
        self._optimizer.zero_grad()
        self._model(self._batch).square().mean().backward()
        self._optimizer.step()

    def block(self, steps: int, diagnosis: Diagnosis | None) -> Cost:
        """Train; have an answer given after each step, where there is a diagnosis."""
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.step()
            if diagnosis is not None:
                diagnosis.look()
        wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        return Cost(wall_s / steps, cpu_s / steps)


def main() -> None:
    """Print two lines for each clock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20, help="in a block")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    script, diagnosis = Training(), Diagnosis()
    script.block(WARMUP_STEPS, diagnosis)
    costs: dict[bool, list[Cost]] = {False: [], True: []}
    for order in block_order(arguments.pairs, seed=0):
        for is_on in (False, True) if order == "AB" else (True, False):
            costs[is_on].append(script.block(arguments.steps, diagnosis if is_on else None))
    for clock in Cost._fields:
        off, on = ([getattr(cost, clock) for cost in costs[is_on]] for is_on in (False, True))
        off_s = sum(off) / len(off)
        cost_s, low_s, high_s = ((one - 1) * off_s for one in ratio_with_interval(on, off))
        at_rate = [100 * RATE_HZ * one for one in (cost_s, low_s, high_s)]
        name = clock.removesuffix("_s")
        print(f"{RATE_HZ:g} answers a second ({name}): {at_rate[0]:.2f} % of a training that waits")
        print(f"  for them [{at_rate[1]:.2f}, {at_rate[2]:.2f}]; one takes {1e6 * cost_s:.0f} µs")
        what = f"an answer after each step over none ({name})"
        show(what, on, off, at_rate_pct=at_rate, step_ms=1e3 * off_s)


if __name__ == "__main__":
    main()
