"""Estimate the ratio of the rates of two runs that were not interleaved, with an interval.

A rate's error is that of a ratio estimator (Cochran, Sampling Techniques, 1977, chapter 6). The
interval is Welch's (1947), over the logarithm of the ratio.

The rows of a run are correlated. So neighbouring rows become `BATCHES` batches (batch means;
Schmeiser, Batch size effects in the analysis of simulation output, Operations Research 30, 1982).
The remaining correlation r of neighbouring batches is treated as an autoregression: n batches then
count as n·(1 - r)/(1 + r) (Zwiers and von Storch, Journal of Climate 8, 1995). In short series r is
estimated too small, and that bias is added (Marriott and Pope, Biometrika 41, 1954). Drift and
other load between the two runs are in the ratio, and in no interval.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import exp, floor, inf, log, sqrt
from typing import NamedTuple

import msgspec

from gpudash.compare.paired_t import student_t

BATCHES = 20
"""Number of batches that neighbouring rows are combined into."""
MIN_ROWS = 2 * BATCHES
"""Fewer rows have no interval: they do not show their correlation."""
MIN_EFFECTIVE = 2.0
"""Batches that count as fewer independent ones have no interval."""
MIN_BLOCKS = 3
EDGE_VARIANCE = 1 / 6
"""In steps²: a step counts where it ends, so each end of the rows is up to half a step off."""
CONFIDENCE = 0.95


class RunPart(NamedTuple):
    """A part of a run under one setting: a row of a recording, or a block of a sweep."""

    steps: int
    train_s: float


class Spread(NamedTuple):
    """The error of a rate."""

    variance: float
    """Variance of the rate's logarithm."""
    degrees: float
    """Degrees of freedom of the variance."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """Throughput of one run over that of another: 1.05 is 5 % faster."""

    ratio: float
    low: float | None = None
    high: float | None = None
    """Ends of the confidence interval; None if there are too few rows."""


def rate(parts: Sequence[RunPart]) -> float | None:
    steps, train_s = sum(part.steps for part in parts), sum(part.train_s for part in parts)
    return steps / train_s if steps and train_s > 0 else None


def spread_of_rows(rows: Sequence[RunPart]) -> Spread | None:
    if len(rows) < MIN_ROWS or rate(rows) is None:
        return None
    batches = batched(rows)
    excess = _excess(batches)
    steps, squares = sum(part.steps for part in rows), sum(one * one for one in excess)
    correlation = _autocorrelation(excess) if squares else 0.0
    effective = BATCHES * (1 - correlation) / (1 + correlation)
    if effective < MIN_EFFECTIVE:
        return None
    inflation = BATCHES / effective
    variance = inflation * squares * BATCHES / (BATCHES - 1) + EDGE_VARIANCE
    return Spread(variance / steps**2, effective - 1)


def spread_of_blocks(blocks: Sequence[RunPart]) -> Spread | None:
    """Take blocks as independent: they alternate with other settings' blocks."""
    if len(blocks) < MIN_BLOCKS or rate(blocks) is None:
        return None
    count, steps = len(blocks), sum(part.steps for part in blocks)
    squares = sum(one * one for one in _excess(blocks))
    return Spread(squares * count / (count - 1) / steps**2, count - 1)


def ratio(base: float, new: float, base_spread: Spread | None, new_spread: Spread | None) -> Ratio:
    found = Ratio(ratio=new / base)
    if base_spread is None or new_spread is None:
        return found
    variances = base_spread.variance, new_spread.variance
    together = sum(variances)
    if not together:  # blocks equal to the microsecond
        return Ratio(ratio=found.ratio, low=found.ratio, high=found.ratio)
    degrees = together**2 / sum(
        one**2 / spread.degrees
        for one, spread in zip(variances, (base_spread, new_spread), strict=True)
    )
    half = student_t(max(floor(degrees), 1), CONFIDENCE) * sqrt(together)
    centre = log(found.ratio)
    return Ratio(ratio=found.ratio, low=exp(centre - half), high=_exp(centre + half))


def batched(rows: Sequence[RunPart]) -> list[RunPart]:
    ends = [len(rows) * number // BATCHES for number in range(BATCHES + 1)]
    return [
        RunPart(sum(row.steps for row in some), sum(row.train_s for row in some))
        for begin, end in pairwise(ends)
        for some in (rows[begin:end],)
    ]


def _excess(parts: Sequence[RunPart]) -> list[float]:
    per_s = rate(parts) or 0.0
    return [part.steps - per_s * part.train_s for part in parts]


def _autocorrelation(excess: Sequence[float]) -> float:
    products = sum(one * following for one, following in pairwise(excess))
    seen = products / sum(one * one for one in excess)
    return min(max(seen + (1 + 4 * seen) / len(excess), 0.0), 0.99)


def _exp(exponent: float) -> float:
    return exp(exponent) if exponent < 700 else inf
