"""`gpudash why`: measure a training until its answer is known, and print it."""

import argparse
import shlex
from collections.abc import Iterator
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import asdict

from gpudash.cli.following import untried
from gpudash.cli.keeping import attempts_of
from gpudash.cli.measure import PATIENCE_S, Course, Ended, measure, training_of
from gpudash.cli.stdout import complain, say_found
from gpudash.compare.slowing import MOST_S
from gpudash.diagnosis.headline import answer_lines
from gpudash.diagnosis.report import AnswerReport, report_of
from gpudash.errors import Exit, UsageError
from gpudash.format import steps
from gpudash.protocol.answer import Answer, Try
from gpudash.protocol.commands import Plan
from gpudash.protocol.records import Settings
from gpudash.protocol.session import SlowingShown
from gpudash.run.child import scratch_folder
from gpudash.run.code_looks import is_wanted
from gpudash.snapshot import Snapshot
from gpudash.trace.accounting import summarise
from gpudash.trace.read import read

PROFILED_STEPS = 10
PROOF_S = 90.0
"""What a proof has beside the budget: it slows for `MOST_S`, and measures again."""
NO_TIME = "there was no time to trace steps"
SETTLE = 10
"""Looks at the news after a rehearsal, until the answer has its figures."""


class WhyReport(AnswerReport, frozen=True, kw_only=True):
    """What `gpudash why --json` prints. None = not measured."""

    schema_version: int = 1
    workload: str
    device: str | None
    settings: Settings
    why_no_profile: str
    """A clause; empty if there is one, or none was to be made."""
    next: str | None
    """The command that tries the first proposal that was not tried yet; None without one."""


def main(arguments: argparse.Namespace) -> int:
    training = training_of(arguments)
    with TemporaryDirectory(prefix="gpudash-", dir=scratch_folder()) as folder:
        trace = Path(folder) / "why.trace.json"
        why = Why(arguments, trace)
        ended = measure(training, arguments, why)
    return _conclude(why, training.plan, arguments, ended)


class Why(Course):
    """Waits for the answer; profiles, and slows if that is asked, as far as the budget lasts."""

    patience_s = PATIENCE_S

    def __init__(self, arguments: argparse.Namespace, trace: Path) -> None:
        self._arguments, self._trace = arguments, trace
        self.budget_s: float = arguments.budget + PROOF_S * arguments.prove
        self._until_s = inf
        self._first = 0  # steps that had ended when the budget began
        self.known = Snapshot()
        """The newest one with an answer."""
        self.why_no_profile = "" if arguments.no_profile else NO_TIME

    def is_over(self) -> bool:
        now = self.news.snapshot
        if now.answer is not None:
            self.known = now
        if now.elapsed_s < self._until_s:
            return super().is_over()
        self.is_done = True
        if self.known.answer is None:
            count = now.total_steps - self._first
            finished = f"only {steps(count)}" if count else "no step"
            self.failure = f"{finished} was finished in {self.budget_s:g} s"
        else:
            complain(f"{self.budget_s:g} s were over while {self.doing}")
        return True

    def why_incomplete(self, ended: Ended) -> str:
        """Return an empty text if all was found."""
        if ended.failure is not None:
            return ended.failure.sentence
        missing = self.why_no_profile if self._arguments.with_profile else ""
        return self.failure or (missing if self.is_done else f"{ended.why} while {self.doing}")

    def stages(self) -> Iterator[bool]:
        news, arguments = self.news, self._arguments
        while not news.snapshot.total_steps:
            yield False
        self.doing = "measuring"
        began_s, self._first = news.snapshot.elapsed_s, news.snapshot.total_steps
        self._until_s = began_s + self.budget_s
        measured_s = began_s + min(arguments.seconds, arguments.budget / 2)
        while news.snapshot.answer is None or news.snapshot.elapsed_s < measured_s:
            yield False
        if not arguments.no_profile:
            yield from self._deepen()
        while is_wanted(news.snapshot) and news.snapshot.code is None:
            self.doing = "looking where your code is"
            yield False
        yield from self._rehearse()
        if arguments.prove and not self.failure:
            yield from self._prove()

    def _rehearse(self) -> Iterator[bool]:
        """Time the levers that no model foretells, on one batch."""
        news, self.doing = self.news, "rehearsing levers"
        if news.snapshot.found:  # levers of a workload have a range without it
            self.session.rehearse()
            while news.snapshot.rehearsed is None:
                yield False
            for _ in range(SETTLE):
                yield False

    def _deepen(self) -> Iterator[bool]:
        """Rest the answer on a profile, in half of what is left of the budget."""
        news = self.news
        left_ms = 1e3 * (self._until_s - news.snapshot.elapsed_s)
        fitting = int(left_ms / 2 / (news.snapshot.step_ms_p50 or 1.0))
        count = min(PROFILED_STEPS, fitting - 1)  # one before them has its flops counted
        if count < 1:
            return
        yield from self.profile(count, self._trace)
        self.why_no_profile, self.failure = self.failure, ""
        if self.why_no_profile:
            return
        try:
            summary = summarise(read(self._trace))
        except UsageError as error:
            self.why_no_profile = str(error)
            return
        before = news.snapshot.answer
        self.session.deepen(*news.snapshot.profile_of, summary)
        while news.snapshot.answer in (None, before):
            yield False

    def _prove(self) -> Iterator[bool]:
        news = self.news
        answer = news.snapshot.answer
        step_ms = answer.step_ms if answer is not None else news.snapshot.step_ms_p50
        if step_ms is None:
            self.failure = "the duration of a step is not known"
            return
        asked = self.session.slow(step_ms)
        while news.snapshot.last_command < asked or (shown := news.snapshot.slowing) is None:
            yield False
        complain(_expectation(shown))
        while (shown := news.snapshot.slowing) is not None and not shown.is_over:
            self.doing = f"slowing one part after another, round {shown.rounds + 1}"
            yield False
        self.doing = "measuring again"
        while (answer := news.snapshot.answer) is None or not answer.slopes:
            yield False


