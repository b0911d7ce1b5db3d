"""Compare two values of a lever in one start of a training."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpudash.cli.headless import News
from gpudash.cli.measure import AskedTraining, Course, Ended, measure, training_of
from gpudash.cli.plan import compared_values
from gpudash.compare.ab import INSTRUMENTS, Comparison, Question
from gpudash.compare.lengths import PAIRS, PAIRS_OF_A_START
from gpudash.errors import Exit, UsageError
from gpudash.format import change
from gpudash.levers.known import OF_FROZEN
from gpudash.offers import canonical, check_for_script, refusal
from gpudash.protocol.training import SCRIPT, Lever
from gpudash.run.session import Session
from gpudash.snapshot import Snapshot, silence
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


class Trial(NamedTuple):
    """A comparison in one start of the training, and how that ended."""

    comparison: Comparison | None
    """None if the training never got that far."""
    ended: Ended


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


def missing(trial: Trial, start: Start) -> int | None:
    """Say why a trial has no verdict; return its exit code, or None if it has a verdict."""
    comparison, ended = trial
    one = start.name if start.of > 1 else ""
    if comparison is None:
        return ended.without("verdict", start=one)
    if comparison.verdict is not None and (comparison.is_whole or ended.failed is None):
        return None
    code = Exit.REFUSED if comparison.refused else Exit.FAILED
    return ended.without("verdict", comparison.failure, code, start=one)


def progress_line(snapshot: Snapshot) -> str:
    shown = snapshot.comparison
    if shown is None:
        return f"{snapshot.workload}: {snapshot.status_line}"
    line = f"{shown.lever}: {shown.a} or {shown.b}? {shown.pairs}/{shown.planned_pairs} pairs"
    if shown.change is not None and shown.low is not None:
        line += f", {change(shown.change, shown.low, shown.high)}"
    return ", ".join([line, *silence(snapshot)])
