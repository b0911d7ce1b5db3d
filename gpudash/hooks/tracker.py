"""Finds the steps of a training that nobody wrote for us.

Told by the patches of torch what the script does, it says when a step ends and which phase begins.
It listens to one thread, the one that trains: what other threads do, and what gpudash itself tries
out between steps, is no part of the training. Where another one trains too, it says so. Nothing of
a failure in here reaches the script: all hooks are off from then on.
"""

import sys
import time
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpudash.hooks.batches import Batches
from gpudash.hooks.event import event
from gpudash.hooks.findings import Findings
from gpudash.hooks.found import NewestCall, Root
from gpudash.hooks.gradient_sync import GradientSync
from gpudash.hooks.roots import Survey, before_freezing
from gpudash.hooks.rounds import GOES_ON, HERE, Begun, Ended, Rounds
from gpudash.hooks.samples import first_dimension
from gpudash.hooks.steps import NOBODY, nothing
from gpudash.hooks.tally import total
from gpudash.instrument.collectives import Moved, together

AUTOCAST_EVERY = 16
"""After so many steps it is looked at again whether a root is called inside an autocast."""
OTHERS_STEPS = 8
"""After so many of another thread's, and none of the one that is listened to, it is listened to."""
NO_TASK = -1
"""What autograd calls the backward pass of a thread that runs none."""
LOSS_EVERY_S = 0.02
"""No loss is kept more often: no more are shown."""


