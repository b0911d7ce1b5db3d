"""Whether an A/B beside other jobs may correct its blocks for what they waited for a core.

    python benchmarks/bench_covariates.py --comparisons 400

A pair's log ratio, less a slope times the difference of a covariate: that is right if the setting
does not change the covariate, and nothing in the pairs themselves can tell whether it does. So each
covariate is judged by seven noises without another job, by jobs that come and go, and by levers
that change what the training or the others want of the cores. The slope is 1 for a share of the
time without a core, or is that of the pairs before. Nothing of this is in gpudash: RESULTS.md says
why.
"""

import argparse
from collections.abc import Callable
from math import exp, expm1, log, log1p
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gpudash.compare.lengths import PAIRS
from gpudash.compare.sequential import estimate_so_far

Array: TypeAlias = npt.NDArray[np.float64]
MOST_PAIRS = 200
DROPPED_S, KEPT_S = 0.06, 0.15
"""Of a block whose training has every core it wants."""
TICK_S = 0.01
NOISE = 0.03
"""Of a block, beside other jobs, …"""
READ = {"wait": 0.02, "other": 0.05}
"""… and the errors with which a share of it and cores are read."""
EQUAL = 1.0
GAIN = 1.05


class Lever(NamedTuple):
    """What B is like; A computes on one thread."""

    gain: float = EQUAL
    """Of the speed, with all cores at hand."""
    threads: int = 1
    """That want a core, and wait for each other."""
    blocked: float = 0.0
    """Share of a step that waits for something else."""
    served: float = 0.0
    """Cores that a service of the machine uses for the training at full speed."""


class Others(NamedTuple):
    """Jobs that come and go, half of the time each."""

    period_s: float
    cores: int = 2
    """That they share with the training."""
    wanted: int = 1
    """Cores that they want while they are there."""
    is_work: bool = False
    """Whether they stay until so much work is done, instead of so long."""


class Blocks(NamedTuple):
    """Values of blocks: a row of them for each comparison, two of a row for each pair."""

    logs: Array
    """Of their costs."""
    wait: Array
    """Share of the time in which the training's thread lacks a core."""
    use: Array
    """Cores that others use, …"""
    demand: Array
    """… and those that they want."""
    a_first: npt.NDArray[np.bool_]


class Judged(NamedTuple):
    """What looking after every pair gives."""

    alarms: float
    """Share of comparisons that show a difference within as many pairs as an A/B has."""
    coverage: float
    """Share whose intervals all hold the real change."""
    estimate: float
    sure: int
    """Pairs until the interval leaves out 0, median."""


# ── corrections ─────────────────────────────────────────────────────────────────────────


def correct_fully(ratios: Array, differences: Array) -> Array:
    """Take off the whole difference."""
    return ratios - differences


def correct_by_slope(ratios: Array, differences: Array) -> Array:
    """Take off a slope times the difference: that of the pairs before and of two with 0."""
    count = np.arange(ratios.shape[1])
    products = _before(differences * ratios) - _before(differences) * _before(ratios) / count.clip(
        1
    )
    squares = _before(differences**2) - _before(differences) ** 2 / count.clip(1)
    slopes = products / (squares * (1 + 2 / count.clip(1)) + 1e-12)
    return ratios - np.where(count >= 4, slopes.clip(0, 1.5), 0) * differences


def _before(values: Array) -> Array:
    return np.cumsum(values, axis=1) - values


Correct: TypeAlias = Callable[[Array, Array], Array]
CORRECTIONS: dict[str, tuple[str, Correct]] = {
    "none": ("wait", lambda ratios, _: ratios),
    "own wait": ("wait", correct_fully),
    "own wait, slope": ("wait", correct_by_slope),
    "others' use": ("use", correct_by_slope),
    "others' demand": ("demand", correct_by_slope),
}


def corrected(blocks: Blocks, name: str, random: np.random.Generator) -> Array:
    """Return the pairs' log ratios, corrected by a covariate that is read with an error."""
    covariate, correct = CORRECTIONS[name]
    values: Array = getattr(blocks, covariate)
    read = values + random.normal(0, READ["wait" if covariate == "wait" else "other"], values.shape)
    longer = -np.log1p(-read.clip(0, 0.95)) if covariate == "wait" else read
    return correct(difference(blocks.logs, blocks.a_first), difference(longer, blocks.a_first))


def difference(values: Array, a_first: npt.NDArray[np.bool_]) -> Array:
    """Return A less B, of each pair."""
    return np.where(a_first, 1, -1) * (values[:, ::2] - values[:, 1::2])


