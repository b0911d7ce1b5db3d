"""Find what limits the training, and why: pure functions of a snapshot.

Rules are tried in order, and the first one that matches is the answer. A rule whose value was not
measured never matches. docs/concepts/diagnosis.md explains the rules.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias, get_args

import msgspec

from gpudash import format as fmt
from gpudash.snapshot import AB, ASIDES, ENDED, Marker, Series, Snapshot, aside, is_script, silence
from gpudash.statistics import WARMUP_STEPS
from gpudash.trace.summary import Summary
from gpudash.views import hangs
from gpudash.views.evidence import Measured, beside, caution, caution_in_ab, evidence_of
from gpudash.views.lanes import Lane, lanes_of
from gpudash.views.recent_step import MEASURED_STEPS, recent_step, steps_needed
from gpudash.views.remedies import Try, refreshed, tries
from gpudash.views.rules import Limit, Rule, limit_of, rules, waiting_levers
from workloads.levers import Lever, phrase

Meanwhile: TypeAlias = Literal["comparing", "paused", "profiling", "switching"]
"""Interruptions: nothing is measured, and the previous answer stays on the screen."""
Kind: TypeAlias = Limit | Meanwhile | Literal["starting", "measuring", "silent", "ended"]
"""What limits the training, or what it does instead."""
INTERRUPTED: tuple[Kind, ...] = get_args(Meanwhile)
WITHIN_AB = frozenset({*ASIDES, "paused", "resumed"})
"""Labels of the markers that an A/B may hold."""
HOLD_S = 5.0
"""A limit, and what is proposed, stand until they were not found for so long: on a shared machine
other jobs come and go within seconds."""


class Finding(msgspec.Struct, frozen=True):
    """A limit as the rules found it."""

    title: str
    evidence: tuple[str, ...]
    at_s: float
    """Seconds since the run began."""
    step_ms: float
    lanes: tuple[Lane, ...]
    """The step that the evidence is about."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What limits the training, or why that is not known."""

    kind: Kind
    limit: Limit | None = None
    """What limits the training, also while it is interrupted and once it has ended."""
    title: str
    evidence: tuple[str, ...] = ()
    """Clauses, the most important first."""
    step_ms: float | None = None
    lanes: tuple[Lane, ...] = ()
    tries: tuple[Try, ...] = ()
    """Proposed changes, best first; empty where no A/B can run."""
    caution: str = ""
    """Why an A/B, of them or the one that runs, is uncertain now, and what to do; empty if not."""
    found: Finding | None = None
    """How the rules found `limit` last: what is measured while it only stands contradicts it."""
    tries_s: float = 0.0
    """When the changes in `tries` were found last, in seconds since the run began."""


