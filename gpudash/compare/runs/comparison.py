"""Match two runs setting by setting. Pure functions, from runs to one document."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from gpudash.compare.runs.run import MeasuredSetting, RecordedRun
from gpudash.compare.unpaired_t import CONFIDENCE, ratio
from gpudash.protocol.records import Settings

SCHEMA_VERSION = 1
"""Increased whenever a reader of older documents would misread a new one."""
CAVEAT = "these were not interleaved: drift between the runs is in here"
SEED = "seed"
"""The one lever in which matched settings may differ: it is listed as a circumstance."""

Judgement: TypeAlias = Literal["below", "not below", "unclear", "no interval"]
"""A ratio's interval against `--fail-below`: all below, none below, or partly."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A circumstance in which the runs differ. None: not recorded."""

    name: str
    base: str | None
    new: str | None


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of one run, without its warm-up."""

    steps: int
    parts: int
    """Rows of the recording."""
    steps_per_s: float | None
    core_wait_pct: float | None = None


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of both runs."""

    workload: str
    settings: Settings
    """Those of the new run."""
    base: Side
    new: Side
    ratio: float | None
    """Throughput of the new run over that of the base; None if one of them trained nothing."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval; None if there are too few rows."""
    judgement: Judgement | None = None
    """None if no limit was set."""


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that only one of the runs has."""

    run: Literal["base", "new"]
    workload: str
    settings: Settings


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpudash compare --json` prints."""

    schema_version: int = SCHEMA_VERSION
    base: str
    new: str
    """The files."""
    differences: tuple[Difference, ...]
    matched: tuple[Matched, ...]
    alone: tuple[Alone, ...]
    confidence: float = CONFIDENCE
    fail_below: float | None = None
    caveat: str = CAVEAT
    without_log: Literal["base", "new"] | None = None
    """The run that does not record how many steps were warm-up, if only one does not."""


def compared(base: RecordedRun, new: RecordedRun, fail_below: float | None = None) -> RunComparison:
    unknown = _known_to_one(base, new), _known_to_one(new, base)
    mine, theirs = (
        {_key(one, left_out): one for one in run.measured}
        for run, left_out in zip((base, new), unknown, strict=True)
    )
    return RunComparison(
        base=base.path,
        new=new.path,
        differences=(*_differences(base.circumstances, new.circumstances), *_differences(*unknown)),
        matched=tuple(
            _matched(mine[key], theirs[key], fail_below) for key in mine if key in theirs
        ),
        alone=(
            *_alone("base", (one for key, one in mine.items() if key not in theirs)),
            *_alone("new", (one for key, one in theirs.items() if key not in mine)),
        ),
        fail_below=fail_below,
        without_log=_without_log(base, new),
    )


def judge(low: float | None, high: float | None, limit: float) -> Judgement:
    if low is None or high is None:
        return "no interval"
    return "below" if high < limit else "not below" if low >= limit else "unclear"


def _matched(base: MeasuredSetting, new: MeasuredSetting, fail_below: float | None) -> Matched:
    found = None
    if base.steps_per_s is not None and new.steps_per_s is not None:
        found = ratio(base.steps_per_s, new.steps_per_s, base.spread, new.spread)
    low, high = (found.low, found.high) if found else (None, None)
    return Matched(
        workload=new.workload,
        settings=new.settings,
        base=_side(base),
        new=_side(new),
        ratio=found.ratio if found else None,
        low=low,
        high=high,
        judgement=None if fail_below is None else judge(low, high, fail_below),
    )


def _side(one: MeasuredSetting) -> Side:
    return Side(
        steps=one.steps,
        parts=len(one.parts),
        steps_per_s=one.steps_per_s,
        core_wait_pct=one.core_wait_pct,
    )


def _key(one: MeasuredSetting, left_out: Settings) -> tuple[str, frozenset[tuple[str, str]]]:
    settings = {k: v for k, v in one.settings.items() if k != SEED and k not in left_out}
    return one.workload, frozenset(settings.items())


def _known_to_one(run: RecordedRun, other: RecordedRun) -> Settings:
    shared = {one.workload for one in run.measured} & {one.workload for one in other.measured}
    known = {name for one in other.measured for name in one.settings}
    values: dict[str, set[str]] = {}
    for one in run.measured:
        for name, value in one.settings.items():
            if one.workload in shared and name not in known:
                values.setdefault(name, set()).add(value)
    return {name: value for name, (value, *more) in values.items() if not more}


def _differences(base: dict[str, str], new: dict[str, str]) -> Iterable[Difference]:
    for name in base | new:
        if base.get(name) != new.get(name):
            yield Difference(name=name, base=base.get(name), new=new.get(name))


def _without_log(base: RecordedRun, new: RecordedRun) -> Literal["base", "new"] | None:
    if base.warmup_known == new.warmup_known:
        return None
    return "new" if base.warmup_known else "base"


def _alone(run: Literal["base", "new"], measured: Iterable[MeasuredSetting]) -> Iterable[Alone]:
    for one in measured:
        yield Alone(run=run, workload=one.workload, settings=one.settings)
