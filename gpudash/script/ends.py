"""Ends the step in progress, or begins it anew: what its boundaries and asides say is done here."""

import time
from threading import get_ident

from .boundaries import Verdict
from .step_counts import StepCounts, total
from .steps import NOBODY, Steps

IDLE_EVERY_S = 0.05


class EndedSteps(Steps):
    """Ends steps where it is said that they are over."""

    def reset(self) -> None:
        super().reset()
        self._before_split = StepCounts()
        self._held: StepCounts | None = None  # from before the aside, maybe trained on after
        self._idle_s = 0.0

    def finish(self) -> None:
        """Close the steps that are over but not closed yet: the training is over."""
        self._stop_skipping()
        if get_ident() == self._thread:
            self._no_more_comes()
        if self.mode.is_skipping:  # on another thread
            samples = self._samples_of_counted()
            self.samples = total(self.samples, samples)
            self._leave_untimed(samples, self._tokens_of_counted())
        self._tell_untimed(self._tally)

    def _obey(self, says: Verdict) -> None:
        if says == "ends":
            self._close()
        elif says == "may end":
            self._split()
        elif says == "joins":
            self._join()
        elif says == "had ended":
            self._close_at_split()
        elif says == "one more":
            self.counting.steps += 1
        elif says == "late":
            self._enter("has updated")
            self._asides.is_between |= self._boundaries.state != "declared"

    def _no_more_comes(self) -> bool:
        """Return whether the step has ended by that."""
        says = self._boundaries.feed("no more comes")
        self._obey(says)
        return says == "had ended"

    def _split(self) -> None:
        self._before_split, self._tally = self._tally, StepCounts()
        if self.mode.is_timed:
            assert self.clock is not None
            self._mark = self.clock.split()
            self._begin_phases()

    def _join(self) -> None:
        self._before_split.add(self._tally)
        self._tally = self._before_split
        if self.mode.is_timed:
            assert self.clock is not None
            self._mark = self.clock.join()

    def _close_at_split(self) -> None:
        self.counting.steps += 1
        tally = self._before_split
        if self.mode.is_on:
            self._findings.learn(tally, timed=self.mode.is_timed)
            self._gradient_sync.step_ends(tally.moved if self.mode.is_timed else None)
        samples, tokens = self._count_samples(tally), self._tokens(tally)
        if self.mode.is_timed:
            self._time(tally, samples, tokens, at_split=True)
        else:
            self._leave_untimed(samples, tokens)

    def _close(self, samples: int | None = None, tokens: int | None = None) -> None:
        """End the step here, before anything of the next one has begun."""
        self.counting.steps += 1
        by_passes = self._boundaries.state == "passes"
        self._closed_by = None if by_passes else self._newest_optimizer
        self._end_step(samples, tokens)

    # ── what is no part of a step ───────────────────────────────────────────────────────

    def _restart(self, held: StepCounts | None = None) -> None:
        self._tally, self._held = held or StepCounts(), None
        self._retime()
        now = time.monotonic()
        if now >= self._idle_s:
            self._idle(now)

    def _retime(self) -> None:
        if self.mode.is_timed:
            assert self.clock is not None
            self.clock.interrupt()
            self._mark = self.clock.begin()
            self._begin_phases()

    def _to_train_on(self) -> StepCounts | None:
        held = None if self._asides.is_foreign else self._tally.of_batches()
        if held is not None:
            held.data_s = 0.0  # its time begins after the aside
        return held

    def _turn_aside(self, held: StepCounts | None = None) -> None:
        self._observer.aside(self._asides.why)
        self._restart()
        self._held = held

    def _resume(self) -> None:
        if self._asides.ended_by_call:
            self._restart(self._held)
        self._observer.aside(None)

    def _idle(self, now: float) -> None:
        self._idle_s = now + IDLE_EVERY_S
        followed, self._thread = self._thread, NOBODY
        try:
            self._observer.idle()
        finally:
            self._thread = followed
