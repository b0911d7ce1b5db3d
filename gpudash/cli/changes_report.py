"""What `gpudash ab` prints of two commands or two versions, over the starts of both."""

import argparse
from collections.abc import Iterator, Sequence

from msgspec.structs import asdict, replace

from gpudash.cli.ab_report import ComparisonReport, StartReport, report_of, write_card
from gpudash.cli.rounds import MeasuredRound
from gpudash.compare.ab import contention, sides_of
from gpudash.compare.alternation import Unit, cost_ms, noise, unit_of
from gpudash.compare.blocks import MeasuredBlock
from gpudash.compare.counted import CountChange, PhaseLoss, changes, phase_lost
from gpudash.compare.experiment import MIN_STEPS, RUN_S
from gpudash.compare.losses import LossesFound, compare_losses, sentence
from gpudash.compare.paired_t import Estimate, effect, estimate
from gpudash.compare.rounds import (
    CONFIDENCE,
    StartCosts,
    is_decided,
    measuring_s,
    over_rounds,
    verdict,
)
from gpudash.format import change, count, figure, starts
from gpudash.metrics import phases_ms
from gpudash.protocol.session import ComparisonShown
from gpudash.snapshot import Snapshot
from gpudash.statistics import mean

COUNTED = {"token": "tokens", "sample": "samples", "step": "steps"}


class ChangeFindings:
    """What the starts so far have shown."""

    def __init__(self, lever: str, a: str, b: str, *, within: float | None, fixed: bool) -> None:
        """`lever` is what differs. `fixed`: so many starts, come what may."""
        self.lever, self.a, self.b = lever, a, b
        self.within, self.fixed = within, fixed
        self.measured: list[MeasuredRound] = []
        self.looks: list[Estimate] = []
        """After each start; empty if both cannot be compared."""

    def add(self, measured: MeasuredRound) -> None:
        self.measured.append(measured)
        if not self.why_not:
            self.looks.append(self._judged())

    @property
    def why_not(self) -> str:
        """Return why both cannot be compared, as a clause."""
        if self.measured and self.unit is None:
            return "the samples of a step are known of one side alone"
        return ""

    @property
    def why_apart(self) -> str:
        return self.measured[-1].why_apart if self.measured else ""

    @property
    def unit(self) -> Unit | None:
        a, b = self._blocks
        return unit_of(a, b)

    @property
    def _blocks(self) -> tuple[list[MeasuredBlock], list[MeasuredBlock]]:
        a, b = ([one for start in self.measured for one in start.blocks[side]] for side in (0, 1))
        return a, b

    @property
    def rounds(self) -> list[StartCosts]:
        unit = self.unit
        assert unit is not None
        return [
            StartCosts(
                (cost_ms(one.blocks[0], unit), cost_ms(one.blocks[1], unit)),
                one.seconds,
                one.measured_s,
                noise(*one.blocks, unit),
            )
            for one in self.measured
        ]

    def measuring_s(self, start_s: float) -> float:
        """Return for how long to measure after a start that took so long."""
        return start_s if self.fixed else measuring_s(self.rounds, start_s)

    @property
    def estimate(self) -> Estimate:
        return self.looks[-1]

    @property
    def is_known(self) -> bool:
        """Whether more starts are needless."""
        return not self.fixed and is_decided(self.estimate, self.within)

    def _judged(self) -> Estimate:
        """Count starts, of which each is one pair."""
        if self.fixed:
            return estimate([one.costs for one in self.rounds], CONFIDENCE)
        return over_rounds(self.rounds)

    @property
    def losses(self) -> LossesFound | None:
        a, b = zip(*(one.losses for one in self.measured), strict=True)
        return compare_losses(a, b)

    @property
    def counts(self) -> tuple[CountChange, ...]:
        a, b = self.measured[0].counts if self.measured else ("", "")
        return () if isinstance(a, str) or isinstance(b, str) else tuple(changes(a, b))

    @property
    def why_no_counts(self) -> str:
        sides = zip((self.a, self.b), self.measured[0].counts, strict=True)
        return "; ".join(f"{name}: {why}" for name, why in sides if why and isinstance(why, str))

    @property
    def phase_lost(self) -> PhaseLoss | None:
        return phase_lost(
            [(_phases(one.blocks[0]), _phases(one.blocks[1])) for one in self.measured]
        )

    @property
    def differences(self) -> list[str]:
        """Return what else differs, a sentence each."""
        lost = self.phase_lost
        return [one.sentence for one in self.counts] + ([lost.sentence] if lost else [])

    @property
    def told(self) -> str:
        if not self.fixed:
            return verdict(self.b, self.rounds, self.within)
        found, many = self.estimate, starts(len(self.measured))
        if found.low is None:
            return f"{self.b}: {change(found.change, None, None)}, {many}"
        return f"{effect(self.b, found)}, {many}"

    @property
    def verdict(self) -> str:
        clauses = [self.told, sentence(self.losses)]
        if self.unit != "step":
            clauses.append(f"compared by {COUNTED[self.unit or 'step']}")
        if self.disturbed:
            clauses.append(f"{count(self.disturbed)} blocks beside other jobs on the GPU left out")
        return "; ".join(clauses) + contention(self.core_wait_pct)

    @property
    def disturbed(self) -> int:
        return sum(one.disturbed for one in self.measured)

    @property
    def core_wait_pct(self) -> float | None:
        return mean(block.of("core_wait_pct") for side in self._blocks for block in side)

    @property
    def snapshot(self) -> Snapshot:
        return self.measured[-1].snapshots[1] if self.measured else Snapshot()

    def shown(self) -> ComparisonShown:
        found = self.estimate
        return ComparisonShown(
            lever=self.lever,
            a=self.a,
            b=self.b,
            pairs=found.pairs,
            planned_pairs=found.pairs,
            change=found.change,
            low=found.low,
            high=found.high,
            history=tuple(
                (one.low, one.change, one.high)
                for one in self.looks
                if one.low is not None and one.high is not None
            ),
            sides=sides_of(*self._blocks),
            core_wait_pct=self.core_wait_pct,
            verdict=self.verdict,
            failure=None,
            losses=sentence(self.losses),
            precision=self.within,
            confidence=found.confidence,
        )


