"""Times the steps of a training, each from the end of the one before to its own end.

On a GPU short steps are measured in full ten times a second. Those in between are only counted, and
timed together: measuring one, with its report, takes 0.4 ms of host time.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from threading import get_ident
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch

from ..instrument.clock import NOTHING, Clock, Mark
from ..instrument.collectives import Collectives
from ..instrument.guard import never_destroy
from ..instrument.loss import LossReader, readable
from ..instrument.patching import uncompiled
from ..instrument.reporter import instruments
from ..levers.training_objects import Redirects, modules_of
from .boundaries import (
    COUNTED,
    FIRST,
    IN_FULL,
    IN_PART,
    TOGETHER,
    TOGETHER_BY_CALLS,
    UNWATCHED,
    Boundaries,
)
from .counting import Counting
from .discovery import Discovery
from .gradient_sync import GradientSync
from .grammar import PHASES, Observer, Phases, Symbol
from .interruptions import Interruptions
from .learned_samples import LearnedSamples, samples_of
from .loaders import Loaders
from .step_counts import StepCounts, total

LOOK_EVERY_S = 0.1
"""Seconds between two steps that are measured in full; longer steps all are."""
LOOK_MOST_S, LOOK_SHARE = 0.25, 0.002
"""The same at most, so that looks take no more than this share of the time, if they are seen to
make their steps longer. With many small modules they do, by a millisecond and more."""
LOOK_EVERY_IN_JOB_S = 0.05
"""The same with several ranks, where a slow one shows in its phases."""
ROLLOUT = "rollout"
"""The phase of acting; the host's time in it is measured in each step."""
Amounts: TypeAlias = tuple[int | None, int | None]
"""Samples and tokens; None if not known."""
NOBODY = -1
"""An identity that no thread has."""


