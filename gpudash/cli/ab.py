"""`gpudash ab`: compare in one start of a training, or in several, and say what was found."""

import argparse
from collections.abc import Collection, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from gpudash.cli import ab_changes, first_losses
from gpudash.cli.ab_report import (
    StartFinding,
    StartFindings,
    check_card,
    document,
    exit_code,
    lines,
    write_card,
)
from gpudash.cli.following import after_lever
from gpudash.cli.headless import interruptions
from gpudash.cli.keeping import Keeping, keeping
from gpudash.cli.measure import AskedTraining, Course, measure, training_of
from gpudash.cli.options import COMMAND_LINE
from gpudash.cli.plan import compared_values
from gpudash.cli.stdout import complain, say_found
from gpudash.compare.ab import INSTRUMENTS, Comparison, Question
from gpudash.compare.lengths import PAIRS, PAIRS_OF_A_START
from gpudash.compare.losses import LossesFound
from gpudash.compare.starts import FEWEST_STARTS
from gpudash.errors import Exit, GpudashError, UsageError
from gpudash.format import change
from gpudash.levers.known import OF_FROZEN
from gpudash.offers import check_for_script, refusal
from gpudash.protocol.training import SCRIPT, Lever
from gpudash.run.user_command import understand
from gpudash.snapshot import Snapshot, silence
from workloads.levers import LeverError, find

# ── one start ───────────────────────────────────────────────────────────────────────────


class Start(NamedTuple):
    """Which start of the training a comparison is in."""

    number: int = 1
    of: int = 1

    @property
    def name(self) -> str:
        return f"start {self.number} of {self.of}"

    @property
    def one_of_several(self) -> str:
        """Its name, empty for the only start."""
        return self.name if self.of > 1 else ""

    def asks(self, question: Question) -> Question:
        """Each start has its own order of blocks."""
        return replace(question, seed=self.number - 1)


def of_instruments(arguments: argparse.Namespace) -> Question:
    """Return the question without a lever: the cost of gpudash's own instruments."""
    if arguments.energy and arguments.no_instruments:
        raise UsageError("--energy does not go with --no-instruments: its blocks are timed alone")
    if arguments.losses and arguments.no_instruments:
        raise UsageError("--losses goes with --lever: gpudash's instruments compute nothing")
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


def _asked(arguments: argparse.Namespace) -> tuple[AskedTraining, Question | None]:
    """Raise UsageError or LeverError before anything starts, as far as the levers are known."""
    moved = [] if arguments.lever is None else [arguments.lever.partition("=")[0]]
    training = training_of(arguments, moved, "compared")
    known = _known(training, arguments)
    if known is not None and arguments.lever is not None:
        settings = training.plan.settings | {known.lever: known.a}
        training = training._replace(plan=replace(training.plan, settings=settings))
    return training, known


def _known(training: AskedTraining, arguments: argparse.Namespace) -> Question | None:
    """Return None if the training says its levers only while it runs."""
    if training.levers is not None:
        return question_of(arguments, training.levers)
    of_instruments(arguments)
    if arguments.lever is not None:
        name, _, values = arguments.lever.partition("=")
        _check_two(arguments.lever, values.split(","))
        check_for_script(name, values.split(","))
    return None


def question_of(
    arguments: argparse.Namespace, levers: Collection[Lever], *, of_script: bool = False
) -> Question:
    """Raise UsageError or LeverError for what cannot be compared here."""
    question = of_instruments(arguments)
    if arguments.lever is None:
        return question
    lever, a, b = two_values(levers, arguments.lever, of_script=of_script)
    return replace(question, lever=lever.name, a=a, b=b, short_runs=lever.rebuilds)


def two_values(
    levers: Collection[Lever], text: str, *, of_script: bool = False
) -> tuple[Lever, str, str]:
    """Return lever, A and B of `NAME=A,B`: equal for an A/A comparison of a workload."""
    name, _, listed = text.partition("=")
    values = listed.split(",")
    offered = [one.name for one in levers]
    if name in (*offered, *OF_FROZEN) and (why := refusal(name, levers)) is not None:
        raise UsageError(f"lever {name} cannot be moved here: {why}")
    lever = find((one for one in levers if one.refusal is None), name)
    for value, why in lever.impossible:
        if value in values:
            raise UsageError(f"lever {name} cannot be moved to {value} here: {why}")
    if of_script:
        values = [lever.default if one == SCRIPT else one for one in values]
    values = compared_values("--lever", text, lever, values)
    _check_two(text, values)
    a, b = values
    if of_script and a == b:
        raise UsageError(f"lever {name} is {a} in the script already; an A/B needs another value")
    return lever, a, b


def _check_two(text: str, values: Collection[str]) -> None:
    if len(values) != 2:
        raise UsageError(f"--lever {text} is not valid; valid: NAME=A,B with two values")


class _Comparing(Course):
    """Compares once the training's levers are known."""

    def __init__(self, arguments: argparse.Namespace, start: Start, known: Question | None) -> None:
        self.arguments, self._start, self._known = arguments, start, known
        self.comparison: Comparison | None = None

    def stages(self) -> Iterator[bool]:
        yield from self.await_levers()
        levers = self.news.snapshot.levers
        question = self._known or question_of(self.arguments, levers, of_script=True)
        comparison = self.comparison = Comparison(self._start.asks(question))
        self.session.conduct(comparison)
        while not comparison.done:
            yield False

    def line(self, snapshot: Snapshot) -> str:
        return ", ".join(filter(None, (self._start.one_of_several, progress_line(snapshot))))


