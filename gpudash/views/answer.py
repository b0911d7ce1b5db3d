"""What limits the training, and why: pure functions of a snapshot.

The rules are asked in order, and the first one that matches is the answer; what was not
measured claims nothing. docs/concepts/diagnosis.md explains them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from gpudash import format as fmt
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.snapshot import ENDED, Snapshot, aside, is_script, silence
from gpudash.views.lanes import Lane, lanes_of, prepares
from gpudash.views.recent_step import MEASURED_STEPS, RecentStep, recent_step, steps_needed
from gpudash.views.remedies import Limit, Try, tries, waiting_levers
from workloads.levers import Lever, phrase

DATA_PCT = 10.0
"""In use elsewhere: an input wait of 10 % of the step warns, 20 % is critical."""
HOST_PCT = 90.0
"""benchmarks/RESULTS.md, encdec on an H200: a step bound by launching had 100 %. At 82 % the GPU
was the limit: a second stream brought 17 % more, with the host's time unchanged."""
DEVICE_PCT = 90.0
"""In use elsewhere: from here on a step is called compute-bound."""
HYSTERESIS_PCT = 2.0
"""An answer holds until its value is so far below the threshold: it does not flicker there."""

Kind: TypeAlias = (
    Limit | Literal["starting", "measuring", "silent", "comparing", "paused", "switching", "ended"]
)
INTERRUPTED: tuple[Kind, ...] = ("comparing", "paused", "switching")
"""Meanwhile what was known before is shown."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What limits the training, or why that is not known."""

    kind: Kind
    title: str
    evidence: tuple[str, ...] = ()
    """Clauses, the most important first."""
    step_ms: float | None = None
    lanes: tuple[Lane, ...] = ()
    tries: tuple[Try, ...] = ()
    """The best first; none where no A/B can be run."""


class Rule(NamedTuple):
    """One question to the recent steps."""

    kind: Limit
    asks: str
    """What the value is."""
    value_pct: float | None
    from_pct: float

    def matches(self, before: Kind | None = None) -> bool:
        """Tell whether this is the answer; it remains so a little below the threshold."""
        if self.value_pct is None:
            return False
        return self.value_pct >= self.from_pct - HYSTERESIS_PCT * (self.kind == before)


def answer(
    snapshot: Snapshot,
    levers: tuple[Lever, ...],
    before: Answer | None = None,
    cores: int | None = None,
) -> Answer:
    """Return what limits the training.

    `before` is the answer until now: it holds a little below its threshold, and is shown while
    nothing can be measured. `cores` are those that the training may use, if they are known.
    """
    interrupted = _interrupted(snapshot, before)
    if interrupted is not None:
        return interrupted
    step = recent_step(snapshot, cores)
    lanes = lanes_of(snapshot, step)
    steps, needed = snapshot.steps_since_break, steps_needed(snapshot.step_ms_p50)
    ended = snapshot.state in ENDED
    if (steps < needed and not ended) or step.step_ms is None:
        title = (
            snapshot.state
            if ended
            else f"measuring … {min(steps, needed)} of at most {MEASURED_STEPS} steps"
        )
        kind: Kind = "ended" if ended else "measuring"
        evidence = tuple(_end(snapshot)) if ended else tuple(_measuring(snapshot))
        return Answer(kind=kind, title=title, evidence=evidence, step_ms=step.step_ms, lanes=lanes)
    limit = limit_of(rules(step), before.kind if before else None)
    waits = waiting_levers(snapshot.settings) if step.on_gpu else {}
    title = TITLES[limit]
    ours = levers and not snapshot.levers  # what waits is known of our workloads alone
    if limit == "host" and ours and not waits:
        title = "limited by launching"
    return Answer(
        kind="ended" if ended else limit,
        title=f"{snapshot.state}; it was {title}" if ended else title,
        evidence=_evidence(limit, snapshot, step, waits),
        step_ms=step.step_ms,
        lanes=lanes,
        tries=() if ended else tries(limit, snapshot, levers, step),
    )