def answer(
    snapshot: Snapshot,
    levers: tuple[Lever, ...],
    before: Answer | None = None,
    cores: int | None = None,
    profile: Summary | None = None,
    *,
    holds: bool = False,
) -> Answer:
    """Return what limits the training.

    `before` is the previous answer. It stands until its value is clearly below the threshold, and
    is shown while nothing can be measured. `cores` is the number of CPU cores that the training may
    use; None if unknown. `profile` is of steps with the present settings; its figures come first.
    `holds`: the limit of `before` and its proposals stand for `HOLD_S`; its evidence and its lanes
    are those with which it was found last, gains are of now.
    """
    interrupted = _interrupted(snapshot, before)
    if interrupted is not None:
        return interrupted
    step = recent_step(snapshot, cores, profile)
    lanes = lanes_of(snapshot, step)
    steps, needed = snapshot.steps_since_break, steps_needed(snapshot.step_ms_p50)
    ended = snapshot.state in ENDED
    if (steps < needed and not ended) or step.step_ms is None:
        so_far = f"measuring … {steps} of at most {MEASURED_STEPS} steps"
        if steps >= needed:  # they are in no tick yet
            so_far = "measuring the first half second …"
        title = snapshot.state if ended else so_far
        kind: Kind = "ended" if ended else "measuring"
        evidence = tuple(_end(snapshot)) if ended else tuple(_measuring(snapshot))
        return Answer(kind=kind, title=title, evidence=evidence, step_ms=step.step_ms, lanes=lanes)
    # which settings make the host wait is known of gpudash's workloads only
    launches = bool(levers) and not snapshot.levers and not waiting_levers(snapshot.settings)
    asked = rules(snapshot, step, launches=launches)
    held, now_s = before if holds else None, snapshot.elapsed_s
    found = limit_of(asked, before.limit if before else None)
    limit = _held_limit(held, found, asked, now_s)
    changes = tries(limit, snapshot, levers, step)
    kept = _held_tries(held, limit, now_s)
    is_found = not kept or [one.change for one in kept] == [one.change for one in changes]
    last = held.found if held is not None and limit != found else None
    now = Measured(snapshot, step)
    if last is None:
        clauses = evidence_of(limit, now)
        last = Finding(_title(limit, snapshot), clauses, now_s, step.step_ms, lanes)
    proposed = changes if is_found else refreshed(kept, snapshot, step)
    return Answer(
        kind="ended" if ended else limit,
        limit=limit,
        title=f"{snapshot.state}; it was {last.title}" if ended else last.title,
        evidence=(*last.evidence, *beside(limit, snapshot)),
        step_ms=last.step_ms,
        lanes=last.lanes,
        tries=() if ended else proposed,
        caution=caution(limit, now) if proposed and not ended else "",
        found=last,
        tries_s=now_s if held is None or is_found else held.tries_s,
    )


def _held_limit(held: Answer | None, found: Limit, asked: Iterable[Rule], now_s: float) -> Limit:
    """Return the limit that stands, whatever is found now, until it was not found for long.

    What is not measured any more, as a rank that is no longer the slow one, does not stand. Nor
    does what is gone entirely, as throttling.
    """
    if held is None or held.found is None or held.limit in (None, found):
        return found
    if now_s - held.found.at_s >= HOLD_S:
        return found
    known = {"none", *(rule.kind for rule in asked if rule.value_pct)}
    return held.limit if held.limit in known else found


def _held_tries(held: Answer | None, limit: Limit, now_s: float) -> tuple[Try, ...]:
    """Return the proposals that stand for the same limit, whatever is found now."""
    stands = held is not None and held.limit == limit and now_s - held.tries_s < HOLD_S
    return held.tries if held is not None and stands else ()


class Answers:
    """Gives an answer for each snapshot of a run.

    A limit is kept until the series has another tick, because its values are means of ticks. With
    the same settings and profile it is held for a while after that.
    """

    def __init__(self) -> None:
        self.newest: Answer | None = None
        self._snapshot = Snapshot()  # the newest
        self._profile: Summary | None = None

    def give(
        self,
        snapshot: Snapshot,
        levers: tuple[Lever, ...],
        cores: int | None = None,
        profile: Summary | None = None,
    ) -> Answer:
        """Return the current answer; the arguments are those of `answer`."""
        then = self._snapshot
        if snapshot.elapsed_s < then.elapsed_s or snapshot.settings != then.settings:
            self.newest = None  # a replay went elsewhere, or the settings changed
        before, in_ab = self.newest, is_comparing(snapshot)
        goes_on = (
            snapshot.state == then.state
            and snapshot.markers[-1:] == then.markers[-1:]
            and in_ab == is_comparing(then)
        )
        stands = (
            before is not None
            and before.limit is not None
            and before.kind not in INTERRUPTED
            and snapshot.series is then.series
            and goes_on
            and profile is self._profile
            and _interrupted(snapshot, before) is None
        )
        holds = profile is self._profile
        # a replay may have come here from anywhere, and the newest answer be of another time
        if not (in_ab or snapshot.state == "paused"):
            has_jumped = before is None or snapshot.elapsed_s - then.elapsed_s >= HOLD_S
            if has_jumped and _meanwhile(snapshot) is not None:
                before = answer(as_steps_ended(snapshot), levers, None, cores, profile)
        elif before is None or not goes_on:
            began = as_ab_began(snapshot) if in_ab else as_pause_began(snapshot)
            same = then.state != "paused" and then.markers[-1:] == began.markers[-1:]
            is_recent = in_ab and same and abs(began.elapsed_s - then.elapsed_s) < HOLD_S
            if before is None or not is_recent:
                before = answer(began, levers, before, cores, profile, holds=holds and same)
        if before is None or not stands:
            before = self.newest = answer(snapshot, levers, before, cores, profile, holds=holds)
        self._snapshot, self._profile = snapshot, profile
        return before


