"""Show what an answer is based on: a step without each of its parts, the causes, a profile."""

from collections.abc import Iterable, Iterator, Sequence

from gpudash import format as fmt
from gpudash.diagnosis.causes.cause import Cause, Measured
from gpudash.diagnosis.causes.facts import MOST_WAITS, told
from gpudash.diagnosis.model import Model
from gpudash.diagnosis.parts import PARTS
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.diagnosis.slopes import over, proven_parts, slowed_label
from gpudash.protocol.answer import Without
from gpudash.protocol.inspections import CodeLines
from gpudash.protocol.session import Slope
from gpudash.trace.text import summary_lines

DIGITS, COLUMNS = 4, 76
MEANS = ("means over {steps} steps; the first that limits is the answer", "{collectives}")
MORE = ("{if_on_gpu}{if_blind}waits, launches and communication within a step: {ask}",)
LEAST_MS = 0.01
"""Of a step: what takes less, or saves less where that is not known, is not shown."""


def parts_of(model: Model) -> Iterator[Without]:
    for part in PARTS:
        saving, takes_ms = model.without(part), part.ms(model.scenarios[0])
        is_known = all(part.ms(one) == takes_ms for one in model.scenarios)
        if max(saving.high, takes_ms * is_known) >= LEAST_MS * model.step_ms:
            low_ms, high_ms = (max(model.step_ms - ms, 0.0) for ms in reversed(saving))
            # a recording holds each answer: further digits say nothing
            yield Without(part.name, *(round(ms, DIGITS) for ms in (low_ms, high_ms, takes_ms)))


def counted(step: RecentStep) -> dict[str, float]:
    traced = step.profile.counts if step.profile is not None else {}
    return {name: round(count, DIGITS) for name, count in (step.counts | traced).items()}


def reasons(
    causes: Sequence[Cause], limit: str, now: Measured, parts: Iterable[Without]
) -> Iterator[str]:
    snapshot, step, model = now
    if model is not None:
        slopes = over(snapshot.slowing)
        yield f"{'without':<16}{'it takes':<10}{'a step would take':<32}if slowed"
        yield from (_part_line(one, model, slopes) for one in parts)
        yield from (f"  {one.part}: {one.why_not}" for one in slopes if one.why_not)
        if slopes:
            proven = ", ".join(proven_parts(slopes))
            said = f"proven: {proven}" if proven else "nothing is proven"
            yield f"  1: a step grows by the whole delay, 0: by none; {said}"
        if model.residual >= LEAST_MS:
            yield f"  the model's step is off by {fmt.percent(100 * model.residual)}"
        yield ""
    width = max((len(one.limit.label) for one in causes), default=0)
    marked = next((one for one in causes if one.limit.word == limit), None)
    yield from (_cause_line(one, width, is_limit=one is marked) for one in causes)
    yield ""
    yield from told(MEANS, now)
    yield from _code_lines(snapshot.code)
    if step.profile is None:
        yield from told(MORE, now)
    else:
        yield ""
        yield from (fmt.clip(one, COLUMNS) for one in summary_lines(step.profile, MOST_WAITS))


def _part_line(one: Without, model: Model, slopes: Iterable[Slope]) -> str:
    low, high = (fmt.milliseconds(ms) for ms in (one.low_ms, one.high_ms))
    most = fmt.percent(100 * (1 - one.low_ms / model.step_ms))
    took = f"{low} ms ({most} less)" if low == high else f"{low} to {high} ms (≤ {most} less)"
    takes = f"{fmt.milliseconds(one.took_ms)} ms"
    return f"  {one.part:<14}{takes:<10}{took:<32}{slowed_label(one.part, slopes)}"


def _cause_line(one: Cause, width: int, *, is_limit: bool) -> str:
    found = f"limits from {fmt.percent(one.limit.least_pct)}{': the limit' if is_limit else ''}"
    found = "not measured" if one.pct is None else found
    return (
        f"{'▸' if is_limit else ' '} {one.limit.label:<{width}} {fmt.percent(one.pct):>6}, {found}"
    )


def _code_lines(code: CodeLines | None) -> Iterator[str]:
    if code is None or not code.lines:
        return
    yield ""
    yield f"your code, by where the script was in {code.looks} looks"
    for one in code.lines[:MOST_WAITS]:
        where = f"{fmt.source_line(one.file, one.line)} {one.function}"
        yield f"  {one.count:>3}  {fmt.plain(where)}"
