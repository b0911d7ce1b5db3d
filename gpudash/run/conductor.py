"""Has the training run an experiment's blocks, and says what comes of them."""

from collections.abc import Callable

from gpudash.compare.ab import Comparison
from gpudash.compare.experiment import Experiment
from gpudash.protocol import Block, ComparisonShown, Event, Reading, Started, Verdict


class Conductor:
    """Conducts one experiment at a time; a new one takes the place of the one before."""

    def __init__(
        self,
        send: Callable[[int, tuple[Block, ...]], None],
        say: Callable[[Event], None],
    ) -> None:
        """`send` sends blocks under the number of their run, `say` takes what was found."""
        self._send = send
        self._say = say
        self.run = 0
        """The number of the newest run of blocks."""
        self._experiment: Experiment | None = None
        self._waits = False  # for the worker to be ready
        self._shown: ComparisonShown | None = None

    def conduct(self, experiment: Experiment, started: Started | None) -> None:
        """Begin the experiment, as soon as the worker has `started`."""
        self._experiment, self._waits = experiment, True
        self._begin(experiment, started)
        self._show(experiment)

    def cancel(self, reason: str) -> None:
        """End a comparison; a sweep goes on with the next worker."""
        experiment = self._experiment
        if isinstance(experiment, Comparison):
            known = experiment.verdict
            experiment.cancel(reason)
            self._waits = False
            self._tell(experiment, known)

    def fold(self, item: Event | Reading, started: Started | None) -> None:
        """Take one record."""
        experiment = self._experiment
        if experiment is None:
            return
        if self._waits:
            self._begin(experiment, started)
            return
        known = experiment.verdict
        blocks = experiment.fold(item)
        if blocks is not None:
            self._send(self.run, blocks)
        self._tell(experiment, known)

    def _begin(self, experiment: Experiment, started: Started | None) -> None:
        if started is not None:
            self._waits = False
            self.run += 1
            self._send(self.run, experiment.begin(started, self.run))

    def _tell(self, experiment: Experiment, known: str | None) -> None:
        """Show it, and say its verdict unless that is known."""
        self._show(experiment)
        found = experiment.verdict
        if found is not None and found != known:
            self._say(Verdict(text=found))

    def _show(self, experiment: Experiment) -> None:
        shown = experiment.shown()
        if shown is not None and shown != self._shown:
            self._shown = shown
            self._say(shown)
