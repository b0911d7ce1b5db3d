"""The steps of a training, each on the clock from the end of the one before to its own.

On a GPU short steps are looked at closely 20 times a second; those between are counted, and timed
together: looking at a step costs the host a tenth of a millisecond.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from weakref import WeakKeyDictionary

import torch

from gpudash.hooks.asides import Asides
from gpudash.hooks.feeds import Feeds
from gpudash.hooks.findings import Findings
from gpudash.hooks.forked import never_destroy
from gpudash.hooks.found import Redirects, modules_of
from gpudash.hooks.gradient_sync import GradientSync
from gpudash.hooks.observer import PHASES, Observer
from gpudash.hooks.tally import Tally, total
from gpudash.instrument.clock import Clock, Mark
from gpudash.instrument.collectives import Collectives
from gpudash.instrument.loss import LossReader
from gpudash.instrument.reporter import instruments

IDLE_EVERY_S = 0.05
LOOK_EVERY_S = 0.05
"""So often, or at each step where steps are longer, a step is looked at closely."""
NOBODY = -1
"""No thread has this identity."""


class Steps:
    """Counts the steps, has the clock time them, and tells the observer; others say when."""

    _known: Findings
    """Made where the models' calls are heard of."""
    _gradient_sync: GradientSync
    """Made where backward passes are."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.active = True
        """Whether steps are measured; False: they are counted alone. To be set in `border`."""
        self.redirects: Redirects = WeakKeyDictionary()
        """Iterators whose batches come from elsewhere."""
        self.failed: Callable[[str, BaseException], None] = lambda _what, _error: None
        """Told which hook failed."""
        self.may_skip: bool | None = None
        """Whether steps may be timed together; None: on a GPU."""
        self.closely_until = 0.0
        """Each step until this one is looked at closely. To be set in `border`."""
        self.border_at = 0
        """This step has a border of its own, whatever is timed together. To be set in `border`."""
        self.begin_anew()

    def forget(self) -> None:
        """Give up, in a forked child, what is the parent's."""
        never_destroy(*vars(self).values())
        self.begin_anew()

    def begin_anew(self) -> None:
        """Know nothing of a training."""
        self.clock: Clock[torch.Event] | Clock[float] | None = None
        self.losses: LossReader | None = None
        self.steps = 0
        """Since the process began, measured or not."""
        self.samples: int | None = 0
        """Of all these steps; None if it is not known of one."""
        self.hears_calls = False
        self.is_skipping = False
        """Steps are only counted, until the next look or until something else than a step comes."""
        self._skipped = 0  # steps so far
        self._begun = False  # the next one
        self._look_due_s = 0.0
        self._is_plain = False  # one optimizer makes a step, by itself, of training calls alone
        self._plain = 0  # its id
        self._thread: int | None = None  # the one that trains
        self._parting: int | None = None  # the one that trained when a hook failed
        self._stepping: int | None = None  # the optimizer that stepped last; None: a backward pass
        self._closed_by: int | None = None  # … when the newest step ended
        self._asides = Asides()
        self._mark: Mark = nothing
        self._is_on = True  # more is done than counting: measured, or at first learned
        self._is_timed = False  # the step in progress is on the clock
        self._is_split = False
        self._tally = Tally()
        self._before_split = Tally()
        self._has_tokens = False  # batches do
        self._idle_s = 0.0
        self._feeds = Feeds()
        # where the script is
        self._optimizing = 0  # how deep
        self._has_closure = False
        self._backing = 0

    def collectives(self) -> Collectives:
        """Return those of a step, as far as they are known."""
        return self._gradient_sync.collectives()

    def finish(self) -> None:
        """Close the steps that were skipped: the training is over."""
        self._look_up()

    def interrupt(self) -> None:
        """Let the next step's time begin with itself."""
        if self.clock is not None:
            self.clock.interrupt()

    def fail(self, what: str, error: BaseException) -> None:
        """Listen to nothing from now on."""
        self._parting, self._thread = self._thread, NOBODY
        self._is_on = self.hears_calls = False
        self._mark, self._optimizing = nothing, 0
        with suppress(Exception):
            self._gradient_sync.pass_ends()
        with suppress(Exception):
            self.failed(what, error)

    def _part(self, key: int | None) -> bool:
        """Let the observer put things back where a step last ended: a last border."""
        if get_ident() == self._parting and key == self._closed_by:
            self._parting = None
            with suppress(Exception):
                self._observer.border(self.steps)
        return False

    def _close(self, samples: int | None = None, tokens: int | None = None) -> None:
        """End the step here: nothing of the next one has been begun.

        `samples` and `tokens` are what the script says, if it does.
        """
        self.steps += 1
        self._closed_by = None if self._known.by_backward else self._stepping
        self._end_step(samples, tokens)

    def _end_step(self, samples: int | None = None, tokens: int | None = None) -> None:
        tally, self._tally, self._is_split = self._tally, Tally(), False
        self._asides.border()
        if self._is_on and not self.is_skipping:
            self._known.learn(tally, timed=self._is_timed)
            self._gradient_sync.step_ends(tally.moved if self._is_timed else None)
        samples = self._count_samples(tally, samples)
        listened_to, self._thread = self._thread, NOBODY  # what is done now is not the script's
        try:
            if self._is_timed:
                tokens = self._tokens(tally) if tokens is None else tokens
                self._time(tally, samples, tokens)
            if self._known.is_news or self._gradient_sync.is_news:
                self._tell(tally)
            self._observer.border(self.steps)
        finally:
            self._thread = listened_to
            if not self._is_timed:
                self.interrupt()
            may_skip = self._is_timed and not self.is_skipping and self._may_skip()
            self._is_on = self.active
            self._open(skipping=may_skip and self._is_on)

    def _tell(self, tally: Tally) -> None:
        """Tell the observer what was found; at first, make the instruments."""
        found = self._known.found(tally.loss, self._feeds.feed)
        if found.world_size > 1:
            self._gradient_sync.update(modules_of(found.roots))
            found = found._replace(unmeasured=self._gradient_sync.unmeasured())
        if self.clock is None:
            self.clock, self.losses = instruments(found.device, PHASES)
        if self.may_skip is None:
            self.may_skip = found.device.type == "cuda"
        self._observer.found(found)

    def _open(self, *, skipping: bool = False) -> None:
        """Begin the next step; `skipping`: or several, until it is time for a look."""
        self._known.attend()
        self.is_skipping, self._skipped, self._begun = skipping, 0, False
        self.hears_calls = self._is_timed = self._is_on
        self._mark = nothing
        if self._is_timed and not self._known.declares:
            assert self.clock is not None
            mark = self.clock.begin()
            if skipping:
                self.hears_calls = not self._feeds.is_fed()
                self._plain = next(iter(self._known.optimizers))
                return
            self._mark, self._is_plain = mark, True
            self._mark("your_code")
            self._look_due_s = time.monotonic() + LOOK_EVERY_S

    # ── steps that are timed together ───────────────────────────────────────────────────

    def _skip(self) -> None:
        """Count a step; look at the next one if it is time."""
        self.steps += 1
        self._skipped += 1
        self._begun = False
        if self.steps == self.border_at or time.monotonic() >= self._look_due_s:
            self._end_step()

    def _look_up(self) -> bool:
        """Look closely, before it was time: something else than a step comes.

        Return whether it comes within a step.
        """
        if not self.is_skipping or get_ident() != self._thread:
            return False
        is_partial = self._begun
        if is_partial:  # of a part of a step nothing can be told
            self.interrupt()
            self.samples = None
        elif self._skipped:
            tally = self._tally
            self._time(tally, self._count_samples(tally), self._tokens(tally))
        self._tally = Tally()
        if self._skipped:
            self._asides.border()
        self._open()
        if is_partial:
            self._is_timed, self._mark = False, nothing
        return is_partial

    def _time(self, tally: Tally, samples: int | None, tokens: int | None) -> None:
        """Close a step on the clock, or all those that were skipped."""
        assert self.clock is not None
        count = max(1, self._skipped)
        self.clock.end(self.steps, samples, tally.loss, tally.data_s, tokens, count)
        self._observer.step(self.steps)

    def _may_skip(self) -> bool:
        """Return whether the next steps may be timed together: they come often, all alike."""
        if not self.may_skip or self._known.declares or self.steps < self.closely_until:
            return False
        known = self._known
        steps_alike = self._is_plain and len(known.optimizers) == 1 and not self._has_closure
        return (
            steps_alike
            and not (known.scaler or known.graphs or known.by_backward or self._backing)
            and time.monotonic() < self._look_due_s
        )

    # ── steps whose end shows in the next ───────────────────────────────────────────────

    def _split(self) -> None:
        """Note that the step may have ended here."""
        self._before_split, self._tally, self._is_split = self._tally, Tally(), True
        if self._is_timed:
            assert self.clock is not None
            self._mark = self.clock.split()
            self._mark("your_code")

    def _join(self) -> None:
        """Take that back."""
        self._before_split.add(self._tally)
        self._tally, self._is_split = self._before_split, False
        if self._is_timed:
            assert self.clock is not None
            self._mark = self.clock.join()

    def _close_at_split(self) -> None:
        """End the step where it may have ended: the next one has long begun."""
        self.steps += 1
        tally, self._is_split = self._before_split, False
        if self._is_on:
            self._known.learn(tally, timed=self._is_timed)
            self._gradient_sync.step_ends(tally.moved if self._is_timed else None)
        samples = self._count_samples(tally)
        if self._is_timed:
            assert self.clock is not None
            self._mark = self.clock.end_at_split(
                self.steps, samples, tally.loss, tally.data_s, self._tokens(tally)
            )
            self._observer.step(self.steps)

    # ── what is no part of them ─────────────────────────────────────────────────────────

    def _restart(self) -> None:
        """Let the step in progress begin here: what came before was none of it."""
        self._tally = Tally()
        self._retime()
        now = time.monotonic()
        if now >= self._idle_s:
            self._idle(now)

    def _retime(self) -> None:
        """Let the time of the step in progress begin here."""
        if self._is_timed:
            assert self.clock is not None
            self.clock.interrupt()
            self._mark = self.clock.begin()
            self._mark("your_code")

    def _turn_aside(self) -> None:
        """Tell what the training does instead, since its newest step."""
        self._observer.aside(self._asides.why)
        self._restart()

    def _resume(self) -> None:
        """Tell that the training goes on; its time begins here, or with its batch."""
        if self._asides.ended_by_call:
            self._restart()
        self._observer.aside(None)

    def _idle(self, now: float) -> None:
        self._idle_s = now + IDLE_EVERY_S
        listened_to, self._thread = self._thread, NOBODY
        try:
            self._observer.idle()
        finally:
            self._thread = listened_to

    # ── what they train on ──────────────────────────────────────────────────────────────

    def _count_samples(self, tally: Tally, said: int | None = None) -> int | None:
        samples = self._samples(tally) if said is None else said
        self.samples = total(self.samples, samples)
        return samples

    def _samples(self, tally: Tally) -> int | None:
        if not self._is_on:
            return None
        if tally.batches:
            return tally.fetched
        if self._feeds.is_fed():
            return 0  # some frameworks ask for each batch a step ahead
        return tally.called or None if self._known.models == 1 else None

    def _tokens(self, tally: Tally) -> int | None:
        if tally.batches:
            return tally.tokens
        return 0 if self._has_tokens and self._feeds.is_fed() else None  # as the samples


def nothing(_name: str, /) -> None:
    """Mark nothing."""
