"""Fold a run's messages into its views, alike for a session and for a replay."""

from collections.abc import Callable

from msgspec.structs import replace

from gpudash.protocol import Envelope, Event, Plan, Reading
from gpudash.run.normalise import Normaliser
from gpudash.snapshot import Hang, Snapshot
from gpudash.views.job_steps import JobSteps
from gpudash.views.live import LiveView
from gpudash.views.ranks import Ranks
from gpudash.views.throughput import WholeRun
from gpudash.views.time_breakdown import TimeAccount


class Fold:
    """The views of a run; takes the messages of all ranks in order of arrival."""

    def __init__(
        self, plan: Plan, began_s: float, notify: Callable[[str], None] = lambda _sentence: None
    ) -> None:
        """`notify` receives sentences for the user."""
        self.live = LiveView(plan, began_s)
        self.ranks = Ranks(notify)
        self.time = TimeAccount()
        self.whole_run = WholeRun()
        self._job_steps = JobSteps()
        self._normaliser = Normaliser()

    def take(self, envelope: Envelope) -> Event | Reading | None:
        """Fold a source's message into the rank views; return it normalised, for `fold`.

        None for repeats, and for messages that are not rank 0's.
        """
        self._take_ranks(envelope)
        return self._normaliser.take(envelope)

    def take_own(self, envelope: Envelope) -> Event | Reading:
        """Fold a message of the session itself; return it normalised, for `fold`."""
        self._take_ranks(envelope)
        return self._normaliser.stamp(envelope.body)

    def fold(self, item: Event | Reading) -> None:
        """Fold a normalised message into the views of rank 0 and of the job."""
        self.live.fold(self._job_steps.of_job(item))
        self.time.fold(item)
        self.whole_run.fold(item)

    def snapshot(self, now_s: float, hang: Hang | None = None) -> Snapshot:
        """Return the snapshot to show at `now_s`."""
        return replace(
            self.live.snapshot(now_s, hang),
            ranks=self.ranks.rows(now_s, hang=hang is not None),
            straggler=self.ranks.straggler,
        )

    def _take_ranks(self, envelope: Envelope) -> None:
        self.ranks.take(envelope)
        self._job_steps.take(envelope)
