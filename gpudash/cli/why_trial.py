"""`gpudash why`: measure a training until its answer is known, and print it."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import asdict

from gpudash.cli.headless import News, complain_of_failure, follow, training_session
from gpudash.cli.measured_script import MeasuredScript
from gpudash.cli.plan import check_with_command, make_plan
from gpudash.cli.stdout import complain, say, say_json
from gpudash.compare.slowing import MOST_S
from gpudash.diagnosis.headline import answer_lines
from gpudash.diagnosis.report import AnswerReport, report_of
from gpudash.errors import Exit
from gpudash.protocol.answer import Answer
from gpudash.protocol.records import Settings
from gpudash.protocol.session import SlowingShown
from gpudash.protocol.training import Failed
from gpudash.run.child import scratch_folder
from gpudash.run.code_looks import is_wanted
from gpudash.run.session import Session
from gpudash.run.user_command import understand
from gpudash.snapshot import ENDED, Snapshot, silence
from gpudash.trace.accounting import summarise
from gpudash.trace.read import read

PROFILED_STEPS = 10
SETTLE = 10
"""Looks at the news after a rehearsal, until the answer has its figures."""
PATIENCE_S = 60.0
"""Seconds to wait for a step."""


class WhyReport(AnswerReport, frozen=True, kw_only=True):
    """What `gpudash why --json` prints. None = not measured."""

    schema_version: int = 1
    workload: str
    device: str | None
    settings: Settings


def main(arguments: argparse.Namespace) -> int:
    with TemporaryDirectory(prefix="gpudash-", dir=scratch_folder()) as folder:
        trace = Path(folder) / "why.trace.json"
        return (_of_script if arguments.user_command else _of_workload)(arguments, trace)


class Why:
    """Waits for the answer; profiles and slows first, if that is asked."""

    def __init__(
        self, session: Session, news: News, arguments: argparse.Namespace, trace: Path
    ) -> None:
        self._session, self._news = session, news
        self._course = self._follow(arguments, trace)
        self._doing = "warming up"
        self._is_done = False
        self.known = Snapshot()
        """The newest one with an answer."""
        self.failure = ""
        """Why something was not found, as a clause."""

    def is_over(self) -> bool:
        """Do what comes next; return whether the training may end."""
        snapshot = self._news.snapshot
        if snapshot.answer is not None:
            self.known = snapshot
        if (snapshot.quiet_s or 0.0) > PATIENCE_S:
            self.failure = f"no step has ended for {PATIENCE_S:.0f} s; gpudash doctor may tell why"
        self._is_done = self.failure != "" or next(self._course, True)
        return self._is_done

    def why_incomplete(self, ended: str, own: Failed | None) -> str:
        """Return an empty text if all was found; `own` is how gpudash failed."""
        if own is not None and own.kind == "error":
            return own.sentence
        return self.failure or ("" if self._is_done else f"{ended} while {self._doing}")

    def line(self, snapshot: Snapshot) -> str:
        if snapshot.state in ENDED:
            return ""
        doing = self._doing if snapshot.state == "training" else snapshot.status
        return ", ".join([f"{snapshot.workload}: {doing}", *silence(snapshot)])

    def _follow(self, arguments: argparse.Namespace, trace: Path) -> Iterator[bool]:
        news = self._news
        while not news.snapshot.total_steps:
            yield False
        self._doing = "measuring"
        until_s = news.snapshot.elapsed_s + arguments.seconds
        while news.snapshot.answer is None or news.snapshot.elapsed_s < until_s:
            yield False
        while is_wanted(news.snapshot) and news.snapshot.code is None:
            self._doing = "looking where your code is"
            yield False
        yield from self._rehearse()
        if arguments.with_profile:
            yield from self._profile(trace)
        if arguments.prove and not self.failure:
            yield from self._prove()

    def _rehearse(self) -> Iterator[bool]:
        """Time the levers that no model foretells, on one batch."""
        news, self._doing = self._news, "rehearsing levers"
        if news.snapshot.found:  # levers of a workload have a range without it
            self._session.rehearse()
            while news.snapshot.rehearsed is None:
                yield False
            for _ in range(SETTLE):
                yield False

    def _profile(self, trace: Path) -> Iterator[bool]:
        news = self._news
        if "profile" not in news.snapshot.can:
            self.failure = "this training cannot be profiled"
            return
        self._doing = f"profiling {PROFILED_STEPS} steps"
        asked = self._session.profile(PROFILED_STEPS, trace)
        while news.snapshot.last_command < asked or news.snapshot.profiling:
            yield False
        self.failure = news.snapshot.profile_refusal
        if self.failure:
            return
        before, summary = news.snapshot.answer, summarise(read(trace))
        self._session.deepen(*news.snapshot.profile_of, summary)
        while news.snapshot.answer in (None, before):
            yield False

    def _prove(self) -> Iterator[bool]:
        news = self._news
        answer = news.snapshot.answer
        step_ms = answer.step_ms if answer is not None else news.snapshot.step_ms_p50
        if step_ms is None:
            self.failure = "the duration of a step is not known"
            return
        asked = self._session.slow(step_ms)
        while news.snapshot.last_command < asked or (shown := news.snapshot.slowing) is None:
            yield False
        complain(_expectation(shown))
        while (shown := news.snapshot.slowing) is not None and not shown.is_over:
            self._doing = f"slowing one part after another, round {shown.rounds + 1}"
            yield False
        self._doing = "measuring again"
        while (answer := news.snapshot.answer) is None or not answer.slopes:
            yield False


def _expectation(shown: SlowingShown) -> str:
    if shown.expected_s is None or shown.expected_s <= MOST_S:
        return f"slowing takes up to {MOST_S:.0f} s"
    return (
        f"slowing ends after {MOST_S:.0f} s, and needs about {shown.expected_s:.0f} s: "
        "its slopes may stay unknown"
    )


def _of_workload(arguments: argparse.Namespace, trace: Path) -> int:
    plan = make_plan(arguments)
    with training_session(arguments, plan) as session:
        news = News(quiet=arguments.quiet)
        why = Why(session, news, arguments, trace)
        interrupted = follow(session, news, why.line, why.is_over)
        if session.failure is not None and why.known.answer is None:
            return complain_of_failure(session.failure)
        failure = session.failure
    return _conclude(why, arguments, "the training ended", failure, interrupted=interrupted)


def _of_script(arguments: argparse.Namespace, trace: Path) -> int:
    check_with_command(arguments)
    command = understand(arguments.user_command)
    script = MeasuredScript(command, output_to_stderr=arguments.json)
    with script.session(arguments) as session:
        why = Why(session, script.news, arguments, trace)
        line = (lambda _: "") if arguments.quiet else why.line
        script.measure(session, why.is_over, line)
        failure = session.failure
    source = script.source
    assert source
    failed = None if why.known.answer is not None else script.own_failure("answer")
    if failed is not None:
        return failed
    ended = source.why_no_more()
    return _conclude(why, arguments, ended, failure, interrupted=script.interrupted)


def _conclude(
    why: Why,
    arguments: argparse.Namespace,
    ended: str,
    failure: Failed | None,
    *,
    interrupted: bool,
) -> int:
    answer = why.known.answer
    if answer is None:
        why_not = "interrupted" if interrupted else why.why_incomplete(ended, failure) or ended
        complain(f"gpudash: no answer: {why_not}")
        return Exit.INTERRUPTED if interrupted else Exit.FAILED
    if arguments.json:
        say_json(report(why.known, answer))
    else:
        say("\n".join(answer_lines(why.known, answer)))
    if interrupted:
        return Exit.INTERRUPTED
    incomplete = why.why_incomplete(ended, failure)
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
