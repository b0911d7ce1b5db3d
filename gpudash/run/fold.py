"""Fold a run's messages into its views, alike for a session and for a replay."""

from collections.abc import Callable

from msgspec.structs import replace

from gpudash.protocol import Envelope, Event, Hello, Plan, Reading
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

    def stamp(self, envelope: Envelope) -> Envelope | None:
        """Return a message in terms of the run, for the methods below; None for a repeat."""
        return self._normaliser.take(envelope)

    def stamp_own(self, envelope: Envelope) -> Envelope:
        """Return a message of the session itself in terms of the run, for the methods below."""
        return self._normaliser.take_own(envelope)

    def take(self, envelope: Envelope) -> Event | Reading | None:
        """Fold a stamped message into the rank views; return it for `fold`.

        None if the other views do not use it: of another rank, or the Hello of a source beside the
        training.
        """
        self.ranks.take(envelope)
        self._job_steps.take(envelope)
        is_beside = isinstance(envelope.body, Hello) and envelope.source != "training"
        return None if envelope.rank or is_beside else envelope.body

    def fold(self, item: Event | Reading) -> None:
        """Fold a message of rank 0 into its views and those of the job."""
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
