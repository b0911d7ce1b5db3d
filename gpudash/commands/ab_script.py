"""`gpudash ab … -- train.py`: a comparison in a training of the user's."""

import argparse
from collections.abc import Iterable

from msgspec.structs import replace

from gpudash.commands.ab import check_two, conclude, of_instruments, progress_line
from gpudash.commands.headless_script import HeadlessScript
from gpudash.commands.plan import check_with_command
from gpudash.commands.stdout import complain
from gpudash.compare.ab import Comparison, Question
from gpudash.errors import Exit, UsageError
from gpudash.offers import lever_of
from gpudash.protocol import LeverOffer
from gpudash.run.session import Session
from gpudash.run.user_command import understand
from workloads.levers import LeverError
from workloads.nearest import not_valid


def main(arguments: argparse.Namespace) -> int:
    """Start the command, compare, end it. Returns the exit code: its own where it fails first."""
    _check(arguments)
    command = understand(arguments.user_command)
    script = HeadlessScript(command, output_to_stderr=arguments.json)
    line = (lambda _: "") if arguments.quiet else progress_line
    with script.session(arguments) as session:
        trial = Trial(arguments, script, session)
        script.follow(session, trial.is_over, line)
    if trial.refusal is not None:
        raise trial.refusal
    assert script.source
    comparison = trial.comparison
    has_verdict = comparison is not None and comparison.verdict is not None
    code = None if has_verdict else script.own_failure("verdict")
    if code is not None:
        return code
    if comparison is None:
        why = "interrupted" if script.interrupted else script.source.why_no_step()
        complain(f"gpudash: no verdict: {why}")
        return Exit.INTERRUPTED if script.interrupted else Exit.FAILED
    return conclude(
        comparison,
        script.news.snapshot,
        interrupted=script.interrupted,
        as_json=arguments.json,
        exit_code=arguments.exit_code,
    )


class Trial:
    """The comparison, from when it is known what can be moved."""

    def __init__(
        self, arguments: argparse.Namespace, script: HeadlessScript, session: Session
    ) -> None:
        self._arguments, self._script, self._session = arguments, script, session
        self.comparison: Comparison | None = None
        self.refusal: UsageError | LeverError | None = None

    def is_over(self) -> bool:
        """Begin it once the training trains; tell whether the command is needed no longer."""
        source = self._script.source
        # another rank may have started before the one that offers
        if self.comparison is None and source is not None and source.offered is not None:
            try:
                self._begin(source.offered.levers)
            except (UsageError, LeverError) as error:
                self.refusal = error
        is_done = self.comparison is not None and self.comparison.done
        return is_done or self.refusal is not None or self._script.interrupted

    def _begin(self, offers: Iterable[LeverOffer]) -> None:
        question = question_of(self._arguments, offers)
        self.comparison = Comparison(question)
        self._session.conduct(self.comparison)


def question_of(arguments: argparse.Namespace, offers: Iterable[LeverOffer]) -> Question:
    """Return what is asked. Raises UsageError or LeverError for what cannot be moved."""
    question = of_instruments(arguments)
    if arguments.no_instruments:
        return question
    lever, a, b, rebuilds = _sides(arguments.lever, {offer.name: offer for offer in offers})
    return replace(question, lever=lever, a=a, b=b, short_runs=rebuilds)


def _sides(text: str, offers: dict[str, LeverOffer]) -> tuple[str, str, str, bool]:
    """Return lever, A, B, and whether each needs a short run of its own."""
    name, _, values = text.partition("=")
    if name not in offers:
        movable = [offer.name for offer in offers.values() if offer.refusal is None]
        raise UsageError(not_valid("lever", name, movable))
    offer = offers[name]
    if offer.refusal is not None:
        raise UsageError(f"lever {name} cannot be moved here: {offer.refusal}")
    a, b = (lever_of(offer).canonical(value) for value in values.split(","))
    return name, a, b, offer.effect != "next step"


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what is known to be wrong before the command is started."""
    check_with_command(arguments)
    if arguments.lever is not None:
        check_two(arguments.lever, arguments.lever.partition("=")[2].split(","))
