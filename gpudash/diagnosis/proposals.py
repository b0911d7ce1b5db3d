"""Propose what an A/B should try: the levers by what they gain, for each second of trying."""

from collections.abc import Iterable, Iterator, Mapping

from gpudash.diagnosis.causes.cause import Limit
from gpudash.diagnosis.effects import EFFECTS, Effect, fitting_threads, gain_of, helps_of
from gpudash.diagnosis.input_effects import workers_needed
from gpudash.diagnosis.lever_change import LeverChange
from gpudash.diagnosis.model import Model
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.protocol.answer import LEAST_PCT, Gain, Try
from gpudash.protocol.inspections import Rehearsed, Timing
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown
from gpudash.protocol.training import Lever
from gpudash.snapshot import Snapshot
from workloads.levers import NEXT, NUMERICS
from workloads.levers import Effect as When

TRY_S: Mapping[When, int] = {"next step": 10, "new loader": 30, "rebuilt model": 30}
"""Seconds that an A/B of a lever takes about."""
COMPILE_S = 60
"""What compiling takes in addition."""


def proposals(
    model: Model,
    snapshot: Snapshot,
    step: RecentStep,
    limit: Limit,
) -> tuple[tuple[Try, ...], tuple[str, ...]]:
    """Return what to try, best first, and levers whose gain is inside the model's error.

    What an A/B has shown to be faster with these settings comes first, what nothing is known of
    last: it has no gain. What one has judged otherwise is no proposal. Levers that change what is
    trained come after those that leave it.
    """
    known = {one.name: one for one in snapshot.levers if one.refusal is None}
    verdicts = _verdicts(snapshot)
    measured = _proven(snapshot.settings, known, verdicts.values())
    proven = {one.change: one for one in sorted(measured, key=_worth, reverse=True)}
    estimated = [
        found
        for lever in known.values()
        for found in _estimated(lever, model, snapshot, step, limit)
        if found.change not in proven
    ]
    minor = dict.fromkeys(one.lever for one in estimated if _is_minor(one.gain))

    def is_tried(one: Try) -> bool:
        verdict = verdicts.get((one.lever, frozenset((one.value, one.before))))
        return verdict is not None and _measured_pct(verdict, one.value)[0] <= 0

    def rank(one: Try) -> tuple[bool, bool, float]:
        return one.gain is None, NUMERICS.get(one.lever) == "training", -_worth(one)

    open_ = (one for one in estimated if not _is_minor(one.gain) and not is_tried(one))
    ordered = sorted(open_, key=rank)
    tries = (*proven.values(), *ordered)
    foreseen = {one.lever for one in tries}
    return tries, tuple(lever for lever in minor if lever not in foreseen)


def _estimated(
    lever: Lever, model: Model, snapshot: Snapshot, step: RecentStep, limit: Limit
) -> Iterator[Try]:
    before = snapshot.settings.get(lever.name, lever.default)
    if lever.needs_gpu and not step.on_gpu:
        return
    for named, helps in helps_of(lever).items():
        effect = EFFECTS[helps]
        value = _value(lever, named, before, step)
        if value is None or effect.on not in (None, "cuda" if step.on_gpu else "cpu"):
            continue
        change = LeverChange(
            helps,
            before,
            value,
            step,
            model,
            snapshot,
            lever.share,
            _timings(snapshot.rehearsed, lever.name, value),
        )
        gain = gain_of(change)
        if _is_minor(gain) or _claims(gain, effect, limit):
            takes_s = TRY_S[lever.effect] + COMPILE_S * effect.compiles
            yield Try(lever.name, value, effect.why, before, gain, takes_s)


def _claims(gain: Gain | None, effect: Effect, limit: Limit) -> bool:
    """Whether it surely gains, or acts on what limits: a mere `up to` is no reason to try it."""
    if gain is None and limit.part is None:
        return False
    is_sure = gain is not None and (gain.low_pct or 0.0) > 0 and not limit.is_outside
    limiting = {part.name for part in (limit.part, *limit.also) if part is not None}
    acts = not limiting or any(part.name in limiting for part in effect.shortens)
    return is_sure or acts


def _is_minor(gain: Gain | None) -> bool:
    """Whether it is inside the model's error."""
    return gain is not None and gain.high_pct < LEAST_PCT


def _worth(one: Try) -> float:
    """Return the expected gain for each second of trying; the sooner an unknown one is known."""
    takes_s = one.takes_s or 1
    return -takes_s if one.gain is None else one.gain.expected_pct / takes_s


def _timings(rehearsed: Rehearsed | None, lever: str, value: str) -> tuple[Timing, ...]:
    timings = rehearsed.timings if rehearsed is not None else ()
    return tuple(one for one in timings if (one.lever, one.value) == (lever, value))


def _value(lever: Lever, named: str, active: str, step: RecentStep) -> str | None:
    if named not in (NEXT, *lever.values):
        return None
    if lever.name == "threads":
        return named if named == str(fitting_threads(step)) else None
    try:
        value = lever.step(active, +1) if named == NEXT else named
        if lever.name == "num_workers" and lever.kind == "count":
            needed = workers_needed(step, int(active))
            while int(value) < min(needed, lever.maximum):
                value = lever.step(value, +1)  # a need is an estimate: it moves within a step
            # a core for each, and as many again as there are: they may wait more than compute
            most = max(step.cores or int(value), 2 * int(active))
            value = lever.canonical(str(min(int(value), most)))
    except ValueError:
        return None
    higher = lever.kind != "count" or int(value) > int(active)
    return value if value != active and higher else None


# ── what A/Bs have shown ────────────────────────────────────────────────────────────────


def _verdicts(snapshot: Snapshot) -> dict[tuple[str, frozenset[str]], ComparisonShown]:
    """Let a verdict with these settings replace others on the same two values."""
    by_fit = sorted(snapshot.verdicts, key=lambda one: is_of_now(one, snapshot.settings))
    return {(one.lever, frozenset((one.a, one.b))): one for one in by_fit if one.verdict}


def is_of_now(verdict: ComparisonShown, settings: Settings) -> bool:
    return verdict.settings == {
        name: value for name, value in settings.items() if name != verdict.lever
    }


def way_back(change: float) -> float:
    """Return the relative change that undoes one; a rate keeps at least 1 %."""
    return 1 / max(1 + change, 0.01) - 1


def _measured_pct(verdict: ComparisonShown, value: str) -> tuple[float, float]:
    if verdict.low is None or verdict.high is None:
        return 0.0, 0.0
    low, high = verdict.low, verdict.high
    if value == verdict.a:
        low, high = way_back(high), way_back(low)
    return 100 * low, 100 * high


def _proven(
    settings: Settings, known: Mapping[str, Lever], verdicts: Iterable[ComparisonShown]
) -> Iterator[Try]:
    for one in verdicts:
        lever = known.get(one.lever)
        if lever is None or not one.proven or not is_of_now(one, settings):
            continue
        before = settings.get(one.lever, lever.default)
        value = {one.a: one.b, one.b: one.a}.get(before)
        if value is not None and (ends := _measured_pct(one, value))[0] > 0:
            source = f"an A/B of {one.pairs} pairs, with the other settings as now"
            gain = Gain(*ends, source, "measured")
            yield Try(lever.name, value, "measured by an A/B", before, gain, TRY_S[lever.effect])
