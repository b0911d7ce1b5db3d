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
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import chain, islice
from math import exp, log1p
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gpudash.compare.alternation import FEWEST_BLOCKS
from gpudash.compare.paired_t import log_ratio
from gpudash.compare.rounds import (
    CONFIDENCE,
    EFFECTS,
    StartCosts,
    is_decided,
    measuring_s,
    over_rounds,
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
EACH_S = BLOCK_S + SWITCH_S
MOST_KNOWN = 100
"""Starts from which on the time to measure is the same."""
BLOCK_SPREAD = 0.05
"""Of blocks, where both ways to start are compared."""


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


def at_once(
    rng: np.random.Generator, recorded: Recorded, spread: float, change: float
) -> Iterator[StartCosts]:
    """Both sides start together, and are measured for as long as gpudash would."""
    now_s, rounds = float(rng.uniform(0, 1e4)), list[StartCosts]()
    while True:
        lasts_s = measuring_s(rounds[:MOST_KNOWN], START_S)
        pairs = max(round(lasts_s / (2 * EACH_S)), FEWEST_BLOCKS)
        begins_s = START_S + SWITCH_S + EACH_S * np.arange(2 * pairs, dtype=float)
        costs = recorded.log_costs(now_s + begins_s)
        differ = rng.choice((-1, 1), pairs) * (costs[::2] - costs[1::2])
        cost = exp(differ.mean() + rng.normal(0, spread * 2**0.5) + log1p(change))
        lasts_s = 2 * pairs * EACH_S
        noise = float(differ.var(ddof=1)) / pairs
        rounds.append(StartCosts((cost, 1.0), START_S + lasts_s, lasts_s, noise))
        yield rounds[-1]
        now_s += rounds[-1].seconds


def in_turns(
    rng: np.random.Generator, recorded: Recorded, spread: float, change: float
) -> Iterator[StartCosts]:
    """Each side has a start of its own, and blocks as long as that."""
    now_s, seconds = float(rng.uniform(0, 1e4)), 4 * START_S
    blocks = START_S + np.arange(int(START_S / BLOCK_S), dtype=float) * BLOCK_S
    while True:
        first, second = (recorded.log_costs(now_s + blocks + at) for at in (0, 2 * START_S))
        differ = rng.choice((-1, 1)) * (first.mean() - second.mean())
        cost = exp(differ + rng.normal(0, spread * 2**0.5) + log1p(change))
        yield StartCosts((cost, 1.0), seconds)
        now_s += seconds


def within(rounds: Iterable[StartCosts], budget_s: float) -> list[StartCosts]:
    """Return those that have ended by then."""
    ended = list[StartCosts]()
    for one in rounds:
        budget_s -= one.seconds
        if budget_s < 0:
            break
        ended.append(one)
    return ended


def log_ratios(rounds: Sequence[StartCosts]) -> Array:
    return np.array([log_ratio(*one.costs) for one in rounds])


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


Cell: TypeAlias = Callable[[np.random.Generator, Sequence[Recorded], float, int], str]
REACHED = np.array(
    [reach(count, CONFIDENCE, EFFECTS) or np.nan for count in range(1, MOST_ROUNDS + 1)]
)


def until_decided(rounds: Iterator[StartCosts]) -> float:
    """Return the seconds until a decision."""
    seen = list(islice(rounds, LOOKS))
    while (after := decided_after(log_ratios(seen))) is None and len(seen) < MOST_ROUNDS:
        seen += islice(rounds, min(len(seen), MOST_ROUNDS - len(seen)))
    return sum(one.seconds for one in seen[:after])


def found_within(
    rng: np.random.Generator, trainings: Sequence[Recorded], spread: float, comparisons: int
) -> str:
    """Return what comparisons of a planted change and of equal sides have found."""
    found, wrong, alarms, slower = 0, 0, 0, 0
    took: list[float] = []
    said: list[float] = []
    for number in range(comparisons):
        training = trainings[number % len(trainings)]
        rounds = at_once(rng, training, spread, CHANGE)
        looked = list(islice(rounds, LOOKS))
        logs, in_time = log_ratios(looked), within(looked, BUDGET_S)
        after = decided_after(logs[: len(in_time)])
        last = over_rounds(in_time[:after])
        assert is_decided(last, None) == (after is not None)
        right = is_sure(last) and last.change > 0
        found += right
        wrong += after is not None and not right
        if right:
            took.append(sum(one.seconds for one in in_time[:after]))
        if after is None and len(said) < comparisons // 20:
            more_s = seconds_to_decide(in_time)
            if more_s is not None:
                spent_s = sum(one.seconds for one in in_time)
                said.append((spent_s + more_s) / until_decided(chain(looked, rounds)))
        equal = islice(at_once(rng, training, spread, 0.0), LOOKS)
        alarms += _is_ever_sure(log_ratios(list(equal)))
        slower += _is_ever_sure(logs, sign=-1)
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


def in_scaled_blocks(
    rng: np.random.Generator, trainings: Sequence[Recorded], spread: float, comparisons: int
) -> str:
    """Return the median time of a decision of both ways to start, of a change and of none."""
    told = []
    scaled = [trainings[one % len(trainings)].scaled(BLOCK_SPREAD) for one in range(comparisons)]
    for change in (0.02, 0.0):
        together_s, turns_s = (
            np.median([until_decided(starting(rng, one, spread, change)) for one in scaled])
            for starting in (at_once, in_turns)
        )
        told.append(
            f"change {100 * change:g} %: {together_s:.0f} s at once, {turns_s:.0f} s in turns, "
            f"{together_s / turns_s:.2f}"
        )
    return f"blocks {100 * BLOCK_SPREAD:g} %, " + "; ".join(told)


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


def each_cell(cell: Cell, spreads: Sequence[float], count: int) -> None:
    """Print what it says of each group of trainings and spread of starts, each in a process."""
    groups = json.loads(Path(__file__).with_name("blocks.json").read_bytes())
    with ProcessPoolExecutor() as pool:
        cells = {
            f"{group}, starts {100 * spread:g} %": pool.submit(
                cell, np.random.default_rng(0), [*map(Recorded, of_names.values())], spread, count
            )
            for group, of_names in groups.items()
            for spread in spreads
        }
        for name, found in cells.items():
            print(f"{name}: {found.result()}", flush=True)


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
    each_cell(found_within, SPREADS, asked.comparisons)
    each_cell(in_scaled_blocks, (0.005, 0.03), asked.comparisons // 25)


if __name__ == "__main__":
    main()
