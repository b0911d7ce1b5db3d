"""Print a comparison of two runs: a table, differing circumstances, and remarks."""

from collections.abc import Callable, Sequence

from gpudash import format as fmt
from gpudash.compare.runs.comparison import CAVEAT, Alone, Difference, Matched, RunComparison, Side
from gpudash.compare.sweep.table import as_markdown, as_text, pairs
from gpudash.compare.unpaired_t import MIN_ROWS
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.statistics import WARMUP_STEPS

HEAD = ["setting", "base steps/s", "new steps/s", "new/base", "95 % interval"]

NO_INTERVAL = (
    f"{fmt.ABSENT}: no interval, because there are fewer than {MIN_ROWS} rows, or "
    "because the noise lasts as long as the run"
)
WITHOUT_LOG = (
    "{} has no log (.jsonl) beside its CSV: the length of its warm-up is unknown, and "
    f"{WARMUP_STEPS} steps are left out; of the other run as many as its log says"
)
SAME = "no difference of versions, device or seed is recorded"


def text(found: RunComparison) -> str:
    files = f"base  {fmt.plain(found.base)}\nnew   {fmt.plain(found.new)}"
    return _parts(found, files, as_text, "")


def markdown(found: RunComparison) -> str:
    files = f"`{fmt.plain(found.base)}` against `{fmt.plain(found.new)}`"
    return _parts(found, files, as_markdown, "- ")


def _parts(
    found: RunComparison, files: str, table: Callable[[list[list[str]]], str], bullet: str
) -> str:
    differing, remarked = (
        "\n".join(f"{bullet}{line}" for line in lines)
        for lines in (_differing(found.differences), _remarks(found))
    )
    return "\n\n".join((files, differing, table(cells(found)), remarked))


def rates(found: RunComparison) -> dict[str, float]:
    """Return the steps/s of each setting that both runs have, by setting and run."""
    sides = (
        (f"{label(one, found)} {name}", side.steps_per_s)
        for one in found.matched
        for name, side in (("base", one.base), ("new", one.new))
    )
    return {name: rate for name, rate in sides if rate is not None}


def cells(found: RunComparison) -> list[list[str]]:
    return [HEAD, *(_row(one, found) for one in found.matched)]


def _remarks(found: RunComparison) -> list[str]:
    short = any(one.ratio is not None and one.low is None for one in found.matched)
    return [
        *alone(found),
        *([WITHOUT_LOG.format(found.without_log)] if found.without_log else []),
        *_core_waits(found),
        *([NO_INTERVAL] if short else []),
        CAVEAT,
    ]


def alone(found: RunComparison) -> list[str]:
    return [f"only in {one.run}: {label(one, found)}" for one in found.alone]


def label(one: Matched | Alone, found: RunComparison) -> str:
    """Name only the levers that differ between settings of the comparison."""
    everyone: tuple[Matched | Alone, ...] = (*found.matched, *found.alone)
    among = [other.settings for other in everyone]
    differing = {
        name: value
        for name, value in one.settings.items()
        if any(other.get(name, value) != value for other in among)
    }
    return fmt.plain(f"{one.workload} {pairs(differing)}".strip())


def _differing(differences: Sequence[Difference]) -> list[str]:
    return [
        fmt.plain(f"{one.name}: {one.base or fmt.ABSENT} → {one.new or fmt.ABSENT}")
        for one in differences
    ] or [SAME]


def _row(one: Matched, found: RunComparison) -> list[str]:
    return [
        label(one, found),
        _rate(one.base),
        _rate(one.new),
        fmt.ABSENT if one.ratio is None else f"{one.ratio:.3f}",
        fmt.ABSENT if one.low is None else f"[{one.low:.3f}, {one.high:.3f}]",
    ]


def _rate(side: Side) -> str:
    return fmt.figure(side.steps_per_s)


def _core_waits(found: RunComparison) -> list[str]:
    return [
        f"cores were short: {label(one, found)} of {name} waited for one "
        f"{fmt.percent(side.core_wait_pct)} of the time"
        for one in found.matched
        for name, side in (("base", one.base), ("new", one.new))
        if (side.core_wait_pct or 0.0) >= CORE_WAIT_WARNS_PCT
    ]
