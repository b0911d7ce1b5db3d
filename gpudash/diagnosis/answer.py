"""Find what limits the training, and why, while its steps are measured.

What was not measured is no cause. docs/concepts/diagnosis.md explains it.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from gpudash import format as fmt
from gpudash.diagnosis.causes import OUTSIDE, Cause, Limit, causes, limit_of
from gpudash.diagnosis.evidence import (
    Measured,
    beside,
    caution,
    evidence_of,
    own_line,
    waiting_settings,
)
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
from gpudash.protocol.answer import Answer, Try
from gpudash.protocol.inspections import CodeLines, Rehearsed
from gpudash.protocol.session import Slope
from gpudash.ranks.recent import NOW_S
from gpudash.snapshot import ENDED, Snapshot
from gpudash.trace.summary import Summary

HOLD_S = 5.0
"""A limit, and what is proposed, stand until they were not found for so long: on a shared machine
other jobs come and go within seconds."""
MEETS_CODE: frozenset[Limit] = frozenset({"own_code", "host", "sync", "cpu", "none", "launch"})
"""Limits of which a line of the script's own code may be the cause."""
UNEXPLAINED = 0.1
"""With more than this part of a step unexplained there is no answer."""
FIGURES_S = 10.0
"""Figures that change alone are shown as often: each answer that is shown is in a recording's log,
which takes 0.7 MB an hour. Those of the first steps are shown anew after `NOW_S`."""


class Found(NamedTuple):
    """What was found, and when last: in seconds since the run began."""

    limit: Limit
    causes: tuple[Cause, ...] = ()
    measured: Measured = Measured(Snapshot(), RecentStep())
    """When the limit was found last."""
    tries: tuple[Try, ...] = ()
    minor: tuple[str, ...] = ()
    caution: str = ""
    limit_s: float = -inf
    tries_s: float = -inf
    said: Limit = "none"
    """The limit before slowing was held against it."""
    proof: Proof | None = None
    slopes: tuple[Slope, ...] = ()
    code: CodeLines | None = None
    """Newer than the limit: the lines are those of the present settings, whatever limits."""

    @property
    def title(self) -> str:
        model = self.measured.model
        if self.proof == "withdrawn" and self.limit == "none":
            return "unclear, because slowing shows something else"
        if self.limit == "none" and model is not None and model.residual > UNEXPLAINED:
            return (
                f"unclear, because {fmt.percent(100 * model.residual)} of the step is unexplained"
            )
        return _title(self.limit, self.measured.snapshot)

    @property
    def answer(self) -> Answer:
        snapshot, step, model = self.measured
        evidence = (*evidence_of(self.limit, self.measured), *beside(self.limit, self.measured))
        if self.code is not None and self.limit in MEETS_CODE:
            evidence = (*evidence[:1], *own_line(self.code), *evidence[1:])
        if self.proof is not None and snapshot.slowing is not None:
            shown = slope_clause(self.said, snapshot.slowing)
            evidence = (f"{TITLES[self.said]} is {self.proof}: {shown}", *evidence)
        return Answer(
            limit=self.limit,
            title=self.title,
            evidence=evidence,
            slopes=self.slopes,
            is_proven=self.proof == "proven"
            or (self.proof == "withdrawn" and self.limit != "none"),
            why=tuple(reasons(self.causes, self.limit, self.measured, self.code)),
            parts=() if model is None else tuple(parts_of(model)),
            step_ms=step.step_ms,
            lanes=lanes_of(snapshot, step),
            tries=self.tries,
            minor=self.minor,
            caution=self.caution,
        )


class Answers:
    """Folds the snapshots of a run into its answer.

    While nothing is measured the answer stands: in a pause, an A/B, a profile, and at the end. With
    another start or change, or after a pause or an A/B, it is void.
    """

    def __init__(self) -> None:
        self.newest: Answer | None = None
        """The answer that is shown; None until enough steps are measured."""
        self._anew_s = -inf
        self._found: Found | None = None
        self._then = Snapshot()
        self._of: tuple[Summary | None, CodeLines | None, Rehearsed | None] = (None, None, None)
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
            self.newest = self._found = None
        of = self._of  # an answer that was not found yet has nothing of what came since
        goes_on = profile is of[0] and snapshot.code is of[1] and snapshot.rehearsed is of[2]
        is_more = snapshot.series is not then.series or snapshot.state != then.state or not goes_on
        if not is_more or (snapshot.state in ENDED and self.newest is not None):
            return
        before = self._found
        if before is not None and not goes_on:  # what came since counts at once
            before = Found(before.limit)
        found = find(snapshot, before, cores, profile)
        if found is None:
            return
        self._found, self._of = found, (profile, snapshot.code, snapshot.rehearsed)
        shown, now_s = self.newest, snapshot.elapsed_s
        stays = shown is not None and goes_on and not _is_other(found, shown)
        if not stays or now_s >= self._anew_s:
            answer, step = found.answer, found.measured.step
            is_first = step.steps * (step.step_ms or 0.0) < 1e3 * NOW_S
            self._anew_s = now_s + (NOW_S if is_first else FIGURES_S)
            self.newest = shown if answer == shown else answer


