"""The views of one run: a session and a replay fold the same messages into the same."""

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
    """Takes the messages of all ranks, in order of arrival."""

    def __init__(
        self, plan: Plan, began_s: float, notify: Callable[[str], None] = lambda _sentence: None
    ) -> None:
        """`notify` takes sentences for the user."""
        self.live = LiveView(plan, began_s)
        self.ranks = Ranks(notify)
        self.time = TimeAccount()
        self.whole_run = WholeRun()
        self._job_steps = JobSteps()
        self._normaliser = Normaliser()

    def take(self, envelope: Envelope) -> Event | Reading | None:
        """Take what a source sent; return it in terms of the run, for `fold`.

        None for what rank 0 does not say, and for what was sent before.
        """
        self._take_ranks(envelope)
        return self._normaliser.take(envelope)

    def take_own(self, envelope: Envelope) -> Event | Reading:
        """Take what the session itself says, which counts beside the sources; return it alike."""
        self._take_ranks(envelope)
        return self._normaliser.stamp(envelope.body)

    def fold(self, item: Event | Reading) -> None:
        """Show it in the views of rank 0, and of the job."""
        self.live.fold(self._job_steps.of_job(item))
        self.time.fold(item)
        self.whole_run.fold(item)

    def snapshot(self, now_s: float, hang: Hang | None = None) -> Snapshot:
        """Return what is to be shown at `now_s`, as far as messages tell."""
        return replace(
            self.live.snapshot(now_s, hang),
            ranks=self.ranks.rows(now_s, hang=hang is not None),
            straggler=self.ranks.straggler,
        )

    def _take_ranks(self, envelope: Envelope) -> None:
        self.ranks.take(envelope)
        self._job_steps.take(envelope)
