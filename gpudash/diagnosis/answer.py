"""Find what limits the training, and why, while its steps are measured.

What was not measured is no cause. docs/concepts/diagnosis.md explains it.
"""

from math import inf
from operator import is_

from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.diagnosis.causes.cause import Cause, Measured
from gpudash.diagnosis.causes.facts import waiting_settings
from gpudash.diagnosis.causes.table import NONE, causes, caution, evidence, limit_of, line
from gpudash.diagnosis.headline import interruption, is_comparing
from gpudash.diagnosis.lanes import lanes_of
from gpudash.diagnosis.model import model_of
from gpudash.diagnosis.proposals import proposals
from gpudash.diagnosis.recent_step import RecentStep, of_slow_loader, recent_step, steps_needed
from gpudash.diagnosis.slopes import held_against, proof_of, shown_by, slope_clauses
from gpudash.diagnosis.why import counted, parts_of, reasons
from gpudash.protocol.answer import Answer, Gain
from gpudash.ranks.recent import NOW_S
from gpudash.snapshot import ENDED, RecentMeans, Snapshot
from gpudash.trace.summary import Summary

HOLD_S = 5.0
"""An answer stands until it was not found for so long: on a shared machine other jobs come and go
within seconds."""
LOOK_S = 1.0
"""Once there is one, another is looked for as often: that takes half a millisecond."""
UNEXPLAINED = 0.1
"""With more than this part of a step unexplained there is no answer."""
FIGURES_S = 10.0
"""Figures that change alone are shown as often: each answer that is shown is in a recording's log,
which takes 0.7 MB an hour, twice as much with a profile. Those of the first steps are shown anew
after `NOW_S`, …"""
AS_LONG = 0.1
"""… and all of them once a step takes longer or shorter by this part: a screen has one length."""


class Answers:
    """Folds the snapshots of a run into its answer.

    While nothing is measured the answer stands: in a pause, an A/B, a profile, and at the end. With
    another start or change, or after a pause or an A/B, it is void.
    """

    def __init__(self) -> None:
        self.newest: Answer | None = None
        """The answer that is shown; None until enough steps are measured."""
        self._found_s = self._anew_s = self._looked_s = -inf
        self._seen = RecentMeans()
        self._then = Snapshot()
        self._of: tuple[object, ...] = (None, None, None)
        self.is_told = False
        """Whether a recording holds the answers."""

    def tell(self, answer: Answer | None) -> None:
        """Take the answer that a recording holds; none is found any more."""
        self.newest, self.is_told = answer, True

    def look(
        self, snapshot: Snapshot, cores: int | None = None, profile: Summary | None = None
    ) -> None:
        then, self._then = self._then, snapshot
        if self.is_told:
            return
        if _is_void(then, snapshot):
            self.newest = None
        of = profile, snapshot.code, snapshot.rehearsed
        is_named = snapshot.straggler is not None and then.straggler is None  # over seconds already
        goes_on = all(map(is_, of, self._of)) and not is_named  # what came since counts at once
        is_due = self.newest is None or snapshot.elapsed_s >= self._looked_s + LOOK_S
        is_more = is_due and snapshot.recent is not self._seen
        if not (is_more or snapshot.state != then.state or not goes_on):
            return
        if snapshot.state in ENDED and self.newest is not None:
            return
        self._seen, self._looked_s = snapshot.recent, snapshot.elapsed_s
        found = find(snapshot, cores, profile)
        if found is None:
            return
        self._of = of  # an answer that was not found yet has nothing of what came since
        if not (goes_on and self._stands(found, snapshot.elapsed_s)):
            is_settled = snapshot.recent.steps * (found.step_ms or 0.0) >= 1e3 * NOW_S
            self._found_s = snapshot.elapsed_s
            self._anew_s = self._found_s + (FIGURES_S if is_settled else NOW_S)
            answer = with_gains_held(self.newest, found) if goes_on else found
            self.newest = self.newest if answer == self.newest else answer

    def _stands(self, found: Answer, now_s: float) -> bool:
        shown = self.newest
        if shown is not None and _apart_from_figures(shown) == _apart_from_figures(found):
            self._found_s = now_s
            before_ms, now_ms = shown.step_ms or 0.0, found.step_ms or 0.0
            return now_s < self._anew_s and abs(now_ms - before_ms) <= AS_LONG * before_ms
        return shown is not None and now_s - self._found_s < HOLD_S


