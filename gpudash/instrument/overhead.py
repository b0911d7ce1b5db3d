"""What the clock costs a step of a training that does nothing else.

Reports and commands, which come some times a second, are not in it.
"""

import math
import statistics
import time

import torch

from gpudash.instrument.reporter import instruments
from workloads.training import Trained
from workloads.workload import Phase

STEPS = 1000
REPEATS = 5
SERIAL: tuple[Phase, ...] = ("copy", "prepare", "forward", "backward", "optimizer", "idle")


def instruments_us(device: torch.device) -> tuple[float, float]:
    """Return the host's microseconds a step: of most steps, and of one with its phases."""
    return (
        statistics.median(_step_us(device, math.inf) for _ in range(REPEATS)),
        statistics.median(_step_us(device, 0.0) for _ in range(REPEATS)),
    )


def _step_us(device: torch.device, phases_every_s: float) -> float:
    clock, _ = instruments(device, phases_every_s)
    loss = torch.zeros((), device=device)
    began_s = time.perf_counter()
    for step in range(STEPS):
        mark = clock.begin()
        for phase in SERIAL:
            mark(phase)
        clock.end(Trained(loss, samples=1), step, segment=0)
        clock.finished()
    return (time.perf_counter() - began_s) / STEPS * 1e6
