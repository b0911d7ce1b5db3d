"""Run an experiment in blocks on the training: a comparison, sweep, tune, or proof by slowing."""

from collections.abc import Callable
from typing import Protocol

from gpudash.compare.ab import Comparison
from gpudash.compare.block_trial import BlockTrial
from gpudash.compare.tune.tuning import Tuning
from gpudash.protocol.commands import Block
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.session import ComparisonShown, Notice, SlowingShown, Verdict
from gpudash.protocol.training import State
from workloads.levers import phrase


class Experiment(Protocol):
    """Chooses blocks. Only the session's thread calls it; any thread may read `done`."""

    done: bool
    """Whether no block of it is running or left."""
    verdict: str | None
    """The verdict; None until there is one."""

    def begin(self, state: State, run: int, /) -> tuple[Block, ...]:
        """Return the blocks that the worker in this state runs under this run number, if any."""

    def fold(self, item: Event | Reading, /) -> tuple[Block, ...] | None:
        """Return blocks to run instead; an empty tuple ends the run, None changes nothing."""

    def shown(self) -> ComparisonShown | SlowingShown | None:
        """Return the experiment's state for the screen; None if it shows none."""


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
        """Return None if no comparison was running. A sweep goes on with the next worker."""
        experiment = self._experiment
        if not isinstance(experiment, BlockTrial) or experiment.is_over:
            return None
        experiment.cancel(reason)
        self._waits = False
        self._report(experiment, None)
        if isinstance(experiment, Tuning) and experiment.leader:
            so_far = f"; the best so far, not proven: {phrase(experiment.leader)}"
            return f"tune: {experiment.verdict or f'{experiment.failure}{so_far}'}"
        if isinstance(experiment, Comparison) and experiment.failure is not None:
            return f"A/B: no verdict for {experiment.question.name}: {experiment.failure}"
        return f"{experiment.name}: {experiment.verdict or experiment.failure or reason}"

    def fold(self, item: Event | Reading, state: State | None) -> None:
        experiment = self._experiment
        if experiment is None:
            return
        if self._waits:
            self._begin(experiment, state)
            return
        known = experiment.verdict
        blocks = experiment.fold(item)
        if blocks is not None:
            self._send(self.run, blocks)
        self._report(experiment, known)

    def _begin(self, experiment: Experiment, state: State | None) -> None:
        if state is not None and state.process is not None:
            self._waits = False
            self.run += 1
            self._send(self.run, experiment.begin(state, self.run))

    def _report(self, experiment: Experiment, known: str | None) -> None:
        self._show(experiment)
        for line in experiment.news() if isinstance(experiment, Tuning) else ():
            self._emit(Notice(text=line))
        found = experiment.verdict
        if found is not None and found != known:
            self._emit(Verdict(text=found))

    def _show(self, experiment: Experiment) -> None:
        shown = experiment.shown()
        if shown is not None and shown != self._shown:
            self._shown = shown
            self._emit(shown)
