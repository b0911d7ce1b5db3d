"""The steps of a training: ends them where it is said that they are over, or begins them anew."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import get_ident
from typing import TypeAlias

from torch import Tensor

from ..instrument.loss import FIRST_STEPS
from ..levers.training_objects import modules_of
from .boundaries import Boundaries, Verdict
from .discovery import Discovery
from .follower import NOBODY, Follower
from .gradient_sync import GradientSync
from .grammar import Observer
from .hooked_methods import Tell
from .interruptions import Interruptions
from .learned_samples import LearnedSamples
from .loaders import Loaders
from .meter import UNSAID, Amounts, Meter, nothing
from .step_counts import StepCounts

LOOK_EVERY_IN_JOB_S = 0.06
"""Seconds between two looks with several ranks, where a slow one shows in its phases."""
IDLE_EVERY_S = 0.05

Handlers: TypeAlias = dict[str, Callable[..., bool | None]]
"""By event: what handles it, given the steps and what the event is about."""


class Steps:
    """What is known of the steps, in parts; what concerns several of them is done here."""

    def __init__(self, observer: Observer, tell: Tell) -> None:
        self.observer = observer
        self.meter = Meter()
        self.tell = tell
        self.reset()

    def reset(self, asides: Interruptions | None = None, feeds: Loaders | None = None) -> None:
        self.follower = Follower()
        self.boundaries = Boundaries()
        self.asides = asides or Interruptions()
        self.feeds = feeds or Loaders()
        self.findings = Discovery(self.tell)
        self.learned = LearnedSamples()
        self.sync = GradientSync(self.tell)
        self.meter.reset(self.follower, self.feeds, self.findings)
        self.held: StepCounts | None = None
        """From before the aside, maybe trained on after it."""
        self.is_saved = False
        """A checkpoint's file is there, and nothing has come since."""
        self.bare_backwards = 0
        """Backward passes since an optimizer stepped."""
        self.is_new_cell = False
        """No optimizer has stepped since a notebook's cell ended."""
        self.scaled: tuple[int, Tensor] | None = None
        """The id of a scaled loss, and the loss."""
        self._idle_s = 0.0

    def begin_anew(self) -> None:
        """Forget the training before: the optimizer that begins to step is another one's."""
        self.observer.begins_anew()
        self.findings.end()
        tally = self.meter.tally
        self.reset(self.asides, self.feeds)
        self.meter.tally, self.asides.why = tally, None
        self.follower.thread, self.follower.optimizers = get_ident(), 1
        self.feeds.begin_anew()

    def finish(self) -> None:
        """Close the steps that are over but not closed yet: the training is over."""
        self.go_on()
        self.stop_skipping()
        if self.follower.is_here:
            self.no_more_comes()
        if self.meter.mode.is_skipping:  # on another thread
            self.meter.leave_counted()
        self.meter.tell_untimed(self.meter.tally)

    def give_up(self) -> None:
        """Follow nothing any more, but tell once where a step last ended: levers are put back."""
        follower, meter = self.follower, self.meter
        follower.failed_thread, follower.thread = follower.thread, NOBODY
        meter.counting.thread, meter.mark, follower.optimizers = None, nothing, 0
        meter.mode = replace(meter.mode, is_on=False, wants_calls=False)
        with suppress(Exception):
            self.sync.pass_ends()

    def restore_at_border(self, key: int | None) -> None:
        """Let the observer put levers back, once, where a step last ended."""
        follower = self.follower
        if get_ident() == follower.failed_thread and key == follower.closed_by:
            follower.failed_thread = None
            with suppress(Exception):
                self.observer.border(self.meter.steps)

    def obey(self, says: Verdict) -> None:
        if says == "ends":
            self.close()
        elif says == "may end":
            self.meter.split()
        elif says == "joins":
            self.meter.join()
        elif says == "had ended":
            self._learn(self.meter.end_at_split())
        elif says == "one more":
            self.meter.counting.steps += 1
        elif says == "late":
            self.meter.enter("has updated")
            self.asides.is_between |= self.boundaries.state != "declared"

    def no_more_comes(self) -> bool:
        """Return whether the step has ended by that."""
        says = self.boundaries.feed("no more comes")
        self.obey(says)
        return says == "had ended"

    def close(self, said: Amounts = UNSAID) -> None:
        """End the step here, before anything of the next one has begun."""
        self.meter.counting.steps += 1
        by_passes = self.boundaries.state == "passes"
        self.follower.closed_by = None if by_passes else self.follower.newest_optimizer
        self._end(said)

    def skip(self) -> None:
        """Count a step without measuring it, until one is due to be measured."""
        meter = self.meter
        meter.counting.steps += 1
        meter.counting.next_begun = False
        if meter.steps == meter.border_at or meter.is_look_due(meter.steps + 1):
            self._end()

    def stop_skipping(self) -> bool:
        """Measure steps in full again; return whether what comes is within a step."""
        if not self.meter.mode.is_skipping or not self.follower.is_here:
            return False
        steps, began = self.meter.steps, self.meter.counted_from
        is_partial = self.meter.stop_counting()
        if steps > began:
            self.asides.border()
        return is_partial

    def _end(self, said: Amounts = UNSAID) -> None:
        meter, tally, mode = self.meter, self.meter.tally, self.meter.mode
        meter.tally = StepCounts()
        self.learned.reset()
        if mode.is_skipping:
            meter.put_hooks_in()
        else:
            self._learn(tally)
        meter.counting.thread = None
        self.asides.border()
        followed, self.follower.thread = self.follower.thread, NOBODY  # ignore what we do now
        try:
            meter.end(tally, said)
            if self.findings.is_news or self.sync.is_news:
                self._report_findings(tally)
            if not mode.is_timed:
                meter.tell_untimed(tally)
            self.observer.border(meter.steps)
        finally:
            self.follower.thread = followed
            if not mode.is_timed:
                meter.interrupt()
            # one step in full shows whether those after it are plain
            was_whole = mode.is_timed == meter.active and not mode.is_skipping
            meter.open(is_on=meter.active, skips=was_whole and self._may_skip())

    def _learn(self, tally: StepCounts) -> None:
        mode = self.meter.mode
        if mode.is_on:
            self.findings.learn(tally, timed=mode.is_timed)
            self.sync.step_ends(tally.moved if mode.is_timed else None)

    def _report_findings(self, tally: StepCounts) -> None:
        found = self.findings.found(tally.loss, self.feeds, self.boundaries.state)
        if found.world_size > 1:
            self.meter.look_every_s = LOOK_EVERY_IN_JOB_S
            self.sync.update(modules_of(found.roots))
            found = found._replace(unmeasured=self.sync.unmeasured(), averages=self.sync.averages)
        self.meter.begin(found.device)
        self.observer.found(found)

    def _may_skip(self) -> bool:
        meter, known, state = self.meter, self.findings, self.boundaries.state
        if state == "declared" or meter.steps < meter.closely_until:
            return False
        if meter.active and (not meter.may_skip or meter.steps < FIRST_STEPS):
            return False  # the loss of each first step is read
        follower = self.follower
        steps_alike = meter.is_plain and len(known.optimizers) == 1 and not follower.has_closure
        return (
            steps_alike
            and not ("scaler" in known.facts or known.graphs or state == "passes")
            and not follower.backwards
            and not meter.is_look_due(meter.steps + 2)  # else one alone would be counted
        )

    # ── what is no part of a step ───────────────────────────────────────────────────────

    def restart(self, held: StepCounts | None = None) -> None:
        self.meter.tally, self.held = held or StepCounts(), None
        self.meter.restart()
        self.idle(time.monotonic())

    def to_train_on(self) -> StepCounts | None:
        held = None if self.asides.is_foreign else self.meter.tally.of_batches()
        if held is not None:
            held.data_s = held.data_cpu_s = held.start_s = 0.0  # its time begins after the aside
        return held

    def turn_aside(self, held: StepCounts | None = None) -> None:
        self.observer.aside(self.asides.why)
        self.restart()
        self.held = held

    def go_on(self) -> None:
        """End a checkpoint: what the script did since, such as a flush to disk, is part of it."""
        if self.is_saved and self.follower.is_here:
            self.is_saved = False
            self.asides.saved()
            self.observer.aside(None)
            self.restart(self.held)

    def idle(self, now: float) -> None:
        """Let the observer do what is due, where no step may come for long."""
        if now < self._idle_s:
            return
        self._idle_s = now + IDLE_EVERY_S
        followed, self.follower.thread = self.follower.thread, NOBODY
        try:
            self.observer.idle()
        finally:
            self.follower.thread = followed