def _interrupted(snapshot: Snapshot, before: Answer | None) -> Answer | None:
    """Return what is going on where nothing can be measured; None where steps come."""
    shown = snapshot.comparison
    match snapshot.state:
        case "starting" | "training" if not snapshot.total_steps:
            return Answer(kind="starting", title="starting")
        case "paused" | "training" if (doing := aside(snapshot) or snapshot.state) != "training":
            return _holding(before, "paused", doing)
        case "switching":
            return _holding(before, "switching", f"switching to {phrase(snapshot.pending)} …")
        case "training" if shown is not None and not shown.is_over:
            question = f"{shown.lever} {fmt.plain(shown.a)} or {fmt.plain(shown.b)}"
            return _holding(before, "comparing", f"an A/B is running: {question}")
        case "training" if silence(snapshot):
            why = "something compiles, the loader is late, or the step hangs"
            return Answer(kind="silent", title=silence(snapshot)[0], evidence=(why,))
    return None


def _holding(before: Answer | None, kind: Kind, title: str) -> Answer:
    """Return an answer of this kind that shows what was known before."""
    if before is None or not before.lanes:
        return Answer(kind=kind, title=title)
    evidence = before.evidence
    if before.kind not in INTERRUPTED:
        evidence = (f"before that: {before.title}", *evidence)
    return msgspec.structs.replace(before, kind=kind, title=title, evidence=evidence, tries=())


# ── the rules ───────────────────────────────────────────────────────────────────────────


def rules(step: RecentStep) -> tuple[Rule, ...]:
    """Return every rule with its value, in the order in which they are asked."""
    at_work = step.share_pct(step.device_ms)
    first = (
        Rule("cores", "the training waits for a core", step.core_wait_pct, CORE_WAIT_WARNS_PCT),
        Rule("data", "the step waits for data", step.share_pct(step.starved_ms), DATA_PCT),
    )
    if not step.on_gpu:
        return (*first, Rule("cpu", "the CPU computes", at_work, DEVICE_PCT))
    return (
        *first,
        Rule("host", "the host is busy with a step", step.share_pct(step.host_ms), HOST_PCT),
        Rule("gpu", "the GPU is at work on a step", at_work, DEVICE_PCT),
    )


def limit_of(asked: Iterable[Rule], before: Kind | None = None) -> Limit:
    """Return the kind of the first rule that matches."""
    measured = False
    for rule in asked:
        if rule.matches(before):
            return rule.kind
        measured |= rule.value_pct is not None and rule.kind != "cores"
    return "none" if measured else "unknown"


def why_lines(answer: Answer, snapshot: Snapshot, cores: int | None = None) -> list[str]:
    """Return the evidence, and each rule with its value: which matched, what was not measured."""
    step = recent_step(snapshot, cores)
    asked = rules(step)
    width = max(len(rule.asks) for rule in asked)
    return [
        *answer.evidence,
        "",
        *(_asked(rule, answer.kind, width) for rule in asked),
        "",
        f"means over {step.steps:,.0f} steps; the first rule that matches is the answer",
        *(f"try {one.label}: {one.why}" for one in answer.tries),
    ]


def _asked(rule: Rule, kind: Kind, width: int) -> str:
    found = "not measured" if rule.value_pct is None else "the limit" if rule.kind == kind else ""
    line = (
        f"{rule.asks:<{width}} {fmt.percent(rule.value_pct):>6}, matches from {rule.from_pct:.0f} %"
    )
    return f"{'▸' if rule.kind == kind else ' '} {line}{f': {found}' if found else ''}"


# ── in words ────────────────────────────────────────────────────────────────────────────


TITLES: dict[Limit, str] = {
    "cores": "limited by other jobs",
    "data": "limited by the loader",
    "host": "limited by the host",
    "gpu": "limited by the GPU",
    "cpu": "limited by the CPU",
    "none": "no single limit",
    "unknown": "limit not known",
}