def find(
    snapshot: Snapshot,
    before: Found | None = None,
    cores: int | None = None,
    profile: Summary | None = None,
) -> Found | None:
    """None while too few steps are measured.

    What was found `before` stands until it was not found for `HOLD_S`. `cores` may be used by the
    training. `profile` is of the present settings; its figures come first.
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
    now_s, now = snapshot.elapsed_s, Measured(snapshot, step, model)
    known = causes(model, step, snapshot.straggler)
    found = said = limit_of(known)
    proof = proof_of(said, slopes)
    is_explained = model is None or model.residual <= UNEXPLAINED or said in OUTSIDE
    if proof == "withdrawn":  # what was measured names another limit, or none
        found, model = shown_by(slopes, on_gpu=step.on_gpu), None
    elif not is_explained:
        found, model = "none", None
    last = Found(found, known, now, limit_s=now_s, said=said, proof=proof, slopes=slopes)
    if before is not None and _stands(before, found, known, now_s):
        last = before
    limit = last.limit
    is_outside = limit in OUTSIDE
    proposed = Proposals()
    if model is not None:
        proposed = proposals(model, snapshot, step, outside=is_outside)
    changes = proposed.tries
    kept = _kept(before, limit, changes, now_s)
    doubt = caution(limit, now) if kept or changes else ""
    tries_s = now_s if before is None or not kept else before.tries_s
    tries = kept or changes
    return last._replace(
        tries=tries, minor=proposed.minor, caution=doubt, tries_s=tries_s, code=snapshot.code
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


def _stands(before: Found, found: Limit, known: Iterable[Cause], now_s: float) -> bool:
    """Drop what is not measured any more, or is gone entirely, as throttling."""
    measured = {"none", *(one.limit for one in known if one.pct)}
    is_recent = now_s - before.limit_s < HOLD_S
    return before.limit != found and is_recent and before.limit in measured


def _kept(
    before: Found | None, limit: Limit, changes: Iterable[Try], now_s: float
) -> tuple[Try, ...]:
    if before is None or before.limit != limit or now_s - before.tries_s >= HOLD_S:
        return ()
    newest = {one.change: one for one in changes}
    if any(one.gain is not None and one.gain.measured for one in newest.values()):
        return ()  # what an A/B has shown counts at once
    if _changes(before.tries) == [*newest]:
        return ()
    return tuple(newest.get(one.change, one) for one in before.tries)


def _is_void(then: Snapshot, now: Snapshot) -> bool:
    if is_comparing(now):
        return False  # each block is other settings
    if is_comparing(then):
        return now.state not in ENDED
    return now.steps_since_break < then.steps_since_break or now.settings != then.settings


def _is_other(found: Found, shown: Answer) -> bool:
    """Compare apart from figures."""
    is_alike = found.title == shown.title and bool(found.caution) == bool(shown.caution)
    return not is_alike or _changes(found.tries) != _changes(shown.tries)


def _changes(proposals: Iterable[Try]) -> list[tuple[str, str]]:
    return [one.change for one in proposals]


# ── in words ────────────────────────────────────────────────────────────────────────────


TITLES: dict[Limit, str] = {
    "asides": "paused",
    "cores": "limited by other jobs",
    "shared_gpu": "limited by other jobs on the GPU",
    "straggler": "limited by one rank after another",
    "data": "input-bound",
    "copy": "copy-bound",
    "communication": "communication-bound",
    "sync": "sync-bound",
    "launch": "launch-bound",
    "own_code": "bound by your own code",
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
    straggler = snapshot.straggler
    if limit == "cores" and len(snapshot.ranks) > 1:
        return "short of cores"
    if limit != "straggler" or straggler is None or straggler.kind == "wandering":
        return TITLES[limit]
    if straggler.kind == "imbalance":
        return "limited by unequal batches"
    return f"limited by rank {straggler.rank}"
