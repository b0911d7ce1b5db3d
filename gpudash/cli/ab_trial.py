"""Compare two values of a lever in one start of a workload, or of the user's command."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpudash.cli.ab_card import write_card
from gpudash.cli.headless import News, complain_of_failure, follow, training_session
from gpudash.cli.measured_script import MeasuredScript
from gpudash.cli.plan import check_with_command, compared_values, make_plan
from gpudash.cli.stdout import complain, say, say_json
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
from gpudash.run.user_command import understand
from gpudash.snapshot import Snapshot, silence, unreadable
from workloads import Entry, find_workload
from workloads.levers import LeverError, find
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
    """A comparison in one start of the training, and how it ended."""

    comparison: Comparison | None
    """None if the training never got that far."""
    snapshot: Snapshot
    """The newest of the training."""
    interrupted: bool = False
    failed: int | None = None
    """The exit code of a training that failed before the verdict; why has been said then."""


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


# ── in a workload ───────────────────────────────────────────────────────────────────────


def of_workload(arguments: argparse.Namespace) -> Callable[[Start], Trial]:
    plan = make_plan(arguments, [(arguments.lever or "").partition("=")[0]])
    question = of_instruments(arguments)
    if not arguments.no_instruments:
        entry = find_workload(plan.workload)
        lever, a, b = two_values(entry, arguments.lever)
        if lever in plan.settings:
            raise UsageError(f"lever {lever} is both set and compared; valid: one of the two")
        rebuilds = find(entry.levers, lever).effect != "next step"
        question = replace(question, lever=lever, a=a, b=b, short_runs=rebuilds)
        plan = replace(plan, settings=plan.settings | {lever: a})

    def trial(start: Start) -> Trial:
        with training_session(arguments, plan) as session:
            return run_ab(session, Comparison(start.asks(question)), arguments, start)

    return trial


def two_values(entry: Entry, text: str) -> tuple[str, str, str]:
    """Return lever, A and B of `NAME=A,B`. Raises UsageError or LeverError."""
    name, _, values = text.partition("=")
    lever = find(entry.levers, name)
    sides = compared_values("--lever", text, lever, values)
    _check_two(text, sides)
    return name, sides[0], sides[1]


def run_ab(
    session: Session, comparison: Comparison, arguments: argparse.Namespace, start: Start = ONLY
) -> Trial:
    news = News(quiet=arguments.quiet)
    session.conduct(comparison)
    interrupted = follow(session, news, start.line, lambda: comparison.done)
    failed = None
    if session.failure is not None and not comparison.is_whole:
        failed = complain_of_failure(session.failure, start.where and f"; that was {start.name}")
    return Trial(comparison, news.snapshot, interrupted, failed)


# ── in the user's command ───────────────────────────────────────────────────────────────


def of_script(arguments: argparse.Namespace) -> Callable[[Start], Trial]:
    _check(arguments)
    command = understand(arguments.user_command)

    def trial(start: Start) -> Trial:
        script = MeasuredScript(command, output_to_stderr=arguments.json)
        return _run_script(script, arguments, start)

    return trial


def _run_script(script: MeasuredScript, arguments: argparse.Namespace, start: Start) -> Trial:
    line = (lambda _: "") if arguments.quiet else start.line
    with script.session(arguments) as session:
        trial = _OfferedComparison(arguments, script, session, start)
        script.measure(session, trial.is_over, line)
    if trial.refusal is not None:
        raise trial.refusal
    assert script.source
    comparison = trial.comparison
    if script.interrupted and comparison is not None:
        comparison.cancel("interrupted")
    is_whole = comparison is not None and comparison.is_whole
    failed = None if is_whole else script.own_failure(f"verdict{start.where}")
    if comparison is None and failed is None:
        why = "interrupted" if script.interrupted else script.source.why_no_more()
        complain(f"gpudash: no verdict{start.where}: {why}")
        failed = Exit.INTERRUPTED if script.interrupted else Exit.FAILED
    return Trial(comparison, script.news.snapshot, script.interrupted, failed)


class _OfferedComparison:
    """Begins the comparison once the training has offered its levers."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        script: MeasuredScript,
        session: Session,
        start: Start,
    ) -> None:
        self._arguments, self._script, self._session = arguments, script, session
        self._start = start
        self.comparison: Comparison | None = None
        self.refusal: UsageError | LeverError | None = None

    def is_over(self) -> bool:
        """Begin the comparison when possible; return whether the command may end."""
        source = self._script.source
        # another rank may start before the one that offers levers
        if self.comparison is None and source is not None and source.offered is not None:
            try:
                self._begin(source.offered.levers)
            except (UsageError, LeverError) as error:
                self.refusal = error
        is_done = self.comparison is not None and self.comparison.done
        return is_done or self.refusal is not None

    def _begin(self, offers: Iterable[Lever]) -> None:
        question = _question_of(self._arguments, offers)
        self.comparison = Comparison(self._start.asks(question))
        self._session.conduct(self.comparison)


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


def _check(arguments: argparse.Namespace) -> None:
    check_with_command(arguments)
    if arguments.lever is not None:
        name, _, values = arguments.lever.partition("=")
        _check_two(arguments.lever, values.split(","))
        check_for_script(name, values.split(","))


# ── the verdict ─────────────────────────────────────────────────────────────────────────


def missing(trial: Trial, start: Start = ONLY) -> int | None:
    """Say why a trial has no verdict; return its exit code, or None if it has a verdict."""
    comparison = trial.comparison
    if comparison is None or trial.failed is not None:
        return trial.failed
    if comparison.verdict is not None:
        return None
    reason = "interrupted" if trial.interrupted else comparison.failure or "it did not finish"
    complain(f"gpudash: no verdict{start.where}: {reason}")
    if trial.interrupted:
        return Exit.INTERRUPTED
    return Exit.REFUSED if comparison.refused else Exit.FAILED


def conclude(trial: Trial, arguments: argparse.Namespace) -> int:
    code, comparison, snapshot = missing(trial), trial.comparison, trial.snapshot
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
    if trial.interrupted and comparison.cut_short:
        return Exit.INTERRUPTED
    return exit_code(comparison.found) if arguments.exit_code else Exit.DONE


def progress_line(snapshot: Snapshot) -> str:
    shown = snapshot.comparison
    if shown is None:
        return f"{snapshot.workload}: {snapshot.status}"
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
