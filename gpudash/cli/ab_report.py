"""What `gpudash ab` prints of a comparison, in one start or over several; its card."""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from gpudash.cli.keeping import Judged
from gpudash.cli.stdout import complain
from gpudash.compare.ab import INSTRUMENTS, Comparison, contention
from gpudash.compare.energy import Costs, costs, of_starts, worth_lines
from gpudash.compare.losses import LossesFound, sentence
from gpudash.compare.paired_t import Estimate, holds_zero
from gpudash.compare.paired_t import verdict as verdict_of_pairs
from gpudash.compare.starts import FEWEST_STARTS, check_of_starts, over_starts, verdict
from gpudash.errors import Exit, UsageError
from gpudash.format import figure
from gpudash.metrics import COMPARED, METRICS
from gpudash.present.card import FORMS, card_of
from gpudash.present.wording import verdict_command
from gpudash.protocol.commands import Plan
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown, EnergyFound, Sides
from gpudash.recording.files import created, refuse_existing, shown
from gpudash.run.user_command import understand
from gpudash.snapshot import Snapshot, unreadable
from gpudash.statistics import geometric, mean


class AACheck(Estimate, frozen=True, kw_only=True):
    """Blocks of one setting, right after a switch against later ones."""

    passed: bool


class StartReport(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison, in one start of the training or over several. None = not measured."""

    pairs: int
    change: float | None
    """Throughput of B against A, as a share: 0.1 is 10 % faster."""
    low: float | None
    high: float | None
    """Ends of the interval, over the pairs of a start, or over the starts if there are several."""
    confidence: float | None
    sides: dict[str, Sides]
    """Values under A and under B by metric, those below among them."""
    steps_per_s: Sides
    samples_per_s: Sides
    host_ms: Sides
    core_wait_pct: float | None
    check: AACheck | None
    energy: EnergyFound | None = None
    """None if `--energy` did not ask for it, or it is not known."""
    seed: int
    """Seed of the order of the blocks, of the first start."""


class ComparisonReport(StartReport, frozen=True, kw_only=True):
    """What `gpudash ab --json` prints. None = not measured."""

    schema_version: int = 1
    workload: str
    device: str | None
    settings: Settings
    """Every active lever after the comparison."""
    lever: str
    a: str
    b: str
    starts: tuple[StartReport, ...]
    """The starts of the training that have a result."""
    holds: bool | None = None
    """Whether the claim holds at the error rate over all attempts of the project; None: it claims
    no difference, or attempts are not kept here."""
    next: str | None = None
    """The command to go on with."""
    why_no_energy: str = ""
    """Why the energy is not known; empty if it was not asked for."""
    costs: Costs | None = None
    """None without `--price`."""
    skipped_samples: int
    """Unreadable samples; another one was decoded for each."""
    verdict: str | None
    """The verdict sentence."""
    losses: LossesFound | None = None
    """Whether the training is the same; None if that was not asked, or there were too few."""
    min_steps: int
    min_s: float
    """Least steps and seconds of a block."""


class StartFinding(NamedTuple):
    """What one start has found."""

    comparison: Comparison
    snapshot: Snapshot
    interrupted: bool = False
    """Whether Ctrl-C came once it had its result."""

    @property
    def found(self) -> Estimate:
        assert self.comparison.found is not None
        return self.comparison.found

    @property
    def told(self) -> str:
        name = self.comparison.question.name
        return verdict_of_pairs(name, self.found, self.comparison.check)


class StartFindings(NamedTuple):
    """The starts that have a result, and how it ended."""

    results: Sequence[StartFinding]
    planned: int = 1
    failed: int | None = None
    """The exit code if it ended early; why has been said then."""
    why: str = ""
    """What the last comparison said of that; often nothing."""
    losses: LossesFound | None = None
    """None: not compared."""

    @property
    def found(self) -> Estimate:
        each = [one.found for one in self.results]
        return each[0] if self.planned == 1 else over_starts(each)

    @property
    def judged(self) -> Judged:
        found, shown = self.found, self.shown
        told = shown.verdict or self.results[0].told
        if self.planned > 1:
            return Judged(found, told, "starts", len(self.results), None)
        return Judged(found, told, "pairs", found.pairs, self.results[0].comparison.effects)

    @property
    def check(self) -> Estimate | None:
        each = [one.comparison.check for one in self.results]
        return each[0] if self.planned == 1 else check_of_starts(each)

    @property
    def skipped_samples(self) -> int:
        return sum(one.snapshot.skipped_samples for one in self.results)

    @property
    def shown(self) -> ComparisonShown:
        """What all starts together show; without a verdict if there are too few."""
        losses = sentence(self.losses)
        each = [replace(one.comparison.shown(), losses=losses) for one in self.results]
        if self.planned == 1:
            return each[0]
        found, check = self.found, self.check
        core_wait_pct = mean(one.core_wait_pct for one in each)
        return replace(
            each[-1],
            pairs=found.pairs,
            change=found.change,
            low=found.low,
            high=found.high,
            sides={name: _over([one.of(name) for one in each]) for name in each[-1].sides},
            core_wait_pct=core_wait_pct,
            energy=of_starts([one.energy for one in each]),
            verdict=self._verdict(core_wait_pct),
            check_passed=None if check is None else holds_zero(check),
        )

    def _verdict(self, core_wait_pct: float | None) -> str | None:
        results = self.results
        if len(results) < FEWEST_STARTS:
            return None
        how = "interrupted" if self.failed == Exit.INTERRUPTED else "ended by a failure"
        early = "" if self.failed is None else f"; {how} before its {self.planned} starts"
        name = results[0].comparison.question.name
        checks = [one.comparison.check for one in results]
        said = verdict(name, [one.found for one in results], checks, early)
        return said + contention(core_wait_pct)


def _over(starts: Sequence[Sides]) -> Sides:
    """Return the geometric mean of each side: B's over A's is then the change over the starts."""
    a, b = zip(*starts, strict=True)
    return geometric(a), geometric(b)


def document(findings: StartFindings, price: float | None = None) -> ComparisonReport:
    newest, shown = findings.results[-1], findings.shown
    snapshot, question = newest.snapshot, newest.comparison.question
    block = question.block(0, question.a)
    first = findings.results[0].comparison.question
    return ComparisonReport(
        workload=snapshot.workload,
        device=snapshot.device.name if snapshot.device else None,
        settings=snapshot.settings,
        lever=question.lever,
        a=question.a,
        b=question.b,
        starts=tuple(map(_of_start, findings.results)),
        skipped_samples=findings.skipped_samples,
        why_no_energy=shown.why_no_energy,
        costs=costs(price, shown),
        verdict=shown.verdict,
        losses=findings.losses,
        min_steps=block.min_steps,
        min_s=block.min_s,
        **asdict(report_of(shown, findings.found, findings.check, first.seed)),
    )


def _of_start(one: StartFinding) -> StartReport:
    comparison = one.comparison
    return report_of(comparison.shown(), one.found, comparison.check, comparison.question.seed)


def report_of(
    shown: ComparisonShown, found: Estimate, check: Estimate | None, seed: int
) -> StartReport:
    return StartReport(
        pairs=shown.pairs,
        change=shown.change,
        low=shown.low,
        high=shown.high,
        confidence=found.confidence,
        sides=shown.sides,
        steps_per_s=shown.of("steps_per_s"),
        samples_per_s=shown.of("samples_per_s"),
        host_ms=shown.of("host_ms"),
        core_wait_pct=shown.core_wait_pct,
        check=None if check is None else AACheck(**asdict(check), passed=holds_zero(check)),
        energy=shown.energy,
        seed=seed,
    )


def lines(findings: StartFindings, price: float | None) -> Iterator[str]:
    shown, energy = findings.shown, findings.results[0].comparison.question.energy
    yield str(shown.verdict)
    if findings.planned > 1:
        changes = ", ".join(f"{100 * one.found.change:+z.1f}" for one in findings.results)
        yield f"the starts: {changes} %"
    yield sides_line(shown)
    if shown.lever != INSTRUMENTS:
        yield shown.losses
    yield from worth_lines(shown, price, energy=energy)
    yield from unreadable(findings.skipped_samples)


def sides_line(shown: ComparisonShown) -> str:
    beside = {METRICS[name]: shown.of(name) for name in COMPARED if METRICS[name].side}
    return "; ".join(
        f"{shown.lever}={value}: {figure(shown.rates[side])} {shown.unit}"
        + "".join(
            f", {metric.label} {figure(of[side])} {metric.unit}{' a step' * bool(metric.in_steps)}"
            for metric, of in beside.items()
            if of[side] is not None
        )
        for side, value in enumerate((shown.a, shown.b))
    )


def exit_code(found: Estimate) -> int:
    if found.low is None or holds_zero(found):
        return Exit.NOT_SHOWN
    return Exit.DONE if found.change > 0 else Exit.SLOWER


# ── the card ────────────────────────────────────────────────────────────────────────────


def check_card(arguments: argparse.Namespace) -> None:
    """Raise UsageError or RecordingError if the card could not be written, before all else."""
    path: Path | None = arguments.card
    if path is None:
        if arguments.force:
            raise UsageError("--force goes with --card FILE")
        return
    if path.suffix not in FORMS:
        ends = " or ".join(FORMS)
        raise UsageError(f"cannot write a card to {shown(path)}: its name has to end in {ends}")
    if arguments.no_instruments:
        raise UsageError("--card goes with --lever: it shows what a lever brings")
    if not os.access(path.parent, os.W_OK):
        folder = f"{shown(path.parent)} is no folder that can be written to"
        raise UsageError(f"cannot write a card to {shown(path)}: {folder}")
    if not arguments.force or path.is_dir():
        refuse_existing(path)


def write_card(
    found: ComparisonShown, snapshot: Snapshot, arguments: argparse.Namespace, starts: int = 1
) -> None:
    """Do nothing if no card is asked for. Raises RecordingError."""
    path: Path | None = arguments.card
    if path is None:
        return
    command = "" if found.of_starts else _command(found, snapshot, arguments)
    card = card_of(found, snapshot, command, starts)
    if card is None:
        complain("gpudash: no card: the verdict has no interval")
        return
    with created(path, force=arguments.force) as file:
        file.append(FORMS[path.suffix](card).encode())


def _command(found: ComparisonShown, snapshot: Snapshot, arguments: argparse.Namespace) -> str:
    others = {name: value for name, value in snapshot.settings.items() if name != found.lever}
    plan = Plan(
        workload=snapshot.workload,
        settings={},
        command=understand(arguments.user_command).argv if arguments.user_command else (),
        nproc=arguments.nproc or 1,
        device=arguments.device,
    )
    known = replace(found, settings=others)
    return verdict_command(known, snapshot.workload, plan, starts=arguments.starts)