def progress_line(snapshot: Snapshot) -> str:
    shown = snapshot.comparison
    if shown is None:
        return f"{snapshot.workload}: {snapshot.status_line}"
    line = f"{shown.lever}: {shown.a} or {shown.b}? {shown.pairs}/{shown.planned_pairs} pairs"
    if shown.change is not None and shown.low is not None:
        line += f", {change(shown.change, shown.low, shown.high)}"
    return ", ".join([line, *silence(snapshot)])


# ── one or several ──────────────────────────────────────────────────────────────────────


def main(arguments: argparse.Namespace) -> int:
    if ab_changes.are_asked(arguments):
        return ab_changes.main(arguments)
    arguments.starts = arguments.starts or 1
    check_card(arguments)
    training, known = _asked(arguments)
    if arguments.starts > 1:
        if arguments.set_by.get("ab.within") == COMMAND_LINE:
            raise UsageError(
                "--within does not go with --starts: how narrow the interval is, the starts decide"
            )
        _announce(arguments)
    if arguments.no_instruments:  # it changes nothing in the training
        return conclude(_findings(training, known, arguments), arguments)
    name, _, values = arguments.lever.partition("=")
    a, b = (known.a, known.b) if known is not None else values.split(",")
    with keeping(arguments, name, a, b) as attempt:
        losses: LossesFound | None = None
        if arguments.losses:
            compared = first_losses.compare(training, name, (a, b), arguments)
            if isinstance(compared, int):
                attempt.without(compared)
                return compared
            losses = compared
        findings = _findings(training, known, arguments)._replace(losses=losses)
        return conclude(findings, arguments, holds=_kept(attempt, findings))


def _kept(attempt: Keeping, findings: StartFindings) -> bool | None:
    """Return whether the verdict holds among all attempts."""
    if findings.results:
        return attempt.judged(findings.judged)
    attempt.without(Exit.FAILED if findings.failed is None else findings.failed, findings.why)
    return None


def _announce(arguments: argparse.Namespace) -> None:
    if arguments.user_command:
        name = understand(arguments.user_command).name
        complain(
            f"gpudash: {name} will run {arguments.starts} times, one after the other, by the same "
            "command: the files that it writes are written again each time"
        )
    elif not arguments.quiet:
        complain(f"the training is started {arguments.starts} times")


def _findings(
    training: AskedTraining, known: Question | None, arguments: argparse.Namespace
) -> StartFindings:
    """End with the first start that has no result. Raises UsageError or LeverError."""
    planned, results = arguments.starts, list[StartFinding]()
    failed: int | None = None
    why = ""
    between_starts: list[int] = []
    with interruptions(between_starts):  # within a start others take the signals
        while failed is None and len(results) < planned:
            start = Start(len(results) + 1, planned)
            course = _Comparing(arguments, start, known)
            found = _result(training, course, start)
            if isinstance(found, StartFinding):
                results.append(found)
                if planned > 1 and not arguments.quiet:
                    complain(f"{start.name}: {found.told}")
                is_early = len(results) < planned or found.comparison.cut_short
                ends = found.interrupted or between_starts
                failed = Exit.INTERRUPTED if ends and is_early else None
            else:
                failed = found
                why = (course.comparison.failure if course.comparison is not None else "") or ""
    return StartFindings(results, planned, failed, why)


def _result(training: AskedTraining, course: _Comparing, start: Start) -> StartFinding | int:
    """Return the exit code if there is no result; why has been said then."""
    one = start.one_of_several
    try:
        ended = measure(training, course.arguments, course)
    except (GpudashError, LeverError) as error:
        if start.number == 1:
            raise
        complain(f"gpudash: no verdict in {one}: {error}")
        return error.exit if isinstance(error, GpudashError) else Exit.REFUSED
    comparison = course.comparison
    if comparison is None:
        return ended.without("verdict", start=one)
    if ended.interrupted:
        comparison.cancel("interrupted")
    if not comparison.is_whole and (comparison.verdict is None or ended.failed is not None):
        code = Exit.REFUSED if comparison.refused else Exit.FAILED
        return ended.without("verdict", comparison.failure, code, start=one)
    if ended.interrupted and comparison.cut_short and one:
        complain(f"gpudash: {one} was interrupted and does not count")
        return Exit.INTERRUPTED
    return StartFinding(comparison, ended.snapshot, ended.interrupted)


def conclude(
    found: StartFindings, arguments: argparse.Namespace, *, holds: bool | None = None
) -> int:
    results, failed = found.results, found.failed
    if not results:
        return Exit.FAILED if failed is None else failed
    shown = found.shown
    if arguments.json or shown.verdict is not None:
        text = "\n".join(lines(found, arguments.price))
        following = after_lever(found.found, arguments, holds=holds) if arguments.json else None
        report = replace(document(found, arguments.price), holds=holds, next=following)
        say_found(report, text, as_json=arguments.json)
    if shown.verdict is not None:
        write_card(shown, results[-1].snapshot, arguments, starts=len(results))
    else:
        complain(
            f"gpudash: no verdict over starts: it needs {FEWEST_STARTS}; "
            f"the only one says: {results[0].told}"
        )
    if failed is not None:
        return failed
    return exit_code(found.found) if arguments.exit_code else Exit.DONE
