"""Measures what the clock costs each step, in a training that does nothing else."""

import math
import statistics
import time

import torch

from ..protocol.training import Phase
from .reporter import instruments

STEPS = 1000
REPEATS = 5
MARKS = ("copy", "prepare", "forward", "backward", "optimizer", "idle")
PHASES = tuple(Phase(name=name, label=name, lane="train") for name in MARKS[:-1])


def instruments_us(device: torch.device) -> tuple[float, float]:
    """Return the cost without and with phases measured."""
    return (
        statistics.median(_step_us(device, math.inf) for _ in range(REPEATS)),
        statistics.median(_step_us(device, 0.0) for _ in range(REPEATS)),
    )


def _step_us(device: torch.device, phases_every_s: float) -> float:
    clock, _ = instruments(device, PHASES, phases_every_s)
    loss = torch.zeros((), device=device)
    began_s = time.perf_counter()
    for step in range(STEPS):
        mark = clock.begin()
        for name in MARKS:
            mark(name)
        clock.end(step, 1, loss)
        clock.finished()
    return (time.perf_counter() - began_s) / STEPS * 1e6
