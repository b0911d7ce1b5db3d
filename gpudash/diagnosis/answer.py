"""Find what limits the training, and why, while its steps are measured.

What was not measured is no cause. docs/concepts/diagnosis.md explains it.
"""

from collections.abc import Iterator
from math import inf
from operator import is_
from typing import NamedTuple

from gpudash import format as fmt
from gpudash.diagnosis.causes.cause import Cause, Measured
from gpudash.diagnosis.causes.outside import beside, caution
from gpudash.diagnosis.causes.table import causes, limit_of
from gpudash.diagnosis.causes.within import NONE, own_line, waiting_settings
from gpudash.diagnosis.headline import interruption, is_comparing
from gpudash.diagnosis.lanes import lanes_of
from gpudash.diagnosis.model import model_of
from gpudash.diagnosis.proposals import Proposals, proposals
from gpudash.diagnosis.recent_step import RecentStep, of_slow_loader, recent_step, steps_needed
from gpudash.diagnosis.slopes import (
    Proof,
    agreeing,
    modelled,
    over,
    proof_of,
    shown_by,
    slope_clause,
)
from gpudash.diagnosis.why import parts_of, reasons
from gpudash.protocol.answer import Answer
from gpudash.protocol.session import Slope
from gpudash.ranks.recent import NOW_S
from gpudash.snapshot import ENDED, Snapshot
from gpudash.trace.summary import Summary

HOLD_S = 5.0
"""An answer stands until it was not found for so long: on a shared machine other jobs come and go
within seconds."""
UNEXPLAINED = 0.1
"""With more than this part of a step unexplained there is no answer."""
FIGURES_S = 10.0
"""Figures that change alone are shown as often: each answer that is shown is in a recording's log,
which takes 0.7 MB an hour. Those of the first steps are shown anew after `NOW_S`."""


class Found(NamedTuple):
    """What limits at one moment."""

    cause: Cause
    causes: tuple[Cause, ...]
    now: Measured
    proposed: Proposals
    said: Cause
    """The cause before slowing was held against it."""
    proof: Proof | None
    slopes: tuple[Slope, ...]

    @property
    def caution(self) -> str:
        return caution(self.cause, self.now) if self.proposed.tries else ""

    @property
    def key(self) -> tuple[object, ...]:
        """The answer apart from figures."""
        changes = (one.change for one in self.proposed.tries)
        return (self.cause.limit.title, bool(self.caution), *changes)

    @property
    def is_proven(self) -> bool:
        is_shown = self.proof == "withdrawn" and self.cause.limit.word != NONE.word
        return self.proof == "proven" or is_shown

    @property
    def answer(self) -> Answer:
        snapshot, step, model = self.now
        limit = self.cause.limit
        return Answer(
            limit=limit.word,
            title=limit.title,
            evidence=tuple(self._evidence()),
            slopes=self.slopes,
            is_proven=self.is_proven,
            why=tuple(reasons(self.causes, limit.word, self.now)),
            parts=() if model is None else tuple(parts_of(model)),
            step_ms=step.step_ms,
            lanes=lanes_of(snapshot, step),
            tries=self.proposed.tries,
            minor=self.proposed.minor,
            caution=self.caution,
        )

    def _evidence(self) -> Iterator[str]:
        snapshot, limit = self.now.snapshot, self.cause.limit
        if self.proof is not None and snapshot.slowing is not None:
            shown = slope_clause(self.said.limit.part, snapshot.slowing)
            yield f"{self.said.limit.title} is {self.proof}: {shown}"
            if self.proof == "withdrawn" and not self.cause.binds and limit.part is not None:
                yield slope_clause(limit.part, snapshot.slowing)
                yield from beside(limit, self.now)
                return
        clauses = self.cause.evidence(self.now)
        yield from clauses[:1]
        if snapshot.code is not None and limit.meets_code:
            yield from own_line(snapshot.code)
        yield from (*clauses[1:], *beside(limit, self.now))


class Answers:
    """Folds the snapshots of a run into its answer.

    While nothing is measured the answer stands: in a pause, an A/B, a profile, and at the end. With
    another start or change, or after a pause or an A/B, it is void.
    """

    def __init__(self) -> None:
        self.newest: Answer | None = None
        """The answer that is shown; None until enough steps are measured."""
        self._key: tuple[object, ...] = ()
        self._found_s = self._anew_s = -inf
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
        goes_on = all(map(is_, of, self._of))  # what came since counts at once
        is_more = snapshot.series is not then.series or snapshot.state != then.state or not goes_on
        if not is_more or (snapshot.state in ENDED and self.newest is not None):
            return
        found = find(snapshot, cores, profile)
        if found is None:
            return
        self._of = of  # an answer that was not found yet has nothing of what came since
        if not (goes_on and self._stands(found)):
            self._show(found)

    def _stands(self, found: Found) -> bool:
        """Drop what is not measured any more, or is gone entirely, as throttling."""
        now_s, shown = found.now.snapshot.elapsed_s, self.newest
        if shown is not None and found.key == self._key:
            self._found_s = now_s
            return now_s < self._anew_s
        measured = {NONE.word, *(one.limit.word for one in found.causes if one.pct)}
        is_recent = now_s - self._found_s < HOLD_S
        return shown is not None and is_recent and shown.limit in measured

    def _show(self, found: Found) -> None:
        snapshot, step, _ = found.now
        is_first = step.steps * (step.step_ms or 0.0) < 1e3 * NOW_S
        self._key, self._found_s = found.key, snapshot.elapsed_s
        self._anew_s = snapshot.elapsed_s + (NOW_S if is_first else FIGURES_S)
        answer = found.answer
        if answer != self.newest:
            self.newest = answer


def find(
    snapshot: Snapshot, cores: int | None = None, profile: Summary | None = None
) -> Found | None:
    """None while too few steps are measured.

    `cores` may be used by the training. `profile` is of the present settings; its figures come
    first.
    """
    if interruption(snapshot) is not None:
        return None
    step = of_slow_loader(recent_step(snapshot, cores, profile), snapshot.straggler)
    is_enough = snapshot.steps_since_break >= steps_needed(snapshot.step_ms_p50)
    if step.step_ms is None or not (is_enough or snapshot.state in ENDED):
        return None
    slopes, model = over(snapshot.slowing), model_of(step, waits=_waits(snapshot, step))
    if model is not None:
        slopes, model = modelled(model, slopes), agreeing(model, slopes)
    now = Measured(snapshot, step, model)
    known = causes(now)
    said = cause = limit_of(known)
    proof = proof_of(said.limit.part, slopes)
    if proof == "withdrawn":  # what was measured names another limit, or none
        cause, model = shown_by(slopes, known, on_gpu=step.on_gpu), None
    elif model is not None and model.residual > UNEXPLAINED and not said.limit.is_outside:
        share = fmt.percent(100 * model.residual)
        unclear = NONE._replace(title=f"unclear, because {share} of the step is unexplained")
        cause, model = Cause(unclear, None), None
    proposed = Proposals()
    if model is not None:
        proposed = proposals(model, snapshot, step, outside=cause.limit.is_outside)
    return Found(cause, known, now, proposed, said, proof, slopes)


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
