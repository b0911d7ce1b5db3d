"""How often a change between two programs is found or called wrongly, and how long that takes.

    python benchmarks/bench_changes.py --comparisons 10000

Comparisons are simulated from real trainings (`blocks.json`: the steps done in each twentieth of a
second, 1000 is a training's mean; the H200's are those of tests/diagnosis/recordings that last two
seconds or more, without pauses and the first ten steps). Both sides are the same training, so a
change that is planted is known. Each start of each side has a pace of its own. A script starts in
10 s.

    python benchmarks/bench_changes.py --record encdec --seconds 200 --beside 2 batch_size=1

prints such a training, with so many busy loops beside.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from math import exp, log1p
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gpudash.compare.rounds import (
    CONFIDENCE,
    EFFECTS,
    StartCosts,
    is_decided,
    over_rounds,
    rounds_within,
    seconds_to_decide,
)
from gpudash.compare.sequential import LEAST, is_sure, reach

Array: TypeAlias = npt.NDArray[np.float64]
BIN_S = 0.05
START_S, BLOCK_S, SWITCH_S = 10.0, 0.5, 0.15
BUDGET_S = 300.0
SPREADS = (0.01, 0.03, 0.05)
CHANGE = 0.03
LOOKS = 40
"""Rounds after each of which equal sides are looked at."""
MOST_ROUNDS = 3000
BLOCK_SPREAD = 0.05
"""Of blocks, where both ways to start are compared."""


class Pace(NamedTuple):
    """How a round is spent: both sides at once, or one after the other."""

    begins_s: Array
    """Of its blocks, within the round."""
    seconds: float
    is_at_once: bool


def at_once() -> Pace:
    """Both sides start together; pairs of blocks take as long as that."""
    blocks = 2 * int(START_S / (BLOCK_S + SWITCH_S) / 2)
    begins_s = START_S + SWITCH_S + (BLOCK_S + SWITCH_S) * np.arange(blocks, dtype=float)
    return Pace(begins_s, begins_s[-1] + BLOCK_S, True)


def in_turns() -> Pace:
    """Each side has a start, and blocks as long as that."""
    blocks = np.arange(int(START_S / BLOCK_S), dtype=float) * BLOCK_S
    return Pace(np.concatenate([START_S + blocks, 3 * START_S + blocks]), 4 * START_S, False)


class Recorded:
    """A training that was recorded, and goes back and forth: at a seam it would jump."""

    def __init__(self, rates: Sequence[int]) -> None:
        self._done = np.concatenate([[0.0], np.cumsum([*rates, *rates[::-1]])]) * BIN_S / 1000
        self._edges = np.arange(len(self._done)) * BIN_S
        self.scale = 1.0
        """Of its noise."""

    def scaled(self, spread: float) -> "Recorded":
        """Make its blocks vary by so much."""
        self.scale = 1.0
        blocks = self.log_costs(np.arange(0, self._edges[-1] - BLOCK_S, BLOCK_S))
        self.scale = spread / float(blocks.std())
        return self

    def log_costs(self, begins_s: Array) -> Array:
        """Return the logarithms of the time of a step in each block."""
        steps = self._at(begins_s + BLOCK_S) - self._at(begins_s)
        return self.scale * np.log(BLOCK_S / steps)

    def _at(self, moments_s: Array) -> Array:
        rounds, rest_s = np.divmod(moments_s, self._edges[-1])
        done = rounds * self._done[-1] + np.interp(rest_s, self._edges, self._done)
        return np.asarray(done, float)


def log_ratios(
    rng: np.random.Generator,
    recorded: Recorded,
    pace: Pace,
    spread: float,
    change: float,
    count: int,
) -> Array:
    """Return ln(cost of A / cost of B) of so many rounds, one after the other."""
    begins_s = rng.uniform(0, 1e4) + pace.seconds * np.arange(count)[:, None] + pace.begins_s
    costs = recorded.log_costs(begins_s)
    if pace.is_at_once:
        first, second = costs[:, ::2], costs[:, 1::2]
    else:
        first, second = np.split(costs, 2, axis=1)
    differ = first - second
    order = rng.choice((-1, 1), differ.shape if pace.is_at_once else (count, 1))
    paces = rng.normal(0, spread, (2, count))
    return np.asarray((order * differ).mean(axis=1) + paces[0] - paces[1] + log1p(change), float)


def as_rounds(logs: Array, pace: Pace) -> list[StartCosts]:
    """Return the same as what is judged."""
    return [StartCosts((exp(one), 1.0), pace.seconds) for one in logs]


def decided_after(logs: Array) -> int | None:
    """Return the rounds until a decision, of many; what `is_decided` has, for all looks at once."""
    means, half = intervals(logs)
    none = (np.expm1(means + half) <= LEAST) & (np.expm1(means - half) >= -LEAST)
    decided = (np.abs(means) > half) | none
    return int(decided.argmax()) + 1 if decided.any() else None


def intervals(logs: Array) -> tuple[Array, Array]:
    """Return the mean and half the interval after each round."""
    counts = np.arange(1, len(logs) + 1)
    means = np.cumsum(logs) / counts
    spreads = np.sqrt(np.maximum(np.cumsum(logs**2) / counts - means**2, 0))
    known = REACHED[: len(logs)]
    return means, np.where(np.isnan(known), np.inf, known * spreads)


REACHED = np.array(
    [reach(count, CONFIDENCE, EFFECTS) or np.nan for count in range(1, MOST_ROUNDS + 1)]
)


def found_within(
    rng: np.random.Generator, trainings: Sequence[Recorded], spread: float, comparisons: int
) -> str:
    """Return what comparisons of a planted change and of equal sides have found."""
    pace, found, wrong, alarms, slower = at_once(), 0, 0, 0, 0
    most = rounds_within(BUDGET_S, pace.seconds)
    took: list[float] = []
    said: list[float] = []
    for number in range(comparisons):
        training = trainings[number % len(trainings)]
        logs = log_ratios(rng, training, pace, spread, CHANGE, most)
        after = decided_after(logs)
        rounds = as_rounds(logs[:after], pace)
        last = over_rounds(rounds)
        assert is_decided(last, None) == (after is not None)
        right = is_sure(last) and last.change > 0
        found += right
        wrong += after is not None and not right
        if right:
            took.append(len(rounds) * pace.seconds)
        if after is None and len(said) < comparisons // 20:
            more_s = seconds_to_decide(rounds)
            longer = log_ratios(rng, training, pace, spread, CHANGE, MOST_ROUNDS - most)
            needed = decided_after(np.concatenate([logs, longer]))
            if more_s is not None and needed is not None:
                said.append((most * pace.seconds + more_s) / (needed * pace.seconds))
        equal = log_ratios(rng, training, pace, spread, 0.0, LOOKS)
        alarms += _is_ever_sure(equal)
        changed = log_ratios(rng, training, pace, spread, CHANGE, LOOKS)
        slower += _is_ever_sure(changed, sign=-1)
    stated = ""
    if said:
        low, middle, high = np.quantile(said, (0.1, 0.5, 0.9))
        stated = f"; stated time over the true one {middle:.2f} ({low:.2f} to {high:.2f})"
    return (
        f"+{100 * CHANGE:g} % found in {100 * found / comparisons:.1f} % within {BUDGET_S:g} s "
        f"(median {np.median(took):.0f} s), called none or slower {100 * wrong / comparisons:.2f} %"
        f", slower after one of {LOOKS} looks {100 * slower / comparisons:.2f} %; "
        f"equal sides differ in {100 * alarms / comparisons:.2f} %{stated}"
    )


def _is_ever_sure(logs: Array, sign: int = 0) -> bool:
    means, half = intervals(logs)
    return bool(((sign * means if sign else np.abs(means)) > half).any())


def seconds(
    rng: np.random.Generator,
    trainings: Sequence[Recorded],
    pace: Pace,
    spread: float,
    change: float,
    comparisons: int,
) -> float:
    """Return the median time of a decision."""
    took = []
    for number in range(comparisons):
        training = trainings[number % len(trainings)].scaled(BLOCK_SPREAD)
        after = decided_after(log_ratios(rng, training, pace, spread, change, MOST_ROUNDS))
        took.append((after or MOST_ROUNDS) * pace.seconds)
    return float(np.median(took))


def record(workload: str, settings: Sequence[str], seconds: float, beside: int) -> list[int]:
    """Train a workload on the CPU, and return the steps done in each bin."""
    from workloads.own.loading import find  # imports torch
    from workloads.training import Training, pick_device

    values = dict(one.split("=", 1) for one in settings)
    training = Training(find(workload), values, pick_device("cpu"))
    ends_s: list[float] = []
    with ExitStack() as stack:
        stack.callback(training.close)
        for _ in range(beside):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)
        while not ends_s or ends_s[-1] - ends_s[0] < seconds:
            training.step()
            ends_s.append(time.perf_counter())
    edges_s = np.arange(ends_s[0], ends_s[-1], BIN_S)
    rates = np.diff(np.interp(edges_s, ends_s, np.arange(len(ends_s))))
    return [round(1000 * one) for one in rates / rates.mean()]


def main() -> None:
    """Print a line on each group of trainings and spread of starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=10_000)
    parser.add_argument("--record", metavar="WORKLOAD")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--beside", type=int, default=0)
    parser.add_argument("settings", nargs="*")
    asked = parser.parse_args()
    if asked.record:
        print(json.dumps(record(asked.record, asked.settings, asked.seconds, asked.beside)))
        return
    groups = json.loads(Path(__file__).with_name("blocks.json").read_bytes())
    for group, of_names in groups.items():
        trainings = [Recorded(rates) for rates in of_names.values()]
        rng = np.random.default_rng(0)
        for spread in SPREADS:
            found = found_within(rng, trainings, spread, asked.comparisons)
            print(f"{group}, starts {100 * spread:g} %: {found}", flush=True)
        for spread in (0.005, 0.03):
            for change in (0.02, 0.0):
                together_s, turns_s = (
                    seconds(rng, trainings, pace, spread, change, asked.comparisons // 25)
                    for pace in (at_once(), in_turns())
                )
                print(
                    f"{group}, blocks {100 * BLOCK_SPREAD:g} %, starts {100 * spread:g} %, change "
                    f"{100 * change:g} %: {together_s:.0f} s at once, {turns_s:.0f} s in turns, "
                    f"{together_s / turns_s:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
