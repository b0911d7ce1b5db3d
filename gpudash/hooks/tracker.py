"""Finds the steps of a training that nobody wrote for us, and measures them.

Told by the patches of torch what the script does; tells the clock where phases begin and steps
end, and its observer where something may be done between two steps. On a GPU short steps are looked
at closely 20 times a second; those between are counted, and timed together: looking at a step costs
the host a tenth of a millisecond. It listens to one thread, the
one that trains: what other threads do, and what gpudash itself tries out between steps, is no part
of the training. Nothing of a failure in here reaches the script: all hooks are off from then on.
"""

import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from operator import index
from threading import get_ident
from typing import Any, Protocol, TypeAlias, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpudash.hooks.asides import Asides
from gpudash.hooks.backwards import Backwards
from gpudash.hooks.explicit import Count
from gpudash.hooks.forked import never_destroy
from gpudash.hooks.found import Feed, Found, NewestCall, Root
from gpudash.hooks.roots import Parts, Survey, attend, device_of, parameters_of
from gpudash.hooks.rounds import GOES_ON, HERE, Begun, Ended, Rounds
from gpudash.hooks.samples import first_dimension, tokens_in
from gpudash.hooks.signals import is_from_handler
from gpudash.hooks.tally import Tally, total
from gpudash.instrument.clock import Clock, Mark
from gpudash.instrument.loss import LossReader
from gpudash.instrument.reporter import instruments
from gpudash.instrument.uncompiled import uncompiled
from gpudash.protocol import Aside, Phase

LABELS = {
    "copy": "copy",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "graph": "CUDA graph",
    "your_code": "your code",
}
PHASES = tuple(Phase(name=name, label=label, lane="train") for name, label in LABELS.items())
WITHOUT_OPTIMIZER = 8
"""After so many backward passes, and as many steps' worth, no optimizer is waited for."""
SURVEYS = 8
"""A process is looked through for models no more often: each look takes 0.1 to 0.4 s."""
IDLE_EVERY_S = 0.05
LOOK_EVERY_S = 0.05
"""So often, or at each step where steps are longer, a step is looked at closely."""
LOOK_EVERY = 16
"""After so many steps it is looked at again whether a root is called inside an autocast."""
LOSS_EVERY_S = 0.02
"""No loss is kept more often: no more are shown."""
NOBODY = -1
"""No thread has this identity."""

Ts = TypeVarTuple("Ts")
T = TypeVar("T")
Event: TypeAlias = Callable[["Tracker", *Ts], bool]
Redirects: TypeAlias = WeakKeyDictionary[Any, Callable[[], Any]]


class Observer(Protocol):
    """Who is told of the training, on the thread that trains."""

    def found(self, found: Found) -> None:
        """Take what is known: before the first step is measured, and whenever more is known."""

    def border(self, step: int) -> None:
        """Do what is to be done after this step: nothing of the next has been begun.

        Where the end of a step shows only in the middle of the next, it has no border.
        """

    def step(self, step: int) -> None:
        """Take that a step has been closed on the clock."""

    def aside(self, why: Aside | None) -> None:
        """Take what the training does since its newest step instead; None: it goes on."""

    def idle(self) -> None:
        """Do what may be done anywhere."""


def _event(what: str) -> Callable[[Event[*Ts]], Event[*Ts]]:
    """Make a method an event of the script's: a failure in it turns all hooks off, and is told."""

    def decorate(method: Event[*Ts]) -> Event[*Ts]:
        @wraps(method)
        def event(self: "Tracker", *args: *Ts) -> bool:
            try:
                return method(self, *args)
            except Exception as error:  # none of ours may reach the script
                if is_from_handler(error):
                    raise
                self.fail(what, error)
                return False

        return uncompiled(event)

    return decorate


