"""Compare two values of a lever in one start of a training."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpudash.cli.ab_card import write_card
from gpudash.cli.headless import News
from gpudash.cli.measure import AskedTraining, Course, Ended, measure, training_of
from gpudash.cli.plan import compared_values
from gpudash.cli.stdout import say, say_json
from gpudash.compare.ab import INSTRUMENTS, Comparison, Question
from gpudash.compare.energy import Costs, costs, worth_lines
from gpudash.compare.lengths import PAIRS, PAIRS_OF_A_START
from gpudash.compare.paired_t import Estimate, holds_zero
from gpudash.compare.starts import Sides
from gpudash.errors import Exit, UsageError
from gpudash.format import change, figure
from gpudash.levers.known import OF_FROZEN
from gpudash.offers import canonical, check_for_script, refusal
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown, EnergyFound
from gpudash.protocol.training import SCRIPT, Lever
from gpudash.run.session import Session
from gpudash.snapshot import Snapshot, silence, unreadable
from workloads.levers import Lever as WorkloadLever
from workloads.levers import find
from workloads.nearest import not_valid


class Start(NamedTuple):
    """Which start of the training a comparison is in."""

    number: int = 1
    of: int = 1

    @property
    def name(self) -> str:
        return f"start {self.number} of {self.of}"

    @property
    def where(self) -> str:
        """Empty for the only start."""
        return f" in {self.name}" if self.of > 1 else ""

    def line(self, snapshot: Snapshot) -> str:
        line = progress_line(snapshot)
        return f"{self.name}, {line}" if self.of > 1 else line

    def asks(self, question: Question) -> Question:
        """Each start has its own order of blocks."""
        return replace(question, seed=self.number - 1)


ONLY = Start()


class Trial(NamedTuple):
    """A comparison in one start of the training, and how that ended."""

    comparison: Comparison | None
    """None if the training never got that far."""
    ended: Ended


class AACheck(Estimate, frozen=True, kw_only=True):
    """Blocks of one setting, right after a switch against later ones."""

    passed: bool


class StartReport(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison in one start of the training. None = not measured."""

    pairs: int
    change: float | None
    low: float | None
    high: float | None
    """Ends of the interval over the pairs of this start."""
    confidence: float | None
    steps_per_s: Sides
    samples_per_s: Sides
    host_ms: Sides
    core_wait_pct: float | None
    check: AACheck | None
    energy: EnergyFound | None = None
    """None if `--energy` did not ask for it, or it is not known."""
    seed: int
    """Seed of the order of the blocks."""


class ComparisonReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpudash ab --json` prints. None = not measured."""

    schema_version: int = 1
    workload: str
    device: str | None
    settings: Settings
    """Every active lever after the comparison."""
    lever: str
    a: str
    b: str
    pairs: int
    change: float | None
    """Throughput of B against A, as a share: 0.1 is 10 % faster."""
    low: float | None
    high: float | None
    confidence: float | None
    """Confidence of the interval from `low` to `high`: over `starts` if there are several, else
    over the pairs."""
    starts: tuple[StartReport, ...]
    """The starts of the training that have a result."""
    steps_per_s: Sides
    samples_per_s: Sides
    host_ms: Sides
    core_wait_pct: float | None
    energy: EnergyFound | None = None
    """None if `--energy` did not ask for it, or it is not known."""
    why_no_energy: str = ""
    """Why it is not known; empty if it was not asked for."""
    costs: Costs | None = None
    """None without `--price`."""
    skipped_samples: int
    """Unreadable samples; another one was decoded for each."""
    verdict: str | None
    """The verdict sentence."""
    check: AACheck | None
    min_steps: int
    min_s: float
    """Least steps and seconds of a block."""
    seed: int
    """Seed of the order of the blocks, of the first start."""


def of_instruments(arguments: argparse.Namespace) -> Question:
    """Return the question without a lever: the cost of gpudash's own instruments."""
    if arguments.energy and arguments.no_instruments:
        raise UsageError("--energy does not go with --no-instruments: its blocks are timed alone")
    alone = arguments.starts == 1
    pairs = arguments.pairs or (PAIRS if alone else PAIRS_OF_A_START)
    precision = arguments.within if alone else None
    return Question(
        lever=INSTRUMENTS,
        a="on",
        b="off",
        pairs=pairs,
        precision=precision,
        fixed=not alone,
        energy=arguments.energy,
    )


def _check_two(text: str, sides: Sequence[str]) -> None:
    """Raise UsageError unless these are two values; they may be equal, for an A/A comparison."""
    if len(sides) != 2:
        raise UsageError(f"--lever {text} is not valid; valid: NAME=A,B with two values")


def trial_of(arguments: argparse.Namespace) -> Callable[[Start], Trial]:
    """Raise UsageError or LeverError before anything starts, as far as the levers are known."""
    moved = [] if arguments.lever is None else [arguments.lever.partition("=")[0]]
    training = training_of(arguments, moved, "compared")
    known = _known(training, arguments)
    if known is not None and arguments.lever is not None:
        settings = training.plan.settings | {known.lever: known.a}
        training = training._replace(plan=replace(training.plan, settings=settings))

    def trial(start: Start) -> Trial:
        def begin(session: Session, news: News) -> _Comparing:
            return _Comparing(session, news, arguments, start, known)

        course, ended = measure(training, arguments, begin)
        if ended.interrupted and course.comparison is not None:
            course.comparison.cancel("interrupted")
        return Trial(course.comparison, ended)

    return trial


def _known(training: AskedTraining, arguments: argparse.Namespace) -> Question | None:
    """Return None if the training says its levers only while it runs."""
    question, text = of_instruments(arguments), arguments.lever
    if training.levers is None:
        if text is not None:
            name, _, values = text.partition("=")
            _check_two(text, values.split(","))
            check_for_script(name, values.split(","))
        return None
    if text is None:
        return question
    lever, a, b = two_values(training.levers, text)
    rebuilds = find(training.levers, lever).effect != "next step"
    return replace(question, lever=lever, a=a, b=b, short_runs=rebuilds)


def two_values(levers: Sequence[WorkloadLever], text: str) -> tuple[str, str, str]:
    """Return lever, A and B of `NAME=A,B`. Raises UsageError or LeverError."""
    name, _, values = text.partition("=")
    lever = find(levers, name)
    sides = compared_values("--lever", text, lever, values)
    _check_two(text, sides)
    return name, sides[0], sides[1]


class _Comparing(Course):
    """Compares once the training's levers are known."""

    def __init__(
        self,
        session: Session,
        news: News,
        arguments: argparse.Namespace,
        start: Start,
        known: Question | None,
    ) -> None:
        super().__init__(session, news)
        self._arguments, self._start, self._known = arguments, start, known
        self.comparison: Comparison | None = None

    def stages(self) -> Iterator[bool]:
        while not (self._known or self.has_levers):
            yield False
        question = self._known or _question_of(self._arguments, self.news.snapshot.levers)
        comparison = self.comparison = Comparison(self._start.asks(question))
        self.session.conduct(comparison)
        while not comparison.done:
            yield False

    def line(self, snapshot: Snapshot) -> str:
        return self._start.line(snapshot)


def _question_of(arguments: argparse.Namespace, offers: Iterable[Lever]) -> Question:
    """Raise UsageError or LeverError if the lever cannot be moved."""
    question = of_instruments(arguments)
    if arguments.no_instruments:
        return question
    lever, a, b, rebuilds = _sides(arguments.lever, {offer.name: offer for offer in offers})
    return replace(question, lever=lever, a=a, b=b, short_runs=rebuilds)


def _sides(text: str, offers: dict[str, Lever]) -> tuple[str, str, str, bool]:
    """Return lever, A, B, and whether each value needs a short run of its own."""
    name, _, values = text.partition("=")
    if name not in offers and name not in OF_FROZEN:
        movable = [offer.name for offer in offers.values() if offer.refusal is None]
        raise UsageError(not_valid("lever", name, movable))
    if (why := refusal(name, offers.values())) is not None:
        raise UsageError(f"lever {name} cannot be moved here: {why}")
    offer = offers[name]
    for value, why in offer.impossible:
        if value in values.split(","):
            raise UsageError(f"lever {name} cannot be moved to {value} here: {why}")
    a, b = (
        offer.default if value == SCRIPT else canonical(offer, value) for value in values.split(",")
    )
    if a == b:
        raise UsageError(f"lever {name} is {a} in the script already; an A/B needs another value")
    return name, a, b, offer.effect != "next step"


# ── the verdict ─────────────────────────────────────────────────────────────────────────


def missing(trial: Trial, start: Start = ONLY) -> int | None:
    """Say why a trial has no verdict; return its exit code, or None if it has a verdict."""
    comparison, ended = trial
    one = start.name if start.of > 1 else ""
    if comparison is None:
        return ended.without("verdict", start=one)
    if comparison.verdict is not None and (comparison.is_whole or ended.failed is None):
        return None
    code = Exit.REFUSED if comparison.refused else Exit.FAILED
    return ended.without("verdict", comparison.failure, code, start=one)


def conclude(trial: Trial, arguments: argparse.Namespace) -> int:
    code, comparison, snapshot = missing(trial), trial.comparison, trial.ended.snapshot
    if code is not None or comparison is None or comparison.verdict is None:
        return Exit.FAILED if code is None else code
    shown = comparison.shown()
    if arguments.json:
        say_json(document(comparison, snapshot, arguments.price))
    else:
        energy, skipped = comparison.question.energy, snapshot.skipped_samples
        found = found_lines(shown, arguments.price, skipped, energy=energy)
        say("\n".join([comparison.verdict, *found]))
    write_card(shown, snapshot, arguments)
    if trial.ended.interrupted and comparison.cut_short:
        return Exit.INTERRUPTED
    return exit_code(comparison.found) if arguments.exit_code else Exit.DONE


def progress_line(snapshot: Snapshot) -> str:
    shown = snapshot.comparison
    if shown is None:
        return f"{snapshot.workload}: {snapshot.status_line}"
    line = f"{shown.lever}: {shown.a} or {shown.b}? {shown.pairs}/{shown.planned_pairs} pairs"
    if shown.change is not None and shown.low is not None:
        line += f", {change(shown.change, shown.low, shown.high)}"
    return ", ".join([line, *silence(snapshot)])


def document(
    comparison: Comparison, snapshot: Snapshot, price: float | None = None
) -> ComparisonReport:
    question, start = comparison.question, start_report(comparison)
    shown = comparison.shown()
    block = question.block(0, question.a)
    return ComparisonReport(
        workload=snapshot.workload,
        device=snapshot.device.name if snapshot.device else None,
        settings=snapshot.settings,
        lever=question.lever,
        a=question.a,
        b=question.b,
        starts=(start,) if start.change is not None else (),
        skipped_samples=snapshot.skipped_samples,
        why_no_energy=shown.why_no_energy,
        costs=costs(price, shown),
        verdict=comparison.verdict,
        min_steps=block.min_steps,
        min_s=block.min_s,
        **msgspec.structs.asdict(start),
    )


def start_report(comparison: Comparison) -> StartReport:
    shown, found, check = comparison.shown(), comparison.found, comparison.check
    return StartReport(
        pairs=shown.pairs,
        change=shown.change,
        low=shown.low,
        high=shown.high,
        confidence=found.confidence if found else None,
        steps_per_s=shown.steps_per_s,
        samples_per_s=shown.samples_per_s,
        host_ms=shown.host_ms,
        core_wait_pct=shown.core_wait_pct,
        energy=shown.energy,
        check=check_report(check),
        seed=comparison.question.seed,
    )


def check_report(check: Estimate | None) -> AACheck | None:
    if check is None:
        return None
    return AACheck(**msgspec.structs.asdict(check), passed=holds_zero(check))


def found_lines(
    shown: ComparisonShown, price: float | None, skipped: int, *, energy: bool
) -> Iterator[str]:
    sides = zip((shown.a, shown.b), shown.rates, shown.host_ms, strict=True)
    yield "; ".join(
        f"{shown.lever}={value}: {figure(rate)} {shown.unit}{_busy(busy_ms)}"
        for value, rate, busy_ms in sides
    )
    yield from worth_lines(shown, price, energy=energy)
    yield from unreadable(skipped)


def _busy(host_ms: float | None) -> str:
    return "" if host_ms is None else f", host busy {figure(host_ms)} ms a step"


def exit_code(found: Estimate | None) -> int:
    if found is None or found.low is None or holds_zero(found):
        return Exit.NOT_SHOWN
    return Exit.DONE if found.change > 0 else Exit.SLOWER