class Tracker(Batches):
    """Told what the script does, by the patches: an event says whether its end is to be told."""

    def begin_anew(self) -> None:
        """Know nothing of a training."""
        super().begin_anew()
        self._known = Findings(self)
        self._gradient_sync = GradientSync(self, self.gradient_came)
        self._rounds = Rounds()
        self._loss_s = 0.0
        self._waiting = 0  # for other processes, how deep
        self._stepped_within = False  # an optimizer, in this backward pass
        self._scaled: tuple[int, Tensor] | None = None  # the id of a scaled loss, and the loss
        self._bare_backwards = 0  # since an optimizer stepped
        self._captured: bool | None = None  # whether an optimizer stepped; None: no capture
        self._others = 0  # steps of another thread's optimizers since the newest step
        self._others_after = 0  # which is this one

    # ── optimizers ──────────────────────────────────────────────────────────────────────

    @event("optimizer")
    def optimizer_begins(self, optimizer: Optimizer, has_closure: bool) -> bool:  # noqa: FBT001
        """Take that an optimizer is about to step."""
        if get_ident() != self._thread and not self._hears_step():
            return False
        if self.is_skipping:
            if id(optimizer) == self._plain and not has_closure:
                return True
            self._look_up()
        key = id(optimizer)
        if self._optimizing and key == self._stepping and (has_closure or not self._known.scaler):
            self._optimizing, self._is_plain = 0, False  # an exception has left it
        self._optimizing += 1
        if self._optimizing > 1:
            self._is_plain = False
            return True
        for gone in self._known.lost():
            self._rounds.forget(gone)
        self._has_closure = has_closure
        self._stepping = key
        self._begin_step(key)
        if key not in self._known.optimizers:
            for other in self._known.meet(key, optimizer):
                self._rounds.expect(other)
        if not has_closure:
            self._mark("optimizer")
        return True

    @event("optimizer")
    def optimizer_ends(self, optimizer: Optimizer) -> bool:
        """Take that it has stepped, or was kept from it."""
        if self._parting is not None:
            return self._part(id(optimizer))
        if self.is_skipping and get_ident() == self._thread:
            self._skip()
            return False
        if not self._optimizing or (get_ident() != self._thread and not self._is_backing_here()):
            return False
        self._optimizing -= 1
        if self._optimizing:
            return False
        self._bare_backwards = 0
        if self._backing:
            self._stepped_within = True
            self._mark("backward")
        else:
            self._may_end()
        return False

    @event("GradScaler")
    def scaler_steps(self) -> bool:
        """Take that a GradScaler is about to step an optimizer, or to skip it."""
        self._look_up()
        if not self._known.scaler and self._thread in (None, get_ident()):
            self._known.scaler = self._known.is_news = True
        return False

    def _hears_step(self) -> bool:
        """Return whether another thread's optimizer is of this training: in a backward pass."""
        if self._captured is not None:
            self._captured = True
        if self._thread == NOBODY:
            return False
        return self._is_backing_here() or self._hears(trains=True)

    def _is_backing_here(self) -> bool:
        """Return whether this thread, maybe one of autograd's, runs the backward pass."""
        return self._backing > 0 and torch._C._current_graph_task_id() != NO_TASK  # noqa: SLF001  # nothing public tells

    def _hears(self, *, trains: bool = False) -> bool:
        """Return whether nobody is there to listen to: it is this thread from now on.

        `trains`: its optimizer is about to step, so another one that is there is not all there is.
        """
        if self._thread == NOBODY:
            return False
        if self._thread is not None and _lives(self._thread) and not (trains and self._is_left()):
            return False
        self._thread = get_ident()
        self._optimizing = self._backing = 0  # what the one before has left
        return True

    def _is_left(self) -> bool:
        """Take that a thread trains beside ours; return whether ours does so no more."""
        if not self._known.other_thread:
            self._known.other_thread = self._known.is_news = True
        if self._others_after != self.steps:
            self._others, self._others_after = 0, self.steps
        self._others += 1
        is_busy = self._optimizing or self._backing or self._fetching
        return self._others > OTHERS_STEPS and not is_busy

    def _begin_step(self, key: int) -> None:
        """Begin an optimizer's step: a step of the training may turn out to have ended."""
        if self._known.declares:
            return
        begun = self._rounds.begins(key, afresh=self._tally.batches > 0 or not self._feeds.is_fed())
        if begun is not GOES_ON:
            self._close_at_split() if begun is Begun.HAD_ENDED else self._join()
        if self._known.by_backward:
            self._known.by_backward, self._known.is_news = False, True
        if self._asides.why is not None:
            self._observer.aside(None)
        if self._asides.is_between:
            self._asides.trains()

    def _may_end(self) -> None:
        """End the step if it is over; else note that it may be."""
        ended = Ended.BEFORE if self._known.declares else self._rounds.ends()
        if ended is HERE:
            self._close()
        elif ended is Ended.MAYBE:
            self._split()
        else:
            self._mark("your_code")

    # ── backward passes ─────────────────────────────────────────────────────────────────

    @event("backward")
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
        self._mark("backward")
        if self._is_timed:
            self._gradient_sync.pass_begins()
        return True

    @event("backward")
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
        if self._gradient_sync.pass_ends() and self._mark is not nothing:
            assert self.clock is not None
            self.clock.rename("communication")
        if self._is_on:
            self._mark("optimizer" if self._optimizing else "your_code")
            now = time.monotonic()
            if now >= self._loss_s or tally.loss is not None:
                self._loss_s = now + LOSS_EVERY_S
                tally.loss = self._loss(tensors)
            if now >= self._idle_s:
                self._idle(now)
        if self._stepped_within:
            self._stepped_within = self._is_plain = False  # on a GPU, by autograd's thread
            self._may_end()
        elif not self._optimizing and not self._known.declares:
            self._count_bare()
        return False

    @event("GradScaler")
    def loss_scaled(self, loss: Any, scaled: Any) -> bool:
        """Take that a GradScaler has scaled a loss, or several."""
        is_scaled = scaled is not loss and isinstance(loss, Tensor)  # else the scaler is off
        if self._is_on and is_scaled and get_ident() == self._thread:
            self._scaled = id(scaled), loss.detach()
        return False

    def _loss(self, tensors: Any) -> Tensor | None:
        scaled, self._scaled = self._scaled, None
        if scaled is not None:  # something that was made of it is no loss
            tensors = scaled[1] if scaled[0] == id(tensors) else None
        if not isinstance(tensors, Tensor) or tensors.numel() != 1 or not _can_be_read(tensors):
            return None
        return tensors.detach() if tensors.ndim == 0 else tensors.detach().reshape(())

    def _count_bare(self) -> None:
        """Count backward passes without an optimizer: many, and they are the steps."""
        self._bare_backwards += 1
        if self._known.by_backward:
            self._close()
        elif self._bare_backwards >= self._known.patience:
            self._give_optimizers_up()

    def _give_optimizers_up(self) -> None:
        """Let a backward pass end a step, unless an optimizer is there for the gradients."""
        survey = Survey()
        if survey.has_optimizer_to_come():
            self._known.patience *= 2
            return
        self._known.by_backward = self._known.is_news = True
        for module in survey.with_gradients():
            self._known.add_root(module)
        self.steps += self._bare_backwards - 1
        self._close()

    # ── other processes ─────────────────────────────────────────────────────────────────

    @event("gradients")
    def gradient_came(self) -> bool:
        """Take that a gradient has come that may be the pass's last: it is sent next.

        On a GPU this is autograd's thread, and the one that trains waits for it.
        """
        if self._backing:
            self._mark("backward")
        return False

    @event("communication")
    def wait_begins(self) -> bool:
        """Take that the computation is about to wait for other processes."""
        if not self._is_timed or (get_ident() != self._thread and not self._backing):
            return False
        self._waiting += 1
        if self._waiting == 1:
            self._mark("communication")
        return True

    @event("communication")
    def wait_ends(self) -> bool:
        """Take that it goes on."""
        self._waiting -= 1
        if self._waiting == 0:
            self._mark("backward" if self._backing else "forward")
        return False

    @event("communication")
    def collective_called(self) -> bool:
        """Take that a collective is on its way; return whether what it moves is to be told."""
        is_looked_at = self._is_timed and not self.is_skipping
        return is_looked_at and (get_ident() == self._thread or self._backing > 0)

    @event("communication")
    def collective_moves(self, moved: Moved | None) -> bool:
        """Take what it moves."""
        self._tally.moved = together((self._tally.moved, moved))
        return False

    # ── the model's calls ───────────────────────────────────────────────────────────────

    @event("forward")
    def called(
        self, root: Root, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Take that a root is about to be called."""
        if get_ident() != self._thread or self._backing:
            return False
        learns = module.training and torch.is_grad_enabled()
        if learns and self.is_skipping:
            self._begun = True
        elif self._look_up():
            self._asides.trains()
        if learns:
            self._call(root, args, kwargs)
        else:
            self._is_plain = False  # the next step may have one too, and be looked at because of it
            if (not module.training or not self._tally.batches) and self._asides.calls():
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
            root.looked_at, root.was_called = self.steps + AUTOCAST_EVERY, True
            root.autocast = torch.is_autocast_enabled(self._known.device_type)
        if root.keeps_calls:
            autocast = self._known.device_type, torch.get_autocast_dtype(self._known.device_type)
            root.newest = NewestCall(args, kwargs, autocast if root.autocast else None)
        if tally.is_open and not tally.batches and not (self._optimizing and tally.backwards):
            tally.called = total(tally.called, first_dimension((*args, *kwargs.values())))
        tally.is_open = False

    # ── files ───────────────────────────────────────────────────────────────────────────

    @event("torch.save")
    def save_begins(self) -> bool:
        """Take that the script is about to save a file."""
        if not self._is_on or get_ident() != self._thread:
            return False
        self._look_up()
        begins = self._asides.saves()
        if begins:
            self._turn_aside()
        return begins

    @event("torch.save")
    def save_ends(self) -> bool:
        """Take that it is saved."""
        self._asides.saved()
        self._observer.aside(None)
        self._restart()
        return False

    # ── garbage collection ──────────────────────────────────────────────────────────────

    @event("gc.freeze")
    def freezes(self) -> bool:
        """Take that the collector is about to list nothing any more that is there now."""
        before_freezing()
        return False

    # ── CUDA graphs ─────────────────────────────────────────────────────────────────────

    @event("CUDA graph")
    def capture_begins(self) -> bool:
        """Take that a graph is about to be captured: nothing is done now, nor may it be timed."""
        if self._thread is not None and get_ident() != self._thread:
            return False
        self._look_up()
        self._captured, self._thread = False, NOBODY
        return True

    @event("CUDA graph")
    def capture_ends(self, graph: Any) -> bool:
        """Take that it is captured, or that this has failed."""
        if self._captured is not None:
            self._known.graphs[graph] = self._captured
            self._captured, self._thread, self._known.is_news = None, get_ident(), True
        return False

    @event("CUDA graph")
    def replay_begins(self, graph: Any) -> bool:
        """Take that a graph is about to be replayed: a step, if an optimizer steps in it."""
        if get_ident() != self._thread or not self._known.graphs.get(graph):
            return False
        self._begin_step(id(graph))
        self._mark("graph")
        return True

    @event("CUDA graph")
    def replay_ends(self) -> bool:
        """Take that it is on its way."""
        self._bare_backwards = 0
        self._may_end()
        return False


def _can_be_read(loss: Tensor) -> bool:
    """Return whether it is one real number."""
    return loss.is_floating_point() and loss.layout == torch.strided and not loss.is_meta


def _lives(thread: int) -> bool:
    return thread in sys._current_frames()  # noqa: SLF001  # `threading` knows its own alone
