"""Propose what an A/B should try: the levers by what they gain, for each second of trying."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from gpudash.diagnosis.effects import EFFECTS, can_help, gain_of, helps_of
from gpudash.diagnosis.input_effects import batches_wait, workers_needed
from gpudash.diagnosis.lever_change import LeverChange
from gpudash.diagnosis.model import Model
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.protocol.answer import LEAST_PCT, Gain, Try
from gpudash.protocol.inspections import Rehearsed, Timing
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown
from gpudash.protocol.training import Lever
from gpudash.snapshot import Snapshot
from workloads.levers import NEXT, NUMERICS, Effect

TRY_S: Mapping[Effect, int] = {"next step": 10, "new loader": 30, "rebuilt model": 30}
"""Seconds that an A/B of a lever takes about."""
COMPILE_S = 60
"""What compiling takes in addition."""


Proposals: TypeAlias = tuple[tuple[Try, ...], tuple[str, ...]]
NO_PROPOSALS: Proposals = (), ()


class _Judged(NamedTuple):
    """A change, and what it is worth: expected gain for each second of trying."""

    change: Try
    worth: float
    loads: bool
    """Whether it is about how batches are made."""
    is_minor: bool = False
    """Whether the gain is inside the model's error."""


def loader_workers(settings: Settings) -> int:
    text = settings.get("num_workers", "")
    return int(text) if text.isdecimal() else 0


def proposals(
    model: Model,
    snapshot: Snapshot,
    step: RecentStep,
    *,
    outside: bool = False,
) -> Proposals:
    """Return what to try, best first, and levers whose gain is inside the model's error.

    What an A/B has shown to be faster with these settings comes first, what one has judged
    otherwise last, and before that what nothing is known of: it has no gain. Levers that change
    what is trained come after those that leave it. Where the limit is `outside` of the step, only
    the loader's levers may help: it may be late for the same reason.
    """
    known = {one.name: one for one in snapshot.levers if one.refusal is None}
    verdicts = _verdicts(snapshot)
    proven = {one.change: one for one in _proven(verdicts.values(), snapshot.settings, known)}
    estimated = [
        found
        for lever in known.values()
        for found in _estimated(lever, model, snapshot, step)
        if found.change.change not in proven and not (outside and not found.loads)
    ]
    judged = [one for one in estimated if not one.is_minor]
    foreseen = {one.change.lever for one in judged} | {lever for lever, _ in proven}
    minor = dict.fromkeys(one.change.lever for one in estimated if one.is_minor)

    def is_tried(one: _Judged) -> bool:
        change = one.change
        verdict = verdicts.get((change.lever, frozenset((change.value, change.before))))
        return verdict is not None and _measured_pct(verdict, change.value)[0] <= 0

    def rank(one: _Judged) -> tuple[bool, bool, bool, float]:
        is_known = one.change.gain is not None
        return is_tried(one), not is_known, NUMERICS.get(one.change.lever) == "training", -one.worth

    ordered = sorted(judged, key=rank)
    tries = (*proven.values(), *(one.change for one in ordered))
    return tries, tuple(lever for lever in minor if lever not in foreseen)


def _estimated(
    lever: Lever, model: Model, snapshot: Snapshot, step: RecentStep
) -> Iterator[_Judged]:
    settings = snapshot.settings
    before = settings.get(lever.name, lever.default)
    if lever.needs_gpu and not step.on_gpu:
        return
    is_fed = settings.get("data", "loader") != "loader"
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
            phases=snapshot.phases,
            workers=loader_workers(settings),
            feeds=is_fed,
            share=lever.share,
            collective_ms=_collective_ms(snapshot),
            timings=_timings(snapshot.rehearsed, lever.name, value),
        )
        loads = effect.loads
        if is_fed and loads and lever.name != "data":
            continue  # no loader makes batches
        gain = gain_of(change)
        tried_s = TRY_S[lever.effect] + COMPILE_S * effect.compiles
        proposal = Try(lever.name, value, effect.why, before, gain, tried_s)
        if gain is not None and gain.high_pct >= LEAST_PCT:
            expected_pct = (max(gain.low_pct or 0.0, -100.0) + gain.high_pct) / 2
            yield _Judged(proposal, expected_pct / tried_s, loads)
        elif gain is None and can_help(change, model.step_ms * LEAST_PCT / 100):
            yield _Judged(proposal, -tried_s, loads)  # after all of which something is known
        elif gain is not None:
            yield _Judged(proposal, 0.0, loads, is_minor=True)


