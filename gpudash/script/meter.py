"""Times and counts the steps of a training, each from the end of the one before to its own end.

On a GPU short steps are measured in full ten times a second. Those in between are only counted, and
timed together: measuring one, with its report, takes 0.4 ms of host time.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from math import inf
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..instrument.clock import NOTHING, Clock, Mark
from ..instrument.loss import LossReader, readable
from ..instrument.patching import uncompiled
from ..instrument.reporter import instruments
from ..levers.training_objects import Redirects
from .boundaries import (
    COUNTED,
    FIRST,
    IN_FULL,
    IN_PART,
    TOGETHER,
    TOGETHER_BY_CALLS,
    UNWATCHED,
)
from .counting import Counting
from .discovery import Discovery
from .follower import Follower
from .grammar import CODE, COPYING, PHASES, Phases, Symbol
from .learned_samples import samples_of
from .loaders import Loaders
from .step_counts import StepCounts, total

LOOK_EVERY_S = 0.1
"""Seconds between two steps that are measured in full; longer steps all are."""
LOOK_MOST_S, LOOK_SHARE = 0.25, 0.002
"""The same at most, so that looks take no more than this share of the time, if they are seen to
make their steps longer. With many small modules they do, by a millisecond and more."""
LOOK_LAST_S = 1.0
"""Seconds after which there is a look at the latest."""
ROLLOUT = "rollout"
"""The phase of acting; the host's time in it is measured in each step."""
Amounts: TypeAlias = tuple[int | None, int | None]
"""Samples and tokens; None if not known."""
UNSAID = None, None
Asked: TypeAlias = tuple[float, float]
"""When a batch was asked for, and the CPU time of the thread then."""


