"""What the benchmarks share: ratios of alternating pairs, with an interval."""

import json
from collections.abc import Sequence

from gpudash.compare.paired_t import estimate


def ratio_with_interval(
    news: Sequence[float], bases: Sequence[float]
) -> tuple[float, float, float]:
    """Return new/base, the geometric mean over two pairs or more, and its 95 % interval."""
    found = estimate(list(zip(news, bases, strict=True)))
    if found.low is None or found.high is None:
        raise SystemExit("an interval needs two pairs or more")
    return 1 + found.change, 1 + found.low, 1 + found.high


def show(what: str, news: Sequence[float], bases: Sequence[float], **also: object) -> None:
    """Print one readable line and one JSON line."""
    ratio, low, high = ratio_with_interval(news, bases)
    print(f"{what}: {(ratio - 1) * 100:+.2f} % [{(low - 1) * 100:+.2f}, {(high - 1) * 100:+.2f}]")
    print(json.dumps({"what": what, "ratio": ratio, "low": low, "high": high, **also}), flush=True)