def _collective_ms(snapshot: Snapshot) -> float | None:
    return min(
        (ms for row in snapshot.ranks if (ms := row.values.get("collective_ms"))), default=None
    )


def _timings(rehearsed: Rehearsed | None, lever: str, value: str) -> tuple[Timing, ...]:
    timings = rehearsed.timings if rehearsed is not None else ()
    return tuple(one for one in timings if (one.lever, one.value) == (lever, value))


def _value(lever: Lever, named: str, active: str, step: RecentStep) -> str | None:
    if named not in (NEXT, *lever.values):
        return None
    try:
        value = lever.step(active, +1) if named == NEXT else named
        if lever.name == "num_workers" and lever.kind == "count":
            needed = workers_needed(step, int(active))
            while int(value) < min(needed, lever.maximum):
                value = lever.step(value, +1)  # a need is an estimate: it moves within a step
            most = _most_workers(step, int(active)) or int(value)
            value = lever.canonical(str(min(int(value), most)))
    except ValueError:
        return None
    higher = lever.kind != "count" or int(value) > int(active)
    return value if value != active and higher else None


def _most_workers(step: RecentStep, workers: int) -> int | None:
    """Allow a core for each, and as many again if those there mostly wait."""
    if not step.cores or not workers:
        return step.cores
    return max(step.cores, 2 * workers) if batches_wait(step, workers) else step.cores


# ── what A/Bs have shown ────────────────────────────────────────────────────────────────


def _verdicts(snapshot: Snapshot) -> dict[tuple[str, frozenset[str]], ComparisonShown]:
    """Let a verdict with these settings replace others on the same two values."""
    ended = (one for one in snapshot.verdicts if one.verdict)
    by_fit = sorted(ended, key=lambda one: is_of_now(one, snapshot.settings))
    return {(one.lever, frozenset((one.a, one.b))): one for one in by_fit}


def is_of_now(verdict: ComparisonShown, settings: Settings) -> bool:
    others = {name: value for name, value in settings.items() if name != verdict.lever}
    return verdict.settings == others


def way_back(change: float) -> float:
    """Return the relative change that undoes one; a rate keeps at least 1 %."""
    return 1 / max(1 + change, 0.01) - 1


def _measured_pct(verdict: ComparisonShown, value: str) -> tuple[float, float]:
    if verdict.low is None or verdict.high is None:
        return 0.0, 0.0
    ends = verdict.low, verdict.high
    if value == verdict.a:
        low, high = (way_back(end) for end in reversed(ends))
        ends = low, high
    return 100 * ends[0], 100 * ends[1]


def _proven(
    verdicts: Iterable[ComparisonShown], settings: Settings, known: Mapping[str, Lever]
) -> tuple[Try, ...]:
    found = []
    for one in verdicts:
        if one.lever not in known or not one.proven or not is_of_now(one, settings):
            continue
        before = settings.get(one.lever, known[one.lever].default)
        if before not in (one.a, one.b):
            continue
        value = one.a if before == one.b else one.b
        low, high = _measured_pct(one, value)
        if low > 0:
            source = f"an A/B of {one.pairs} pairs, with the other settings as now"
            gain = Gain(low, high, source, "measured")
            tried_s = TRY_S[known[one.lever].effect]
            found.append((low, Try(one.lever, value, "measured by an A/B", before, gain, tried_s)))
    return tuple(one for _, one in sorted(found, key=lambda pair: -pair[0]))