class Tracker:
    """Told what the script does, by the patches: an event says whether its end is to be told."""

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
        self._is_plain = False  # one optimizer makes a step, by itself
        self._plain = 0  # its id
        self._thread: int | None = None  # the one that trains
        self._parting: int | None = None  # the one that trained when a hook failed
        self._stepping: int | None = None  # the optimizer that stepped last; None: a backward pass
        self._closed_by: int | None = None  # … when the newest step ended
        self._rounds = Rounds()
        self._asides = Asides()
        self._mark: Mark = _nothing
        self._is_on = True  # more is done than counting: measured, or at first learned
        self._is_timed = False  # the step in progress is on the clock
        self._is_split = False
        self._tally = Tally()
        self._before_split = Tally()
        self._idle_s = 0.0
        self._loss_s = 0.0
        # where we are
        self._optimizing = 0  # how deep
        self._has_closure = False
        self._backing = 0
        self._stepped_within = False  # an optimizer, in this backward pass
        self._fetching = False
        self._asked_s = 0.0
        self._scaled: tuple[int, Tensor] | None = None  # the id of a scaled loss, and the loss
        # steps that the script declares
        self._declares = False
        self._depth = 0  # how deep in one
        self._has_tokens = False
        self._have_found_nothing()

    def _have_found_nothing(self) -> None:
        self._is_news = True
        self._optimizers: dict[int, weakref.ref[Optimizer]] = {}  # by id, in order of first steps
        self._gone: list[int] = []
        self._parameters: set[int] = set()  # of the roots
        self._roots: list[Root] = []
        self._models = 0  # how many that are nobody's child
        self._are_new = False  # roots are, and nobody knows whether they are called
        self._parts: Parts | None = None  # which are listened to instead, for a step
        self._surveys_left = SURVEYS
        self._feed: Feed | None = None
        self._loaders: WeakKeyDictionary[Any, tuple[int, weakref.ref[Any]]] = WeakKeyDictionary()
        self._opened: Any = None  # the newest loader, until its first batch
        self._newest_ids = 0, 0  # of the iterator asked last and its loader
        self._kept: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._device_type = "cpu"
        self._scaler = False
        self._backwards = Backwards()
        self._calls_seen = False  # of a root, in the newest step
        # without an optimizer
        self._by_backward = False
        self._bare_backwards = 0  # since an optimizer stepped
        self._patience = WITHOUT_OPTIMIZER
        # CUDA graphs
        self._captured: bool | None = None  # whether an optimizer stepped; None: no capture
        self._graphs: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

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
        self._optimizing = 0
        with suppress(Exception):
            self.failed(what, error)

    def _part(self, key: int | None) -> bool:
        """Let the observer put things back where a step last ended: a last border."""
        if get_ident() == self._parting and key == self._closed_by:
            self._parting = None
            with suppress(Exception):
                self._observer.border(self.steps)
        return False

    # ── optimizers ──────────────────────────────────────────────────────────────────────

    @_event("optimizer")
    def optimizer_begins(self, optimizer: Optimizer, has_closure: bool) -> bool:  # noqa: FBT001
        """Take that an optimizer is about to step."""
        if get_ident() != self._thread and not self._hears_step():
            return False
        if self.is_skipping:
            if id(optimizer) == self._plain and not has_closure:
                return True
            self._look_up()
        self._optimizing += 1
        if self._optimizing > 1:
            self._is_plain = False
            return True
        if self._gone:
            self._forget()
        self._has_closure = has_closure
        self._stepping = key = id(optimizer)
        self._begin_step(key)
        if key not in self._optimizers:
            self._meet(key, optimizer)
        if self._is_on and not has_closure:
            self._mark("optimizer")
        return True

    @_event("optimizer")
    def optimizer_ends(self, optimizer: Optimizer) -> bool:
        """Take that it has stepped, or was kept from it."""
        if self._parting is not None:
            return self._part(id(optimizer))
        if self.is_skipping and get_ident() == self._thread:
            self._skip()
            return False
        if not self._optimizing or (get_ident() != self._thread and not self._backing):
            return False
        self._optimizing -= 1
        if self._optimizing:
            return False
        self._bare_backwards = 0
        if self._backing:
            self._stepped_within = True
            if self._is_on:
                self._mark("backward")
        else:
            self._may_end()
        return False

    @_event("GradScaler")
    def scaler_steps(self) -> bool:
        """Take that a GradScaler is about to step an optimizer, or to skip it."""
        self._look_up()
        if not self._scaler:
            self._scaler = self._is_news = True
        return False

    def _hears_step(self) -> bool:
        """Return whether another thread's optimizer is of this training: in a backward pass."""
        if self._captured is not None:
            self._captured = True
        return self._hears() or (self._backing > 0 and self._thread != NOBODY)

    def _hears(self) -> bool:
        """Return whether nobody was listened to so far: it is this thread from now on."""
        if self._thread is not None:
            return False
        self._thread = get_ident()
        return True

    def _begin_step(self, key: int) -> None:
        """Begin an optimizer's step: a step of the training may turn out to have ended."""
        if self._declares:
            return
        begun = self._rounds.begins(key, afresh=self._tally.batches > 0 or not self._is_fed())
        if begun is not GOES_ON:
            self._close_at_split() if begun is Begun.HAD_ENDED else self._join()
        if self._by_backward:
            self._by_backward, self._is_news = False, True
        if self._asides.why is not None:
            self._observer.aside(None)
        if self._asides.is_between:
            self._asides.trains()

    def _may_end(self) -> None:
        """End the step if it is over; else note that it may be."""
        ended = Ended.BEFORE if self._declares else self._rounds.ends()
        if ended is HERE:
            self._close()
        elif ended is Ended.MAYBE:
            self._split()
        elif self._is_on:
            self._mark("your_code")

    # ── backward passes ─────────────────────────────────────────────────────────────────

    @_event("backward")
    def backward_begins(self) -> bool:
        """Take that a backward pass is about to begin."""
        if get_ident() != self._thread and not self._hears():
            return self._parting is not None
        if self.is_skipping:
            self._begun = self._tally.is_open = True
            return False
        self._backing += 1
        if self._backing > 1:
            return True
        if self._optimizing and not self._has_closure:
            self._optimizing = 0  # an exception has left it
        if self._asides.why is not None:
            self._observer.aside(None)
        self._asides.learns()
        if self._is_on:
            self._mark("backward")
        return True

    @_event("backward")
    def backward_ends(self, tensors: Any) -> bool:
        """Take that it has ended, maybe by an exception."""
        if self._parting is not None:
            return self._part(None)
        self._backing -= 1
        if self._backing > 0:
            return False
        tally = self._tally
        tally.backwards += 1
        tally.is_open = True
        if self._is_on:
            self._mark("optimizer" if self._optimizing else "your_code")
            now = time.monotonic()
            if now >= self._loss_s or tally.loss is not None:
                self._loss_s = now + LOSS_EVERY_S
                tally.loss = self._loss(tensors)
            if now >= self._idle_s:
                self._idle(now)
        if self._stepped_within:
            self._stepped_within = False
            self._may_end()
        elif not self._optimizing and not self._declares:
            self._count_bare()
        return False

    @_event("GradScaler")
    def loss_scaled(self, loss: Any, scaled: Any) -> bool:
        """Take that a GradScaler has scaled a loss, or several."""
        if self._is_on and isinstance(loss, Tensor) and get_ident() == self._thread:
            self._scaled = id(scaled), loss.detach()
        return False

    def _loss(self, tensors: Any) -> Tensor | None:
        scaled, self._scaled = self._scaled, None
        if scaled is not None and scaled[0] == id(tensors):
            tensors = scaled[1]
        if not isinstance(tensors, Tensor) or tensors.numel() != 1:
            return None
        return tensors.detach() if tensors.ndim == 0 else tensors.detach().reshape(())

    def _count_bare(self) -> None:
        """Count backward passes without an optimizer: many, and they are the steps."""
        self._bare_backwards += 1
        if self._by_backward:
            self._close()
        elif self._bare_backwards >= self._patience:
            self._give_optimizers_up()

    def _give_optimizers_up(self) -> None:
        """Let a backward pass end a step, unless an optimizer is there for the gradients."""
        survey = Survey()
        if survey.has_optimizer_to_come():
            self._patience *= 2
            return
        self._by_backward = self._is_news = True
        for module in survey.with_gradients():
            self._add_root(module)
        self.steps += self._bare_backwards - 1
        self._close()

    # ── the model's calls ───────────────────────────────────────────────────────────────

    @_event("forward")
    def called(
        self, root: Root, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Take that a root is about to be called."""
        if get_ident() != self._thread or self._backing:
            return False
        learns = module.training and torch.is_grad_enabled()
        if not (learns and self.is_skipping):
            self._look_up()
        if learns:
            self._call(root, args, kwargs)
        elif (not module.training or not self._tally.batches) and self._asides.calls():
            self._turn_aside()
        self._tally.calls += 1
        self._mark("forward")
        return False

    def _call(self, root: Root, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take a training call."""
        if self._asides.why is not None:
            self._resume()
        if self._asides.is_between:
            self._asides.trains()
        tally = self._tally
        if root.keeps_calls or self.steps >= root.looked_at:
            root.looked_at, root.was_called = self.steps + LOOK_EVERY, True
            root.autocast = torch.is_autocast_enabled(self._device_type)
        if root.keeps_calls:
            autocast = self._device_type, torch.get_autocast_dtype(self._device_type)
            root.newest = NewestCall(args, kwargs, autocast if root.autocast else None)
        if tally.is_open and not tally.batches and not (self._optimizing and tally.backwards):
            tally.called = total(tally.called, first_dimension((args, kwargs)))
        tally.is_open = False

    # ── batches ─────────────────────────────────────────────────────────────────────────

    @_event("DataLoader")
    def loader_opened(self, iterator: Any, loader: Any) -> bool:
        """Take that a DataLoader has made an iterator."""
        self._look_up()
        self._loaders[iterator] = id(loader), weakref.ref(loader)
        self._opened = loader if self._is_on else None
        self._newest_ids = 0, 0  # an id may be another one's now
        return False

    @_event("DataLoader")
    def batch_asked(self, iterator: Any) -> bool:
        """Take that the script is about to wait for a batch."""
        if not self._is_on or self._fetching:
            return False
        if self._thread is not None and get_ident() != self._thread:
            return False
        if self.is_skipping:
            if self._feed is not None and self._feed.iterator() is iterator:
                self._fetching, self._asked_s = True, time.monotonic()
                return True
            self._look_up()
        self._fetching = True
        self._optimizing = self._backing = 0  # what an exception has left
        if self._asides.fetches(self._loader_id(iterator)):
            self._turn_aside()
        elif self._asides.why is not None or not (self._is_within or self._has_waited):
            self._restart()
        self._mark("idle")
        self._asked_s = time.monotonic()
        return True

    @_event("DataLoader")
    def batch_arrived(self, iterator: Any, batch: Any) -> bool:
        """Take that it is there."""
        now = time.monotonic()
        self._fetching = False
        tally = self._tally
        tally.data_s += now - self._asked_s
        tally.batches += 1
        tally.fetched = total(tally.fetched, first_dimension(batch))
        if self._has_tokens or not self.is_skipping:
            tokens = tokens_in(batch)
            self._has_tokens = self._has_tokens or tokens is not None
            tally.tokens = total(tally.tokens, tokens)
        if self.is_skipping:
            self._begun = True
            return False
        self._mark("copy" if self._calls_seen else "your_code")
        if self._feed is None or self._feed.iterator() is not iterator:
            self._note_feed(iterator)
        if now >= self._idle_s:
            self._idle(now)
        return False

    @_event("DataLoader")
    def batch_failed(self, iterator: Any) -> bool:
        """Take that there was none, or that an exception came instead."""
        self._fetching = False
        self._look_up()
        self._tally.data_s += time.monotonic() - self._asked_s
        self._asides.exhausts(self._loader_id(iterator))
        self._mark("your_code")
        return False

    def _loader_id(self, iterator: Any) -> int:
        its_id, loader_id = self._newest_ids
        if its_id != id(iterator):
            known = self._loaders.get(iterator)
            loader_id = id(iterator) if known is None else known[0]
            self._newest_ids = id(iterator), loader_id
        return loader_id

    def _note_feed(self, iterator: Any) -> None:
        """Let the feed be this iterator, unless another one's batches are trained on."""
        known = self._loaders.get(iterator)
        opened, self._opened = None if known is None else known[1](), None
        if opened is None or self._asides.why is not None:
            return
        feeding = self._feed.loader() if self._feed is not None else None
        if feeding is not None and feeding is not opened:
            trained_on = self._asides.is_trained_on
            # between epochs another loader is evaluated, until a backward pass has followed it
            if trained_on(id(feeding)) and (self._is_fed() or not trained_on(id(opened))):
                return
        if self._feed is not None and self._feed.loader() is opened:
            self._feed.iterator = weakref.ref(iterator)
        else:
            self._feed, self._is_news = Feed(opened, iterator), True
        if all(value is not iterator for value in vars(opened).values()):
            self._kept[iterator] = opened  # `for batch in DataLoader(…)` keeps no loader

    def _is_fed(self) -> bool:
        return self._feed is not None and self._feed.iterator() is not None

    # ── steps that the script declares ──────────────────────────────────────────────────

    @_event("gpudash.step")
    def step_begins(self) -> bool:
        """Take that the script says: a step begins. From the first one on, no other is found."""
        if get_ident() != self._thread and (self._declares or self._thread == NOBODY):
            return False
        self._depth += 1
        if self._depth > 1:
            return False
        if not self._declares:
            self._declare()
        self._optimizing = self._backing = 0  # what an exception has left
        if self._asides.why is not None:
            self._observer.aside(None)
        self._asides.trains()
        if not self._has_waited:
            self._tally.calls = self._tally.backwards = 0
            self._tally.data_s = 0.0
            self._retime()
        elif self._is_on:
            self._mark("your_code")
        return False

    @_event("gpudash.step")
    def step_ends(self, samples: Count, tokens: Count, counts: bool) -> bool:  # noqa: FBT001
        """Take that the script says: it has ended; one that failed does not count."""
        if get_ident() != self._thread or not self._depth:
            return False
        self._depth -= 1
        if self._depth:
            return False
        if counts:
            self._close(_whole(samples), _whole(tokens))
        else:
            self._asides.border()
            self._tally, self._mark = Tally(), _nothing
        return False

    def _declare(self) -> None:
        """Take it from the script from now on where steps begin and end."""
        if self._is_split:
            self._close_at_split()
        self._tally = Tally()
        self._thread, self._declares, self._by_backward = get_ident(), True, False
        self._is_news = True

    @property
    def _is_within(self) -> bool:
        """Whether this is part of a step, as far as the script says; else it may be."""
        return self._depth > 0 or not self._declares

    @property
    def _has_waited(self) -> bool:
        """Whether batches have come since the newest step and nothing else has.

        Most loops wait for a batch before they declare its step, which that is part of.
        """
        tally = self._tally
        return tally.batches > 0 and not (tally.calls or tally.backwards)

    # ── files ───────────────────────────────────────────────────────────────────────────

    @_event("torch.save")
    def save_begins(self) -> bool:
        """Take that the script is about to save a file."""
        if not self._is_on or get_ident() != self._thread:
            return False
        self._look_up()
        begins = self._asides.saves()
        if begins:
            self._turn_aside()
        return begins

    @_event("torch.save")
    def save_ends(self) -> bool:
        """Take that it is saved."""
        self._asides.saved()
        self._observer.aside(None)
        self._restart()
        return False

    # ── CUDA graphs ─────────────────────────────────────────────────────────────────────

    @_event("CUDA graph")
    def capture_begins(self) -> bool:
        """Take that a graph is about to be captured: nothing is done now, nor may it be timed."""
        if self._thread is not None and get_ident() != self._thread:
            return False
        self._look_up()
        self._captured, self._thread = False, NOBODY
        return True

    @_event("CUDA graph")
    def capture_ends(self, graph: Any) -> bool:
        """Take that it is captured, or that this has failed."""
        if self._captured is not None:
            self._graphs[graph] = self._captured
            self._captured, self._thread, self._is_news = None, get_ident(), True
        return False

    @_event("CUDA graph")
    def replay_begins(self, graph: Any) -> bool:
        """Take that a graph is about to be replayed: a step, if an optimizer steps in it."""
        if get_ident() != self._thread or not self._graphs.get(graph):
            return False
        self._begin_step(id(graph))
        if self._is_on:
            self._mark("graph")
        return True

    @_event("CUDA graph")
    def replay_ends(self) -> bool:
        """Take that it is on its way."""
        self._bare_backwards = 0
        self._may_end()
        return False

    # ── steps ───────────────────────────────────────────────────────────────────────────

    def _skip(self) -> None:
        """Count a step; look at the next one if it is time."""
        self.steps += 1
        self._skipped += 1
        self._begun = False
        if time.monotonic() >= self._look_due_s:
            self._end_step()

    def _look_up(self) -> None:
        """Look closely, before it was time: something else than a step comes."""
        if not self.is_skipping or get_ident() != self._thread:
            return
        if self._begun:  # of a part of a step nothing can be told
            self.interrupt()
            self.samples = None
        elif self._skipped:
            tally = self._tally
            self._time(tally, self._count_samples(tally), self._tokens(tally))
        self._tally = Tally()
        self._asides.border()
        is_partial = self._begun
        self._open()
        if is_partial:
            self._is_timed, self._mark = False, _nothing

    def _time(self, tally: Tally, samples: int | None, tokens: int | None) -> None:
        """Close a step on the clock, or all those that were skipped."""
        assert self.clock is not None
        count = max(1, self._skipped)
        self.clock.end(self.steps, samples, tally.loss, tally.data_s, tokens, count)
        self._observer.step(self.steps)

    def _close(self, samples: int | None = None, tokens: int | None = None) -> None:
        """End the step here: nothing of the next one has been begun.

        `samples` and `tokens` are what the script says, if it does.
        """
        self.steps += 1
        self._closed_by = None if self._by_backward else self._stepping
        self._end_step(samples, tokens)

    def _end_step(self, samples: int | None = None, tokens: int | None = None) -> None:
        tally, self._tally, self._is_split = self._tally, Tally(), False
        self._asides.border()
        if self._is_on and not self.is_skipping:
            self._learn(tally)
        samples = self._count_samples(tally, samples)
        listened_to, self._thread = self._thread, NOBODY  # what is done now is not the script's
        try:
            if self._is_timed:
                tokens = self._tokens(tally) if tokens is None else tokens
                self._time(tally, samples, tokens)
            if self._is_news:
                self._tell(tally)
            self._observer.border(self.steps)
        finally:
            self._thread = listened_to
            if not self._is_timed:
                self.interrupt()
            may_skip = self._is_timed and not self.is_skipping and self._may_skip()
            self._is_on = self.active
            self._open(skipping=may_skip and self._is_on)

    def _may_skip(self) -> bool:
        """Return whether the next steps may be timed together: they come often, all alike."""
        if not self.may_skip or self._declares or self.steps < self.closely_until:
            return False
        steps_alike = self._is_plain and len(self._optimizers) == 1 and not self._has_closure
        return (
            steps_alike
            and not (self._scaler or self._graphs or self._by_backward or self._backing)
            and time.monotonic() < self._look_due_s
        )

    def _open(self, *, skipping: bool = False) -> None:
        """Begin the next step; `skipping`: or several, until it is time for a look."""
        for root in self._roots:
            attend(root, self)
        self.is_skipping, self._skipped, self._begun = skipping, 0, False
        self.hears_calls = self._is_timed = self._is_on
        self._mark = _nothing
        if self._is_timed and not self._declares:
            assert self.clock is not None
            mark = self.clock.begin()
            if skipping:
                self.hears_calls = not self._is_fed()
                self._plain = next(iter(self._optimizers))
                return
            self._mark, self._is_plain = mark, True
            self._mark("your_code")
            self._look_due_s = time.monotonic() + LOOK_EVERY_S

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
            self._learn(tally)
        samples = self._count_samples(tally)
        if self._is_timed:
            assert self.clock is not None
            self._mark = self.clock.end_at_split(
                self.steps, samples, tally.loss, tally.data_s, self._tokens(tally)
            )
            self._observer.step(self.steps)

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

    def _count_samples(self, tally: Tally, said: int | None = None) -> int | None:
        samples = self._samples(tally) if said is None else said
        self.samples = total(self.samples, samples)
        return samples

    def _samples(self, tally: Tally) -> int | None:
        if not self._is_on:
            return None
        if tally.batches:
            return tally.fetched
        if self._is_fed():
            return 0  # some frameworks ask for each batch a step ahead
        return tally.called or None if self._models == 1 else None

    def _tokens(self, tally: Tally) -> int | None:
        if tally.batches:
            return tally.tokens
        return 0 if self._has_tokens and self._is_fed() else None  # as the samples

    # ── what is found ───────────────────────────────────────────────────────────────────

    def _meet(self, key: int, optimizer: Optimizer) -> None:
        """Take an optimizer that steps for the first time, with its models."""
        self._optimizers[key] = weakref.ref(optimizer, lambda _: self._gone.append(key))
        self._is_news = True
        own = parameters_of(optimizer)
        if not own.isdisjoint(self._parameters) or not self._surveys_left:
            return
        self._surveys_left -= 1
        survey = Survey()
        for module in survey.roots(own):
            self._add_root(module)
        for other in survey.optimizers:
            parameters = parameters_of(other)
            if own.isdisjoint(parameters):  # else it is around this one, or the other way
                self._rounds.expect(id(other))
                own |= parameters

    def _forget(self) -> None:
        """Wait no longer for optimizers that the script has let go of."""
        while self._gone:
            key = self._gone.pop()
            self._optimizers.pop(key, None)
            self._rounds.forget(key)
            self._is_news = True

    def _add_root(self, module: nn.Module) -> None:
        if any(root.module is module for root in self._roots):
            return
        root = Root(module)
        self._roots = [one for one in self._roots if one.module is not None]
        self._roots.append(root)
        self._models = len(self._roots)
        attend(root, self)
        self._are_new = True
        self._parameters |= parameters_of(module)
        self._calls_seen = self._is_news = True

    def _learn(self, tally: Tally) -> None:
        """Take note of what a step was like."""
        if tally.backwards and self._backwards.take(tally.backwards):
            self._patience = max(self._patience, WITHOUT_OPTIMIZER * tally.backwards)
            self._is_news = True
        if self._is_timed:
            self._calls_seen = tally.calls > 0
            if self._are_new and tally.backwards:
                self._seek_calls()

    def _seek_calls(self) -> None:
        """Listen for a step to what is in the roots that are not called; keep what is."""
        parts, self._parts = self._parts, None
        if parts is None:
            unheard = [root for root in self._roots if not root.was_called]
            if unheard:
                self._parts = Parts(unheard, self)
                return
        else:
            before, self._roots = self._roots, parts.replace(self._roots)
            self._is_news |= self._roots != before
        self._are_new = False

    def _tell(self, tally: Tally) -> None:
        """Tell the observer what was found; at first, make the instruments."""
        optimizers = tuple(_alive(ref() for ref in self._optimizers.values()))
        roots = tuple(root for root in self._roots if root.module is not None)
        modules = _alive(root.module for root in roots)
        device = device_of(modules, optimizers, tally.loss)
        if self.clock is None:
            self.clock, self.losses = instruments(device, PHASES)
        if self.may_skip is None:
            self.may_skip = device.type == "cuda"
        self._is_news, self._device_type = False, device.type
        self._observer.found(
            Found(
                optimizer_refs=() if self._by_backward else tuple(self._optimizers.values()),
                roots=roots,
                feed=self._feed,
                device=device,
                world_size=world_size(),
                backwards=self._backwards.usual,
                scaler=self._scaler,
                graphs=len(self._graphs) > 0,
                declared=self._declares,
            )
        )


def _alive(things: Iterable[T | None]) -> list[T]:
    """Return those that are there; a module may be false."""
    return [thing for thing in things if thing is not None]


def _whole(count: Count) -> int | None:
    return None if count is None else index(count)


def world_size() -> int:
    """Return how many processes train together."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


def _nothing(_name: str, /) -> None:
    """Mark nothing."""