def reach(count: int) -> float:
    """Return half the interval's length in standard deviations of so many pairs."""
    logs = [(-1.0) ** number for number in range(count)]
    found = estimate_so_far([(exp(one), 1.0) for one in logs])
    half = np.inf if found.high is None else log1p(found.high) - sum(logs) / count
    return float(half / np.std(logs)) if np.isfinite(half) else half


def judge(ratios: Array, a_first: npt.NDArray[np.bool_], change: float) -> Judged:
    """Look after every pair; `change` is the real one, as a logarithm."""
    count = np.arange(1, ratios.shape[1] + 1)
    means = np.cumsum(ratios, axis=1) / count
    spread = np.sqrt((np.cumsum(ratios**2, axis=1) / count - means**2).clip(1e-18))
    firsts = np.cumsum(a_first, axis=1)
    are_mixed = (firsts > 0) & (firsts < count)
    half = np.where(are_mixed, np.array([reach(one) for one in count]) * spread, np.inf)
    sure = np.abs(means) > half
    misses = np.abs(means - change) > half
    pairs = np.where(sure.any(axis=1), sure.argmax(axis=1) + 1, len(count))
    return Judged(
        alarms=float(sure[:, :PAIRS].any(axis=1).mean()),
        coverage=1 - float(misses[:, :PAIRS].any(axis=1).mean()),
        estimate=float(means[:, PAIRS - 1].mean()),
        sure=int(np.median(pairs)),
    )


# ── seven noises, without another job ───────────────────────────────────────────────────


def _transients(random: np.random.Generator, size: tuple[int, int], *, both: bool) -> Array:
    pairs = (size[0], size[1] // 2)
    longer = (random.random(pairs) < 0.1) * 0.25 * random.random(pairs)
    second = random.random(pairs) if both else (random.random(pairs) < 0.5).astype(float)
    first = np.ones(pairs) if both else 1 - second
    return np.stack([longer * first, longer * second], axis=2).reshape(size)


def _correlated(random: np.random.Generator, size: tuple[int, int]) -> Array:
    """Blocks of five steps, each of which keeps 0.9 of the one before; two are dropped."""
    steps = random.normal(0, 0.05, (size[0], 7 * size[1]))
    for step in range(1, steps.shape[1]):
        steps[:, step] = 0.9 * steps[:, step - 1] + np.sqrt(1 - 0.9**2) * steps[:, step]
    logs: Array = np.log(np.exp(steps).reshape(*size, 7)[:, :, 2:].mean(axis=2))
    return logs


def _normal(random: np.random.Generator, size: tuple[int, int]) -> Array:
    return 0.02 * random.normal(size=size)


NOISES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "Gaussian": _normal,
    "heavy tails": lambda random, size: 0.02 * random.standard_t(3, size) / np.sqrt(3),
    "drift": lambda random, size: _normal(random, size) + 0.5 * np.arange(size[1]) * 7 / 600,
    "correlated": _correlated,
    "bursts": lambda random, size: (
        _normal(random, size) * np.where(random.random(size) < 0.05, 5, 0.7)
    ),
    "transients of both": lambda random, size: (
        _normal(random, size) + _transients(random, size, both=True)
    ),
    "transients of one side": lambda random, size: (
        _normal(random, size) + _transients(random, size, both=False)
    ),
}
"""Logarithms of the costs of equal blocks."""


def quiet_blocks(name: str, random: np.random.Generator, comparisons: int, gain: float) -> Blocks:
    """Return blocks that wait for no core, beside jobs that want little."""
    size = (comparisons, 2 * MOST_PAIRS)
    a_first = random.random((comparisons, MOST_PAIRS)) < 0.5
    b = np.stack([~a_first, a_first], axis=2).reshape(size)
    little = np.abs(random.normal(0, 0.02, size))
    logs = NOISES[name](random, size) - log(gain) * b
    return Blocks(logs, little, little, little, a_first)


# ── beside other jobs ───────────────────────────────────────────────────────────────────


