"""Fold a run's messages into its views, alike for a session and for a replay."""

from collections.abc import Callable
from math import inf

from msgspec.structs import replace

from gpudash.diagnosis.answer import Answers
from gpudash.diagnosis.limits import Limits
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Hello, Progress
from gpudash.ranks.job_steps import JobSteps
from gpudash.ranks.rows import Ranks
from gpudash.ranks.slow_rank import Stragglers
from gpudash.run.normalise import Normaliser
from gpudash.snapshot import Hang, Snapshot
from gpudash.trace.summary import Summary
from gpudash.views.live import LiveView
from gpudash.views.throughput import WholeRun
from gpudash.views.time_breakdown import TimeAccount
from workloads.standard_levers import usable_cores

MOST_RANKS = 1024
"""Ranks beyond are ignored: nobody reads so many rows, and each costs time."""
LOOK_S = 1.0
"""An answer that is in no recording is looked for as often, however fast that is folded."""


class Fold:
    """The views of a run; takes the messages of all ranks in order of arrival."""

    def __init__(
        self, plan: Plan, began_s: float, notify: Callable[[str], None] = lambda _sentence: None
    ) -> None:
        """`notify` receives sentences for the user."""
        self.live = LiveView(plan, began_s)
        self._notify = notify
        self._passed_over = False  # there are more ranks than can be followed
        self.ranks = Ranks()
        self.stragglers = Stragglers()
        self.time = TimeAccount()
        self.whole_run = WholeRun()
        self.limits = Limits()
        self._answers = Answers()
        self._look_s = began_s + LOOK_S
        self._said: AnswerShown | None = None
        self._profiled: tuple[str, Settings, Summary] | None = None
        self._job_steps = JobSteps()
        self._normaliser = Normaliser()

    def stamp(self, envelope: Envelope) -> Envelope | None:
        """Return a message in terms of the run, for the methods below; None for a repeat."""
        return self._normaliser.take(envelope)

    def stamp_own(self, envelope: Envelope) -> Envelope:
        """Return a message of the session itself in terms of the run, for the methods below."""
        if isinstance(envelope.body, AnswerShown):
            self._said = envelope.body
        return self._normaliser.take_own(envelope)

    def take(self, envelope: Envelope) -> Event | Reading | None:
        """Fold a stamped message into the rank views; return it for `fold`.

        None if the other views do not use it: of another rank, or the Hello of a source beside the
        training.
        """
        if isinstance(envelope.body, AnswerShown) and envelope.body is not self._said:
            self._answers.tell(envelope.body.answer)  # a recording's
        if envelope.rank >= MOST_RANKS:
            self._pass_over()
            return None
        self.stragglers.take(envelope.rank, envelope.body)
        self.ranks.take(envelope)
        self._job_steps.take(envelope)
        is_beside = isinstance(envelope.body, Hello) and envelope.source != "training"
        return None if envelope.rank or is_beside else envelope.body

    def fold(self, item: Event | Reading) -> None:
        """Fold a message of rank 0 into its views and those of the job."""
        if isinstance(item, Progress) and item.until_s >= self._look_s:
            self.snapshot(item.until_s)
        self.live.fold(self._job_steps.of_job(item))
        self.time.fold(item)
        self.whole_run.fold(item)
        self.limits.fold(item, self._answers.newest)

    def deepen(self, workload: str, settings: Settings, summary: Summary) -> None:
        """Take the newest profile: the answer rests on it as long as these settings hold."""
        self._profiled = workload, settings, summary

    def snapshot(self, now_s: float, hang: Hang | None = None) -> Snapshot:
        """Look for the answer; return the snapshot to show at `now_s`."""
        snapshot = replace(
            self.live.snapshot(now_s, hang),
            ranks=self.ranks.rows(now_s, hang=hang is not None),
            straggler=self.stragglers.straggler,
        )
        self._look_s = inf if self._answers.is_told else now_s + LOOK_S
        # a recording may be of another machine
        cores = usable_cores() if "record" in snapshot.can else None
        self._answers.look(snapshot, cores, self._profile_of(snapshot))
        return replace(snapshot, answer=self._answers.newest)

    def unsaid(self, at_s: float) -> AnswerShown | None:
        """Return the newest answer, unless a message of the session has said it."""
        newest, said = self._answers.newest, self._said
        is_said = said is not None and said.answer is newest
        return None if is_said else AnswerShown(at_s=at_s, answer=newest)

    def _pass_over(self) -> None:
        if not self._passed_over:
            self._passed_over = True
            most = f"{MOST_RANKS:,}"
            self._notify(f"more than {most} ranks train: gpudash follows the first {most}")

    def _profile_of(self, snapshot: Snapshot) -> Summary | None:
        """Return the summary of a profile with the present settings; None without one."""
        if self._profiled is None:
            return None
        workload, settings, summary = self._profiled
        return summary if (workload, settings) == (snapshot.workload, snapshot.settings) else None