def as_pause_began(snapshot: Snapshot) -> Snapshot:
    """Return the training as it was before the pause, whose marker is the newest."""
    *before, pause = snapshot.markers or (Marker(at_s=snapshot.elapsed_s, label="paused"),)
    return _until(pause.at_s, snapshot, before)


def as_steps_ended(snapshot: Snapshot) -> Snapshot:
    """Return the training at its newest tick with steps, before what goes on meanwhile."""
    series = snapshot.series
    ticks = zip(series.at_s, series.of("steps_per_s"), strict=False)
    ended_s = max((at_s for at_s, rate in ticks if rate), default=0.0)
    until = _until(ended_s, snapshot, snapshot.markers)
    return msgspec.structs.replace(until, status="training", profiling=False, quiet_s=None)


def as_ab_began(snapshot: Snapshot) -> Snapshot:
    """Return the training as it was before the A/B that runs."""
    before = list(snapshot.markers)
    while before and before[-1].label in WITHIN_AB:
        before.pop()
    if not before or before[-1].label != AB:  # no block has begun
        return msgspec.structs.replace(snapshot, state="training", comparison=None)
    began_s = before.pop().at_s
    until = _until(began_s, snapshot, before)
    steps = _steps_since(before[-1].at_s if before else 0.0, until.series)
    return msgspec.structs.replace(until, comparison=None, steps_since_break=steps)


def _until(at_s: float, snapshot: Snapshot, markers: Iterable[Marker]) -> Snapshot:
    """Return the snapshot of a training with the ticks until `at_s`, and with these markers."""
    series = snapshot.series
    until = bisect_right(series.at_s, at_s)
    values = {name: column[:until] for name, column in series.values.items()}
    return msgspec.structs.replace(
        snapshot,
        state="training",
        elapsed_s=at_s,
        markers=tuple(markers),
        series=msgspec.structs.replace(series, at_s=series.at_s[:until], values=values),
    )


def _steps_since(began_s: float, series: Series) -> int:
    """Return the steps of the ticks that began at `began_s` or later."""
    begins_s = (series.at_s[0] - series.tick_s, *series.at_s) if series.at_s else ()
    rates = zip(begins_s, series.at_s, series.of("steps_per_s"), strict=False)
    return round(
        sum((rate or 0.0) * (end - begin) for begin, end, rate in rates if begin >= began_s)
    )


def is_comparing(snapshot: Snapshot) -> bool:
    """Return whether an A/B runs."""
    return snapshot.comparison is not None and not snapshot.comparison.is_over


def _interrupted(snapshot: Snapshot, before: Answer | None) -> Answer | None:
    """Return the answer while nothing can be measured; None while steps finish."""
    hang = snapshot.hang
    if snapshot.state in ("training", "switching") and hang is not None and hang.stacks:
        return Answer(kind="silent", title=hangs.title(hang), evidence=hangs.clauses(hang))
    if snapshot.state in ("starting", "training") and not snapshot.total_steps:
        return Answer(kind="starting", title="starting")
    going_on = _meanwhile(snapshot)
    if going_on is not None:
        caution = caution_in_ab(snapshot, HOLD_S) if going_on[0] == "comparing" else ""
        return _holding(before, *going_on, caution)
    if snapshot.state == "training" and silence(snapshot):
        why = "something compiles, the loader is late, or the step hangs"
        return Answer(kind="silent", title=silence(snapshot)[0], evidence=(why,))
    return None


