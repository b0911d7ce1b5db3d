"""Fold a run's messages into its views, alike for a session and for a replay."""

from collections.abc import Callable
from math import inf

from msgspec.structs import replace

from gpudash.diagnosis.answer import LOOK_S, Answers
from gpudash.diagnosis.limits import Limits
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Hello, Progress
from gpudash.ranks.normalise import Normaliser
from gpudash.ranks.slow_rank import Stragglers
from gpudash.snapshot import Hang, Snapshot
from gpudash.trace.summary import Summary
from gpudash.views.live import LiveView
from gpudash.views.time_breakdown import TimeAccount

MOST_RANKS = 1024
"""Ranks beyond are ignored: nobody reads so many rows, and each costs time."""


class Fold:
    """The views of a run; takes the messages of all ranks in order of arrival."""

    def __init__(
        self, plan: Plan, began_s: float, notify: Callable[[str], None] = lambda _sentence: None
    ) -> None:
        self.live = LiveView(plan, began_s)
        self._notify = notify
        self._passed_over = False  # there are more ranks than can be followed
        self.stragglers = Stragglers()
        self.time = TimeAccount()
        self.limits = Limits()
        self._answers = Answers()
        self._look_s = began_s + LOOK_S
        self._said: AnswerShown | None = None
        self._profiled: tuple[str, Settings, Summary] | None = None
        self._normaliser = Normaliser()

    def stamp(self, envelope: Envelope) -> Envelope | None:
        """Return a message in terms of the run, for the methods below; None for a repeat."""
        return self._normaliser.take(envelope)

    def stamp_own(self, envelope: Envelope) -> Envelope:
        if isinstance(envelope.body, AnswerShown):
            self._said = envelope.body
        return self._normaliser.take_own(envelope)

    def take(self, envelope: Envelope) -> None:
        rank, body = envelope.rank, envelope.body
        is_beside = isinstance(body, Hello) and envelope.source != "training"
        if is_beside or self._is_beyond(rank):
            return
        if isinstance(body, AnswerShown) and body is not self._said:
            self._answers.tell(body.answer)  # a recording's
        if isinstance(body, Progress) and not rank and body.until_s >= self._look_s:
            self.snapshot(body.until_s)
        self.stragglers.take(rank, body)
        self.live.take(envelope)
        if not rank:
            self.time.fold(body)
            self.limits.fold(body, self._answers.newest)

    def deepen(self, workload: str, settings: Settings, summary: Summary) -> None:
        """Rest the answer on the newest profile as long as these settings hold."""
        self._profiled = workload, settings, summary

    def snapshot(self, now_s: float, hang: Hang | None = None) -> Snapshot:
        shown = self.live.snapshot(now_s, hang)
        snapshot = replace(
            shown,
            straggler=self.stragglers.straggler,
            are_compared=self.stragglers.are_compared,
        )
        self._look_s = inf if self._answers.is_told else now_s + LOOK_S
        self._answers.look(snapshot, snapshot.usable_cores, self._profile_of(snapshot))
        return replace(snapshot, answer=self._answers.newest)

    def unsaid(self, at_s: float) -> AnswerShown | None:
        newest, said = self._answers.newest, self._said
        is_said = said is not None and said.answer is newest
        return None if is_said else AnswerShown(at_s=at_s, answer=newest)

    @property
    def steps_per_s(self) -> float | None:
        """The newest worker's rate without its first step; None before the second step."""
        return self.live.ranks.lead.whole_run.per_s("steps")

    def _is_beyond(self, rank: int) -> bool:
        if rank >= MOST_RANKS and not self._passed_over:
            self._passed_over = True
            most = f"{MOST_RANKS:,}"
            self._notify(f"more than {most} ranks train: gpudash follows the first {most}")
        return rank >= MOST_RANKS

    def _profile_of(self, snapshot: Snapshot) -> Summary | None:
        if self._profiled is None:
            return None
        workload, settings, summary = self._profiled
        return summary if (workload, settings) == (snapshot.workload, snapshot.settings) else None
