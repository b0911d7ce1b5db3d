"""`gpudash ab … -- train.py`: compare two values of a lever in the user's training."""

import argparse
from collections.abc import Iterable

from msgspec.structs import replace

from gpudash.cli.ab_verdict import check_two, conclude, of_instruments, progress_line
from gpudash.cli.headless_script import HeadlessScript
from gpudash.cli.plan import check_with_command
from gpudash.cli.stdout import complain
from gpudash.compare.ab import Comparison, Question
from gpudash.errors import Exit, UsageError
from gpudash.offers import lever_of
from gpudash.protocol.training import LeverOffer
from gpudash.run.session import Session
from gpudash.run.user_command import understand
from workloads.levers import LeverError
from workloads.nearest import not_valid


def main(arguments: argparse.Namespace) -> int:
    """Start the command, compare, end it; return the exit code, or the command's if it fails."""
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
    return conclude(comparison, script.news.snapshot, arguments, interrupted=script.interrupted)


class Trial:
    """Begins the comparison once the training has offered its levers."""

    def __init__(
        self, arguments: argparse.Namespace, script: HeadlessScript, session: Session
    ) -> None:
        self._arguments, self._script, self._session = arguments, script, session
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
        return is_done or self.refusal is not None or self._script.interrupted

    def _begin(self, offers: Iterable[LeverOffer]) -> None:
        question = question_of(self._arguments, offers)
        self.comparison = Comparison(question)
        self._session.conduct(self.comparison)


def question_of(arguments: argparse.Namespace, offers: Iterable[LeverOffer]) -> Question:
    """Return the question. Raises UsageError or LeverError if the lever cannot be moved."""
    question = of_instruments(arguments)
    if arguments.no_instruments:
        return question
    lever, a, b, rebuilds = _sides(arguments.lever, {offer.name: offer for offer in offers})
    return replace(question, lever=lever, a=a, b=b, short_runs=rebuilds)


def _sides(text: str, offers: dict[str, LeverOffer]) -> tuple[str, str, str, bool]:
    """Return lever, A, B, and whether each value needs a short run of its own."""
    name, _, values = text.partition("=")
    if name not in offers:
        movable = [offer.name for offer in offers.values() if offer.refusal is None]
        raise UsageError(not_valid("lever", name, movable))
    offer = offers[name]
    if offer.refusal is not None:
        raise UsageError(f"lever {name} cannot be moved here: {offer.refusal}")
    for value, why in offer.impossible:
        if value in values.split(","):
            raise UsageError(f"lever {name} cannot be moved to {value} here: {why}")
    a, b = (lever_of(offer).canonical(value) for value in values.split(","))
    return name, a, b, offer.effect != "next step"


def _check(arguments: argparse.Namespace) -> None:
    """Raise for arguments that are known to be wrong before the command starts."""
    check_with_command(arguments)
    if arguments.lever is not None:
        check_two(arguments.lever, arguments.lever.partition("=")[2].split(","))