def _meanwhile(snapshot: Snapshot) -> tuple[Meanwhile, str] | None:
    """Return what keeps a training from being measured, as a kind and as a title."""
    shown = snapshot.comparison
    match snapshot.state:
        case "training" if snapshot.profiling:
            return "profiling", "profiling the next steps …"
        case "paused" | "training" if (doing := aside(snapshot) or snapshot.state) != "training":
            return "paused", doing
        case "switching":
            return "switching", f"switching to {phrase(snapshot.pending)} …"
        case "training" if shown is not None and not shown.is_over:
            question = f"{shown.lever} {fmt.plain(shown.a)} or {fmt.plain(shown.b)}"
            return "comparing", f"an A/B is running: {question}"
    return None


def _holding(before: Answer | None, kind: Meanwhile, title: str, caution: str) -> Answer:
    """Return an answer of this kind with the evidence and lanes of `before`."""
    if before is None or not before.lanes:
        return Answer(kind=kind, title=title, caution=caution)
    evidence = before.evidence
    if before.kind not in INTERRUPTED:
        evidence = (f"before that: {before.title}", *evidence)
    return msgspec.structs.replace(
        before, kind=kind, title=title, evidence=evidence, tries=(), caution=caution
    )


# ── in words ────────────────────────────────────────────────────────────────────────────


TITLES: dict[Limit, str] = {
    "asides": "paused",
    "cores": "limited by other jobs",
    "straggler": "limited by one rank after another",
    "data": "input-bound",
    "copy": "copy-bound",
    "communication": "communication-bound",
    "sync": "sync-bound",
    "launch": "launch-bound",
    "host": "launch- or sync-bound",
    "throttled": "throttled",
    "memory": "memory-bandwidth-bound",
    "compute": "compute-bound",
    "gpu": "GPU-bound",
    "cpu": "CPU-bound",
    "none": "unclear, because no part fills the step",
    "unknown": "unclear, because no times within a step are measured",
}


def _title(limit: Limit, snapshot: Snapshot) -> str:
    """Return the title of a limit; a rank that is always the slow one is named.

    Several ranks can run short of cores without any other job.
    """
    straggler = snapshot.straggler
    if limit == "cores" and len(snapshot.ranks) > 1:
        return "short of cores"
    if limit != "straggler" or straggler is None or straggler.kind == "wandering":
        return TITLES[limit]
    if straggler.kind == "imbalance":
        return "limited by unequal batches"
    return f"limited by rank {straggler.rank}"


def _end(snapshot: Snapshot) -> Iterator[str]:
    """Yield why the training failed, and whether a script ended without a training step."""
    if snapshot.state == "failed":
        yield from fmt.plain(snapshot.status.partition(" – ")[0]).split(": ", 1)
    if is_script(snapshot) and not snapshot.total_steps:
        yield "no training step was seen"


def _measuring(snapshot: Snapshot) -> Iterator[str]:
    """Yield what the answer still needs, the row being measured, and the row before it."""
    yield f"slow steps need fewer; the first {WARMUP_STEPS} are warm-up"
    rows = [row for row in snapshot.results if not row.verdict]
    if not rows or not rows[-1].live:
        return
    *earlier, newest = rows
    yield f"row {newest.number}: {fmt.plain(newest.configuration)}"
    before = earlier[-1] if earlier else None
    if before is not None and before.workload == snapshot.workload:
        rate, step_ms = fmt.significant(before.samples_per_s), before.step_ms_p50
        so_far = f"{rate} samples/s, step p50 {fmt.milliseconds(step_ms)} ms"
        yield f"row {before.number} before it: {so_far}"