def _expectation(shown: SlowingShown) -> str:
    if shown.expected_s is None or shown.expected_s <= MOST_S:
        return f"slowing takes up to {MOST_S:.0f} s"
    return (
        f"slowing ends after {MOST_S:.0f} s, and needs about {shown.expected_s:.0f} s: "
        "its slopes may stay unknown"
    )


def _conclude(why: Why, plan: Plan, arguments: argparse.Namespace, ended: Ended) -> int:
    answer = why.known.answer
    if answer is None:
        return ended.without("answer", why.why_incomplete(ended))
    left = untried(answer.tries, attempts_of(arguments.user_command))
    following = next((shlex.join(_trying(one, plan, arguments)) for one in left), None)
    found = report(why.known, answer, why.why_no_profile, following)
    more = {"no profile": why.why_no_profile, "next": following}
    lines = [f"  {name}: {text}" for name, text in more.items() if text]
    text = "\n".join([*answer_lines(why.known, answer), *lines])
    say_found(found, text, as_json=arguments.json)
    if ended.interrupted:
        return Exit.INTERRUPTED
    incomplete = why.why_incomplete(ended)
    if incomplete:
        complain(f"gpudash: {incomplete}")
    return Exit.FAILED if incomplete else Exit.DONE


def _trying(first: Try, plan: Plan, arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the words of a command that tries a change of this training."""
    yield from ("gpudash", "ab", "--lever", f"{first.lever}={first.before},{first.value}")
    if plan.command:
        yield from arguments.user_command
        return
    yield from (arguments.workload, "--device", plan.device)
    yield from ("--nproc", str(plan.nproc)) * (plan.nproc > 1)
    for name, value in plan.settings.items():
        if name != first.lever:
            yield from ("--set", f"{name}={value}")


def report(
    snapshot: Snapshot, answer: Answer, why_no_profile: str, following: str | None
) -> WhyReport:
    return WhyReport(
        workload=snapshot.workload,
        device=snapshot.device.name if snapshot.device else None,
        settings=snapshot.settings,
        why_no_profile=why_no_profile,
        next=following,
        **asdict(report_of(answer)),
    )
