"""The answer as a document for programs: `gpudash why --json`, and the JSON of a recording."""

import msgspec
from msgspec import convert

from gpudash.protocol.answer import Answer, Try
from gpudash.protocol.session import Slope
from workloads.levers import NUMERICS, Numerics


class PartReport(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a step. Without it a step would take from `low_ms` to `high_ms`."""

    part: str
    took_ms: float | None
    low_ms: float
    high_ms: float


class ProposalReport(msgspec.Struct, frozen=True, kw_only=True):
    """A change to try, and what it would gain in throughput.

    None = not known. Nor is the upper end where the two are too far apart to foretell one.
    """

    lever: str
    value: str
    before: str
    low_pct: float | None
    high_pct: float | None
    numerics: Numerics
    """What the change does to the numbers that are computed."""
    measured: bool
    source: str


class AnswerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What limits a training, and what each lever would bring, in the words of an `Answer`.

    None = not measured.
    """

    limit: str
    title: str
    owner: str
    line: str
    proven: bool | None
    """Whether slowing has proven the limit; None: it was not tried."""
    evidence: tuple[str, ...]
    step_ms: float | None
    counts: dict[str, float]
    parts: tuple[PartReport, ...]
    proposals: tuple[ProposalReport, ...]
    slopes: dict[str, Slope]
    """By part: loader, host, device; empty unless they were slowed."""


def report_of(answer: Answer) -> AnswerReport:
    return AnswerReport(
        limit="unclear" if answer.limit in ("none", "unknown") else answer.limit,
        title=answer.title,
        owner=answer.owner,
        line=answer.line,
        proven=answer.is_proven if answer.slopes else None,
        evidence=answer.evidence,
        step_ms=answer.step_ms,
        counts=answer.counts,
        parts=convert(answer.parts, tuple[PartReport, ...], from_attributes=True),
        proposals=tuple(map(_proposal, answer.tries)),
        slopes={one.part: one for one in answer.slopes},
    )


def _proposal(one: Try) -> ProposalReport:
    gain = one.gain
    return ProposalReport(
        lever=one.lever,
        value=one.value,
        before=one.before,
        numerics=NUMERICS.get(one.lever, "training"),
        low_pct=gain.low_pct if gain is not None else None,
        high_pct=gain.high_pct if gain is not None and not gain.is_wide else None,
        measured=gain is not None and gain.measured,
        source=(gain.source if gain is not None else "") or one.why,
    )