class Meter:
    """Measures the step in progress: its mode, its counts, its time, and the marks within it."""

    def __init__(self) -> None:
        self.active = True
        """Whether steps are measured; False: they are only counted. Set in `border`."""
        self.redirects: Redirects = WeakKeyDictionary()
        """Iterators whose batches another iterator makes."""
        self.may_skip: bool | None = None
        """Whether steps may be timed together; None until known, then True on a GPU."""
        self.closely_until = 0.0
        """Steps until this one are measured in full, or each get a border if none is measured. Set
        in `border`."""
        self.border_at = 0
        """This step gets its own border, also among steps timed together. Set in `border`."""
        self.switch_backward: Callable[[bool], None] = no_switch
        """Puts the hook on backward passes in or takes it out. Set with that hook."""
        self.switch_copies = no_switch
        """The same of the hook on copies of tensors."""
        self.counting = Counting()
        """Counts the steps, plain ones by itself."""

    def reset(self, follower: Follower, feeds: Loaders, findings: Discovery) -> None:
        self._follower, self._feeds, self._findings = follower, feeds, findings
        self.clock: Clock[torch.Event] | Clock[float] | None = None
        self.losses: LossReader | None = None
        self.counting.reset()
        self.samples: int | None = 0
        """Samples of all these steps; None if those of one step are not known."""
        self.first_began_s: float | None = None
        """When the first step began, if the script declares it, until it has ended."""
        self.mode = FIRST
        """How steps are measured now."""
        self.counted_from = 0
        """Steps before the first one that was only counted."""
        self._told = 0  # steps that the clock has timed or counted
        self._untold: Amounts = (0, 0)  # samples and tokens of those since that are not timed
        self.asked: Asked = (0.0, 0.0)
        self.switch_backward(True)  # a forked child may have inherited it out
        self.look_every_s = LOOK_EVERY_S
        self.look_at = inf
        """The next step that is measured in full, …"""
        self.look_due_s = 0.0
        """… or at this moment, where none is timed or steps have become much longer."""
        self.is_plain = False
        """One optimizer alone makes a step, of training calls alone."""
        self.mark: Mark = nothing
        self.phases = Phases()
        self.tally = StepCounts()
        self._before_split = StepCounts()
        self.borders: list[Any] = []
        """The clock's timestamps in a call of collectives."""
        self._first_call_tells = False  # it has as many samples as the step, where no loader has
        self._phase_since_s = 0.0
        self.has_tokens = False
        """Batches have tokens."""

    @property
    def steps(self) -> int:
        """Since the process began, measured or not."""
        return self.counting.steps

    @property
    def running(self) -> Clock[torch.Event] | Clock[float]:
        assert self.clock is not None, "it is made before a step is timed"
        return self.clock

    def begin(self, device: torch.device) -> None:
        """Make the instruments, once it is known where the training computes."""
        if self.clock is None:
            self.clock, self.losses = instruments(device, PHASES)
        if self.may_skip is None:
            self.may_skip = device.type == "cuda"

    def interrupt(self) -> None:
        """Start the next step's time at its begin, not at the end of the step before."""
        if self.clock is not None:
            self.clock.interrupt()

    def restart(self) -> None:
        """Start the time of the step in progress anew."""
        if self.mode.is_timed:
            self.interrupt()
            self._mark_with(self.running.begin())

    # ── phases ──────────────────────────────────────────────────────────────────────────

    def _mark_with(self, mark: Mark) -> None:
        self.mark, self._phase_since_s = mark, time.monotonic()
        self.phases.reset()
        mark(self.phases.phase)

    def enter(self, symbol: Symbol, subject: Hashable = None) -> None:
        if self.mark is nothing:
            return
        self.switch_copies(symbol in COPYING)
        before = self.phases.phase
        shown, phase = self.phases.feed(symbol, subject)
        if shown is not None:
            self.running.rename(shown)
        if phase is None:
            return
        self._leave(shown or before)
        self.mark(phase)
        if phase == ROLLOUT:
            self._findings.note("acts")

    def _leave(self, phase: str) -> None:
        """Add up the host's time in this phase, which ends here."""
        since_s, self._phase_since_s = self._phase_since_s, time.monotonic()
        if phase == CODE:
            self.tally.coded_s += self._phase_since_s - since_s
        elif phase == ROLLOUT:
            self.tally.acted_s += self._phase_since_s - since_s

    def ask(self) -> None:
        """Note that a batch is asked for."""
        self.asked = time.monotonic(), time.thread_time()

    def waited(self, asked: Asked | None = None) -> None:
        """Note that the wait for a batch since `asked`, or since `ask`, is over."""
        asked_s, asked_cpu_s = asked or self.asked
        self.tally.data_s += time.monotonic() - asked_s
        self.tally.data_cpu_s += time.thread_time() - asked_cpu_s

    def started(self, usual_s: float = 0.0) -> None:
        """Note that an epoch has started, with what the wait since `ask` took beyond the usual."""
        waited_s = time.monotonic() - self.asked[0]
        self.tally.data_s += waited_s
        self.tally.start_s += max(waited_s - usual_s, 0.0)

    # ── ends of steps ───────────────────────────────────────────────────────────────────

    def open(self, *, is_on: bool, skips: bool = False) -> None:
        self.put_hooks_in()
        self.switch_copies(False)
        self.mode, self.counted_from = IN_FULL if is_on else UNWATCHED, self.counting.steps
        self.counting.thread, self.counting.next_begun = None, False
        self.mark, self.is_plain = nothing, True
        if skips:
            self._count()
        else:
            now, every_s = time.monotonic(), self._look_after_s()
            self.look_at, self.look_due_s = inf, now + every_s
            if self.mode.is_timed:
                self._mark_with(self.running.begin())
                self.look_at = self.running.sample.after(every_s, self.running.began_s)
                self.look_due_s = now + LOOK_LAST_S

    def is_look_due(self, step: int) -> bool:
        return step >= self.look_at or time.monotonic() >= self.look_due_s

    def _look_after_s(self) -> float:
        every_s = self.look_every_s
        if self.clock is None or every_s != LOOK_EVERY_S:
            return every_s
        return min(max(every_s, self.clock.look.ms / 1e3 / LOOK_SHARE), LOOK_MOST_S)

    def end(self, tally: StepCounts, said: Amounts = UNSAID, *, at_split: bool = False) -> None:
        """Time the steps that end here, if they are timed."""
        if not self.mode.is_timed:
            self.leave_untimed(tally, said)
            return
        clock, step = self.running, self.counting.steps
        count, self._told = step - self._told, step
        if not at_split:
            self._leave(self.phases.phase)
        samples, tokens = self._amounts(tally, said)
        loss = readable(tally.loss) if self._skipped else tally.loss
        values, data_s, borders = self._values(tally, count), tally.data_s, tally.borders
        clock.host.fetched(tally.data_cpu_s, tally.start_s)
        if at_split:
            self.mark = clock.end_at_split(
                step, samples, loss, data_s, tokens, count, borders, values
            )
        else:
            clock.end(step, samples, loss, data_s, tokens, count, borders, values)

    def leave_untimed(self, tally: StepCounts, said: Amounts = UNSAID) -> None:
        """Have steps counted by `tell_untimed`."""
        samples, tokens = self._amounts(tally, said)
        self._untold = total(self._untold[0], samples), total(self._untold[1], tokens)

    def tell_untimed(self, newest: StepCounts) -> None:
        """Have the clock count the steps that it has not timed; if nobody watches, forget them."""
        count, (samples, tokens) = self.steps - self._told, self._untold
        began_s, self.first_began_s = self.first_began_s, None
        self._told, self._untold = self.steps, (0, 0)
        if self.clock is None or not (self.mode.is_on and count):
            return
        if began_s is None or count > 1:
            self.clock.count(self.steps, count, samples, tokens)
            if self.mode is FIRST:
                self._read_loss(newest.loss)
        else:
            self.clock.end_first(began_s, samples, tokens, newest.loss, newest.data_s)

    def _read_loss(self, loss: Tensor | None) -> None:
        """Read that of the first step, which the device has finished: making the clock waited."""
        if self.losses is not None and loss is not None:
            self.losses.request(self.steps, loss)

    def split(self) -> None:
        """Note that the step may have ended: `join` or `end_at_split` follows."""
        self._leave(self.phases.phase)
        self._before_split, self.tally = self.tally, StepCounts()
        if self.mode.is_timed:
            self._mark_with(self.running.split())

    def join(self) -> None:
        self._before_split.add(self.tally)
        self.tally = self._before_split
        if self.mode.is_timed:
            self.mark = self.running.join()

    def end_at_split(self) -> StepCounts:
        """Return the counts of the step that has ended there."""
        self.counting.steps += 1
        self.end(self._before_split, at_split=True)
        return self._before_split

    def _values(self, tally: StepCounts, count: int) -> Mapping[str, float]:
        """Give each step a time in rollouts once there are any: a mean over some would be wrong."""
        acts = "acts" in self._findings.facts
        pads = self.has_tokens and tally.batches and tally.padding is not None
        is_full = self.mode is IN_FULL
        if not (pads or acts or is_full):
            return NOTHING
        values = {"rollout_ms": tally.acted_s * 1e3 / count} if acts else {}
        if is_full:
            values["own_code_ms"] = tally.coded_s * 1e3 / count
        if tally.padding is not None and pads:
            values["padding_tokens"] = tally.padding / count
        return values

    # ── steps that are only counted ─────────────────────────────────────────────────────

    def _count(self) -> None:
        if self.mode is UNWATCHED:
            self.mode = COUNTED
        else:
            self.running.begin()
            self.mode = TOGETHER if self._feeds.is_fed() else TOGETHER_BY_CALLS
        iterator = self._plain_iterator()
        if self._findings.has_plain_calls() and (
            iterator is not _no_iterator or not self.mode.is_on
        ):
            self._findings.remove_hooks()  # batches show begins of steps, or nobody wants to know
            self.switch_backward(False)
            self._follower.has_learned = True
        self.counting.begin(
            self.tally,
            thread=self._follower.thread,
            optimizer=next(iter(self._findings.optimizers)),
            iterator=iterator,
            keeps_loss=self.mode.is_timed,
            border_at=self.border_at,
            look_at=self.look_at,
            due_s=self.look_due_s,
        )

    def put_hooks_in(self) -> None:
        self._findings.install_hooks()
        self.switch_backward(True)

    def _plain_iterator(self) -> Callable[[], Any]:
        feed = self._feeds.feed if self.mode.is_timed and self._feeds.is_fed() else None
        if feed is None or self.has_tokens or feed.iterator() in self.redirects:
            return _no_iterator
        return feed.iterator

    @property
    def _skipped(self) -> int:
        return self.steps - self.counted_from if self.mode.is_skipping else 0

    def leave_counted(self) -> None:
        """Have the steps that were only counted told untimed, without the one that has begun."""
        has_begun = self.counting.next_begun
        self.leave_untimed(self.tally.ended(self._skipped) if has_begun else self.tally)

    def stop_counting(self) -> bool:
        """Measure steps in full again; return whether what comes is within a step."""
        self.counting.thread, is_partial = None, self.counting.next_begun
        if is_partial:  # only a part of this step would be measured
            self._follower.has_learned = True
            self.interrupt()
            self.leave_counted()
            self.tally = self.tally.begun(self._skipped)
        elif self._skipped:  # else it has at most a wait for the end of an epoch
            self.end(self.tally)
            self.tally = StepCounts()
        self.open(is_on=self.mode.is_on)
        if is_partial:
            self.mode, self.mark = IN_PART if self.mode.is_on else UNWATCHED, nothing
        return is_partial

    # ── samples and tokens ──────────────────────────────────────────────────────────────

    def _amounts(self, tally: StepCounts, said: Amounts) -> Amounts:
        samples, tokens = said
        if samples is None:
            samples = self._samples(tally)
        if tokens is None and self.has_tokens:  # steps that are only counted do not look for any
            tokens = tally.tokens if tally.batches else 0 if self._feeds.is_fed() else None
        self.samples = total(self.samples, samples)
        return samples, tokens

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


def no_switch(_is_on: bool, /) -> None:  # noqa: FBT001
    ...


def nothing(_name: str, /) -> None: ...


@uncompiled
def _no_iterator() -> None: ...