def _evidence(
    limit: Limit, snapshot: Snapshot, step: RecentStep, waits: Mapping[str, str]
) -> tuple[str, ...]:
    of_step = f"of {fmt.milliseconds(step.step_ms)} ms"
    clauses: tuple[str, ...]
    match limit:
        case "cores":
            waited = fmt.percent(step.core_wait_pct)
            waits_for = f"the training waits for a core {waited} of the time"
            clauses = waits_for, _cores(step), "no lever changes that"
        case "data":
            starved = fmt.milliseconds(step.starved_ms)
            cores = _cores(step) if step.all_cores_busy else ""
            clauses = f"waits {starved} {of_step}", _slowest(snapshot), cores
        case "host":
            busy = fmt.percent(step.share_pct(step.host_ms))
            clauses = f"host busy {busy} {of_step}", _why_busy(waits)
        case "gpu":
            clauses = *_streams(snapshot, step, of_step), _ahead(step)
        case "cpu":
            computing = fmt.percent(step.share_pct(step.device_ms))
            clauses = f"computing {computing} {of_step}", _cores(step)
        case "none":
            clauses = _shares(step)
        case "unknown":
            clauses = ("no times within a step are measured",)
    return tuple(filter(None, clauses))


def _end(snapshot: Snapshot) -> Iterator[str]:
    """Yield why it failed, if it did, and that a script has ended without a training step."""
    if snapshot.state == "failed":
        yield from fmt.plain(snapshot.status.partition(" – ")[0]).split(": ", 1)
    if is_script(snapshot) and not snapshot.total_steps:
        yield "no training step was seen"


def _measuring(snapshot: Snapshot) -> Iterator[str]:
    """Yield what is waited for, which row is measured, and what its rate will be compared with."""
    yield "fewer where they are slow, the first ones are warm-up"
    rows = [row for row in snapshot.results if not row.verdict]
    if rows and rows[-1].live:
        yield f"row {rows[-1].number}: {fmt.plain(rows[-1].configuration)}"
    if len(rows) > 1 and rows[-1].live and rows[-2].workload == snapshot.workload:
        rate, step_ms = fmt.significant(rows[-2].samples_per_s), rows[-2].step_ms_p50
        so_far = f"{rate} samples/s, step p50 {fmt.milliseconds(step_ms)} ms"
        yield f"row {rows[-2].number} before it: {so_far}"


def _why_busy(waits: Mapping[str, str]) -> str:
    if not waits:
        return "it never gets ahead of the GPU"
    names = " and ".join(f"{name}={value}" for name, value in waits.items())
    return f"it launches, or waits for the GPU: {names} can make it wait"


def _streams(snapshot: Snapshot, step: RecentStep, of_step: str) -> tuple[str, ...]:
    at_work = fmt.percent(step.share_pct(step.device_ms))
    busy = f"busy {at_work} {of_step}"
    if step.overlap_ms is None:
        return (busy,)
    hidden = fmt.percent(step.share_pct(step.overlap_ms))
    return busy, f"{prepares(snapshot, step)} runs beside training {hidden} of it"


def _ahead(step: RecentStep) -> str:
    if step.step_ms is None or step.host_ms is None:
        return ""
    ahead_ms = max(step.step_ms - step.host_ms - (step.data_ms or 0.0), 0.0)
    return f"the host is {fmt.milliseconds(ahead_ms)} ms ahead"


def _cores(step: RecentStep) -> str:
    if step.busy_cores is None:
        return ""
    return f"the training uses {fmt.cores(100 * step.busy_cores, step.cores)}"


def _slowest(snapshot: Snapshot) -> str:
    if not snapshot.transform_ms:
        return ""
    name, ms = max(snapshot.transform_ms.items(), key=lambda one: one[1])
    return f"slowest transform: {fmt.plain(name)}, {fmt.milliseconds(ms)} ms a sample"


def _shares(step: RecentStep) -> tuple[str, ...]:
    """Return what the step goes into; host and device work at the same time."""
    shares = {
        "GPU" if step.on_gpu else "computing": step.device_ms,
        "host": step.host_ms if step.on_gpu else None,
        "data": step.starved_ms,
        "unattributed": step.unattributed_ms,
    }
    known = {name: ms for name, ms in shares.items() if ms is not None}
    return tuple(f"{name} {fmt.percent(step.share_pct(ms))}" for name, ms in known.items())