def busy_blocks(
    others: Others, lever: Lever, random: np.random.Generator, comparisons: int
) -> Blocks:
    """Train in ticks; all threads that want a core have equal shares of the cores."""
    size = (comparisons, 2 * MOST_PAIRS)
    row, number = np.arange(comparisons), np.zeros(comparisons, int)
    a_first = random.random((comparisons, MOST_PAIRS)) < 0.5
    b = np.stack([~a_first, a_first], axis=2).reshape(size)
    noisy = np.exp(random.normal(0, NOISE, size))
    are_there = random.random(comparisons) < 0.5
    left_s = others.period_s / 2 * random.uniform(0, 1.5, comparisons)
    sums = np.zeros((4, comparisons))  # seconds kept; of these without a core, used, wanted
    found, done_s = np.zeros((4, *size)), np.zeros(comparisons)
    while (number < size[1]).any():
        at = np.minimum(number, size[1] - 1)
        is_b = b[row, at]
        threads = np.where(is_b, lever.threads, 1)
        computes = np.where(is_b, 1 - lever.blocked, 1.0)
        wanted = np.where(are_there, others.wanted, 0)
        share = np.minimum(1, others.cores / (threads + wanted))
        took = computes / share + 1 - computes
        beside = computes / share / took  # share of the time in which the training wants a core
        alone = np.minimum(1, others.cores / wanted.clip(1))
        speed = np.where(is_b, lever.gain, 1) / took / noisy[row, at]
        wait = computes * (1 / share - 1) / took
        served = lever.served * speed
        use = wanted * (beside * share + (1 - beside) * alone) + served
        kept_s = TICK_S * (done_s >= DROPPED_S)
        done_s += speed * TICK_S
        sums += kept_s * np.stack([np.ones(comparisons), wait, use, wanted + served])
        over = (done_s >= DROPPED_S + KEPT_S) & (number < size[1])
        found[:, row[over], number[over]] = sums[:, over]
        found[0, row[over], number[over]] -= (done_s[over] - DROPPED_S - KEPT_S) / speed[over]
        number[over] += 1
        done_s[over], sums[:, over] = 0, 0
        left_s -= TICK_S * np.where(are_there & others.is_work, 1.5 * share, 1)
        turn = left_s <= 0
        are_there = are_there ^ turn
        left_s[turn] = others.period_s / 2 * random.uniform(0.5, 1.5, turn.sum())
    kept_s, *rest = found
    wait, use, demand = (one / kept_s for one in rest)
    return Blocks(np.log(kept_s), wait, use, demand, a_first)


BUSY = {
    "5 % faster, one core for both, 0.6 s": (Others(0.6, cores=1), Lever(GAIN)),
    "5 % faster, one core for both, 2 s": (Others(2, cores=1), Lever(GAIN)),
    "5 % faster, one core for both, 6 s": (Others(6, cores=1), Lever(GAIN)),
    "equal, one core for both, 2 s": (Others(2, cores=1), Lever()),
    "a second thread": (Others(2), Lever(1.54, threads=2)),
    "a second thread, two jobs": (Others(0.6, wanted=2), Lever(1.54, threads=2)),
    "a helper's thread": (Others(2), Lever(threads=2)),
    "a helper's thread, two jobs that work": (
        Others(0.6, wanted=2, is_work=True),
        Lever(threads=2),
    ),
    "half of a step is blocked": (Others(2, cores=1), Lever(blocked=0.5)),
    "half of a step is blocked, jobs that work, 0.2 s": (
        Others(0.2, cores=1, is_work=True),
        Lever(blocked=0.5),
    ),
    "30 % faster, a service works for it": (Others(2, cores=1), Lever(1.3, served=0.3)),
}
"""Name → other jobs, and what B is like."""


def main() -> None:
    """Print a line for each noise and each lever, by covariate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=400)
    comparisons = parser.parse_args().comparisons
    random = np.random.default_rng(0)
    print("seven noises: false alarms of equals, coverage of +5 %, pairs until that is sure")
    for name in NOISES:
        equal = quiet_blocks(name, random, comparisons, EQUAL)
        faster = quiet_blocks(name, random, comparisons, GAIN)
        print(name)
        for covariate in CORRECTIONS:
            alarms = judge(corrected(equal, covariate, random), equal.a_first, 0).alarms
            found = judge(corrected(faster, covariate, random), faster.a_first, log(GAIN))
            print(f"  {covariate:16} {alarms:6.1%} {found.coverage:6.1%} {found.sure:4}")
    print("beside other jobs: coverage of the real change, estimate, pairs until it is sure")
    for name, (others, lever) in BUSY.items():
        blocks = busy_blocks(others, lever, random, comparisons)
        change = float(difference(blocks.logs, blocks.a_first).mean())
        print(f"{name}: {expm1(change):+.1%}")
        for covariate in CORRECTIONS:
            found = judge(corrected(blocks, covariate, random), blocks.a_first, change)
            estimate = expm1(found.estimate)
            print(f"  {covariate:16} {found.coverage:6.1%} {estimate:+6.1%} {found.sure:4}")


if __name__ == "__main__":
    main()