def with_gains_held(shown: Answer | None, found: Answer) -> Answer:
    if shown is None or shown.limit != found.limit:
        return found
    gains = {one.change: one.gain for one in shown.tries}
    return replace(
        found,
        tries=tuple(
            replace(one, gain=held(gains.get(one.change), one.gain)) for one in found.tries
        ),
    )


def held(shown: Gain | None, found: Gain | None) -> Gain | None:
    """Show a gain until the expected one leaves its range, or words until figures are known."""
    if shown is None or found is None or shown.how != found.how:
        return found
    is_told_better = shown.is_wide and not found.is_wide
    is_within = (shown.low_pct or 0.0) <= found.expected_pct <= shown.high_pct
    return shown if is_within and not is_told_better else found


def _apart_from_figures(answer: Answer) -> tuple[object, ...]:
    return answer.title, bool(answer.caution), *(one.change for one in answer.tries)


def find(
    snapshot: Snapshot, cores: int | None = None, profile: Summary | None = None
) -> Answer | None:
    """None while too few steps are measured.

    `cores` may be used by the training. `profile` is of the present settings; its figures come
    first.
    """
    if interruption(snapshot) is not None and snapshot.doing != "idle":  # all steps have come
        return None
    step = of_slow_loader(recent_step(snapshot, cores, profile), snapshot.straggler)
    is_enough = snapshot.steps_since_break >= steps_needed(snapshot.step_ms_p50)
    if step.step_ms is None or not (is_enough or snapshot.state in ENDED):
        return None
    model, slopes = held_against(model_of(step, waits=_waits(snapshot, step)), snapshot.slowing)
    now = Measured(snapshot, step, model)
    known = causes(now)
    said = cause = limit_of(known)
    proof = proof_of(said.limit.part, slopes)
    if proof == "withdrawn":  # what was measured names another limit, or none
        cause = shown_by(slopes, snapshot.slowing, known, on_gpu=step.on_gpu)
    elif model is not None and model.residual > UNEXPLAINED and not said.limit.is_outside:
        title = f"unclear, because {fmt.percent(100 * model.residual)} of the step is unexplained"
        cause = Cause(NONE._replace(title=title, clauses=NONE.clauses[1:]), None)
    slowed = slope_clauses(said.limit.part, snapshot.slowing)
    shown = () if proof is None else (f"{said.limit.title} is {proof}: {', '.join(slowed)}",)
    limit, parts = cause.limit, () if model is None else tuple(parts_of(model))
    tries, minor = (
        ((), ()) if model is None or cause is not said else proposals(model, snapshot, step, limit)
    )
    return Answer(
        limit=limit.word,
        title=limit.title,
        owner=limit.word * limit.is_outside if limit.part is None else limit.part.name,
        line=line(limit, now),
        evidence=(*shown, *evidence(cause, now, known)),
        slopes=slopes,
        is_proven=proof == "proven" or (proof == "withdrawn" and limit.word != NONE.word),
        why=tuple(reasons(known, limit.word, now, parts)),
        parts=parts,
        step_ms=step.step_ms,
        counts=counted(step),
        lanes=lanes_of(snapshot, step),
        tries=tries,
        minor=minor,
        caution=caution(now) if tries else "",
    )


def _waits(snapshot: Snapshot, step: RecentStep) -> bool | None:
    """None if it is not known whether the host waits for the device within a step.

    It is known of gpudash's workloads only. There, too, copies from memory that is not pinned may
    wait for earlier work.
    """
    if waiting_settings(snapshot):
        return True
    is_known = bool(snapshot.levers) and not snapshot.found and step.pinned is not False
    return False if is_known else None


def _is_void(then: Snapshot, now: Snapshot) -> bool:
    if is_comparing(now):
        return False  # each block is other settings
    if is_comparing(then):
        return now.state not in ENDED
    return now.steps_since_break < then.steps_since_break or now.settings != then.settings
