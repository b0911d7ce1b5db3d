"""Say what limits the training, or what it does instead: a pure function of a snapshot.

The answer itself is folded by `gpudash.diagnosis.answer`, and is part of the snapshot.
"""

import re
from collections.abc import Iterator
from math import ceil

import msgspec

from gpudash import format as fmt
from gpudash.diagnosis.causes.table import caution_in_ab
from gpudash.diagnosis.lanes import lanes_of, scaled
from gpudash.diagnosis.recent_step import MEASURED_STEPS, recent_step, steps_needed
from gpudash.protocol.answer import Answer, Lane, Try
from gpudash.ranks import hangs
from gpudash.snapshot import ENDED, Snapshot, doing_now, runs_on, silence, trains
from gpudash.statistics import WARMUP_STEPS
from workloads.levers import phrase

OF_STEP = re.compile(r"([\d.,]+) of (it|[\d.,]+ ms)\b")
"""A part of a step in a clause: `20.1 of 23.8 ms`, or `10.2 of it`."""


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """The top line of the dashboard, and what belongs to it."""

    kind: str
    """The limit, or what is going on: `starting`, `measuring`, `silent`, `ended`; or, with the
    previous answer, `comparing`, `paused`, `profiling`, `switching`."""
    title: str
    evidence: tuple[str, ...] = ()
    step_ms: float | None = None
    lanes: tuple[Lane, ...] = ()
    tries: tuple[Try, ...] = ()
    caution: str = ""
    """Why an A/B, of them or the one that runs, is uncertain now; empty if it is not."""
    answer: Answer | None = None
    waits: Try | None = None
    """What is tried once other jobs leave the cores alone."""

    @property
    def first(self) -> Try | None:
        """What is to be tried first: what waits for that, or the best proposal."""
        return self.waits or next((one for one in self.tries if one.gain is not None), None)


def headline(snapshot: Snapshot, before: Answer | None = None) -> Headline:
    """Tell `before`, the last answer of this training, while another one is being found."""
    found = snapshot.answer
    if (interrupted := interruption(snapshot)) is not None:
        return interrupted
    ended = snapshot.state in ENDED
    if found is None and before is not None and not ended:
        return _holding(before, "measuring", _so_far(snapshot, "measuring again"))
    if found is None:
        step = recent_step(snapshot)
        return Headline(
            kind="ended" if ended else "measuring",
            title=snapshot.state if ended else _so_far(snapshot),
            evidence=tuple(_end(snapshot) if ended else _measuring(snapshot)),
            step_ms=step.step_ms,
            lanes=lanes_of(snapshot, step),
        )
    can_try = not ended and "blocks" in snapshot.can
    rate = None if ended else snapshot.steps_per_s
    times = 1e3 / rate / found.step_ms if rate and found.step_ms else 1.0
    step_ms = found.step_ms and found.step_ms * times
    return Headline(
        kind="ended" if ended else found.limit,
        title=f"{snapshot.state}; it was {found.title}" if ended else found.title,
        evidence=tuple(_scaled(one, times, step_ms) for one in found.evidence),
        step_ms=step_ms,
        lanes=tuple(scaled(one, times) for one in found.lanes),
        tries=found.tries if can_try else (),
        caution=found.caution if can_try else "",
        answer=found,
    )


def _scaled(clause: str, times: float, step_ms: float | None) -> str:
    """Return a clause of a step that takes so many times as long, as its lanes have it."""

    def longer(part: re.Match[str]) -> str:
        of = part[2] if part[2] == "it" else f"{fmt.milliseconds(step_ms)} ms"
        return f"{fmt.milliseconds(float(part[1].replace(',', '')) * times)} of {of}"

    return OF_STEP.sub(longer, clause)


def interruption(snapshot: Snapshot) -> Headline | None:
    """None while steps finish."""
    hang = snapshot.hang
    if snapshot.state in ("training", "switching") and hang is not None and hang.stacks:
        return _silent(snapshot, hangs.title(hang), hangs.clauses(hang))
    if snapshot.state in ("starting", "training") and not snapshot.total_steps:
        return Headline(kind="starting", title="starting")
    if (going_on := _meanwhile(snapshot)) is not None:
        caution = caution_in_ab(snapshot) if going_on[0] == "comparing" else ""
        return _holding(snapshot.answer, *going_on, caution)
    if snapshot.state == "training" and silence(snapshot):
        return _silent(
            snapshot,
            silence(snapshot)[0],
            ("something compiles, the loader is late, or the step hangs",),
        )
    return None