def _phases(blocks: Sequence[MeasuredBlock]) -> dict[str, float]:
    found = [phases_ms(one.values) for one in blocks]
    means = {name: mean(one.get(name) for one in found) for name in found[0]}
    return {name: ms for name, ms in means.items() if ms is not None}


class ChangeReport(ComparisonReport, frozen=True, kw_only=True):
    """What `gpudash ab --json` prints of two commands or versions; the pairs are starts."""

    compared_by: str
    """What a cost is of: `token`, `sample` or `step`."""
    disturbed_blocks: int
    """Of both, beside others' work on the GPU: left out."""
    why_apart: str
    """Why both were not measured at the same time; empty if they were."""
    counts: tuple[CountChange, ...] | None
    """What differs exactly in a step. None = not counted."""
    why_no_counts: str
    """A clause; empty if both were counted."""
    phase_lost: PhaseLoss | None
    """The phase that has surely become longer, by most; None: none has."""


def document(found: ChangeFindings) -> ChangeReport:
    shown, snapshot = found.shown(), found.snapshot
    starts = (_of_start(shown, found, number) for number in range(len(found.measured)))
    return ChangeReport(
        workload=snapshot.workload,
        device=snapshot.device.name if snapshot.device else None,
        settings=snapshot.settings,
        lever=found.lever,
        a=found.a,
        b=found.b,
        starts=tuple(starts),
        skipped_samples=sum(one.snapshots[1].skipped_samples for one in found.measured),
        verdict=shown.verdict,
        min_steps=MIN_STEPS,
        min_s=RUN_S,
        compared_by=str(found.unit),
        losses=found.losses,
        disturbed_blocks=found.disturbed,
        why_apart=found.why_apart,
        counts=None if found.why_no_counts else found.counts,
        why_no_counts=found.why_no_counts,
        phase_lost=found.phase_lost,
        **asdict(report_of(shown, found.estimate, None, 0)),
    )


def _of_start(whole: ComparisonShown, found: ChangeFindings, number: int) -> StartReport:
    a, b = found.measured[number].blocks
    one = estimate([found.rounds[number].costs], CONFIDENCE)
    shown = replace(
        whole,
        pairs=len(a),
        change=one.change,
        low=None,
        high=None,
        sides=sides_of(a, b),
        core_wait_pct=mean(block.of("core_wait_pct") for block in (*a, *b)),
    )
    return report_of(shown, one, None, number)


def lines(found: ChangeFindings) -> Iterator[str]:
    shown = found.shown()
    yield str(shown.verdict)
    starts = (f"{100 * (one.costs[0] / one.costs[1] - 1):+z.1f}" for one in found.rounds)
    yield f"the starts: {', '.join(starts)} %"
    yield from found.differences
    if found.why_no_counts:
        yield f"not counted: {found.why_no_counts}"
    for side, name in enumerate((found.a, found.b)):
        rates = (
            f"{figure(shown.of(rate)[side])} {unit}"
            for rate, unit in (("steps_per_s", "steps/s"), ("samples_per_s", "samples/s"))
            if shown.of(rate)[side] is not None
        )
        yield f"{name}: {', '.join(rates)}"


def write(found: ChangeFindings, arguments: argparse.Namespace) -> None:
    write_card(found.shown(), found.snapshot, arguments, starts=len(found.measured))
