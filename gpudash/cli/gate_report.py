"""What `gpudash gate` prints and writes: of the gate, and of what it could find."""

from collections.abc import Iterator
from math import isfinite
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec

from gpudash.cli import changes_report
from gpudash.cli.changes_report import ChangeFindings
from gpudash.compare.counted import CountChange
from gpudash.compare.gate import (
    Ending,
    are_moved,
    ending,
    forecast,
    foreseen,
    of_throughput,
    seconds_to_end,
    sentence,
)
from gpudash.compare.losses import LossesFound
from gpudash.errors import Exit
from gpudash.format import plain, starts
from gpudash.present.card import card_of, markdown

CALIBRATED = 12
"""Starts of each after which their spread is known to a fifth."""
EXITS: dict[Ending, Exit] = {
    "pass": Exit.DONE,
    "faster": Exit.DONE,
    "slower": Exit.SLOWER,
    "inconclusive": Exit.NOT_SHOWN,
    "not comparable": Exit.NOT_COMPARABLE,
    "training changed": Exit.TRAINING_CHANGED,
}


class GateFindings(ChangeFindings):
    """What the starts so far say of a limit."""

    def __init__(self, base: str, new: str, limit: float) -> None:
        super().__init__("version", base, new, within=None, fixed=False)
        self.limit = limit

    @property
    def why_not(self) -> str:
        return super().why_not if self.measured else "no start of both has ended"

    @property
    def is_known(self) -> bool:
        a, b = zip(*(one.losses for one in self.measured), strict=True)
        return of_throughput(self.estimate, self.limit) != "inconclusive" or are_moved(a, b)

    @property
    def told(self) -> str:
        return sentence(self.b, self.rounds, self.limit)

    @property
    def ending(self) -> Ending:
        """Judge losses once, at the end: their bounds are for one look."""
        if self.why_not:
            return "not comparable" if self.measured else "inconclusive"
        if self.losses is not None and self.losses.kind == "moved":
            return "training changed"
        return ending(self.estimate, self.limit, self.counts)

    @property
    def sentence(self) -> str:
        more = [one.sentence for one in self.counts if one.has_grown]
        why = more if self.ending == "slower" else []
        return f"{self.ending}: {'; '.join([*why, self.why_not or self.verdict])}"


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpudash gate --json` prints. None = not known."""

    schema_version: int = 1
    ending: Ending
    sentence: str
    """The ending, and why."""
    base: str
    new: str
    max_slowdown: float
    """Share of the throughput."""
    change: float | None = None
    """Throughput of NEW over that of BASE, less 1."""
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    starts: int
    """Of each."""
    disturbed_blocks: int
    """Of both, beside others' work on the GPU: left out."""
    seconds: float
    more_s: float | None = None
    """What a decision would still take."""
    losses: LossesFound | None = None
    counts: tuple[CountChange, ...] | None = None
    """What differs exactly in a step. None = not counted."""
    next: str | None = None
    """The command to go on with, if it is inconclusive."""


def document(found: GateFindings) -> GateReport:
    judged: dict[str, Any] = {}
    if not found.why_not:
        one = found.estimate
        judged = {name: getattr(one, name) for name in ("change", "low", "high", "confidence")}
        judged["more_s"] = seconds_to_end(found.rounds, found.limit)
    if found.measured:
        judged["losses"] = found.losses
        judged["counts"] = None if found.why_no_counts else found.counts
    return GateReport(
        ending=found.ending,
        sentence=found.sentence,
        base=found.a,
        new=found.b,
        max_slowdown=found.limit,
        starts=len(found.measured),
        disturbed_blocks=found.disturbed,
        seconds=_seconds(found),
        **judged,
    )


def _seconds(found: ChangeFindings) -> float:
    return sum(one.seconds for one in found.measured)


def lines(found: GateFindings) -> Iterator[str]:
    yield found.sentence
    if not found.why_not:
        yield from [*changes_report.lines(found)][1:]


def as_markdown(found: GateFindings) -> str:
    """Return nothing if nothing has changed: no comment is needed then."""
    if found.ending == "pass" and not found.counts:
        return ""
    parts = [f"**gpudash gate, {plain(found.sentence)}**"]
    if found.counts:
        parts.append("\n".join(f"- {plain(one)}" for one in found.differences))
    if not found.why_not:
        card = card_of(found.shown(), found.snapshot, "", len(found.measured))
        parts += [] if card is None else [markdown(card)]
    return "\n\n".join(parts).rstrip() + "\n"


def as_junit(found: GateFindings) -> str:
    kind = {"pass": "", "faster": "", "inconclusive": "skipped"}.get(found.ending, "failure")
    suite = Element("testsuite", name="gpudash gate", tests="1", errors="0")
    suite.attrib |= {"failures": f"{kind == 'failure':d}", "skipped": f"{kind == 'skipped':d}"}
    case = SubElement(suite, "testcase", classname="gpudash.gate")
    case.attrib |= {
        "name": plain(f"{found.a} → {found.b}: {found.snapshot.workload}".removesuffix(": ")),
        "time": f"{_seconds(found):.1f}",
    }
    if kind:
        SubElement(case, kind, type=found.ending, message=plain(found.sentence))
    SubElement(case, "system-out").text = "\n".join(map(plain, lines(found)))
    indent(suite)
    return f"{tostring(suite, encoding='unicode')}\n"


# ── what it could find ──────────────────────────────────────────────────────────────────


class CalibrationFindings(ChangeFindings):
    """What starts of equal sides say of the next gate."""

    def __init__(self, base: str, limit: float, budget_s: float) -> None:
        super().__init__("version", base, base, within=None, fixed=False)
        self._limit, self._budget_s = limit, budget_s

    @property
    def is_known(self) -> bool:
        return len(self.measured) >= CALIBRATED

    @property
    def told(self) -> str:
        change = 100 * (self.rounds[-1].costs[0] / self.rounds[-1].costs[1] - 1)
        return f"{change:+z.1f} % to itself, {starts(len(self.rounds))}"

    def document(self) -> "CalibrationReport | None":
        found = forecast(self.rounds, self._limit, self._budget_s)
        if found is None:
            return None
        known: dict[str, Any] = {
            name: value if isfinite(value) else None for name, value in found._asdict().items()
        }
        return CalibrationReport(
            sentence=foreseen(self.a, found, self._limit, self._budget_s),
            base=self.a,
            max_slowdown=self._limit,
            budget_s=self._budget_s,
            starts=len(self.measured),
            seconds=_seconds(self),
            **known,
        )


class CalibrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpudash gate --calibrate --json` prints. None = not within the budget."""

    schema_version: int = 1
    sentence: str
    base: str
    max_slowdown: float
    budget_s: float
    """Of the gates that are foretold."""
    starts: int
    """Of each, that were measured."""
    seconds: float
    """What they took."""
    spread: float
    """Of the ratio of two starts, relative."""
    loss: float | None
    """The smallest loss of throughput that is called slower in 90 %."""
    loss_s: float | None
    """What that takes, in the median."""
    passes: float
    """Share of unchanged trainings that pass."""
    pass_s: float | None
    """What that takes, in the median."""
