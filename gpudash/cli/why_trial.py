"""`gpudash why`: measure a training until its answer is known, and print it."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import asdict

from gpudash.cli.headless import News
from gpudash.cli.measure import PATIENCE_S, Course, Ended, measure, training_of
from gpudash.cli.stdout import complain, say, say_json
from gpudash.compare.slowing import MOST_S
from gpudash.diagnosis.headline import answer_lines
from gpudash.diagnosis.report import AnswerReport, report_of
from gpudash.errors import Exit
from gpudash.protocol.answer import Answer
from gpudash.protocol.records import Settings
from gpudash.protocol.session import SlowingShown
from gpudash.run.child import scratch_folder
from gpudash.run.code_looks import is_wanted
from gpudash.run.session import Session
from gpudash.snapshot import Snapshot
from gpudash.trace.accounting import summarise
from gpudash.trace.read import read

PROFILED_STEPS = 10
SETTLE = 10
"""Looks at the news after a rehearsal, until the answer has its figures."""


class WhyReport(AnswerReport, frozen=True, kw_only=True):
    """What `gpudash why --json` prints. None = not measured."""

    schema_version: int = 1
    workload: str
    device: str | None
    settings: Settings


def main(arguments: argparse.Namespace) -> int:
    training = training_of(arguments)
    with TemporaryDirectory(prefix="gpudash-", dir=scratch_folder()) as folder:
        trace = Path(folder) / "why.trace.json"
        why, ended = measure(
            training, arguments, lambda session, news: Why(session, news, arguments, trace)
        )
    return _conclude(why, arguments, ended)


class Why(Course):
    """Waits for the answer; profiles and slows first, if that is asked."""

    patience_s = PATIENCE_S

    def __init__(
        self, session: Session, news: News, arguments: argparse.Namespace, trace: Path
    ) -> None:
        super().__init__(session, news)
        self._arguments, self._trace = arguments, trace
        self.known = Snapshot()
        """The newest one with an answer."""

    def is_over(self) -> bool:
        if self.news.snapshot.answer is not None:
            self.known = self.news.snapshot
        return super().is_over()

    def why_incomplete(self, ended: Ended) -> str:
        """Return an empty text if all was found."""
        if ended.failure is not None:
            return ended.failure.sentence
        return self.failure or ("" if self.is_done else f"{ended.why} while {self.doing}")

    def stages(self) -> Iterator[bool]:
        news, arguments = self.news, self._arguments
        while not news.snapshot.total_steps:
            yield False
        self.doing = "measuring"
        until_s = news.snapshot.elapsed_s + arguments.seconds
        while news.snapshot.answer is None or news.snapshot.elapsed_s < until_s:
            yield False
        while is_wanted(news.snapshot) and news.snapshot.code is None:
            self.doing = "looking where your code is"
            yield False
        yield from self._rehearse()
        if arguments.with_profile:
            yield from self._deepen()
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
        news = self.news
        yield from self.profile(PROFILED_STEPS, self._trace)
        if self.failure:
            return
        before, summary = news.snapshot.answer, summarise(read(self._trace))
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


def _conclude(why: Why, arguments: argparse.Namespace, ended: Ended) -> int:
    answer = why.known.answer
    if answer is None:
        return ended.without("answer", why.why_incomplete(ended))
    if arguments.json:
        say_json(report(why.known, answer))
    else:
        say("\n".join(answer_lines(why.known, answer)))
    if ended.interrupted:
        return Exit.INTERRUPTED
    incomplete = why.why_incomplete(ended)
    if incomplete:
        complain(f"gpudash: {incomplete}")
    return Exit.FAILED if incomplete else Exit.DONE


def report(snapshot: Snapshot, answer: Answer) -> WhyReport:
    return WhyReport(
        workload=snapshot.workload,
        device=snapshot.device.name if snapshot.device else None,
        settings=snapshot.settings,
        **asdict(report_of(answer)),
    )