class Steps:
    """Counts, times and reports the steps; subclasses say when one ends."""

    _findings: Discovery
    """Created by the subclass that follows calls of models."""
    _gradient_sync: GradientSync
    """Created by the subclass that follows communication."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.active = True
        """Whether steps are measured; False: they are only counted. Set in `border`."""
        self.redirects: Redirects = WeakKeyDictionary()
        """Iterators whose batches another iterator makes."""
        self.failed: Callable[[str, BaseException], None] = lambda _what, _error: None
        """Called with the name of the hook that failed."""
        self.may_skip: bool | None = None
        """Whether steps may be timed together; None until known, then True on a GPU."""
        self.closely_until = 0.0
        """Steps until this one are measured in full, or each get a border if none is measured. Set
        in `border`."""
        self.border_at = 0
        """This step gets its own border, also among steps timed together. Set in `border`."""
        self.switch_backward: Callable[[bool], None] = no_switch
        """Puts the hook on backward passes in or takes it out. Set with that hook."""
        self.counting = Counting()
        """Counts the steps, plain ones by itself."""
        self.reset()

    def forget(self) -> None:
        """Drop, in a forked child, what belongs to the parent."""
        never_destroy(*vars(self).values())
        self.reset()

    def reset(self) -> None:
        self.clock: Clock[torch.Event] | Clock[float] | None = None
        self.losses: LossReader | None = None
        self.counting.reset()
        self.samples: int | None = 0
        """Samples of all these steps; None if those of one step are not known."""
        self.first_began_s: float | None = None
        """When the first step began, if the script declares it, until it has ended."""
        self.mode = FIRST
        """How steps are measured now."""
        self._counted_from = 0  # steps before the first one that was only counted
        self._told = 0  # steps that the clock has timed or counted
        self._untold: Amounts = (0, 0)  # samples and tokens of those since that are not timed
        self._asked_s = 0.0  # when the newest batch was asked for
        self.switch_backward(True)  # a forked child may have inherited it out
        self._look_every_s = LOOK_EVERY_S
        self._look_due_s = 0.0
        self._is_plain = False  # one optimizer alone makes a step, of training calls alone
        self._only_optimizer = 0  # that optimizer's id
        self._thread: int | None = None  # the thread that trains; None: not known
        self._failed_thread: int | None = None  # the thread that trained when a hook failed
        self._newest_optimizer: int | None = None  # its id; None: a backward pass
        # a backward pass may have come since the newest update; None: there was never one
        self._has_learned: bool | None = None
        self._closed_by: int | None = None  # … when the newest step ended
        self._asides = Interruptions()
        self._mark: Mark = nothing
        self._phases = Phases()
        self._learned = LearnedSamples()
        self._first_call_tells = False  # it has as many samples as the step, where no loader has
        self._acts_since_s = 0.0  # in a rollout
        self._boundaries = Boundaries()
        self._tally = StepCounts()
        self._has_tokens = False  # batches have tokens
        self._feeds = Loaders()
        # where the script is
        self._optimizer_depth = 0  # depth of nested optimizer steps
        self._has_closure = False
        self._backward_depth = 0

    @property
    def steps(self) -> int:
        """Since the process began, measured or not."""
        return self.counting.steps

    def collectives(self) -> Collectives:
        times = None if self.clock is None else self.clock.collective_times
        return self._gradient_sync.collectives(times)

    def interrupt(self) -> None:
        """Start the next step's time at its begin, not at the end of the step before."""
        if self.clock is not None:
            self.clock.interrupt()

    def fail(self, what: str, error: BaseException) -> None:
        self._failed_thread, self._thread, self.counting.thread = self._thread, NOBODY, None
        self.mode = replace(self.mode, is_on=False, wants_calls=False)
        self._mark, self._optimizer_depth = nothing, 0
        with suppress(Exception):
            self._gradient_sync.pass_ends()
        with suppress(Exception):
            self.failed(what, error)

    def _restore_at_border(self, key: int | None) -> bool:
        """Let the observer put levers back, once, where a step last ended."""
        if get_ident() == self._failed_thread and key == self._closed_by:
            self._failed_thread = None
            with suppress(Exception):
                self._observer.border(self.steps)
        return False

    def _end_step(self, samples: int | None = None, tokens: int | None = None) -> None:
        tally, self._tally, mode = self._tally, StepCounts(), self.mode
        self._learned.reset()
        if mode.is_skipping:
            self._put_hooks_in()
        self.counting.thread = None
        self._asides.border()
        if mode.is_on and not mode.is_skipping:
            self._findings.learn(tally, timed=mode.is_timed)
            self._gradient_sync.step_ends(tally.moved if mode.is_timed else None)
        samples = self._count_samples(tally, samples)
        tokens = self._tokens(tally) if tokens is None else tokens
        followed, self._thread = self._thread, NOBODY  # ignore what we do now
        try:
            if mode.is_timed:
                self._time(tally, samples, tokens)
            if self._findings.is_news or self._gradient_sync.is_news:
                self._report_findings(tally)
            if not mode.is_timed:
                self._leave_untimed(samples, tokens)
                self._tell_untimed(tally)
            self._observer.border(self.steps)
        finally:
            self._thread = followed
            if not mode.is_timed:
                self.interrupt()
            # one step in full shows whether those after it are plain
            was_whole = mode.is_timed == self.active and not mode.is_skipping
            self._open(is_on=self.active, skips=was_whole and self._may_skip())

    def _report_findings(self, tally: StepCounts) -> None:
        found = self._findings.found(tally.loss, self._feeds, self._boundaries.state)
        if found.world_size > 1:
            self._look_every_s = LOOK_EVERY_IN_JOB_S
            self._gradient_sync.update(modules_of(found.roots))
            found = found._replace(unmeasured=self._gradient_sync.unmeasured())
        if self.clock is None:
            self.clock, self.losses = instruments(found.device, PHASES)
        if self.may_skip is None:
            self.may_skip = found.device.type == "cuda"
        self._observer.found(found)

    def _leave_untimed(self, samples: int | None, tokens: int | None) -> None:
        self._untold = total(self._untold[0], samples), total(self._untold[1], tokens)

    def _tell_untimed(self, tally: StepCounts) -> None:
        """Have the clock count the steps that it has not timed; if nobody watches, forget them."""
        count, (samples, tokens) = self.steps - self._told, self._untold
        began_s, self.first_began_s = self.first_began_s, None
        self._told, self._untold = self.steps, (0, 0)
        if self.clock is None or not (self.mode.is_on and count):
            return
        if began_s is None or count > 1:
            self.clock.count(self.steps, count, samples, tokens)
        else:
            self.clock.end_first(began_s, samples, tokens, tally.loss, tally.data_s)

    def _open(self, *, is_on: bool, skips: bool = False) -> None:
        self._put_hooks_in()
        self.mode, self._counted_from = IN_FULL if is_on else UNWATCHED, self.steps
        self.counting.thread, self.counting.next_begun = None, False
        self._mark, self._is_plain = nothing, True
        if skips:
            self._count()
        else:
            self._look_due_s = time.monotonic() + self._look_after_s()
            if self.mode.is_timed:
                assert self.clock is not None
                self._mark = self.clock.begin()
                self._begin_phases()

    def _look_after_s(self) -> float:
        every_s = self._look_every_s
        if self.clock is None or every_s != LOOK_EVERY_S:
            return every_s
        return min(max(every_s, self.clock.look.ms / 1e3 / LOOK_SHARE), LOOK_MOST_S)

    def _begin_phases(self) -> None:
        self._phases.reset()
        self._mark(self._phases.phase)

    def _enter(self, symbol: Symbol, subject: Hashable = None) -> None:
        if self._mark is nothing:
            return
        phases = self._phases
        before = phases.phase
        shown, phase = phases.feed(symbol, subject)
        if shown is not None:
            assert self.clock is not None
            self.clock.rename(shown)
        if phase is None:
            return
        self._mark(phase)
        if phase == ROLLOUT:
            self._acts_since_s = time.monotonic()
            self._findings.is_news |= not self._findings.acts
            self._findings.acts = True
        elif before == ROLLOUT:
            self._tally.acted_s += time.monotonic() - self._acts_since_s

    # ── steps that are only counted ─────────────────────────────────────────────────────

    def _count(self) -> None:
        if self.mode is UNWATCHED:
            self.mode = COUNTED
        else:
            assert self.clock is not None
            self.clock.begin()
            self.mode = TOGETHER if self._feeds.is_fed() else TOGETHER_BY_CALLS
        self._only_optimizer = next(iter(self._findings.optimizers))
        iterator = self._plain_iterator()
        if self._findings.has_plain_calls() and (
            iterator is not _no_iterator or not self.mode.is_on
        ):
            self._findings.remove_hooks()  # batches show begins of steps, or nobody wants to know
            self.switch_backward(False)
            self._has_learned = True
        self.counting.begin(
            self._tally,
            thread=self._thread,
            optimizer=self._only_optimizer,
            iterator=iterator,
            keeps_loss=self.mode.is_timed,
            border_at=self.border_at,
            due_s=self._look_due_s,
        )

    def _put_hooks_in(self) -> None:
        self._findings.install_hooks()
        self.switch_backward(True)

    def _plain_iterator(self) -> Callable[[], Any]:
        feed = self._feeds.feed if self.mode.is_timed and self._feeds.is_fed() else None
        if feed is None or self._has_tokens or feed.iterator() in self.redirects:
            return _no_iterator
        return feed.iterator

    @property
    def _skipped(self) -> int:
        return self.steps - self._counted_from if self.mode.is_skipping else 0

    def _skip(self) -> None:
        self.counting.steps += 1
        self.counting.next_begun = False
        if self.steps == self.border_at or time.monotonic() >= self._look_due_s:
            self._end_step()

    def _stop_skipping(self) -> bool:
        """Measure steps in full again; return whether what comes is within a step."""
        if not self.mode.is_skipping or get_ident() != self._thread:
            return False
        self.counting.thread, is_partial = None, self.counting.next_begun
        if is_partial:  # only a part of this step would be measured
            self._has_learned = True
            self.interrupt()
            samples = self._samples_of_counted()
            self.samples = total(self.samples, samples)
            self._leave_untimed(samples, self._tokens_of_counted())
            self._tally = self._tally.begun(self._skipped)
        elif self._skipped:  # else it has at most a wait for the end of an epoch
            samples = self._count_samples(self._tally)
            if self.mode.is_timed:
                self._time(self._tally, samples, self._tokens(self._tally))
            self._tally = StepCounts()
        if self._skipped:
            self._asides.border()
        self._open(is_on=self.mode.is_on)
        if is_partial:
            self.mode, self._mark = IN_PART if self.mode.is_on else UNWATCHED, nothing
        return is_partial

    def _time(
        self, tally: StepCounts, samples: int | None, tokens: int | None, *, at_split: bool = False
    ) -> None:
        clock, count = self.clock, self.steps - self._told
        assert clock is not None
        self._told = self.steps
        loss = readable(tally.loss) if self._skipped else tally.loss
        values, data_s, borders = self._values(tally, count), tally.data_s, tally.borders
        if at_split:
            self._mark = clock.end_at_split(
                self.steps, samples, loss, data_s, tokens, count, borders, values
            )
        else:
            clock.end(self.steps, samples, loss, data_s, tokens, count, borders, values)
        self._observer.step(self.steps)

    def _values(self, tally: StepCounts, count: int) -> Mapping[str, float]:
        """Give each step a time in rollouts once there are any: a mean over some would be wrong."""
        pads = self._has_tokens and tally.batches and tally.padding is not None
        if not (pads or self._findings.acts):
            return NOTHING
        values = {"rollout_ms": tally.acted_s * 1e3 / count} if self._findings.acts else {}
        if tally.padding is not None and pads:
            values["padding_tokens"] = tally.padding / count
        return values

    def _may_skip(self) -> bool:
        known, state = self._findings, self._boundaries.state
        if state == "declared" or self.steps < self.closely_until:
            return False
        if self.active and not self.may_skip:
            return False
        steps_alike = self._is_plain and len(known.optimizers) == 1 and not self._has_closure
        return (
            steps_alike
            and not (known.scaler or known.graphs or state == "passes" or self._backward_depth)
            and time.monotonic() < self._look_due_s
        )

    # ── samples and tokens ──────────────────────────────────────────────────────────────

    def _count_samples(self, tally: StepCounts, said: int | None = None) -> int | None:
        samples = self._samples(tally) if said is None else said
        self.samples = total(self.samples, samples)
        return samples

    def _samples(self, tally: StepCounts) -> int | None:
        if not self.mode.is_on:
            return None
        if tally.batches:
            return tally.fetched
        if self._feeds.is_fed():
            return 0  # some frameworks fetch each batch a step ahead
        if self.mode.is_skipping:
            return tally.called or None if self._first_call_tells else None
        samples = samples_of(tally)
        self._first_call_tells = samples is not None and samples == tally.called
        return samples

    def _samples_of_counted(self) -> int | None:
        """Leave out the samples of the step that has begun."""
        tally = self._tally
        if not self.counting.next_begun:
            return self._samples(tally)
        if tally.fetched is None or tally.batches != self._skipped + 1:
            return None
        return tally.fetched - tally.newest

    def _tokens_of_counted(self) -> int | None:
        tally = self._tally
        if not self.counting.next_begun:
            return self._tokens(tally)
        if not self._has_tokens or tally.tokens is None or tally.batches != self._skipped + 1:
            return None
        return tally.tokens - tally.newest_tokens

    def _tokens(self, tally: StepCounts) -> int | None:
        if not self._has_tokens:  # steps that are only counted do not look for any
            return None
        if tally.batches:
            return tally.tokens
        return 0 if self._feeds.is_fed() else None  # as for samples


def no_switch(_is_on: bool, /) -> None:  # noqa: FBT001
    ...


def nothing(_name: str, /) -> None: ...


@uncompiled
def _no_iterator() -> None: ...