def is_comparing(snapshot: Snapshot) -> bool:
    return any(one and not one.is_over for one in (snapshot.comparison, snapshot.slowing))


def why_lines(shown: Headline) -> list[str]:
    """Tell of the moment at which the answer was found."""
    asked = shown.answer.why if shown.answer is not None else ("there is no answer yet",)
    of_then = (*(shown.answer or shown).evidence, shown.caution)
    return [*filter(None, of_then), "", *asked, *try_lines(shown)]


def answer_lines(snapshot: Snapshot, answer: Answer) -> Iterator[str]:
    of = fmt.plain(snapshot.workload)
    yield f"{of}: {answer.title}; a step {fmt.milliseconds(answer.step_ms)} ms"
    for lane in answer.lanes:
        parts = ", ".join(f"{one.label} {fmt.milliseconds(one.ms)}" for one in lane.parts)
        yield f"  {lane.name}: {parts}, {lane.rest} {fmt.milliseconds(lane.rest_ms)} ms"
    lines = (*filter(None, (*answer.evidence, answer.caution)), "", *answer.why, *try_lines(answer))
    yield from (f"  {line}".rstrip() for line in lines)


def _meanwhile(snapshot: Snapshot) -> tuple[str, str] | None:
    shown, slowing = snapshot.comparison, snapshot.slowing
    match snapshot.state:
        case "training" if snapshot.profiling:
            return "profiling", "profiling the next steps …"
        case "paused" | "training" if not trains(snapshot):
            return "paused", doing_now(snapshot)
        case "switching":
            return "switching", f"switching to {phrase(snapshot.pending)} …"
        case "training" if slowing is not None and not slowing.is_over:
            return "comparing", (
                f"slowing one part of the step after another, round {slowing.rounds + 1}"
            )
        case "training" if shown is not None and not shown.is_over:
            ab = f"an A/B is running: {shown.lever} {fmt.plain(shown.a)} or {fmt.plain(shown.b)}"
            return "comparing", "a tune is running" if shown.doing else ab
    return None


def _holding(found: Answer | None, kind: str, title: str, caution: str = "") -> Headline:
    before = (f"before that: {found.title}", *found.evidence) if found is not None else ()
    return Headline(
        kind=kind,
        title=title,
        evidence=before,
        step_ms=found.step_ms if found is not None else None,
        lanes=found.lanes if found is not None else (),
        caution=caution,
        answer=found,
    )


def _silent(snapshot: Snapshot, title: str, evidence: tuple[str, ...]) -> Headline:
    return Headline(kind="silent", title=title, evidence=evidence, answer=snapshot.answer)


def _so_far(snapshot: Snapshot, doing: str = "measuring") -> str:
    steps, needed = snapshot.steps_since_break, steps_needed(snapshot.step_ms_p50)
    if steps >= needed:  # they are in no tick yet
        return f"{doing} the first half second …"
    rate = snapshot.steps_per_s
    left = f", about {ceil((needed - steps) / rate)} s more" if rate else ""
    return f"{doing} … {steps} of at most {MEASURED_STEPS} steps{left}"


def _end(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.state == "failed":
        yield fmt.plain(snapshot.status)
    if runs_on(snapshot) and not snapshot.total_steps:
        yield "no training step was seen"


def _measuring(snapshot: Snapshot) -> Iterator[str]:
    crowded = caution_in_ab(snapshot).partition(": ")[0]
    yield from filter(None, (crowded, f"the first {WARMUP_STEPS} steps do not count"))
    yield from (
        f"setting {row.number}: {fmt.plain(row.configuration)}"
        for row in snapshot.results[-1:]
        if row.live
    )


def try_lines(of: Headline | Answer) -> Iterator[str]:
    for one in of.tries:
        yield f"try {one.promise}{':' if one.gain is None else ';'} {one.why}"
        if one.gain is not None:
            yield f"  {one.gain.source}"
