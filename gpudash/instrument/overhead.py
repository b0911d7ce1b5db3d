"""Measures what the clock costs each step, in a training that does nothing else."""

import math
import statistics
import time
from collections import deque
from statistics import median

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


COMPARED = 15
"""So many looks are compared, and their median is taken: one step may be long for any reason."""
FEWEST = 5


class LookCost:
    """Compares each step measured in full with the counted steps before it."""

    def __init__(self) -> None:
        self._counted_ms: float | None = None
        self._longer_ms: deque[float] = deque(maxlen=COMPARED)

    def take(self, step_ms: float, count: int) -> None:
        if count > 1:
            self._counted_ms = step_ms
        elif self._counted_ms is not None:
            self._longer_ms.append(step_ms - self._counted_ms)
            self._counted_ms = None

    def interrupt(self) -> None:
        self._counted_ms = None

    @property
    def ms(self) -> float:
        """0 while the cost is not known."""
        return max(median(self._longer_ms), 0.0) if len(self._longer_ms) >= FEWEST else 0.0
