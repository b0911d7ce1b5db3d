"""What the benchmarks share: ratios of alternating pairs, with an interval."""

import json
import math
import statistics
from collections.abc import Sequence

# two-sided 95 % points of Student's t, by degrees of freedom
T95 = {4: 2.776, 9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093, 29: 2.045}


def ratio_with_interval(
    news: Sequence[float], bases: Sequence[float]
) -> tuple[float, float, float]:
    """Return the geometric mean of new/base over the pairs and its 95 % interval.

    A paired t interval on the log ratio: what both runs of a pair share cancels out.
    """
    logs = [math.log(new / base) for new, base in zip(news, bases, strict=True)]
    mean = statistics.fmean(logs)
    points = [value for degrees, value in T95.items() if degrees <= len(logs) - 1]
    half = points[-1] * statistics.stdev(logs) / math.sqrt(len(logs)) if points else math.inf
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def show(what: str, news: Sequence[float], bases: Sequence[float], **also: object) -> None:
    """Print one readable line and one JSON line."""
    ratio, low, high = ratio_with_interval(news, bases)
    print(f"{what}: {(ratio - 1) * 100:+.2f} % [{(low - 1) * 100:+.2f}, {(high - 1) * 100:+.2f}]")
    print(json.dumps({"what": what, "ratio": ratio, "low": low, "high": high, **also}), flush=True)
