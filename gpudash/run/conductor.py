"""Run an experiment in blocks on the training: a comparison, sweep, tune, or proof by slowing."""

from collections.abc import Callable

from gpudash.compare.experiment import Experiment
from gpudash.protocol.commands import Block
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.session import ComparisonShown, Notice, SlowingShown
from gpudash.protocol.training import State


class Conductor:
    """Conducts one experiment at a time; a new one replaces the one before."""

    def __init__(
        self,
        send: Callable[[int, tuple[Block, ...]], None],
        emit: Callable[[Event], None],
    ) -> None:
        self._send = send
        self._emit = emit
        self.run = 0
        """The number of the newest run of blocks."""
        self._experiment: Experiment | None = None
        self._waits = False  # for the worker to be ready
        self._shown: ComparisonShown | SlowingShown | None = None

    def conduct(self, experiment: Experiment, state: State | None) -> None:
        self._experiment, self._waits = experiment, True
        self._begin(experiment, state)
        self._show(experiment)

    def cancel(self, reason: str) -> str | None:
        """Return what it has found; None if none was running."""
        experiment = self._experiment
        if experiment is None or experiment.is_over or experiment.done:
            return None
        experiment.cancel(reason)
        self._waits = False
        self._report(experiment)
        return experiment.ended(reason)

    def fold(self, item: Event | Reading, state: State | None) -> None:
        experiment = self._experiment
        if experiment is None:
            return
        if self._waits:
            self._begin(experiment, state)
            return
        blocks = experiment.fold(item)
        if blocks is not None:
            self._send(self.run, blocks)
        self._report(experiment)

    def _begin(self, experiment: Experiment, state: State | None) -> None:
        if state is not None and state.process is not None:
            self._waits = False
            self.run += 1
            self._send(self.run, experiment.begin(state, self.run))

    def _report(self, experiment: Experiment) -> None:
        self._show(experiment)
        for line in experiment.news():
            self._emit(Notice(text=line))

    def _show(self, experiment: Experiment) -> None:
        shown = experiment.shown()
        if shown is not None and shown != self._shown:
            self._shown = shown
            self._emit(shown)
