"""Finds the steps and phases of a training that was not written for gpudash.

It follows the one thread that trains, and ignores what gpudash itself tries out between steps. If
another thread trains too, the findings say so. A failure here turns all hooks off.
"""

import sys
import time
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

from ..instrument.guard import event
from ..instrument.loss import readable
from .boundaries import BY_UPDATES, FIRST, UNWATCHED
from .communication import SharedSteps
from .hooked_methods import UPDATES, hook_methods
from .roots import Survey, before_freezing
from .step_counts import StepCounts
from .steps import NOBODY, no_switch, nothing

OTHERS_STEPS = 8
"""After so many steps of another thread's optimizers, and none of ours, follow that thread."""
NO_TASK = -1
"""Autograd's id of the current backward pass on a thread that runs none."""


class Tracker(SharedSteps):
    """Handles all events of the script. A begin returns whether to report its end."""

    def reset(self) -> None:
        super().reset()
        self._stepped_within = False  # an optimizer has stepped in this backward pass
        self._scaled: tuple[int, Tensor] | None = None  # the id of a scaled loss, and the loss
        self._bare_backwards = 0  # backward passes since an optimizer stepped
        self._captured: bool | None = None  # an optimizer stepped in the capture; None: no capture
        self._is_new_cell = False  # no optimizer has stepped since a notebook's cell ended
        self._other_steps = 0  # steps of another thread's optimizers …
        self._other_steps_after = 0  # … since this step

    # ── optimizers ──────────────────────────────────────────────────────────────────────

    @event("optimizer")
    def optimizer_begins(self, optimizer: Any, has_closure: bool) -> bool:  # noqa: FBT001
        if get_ident() != self._thread and not self._accepts_step():
            return False
        if self.mode.is_skipping:
            if id(optimizer) == self._only_optimizer and not has_closure:
                return True
            self._stop_skipping()
        key = id(optimizer)
        steps_again = self._optimizer_depth > 0 and key == self._newest_optimizer
        if steps_again and (has_closure or not self._findings.scaler):
            self._optimizer_depth, self._is_plain = 0, False  # an exception has left it above 0
        self._optimizer_depth += 1
        if self._optimizer_depth > 1:
            self._is_plain = False
            return True
        self._forget_others(key)
        self._has_closure = has_closure
        self._newest_optimizer = key
        self._begin_step(key)
        if key not in self._findings.optimizers:
            for other in self._findings.meet(key, optimizer):
                self._boundaries.expect(other)
        if not has_closure:
            self._enter("updates")
        return True

    @event("optimizer")
    def optimizer_ends(self, optimizer: Any) -> bool:
        """Note that an optimizer has stepped, or that its GradScaler skipped the step."""
        if self._failed_thread is not None:
            return self._restore_at_border(id(optimizer))
        if self.mode.is_skipping and get_ident() == self._thread:
            self._skip()
            return False
        if not self._optimizer_depth:
            return False
        if get_ident() != self._thread and not self._runs_backward_here():
            return False
        self._optimizer_depth -= 1
        if self._optimizer_depth:
            return False
        if self._backward_depth:
            self._stepped_within = True
            self._enter("learns")
        else:
            self._update_ends()
        return False

    @event("GradScaler")
    def scaler_steps(self) -> bool:
        self._stop_skipping()
        if not self._findings.scaler and self._thread in (None, get_ident()):
            self._findings.scaler = self._findings.is_news = True
        return False

    def _forget_others(self, key: int) -> None:
        """Forget the optimizers that are gone, and another cell's training if this one is new."""
        for gone in self._findings.lost():
            self._boundaries.forget(gone)
        if self._is_new_cell:
            self._is_new_cell = False
            if key not in self._findings.optimizers:
                self._begin_anew()

    def _accepts_step(self) -> bool:
        if self._captured is not None:
            self._captured = True
        if self._thread == NOBODY:
            return False
        return self._runs_backward_here() or self._takes_over(trains=True)

    def _runs_backward_here(self) -> bool:
        return self._backward_depth > 0 and torch._C._current_graph_task_id() != NO_TASK  # noqa: SLF001  # no public name

    def _takes_over(self, *, trains: bool = False) -> bool:
        """Let this thread replace one that no longer trains, if an optimizer steps next."""
        if self._thread == NOBODY:
            return False
        is_followed = self._thread is not None and _lives(self._thread)
        if is_followed and not (trains and self._followed_has_stopped()):
            return False
        self._thread, self.counting.thread = get_ident(), None
        self._optimizer_depth = self._backward_depth = 0  # left by the former thread
        return True

    def _followed_has_stopped(self) -> bool:
        if not self._findings.other_thread:
            self._findings.other_thread = self._findings.is_news = True
        if self._other_steps_after != self.steps:
            self._other_steps, self._other_steps_after = 0, self.steps
        self._other_steps += 1
        is_busy = self._optimizer_depth or self._backward_depth or self.counting.fetching
        return self._other_steps > OTHERS_STEPS and not is_busy

    def _begin_step(self, key: int) -> None:
        state = self._boundaries.state
        if state != "declared":
            says = self._boundaries.update_begins(key, afresh=self._is_afresh())
            if says != "goes on":
                self._obey(says)
            if state == "passes":
                self._findings.is_news = True
            if self._asides.why is not None:
                self._observer.aside(None)
            if self._asides.is_between:
                self._asides.trains()
        self._learned.updates(self._tally)

    def _is_afresh(self) -> bool | None:
        """Return whether something of another step has come since the newest end; None: unknown."""
        if self._tally.batches:
            return True
        if self._boundaries.state == "passes":  # else the pass has ended the step of this update
            return self._has_closure or self._backward_depth > 0
        if self._feeds.is_fed():
            return False
        learns = self._has_closure or self._backward_depth > 0
        return False if self._has_learned is False and not learns else None

    def _update_ends(self) -> None:
        self._bare_backwards = 0
        if self._has_learned:
            self._has_learned = False
        self._obey(self._boundaries.update_ends())

    @event("optimizer")
    def own_update_begins(self, optimizer: Any) -> bool:
        return self.optimizer_begins(optimizer, False) or self._failed_thread is not None

    # ── backward passes ─────────────────────────────────────────────────────────────────

    @event("backward")
    def backward_begins(self, tensors: Any) -> bool:
        if get_ident() != self._thread and not self._takes_over():
            return self._failed_thread is not None
        mode = self.mode
        if mode.is_skipping:
            self.counting.next_begun = self._tally.is_open = True
            is_scalar = isinstance(tensors, Tensor) and tensors.numel() == 1
            self._tally.loss = tensors.detach() if is_scalar else None
            return False
        self._backward_depth += 1
        if self._backward_depth > 1:
            return True
        if self._optimizer_depth and not self._has_closure:
            self._optimizer_depth = 0  # an exception may have left it above 0
        if self._asides.why is not None:
            self._observer.aside(None)
        self._asides.learns()
        tally = self._tally
        if (
            mode.is_on
            and not (self._optimizer_depth and tally.backwards)  # a closure computes it again
            and not (tally.batches or self._feeds.is_fed())
        ):
            self._learned.learns(tally, tensors)
        self._enter("learns")
        if mode.is_timed:
            self._gradient_sync.pass_begins()
        return True

    @event("backward")
    def backward_ends(self, tensors: Any) -> bool:
        if self._failed_thread is not None:
            return self._restore_at_border(None)
        self._backward_depth -= 1
        if self._backward_depth > 0:
            return False
        tally = self._tally
        tally.backwards += 1
        tally.is_open = self._has_learned = True
        if self._gradient_sync.pass_ends() and self._mark is not nothing:
            assert self.clock is not None
            self.clock.rename("communication")
        if self.mode.is_on:
            self._enter("updates" if self._optimizer_depth else "has learned")
            tally.loss = self._loss(tensors)
            now = time.monotonic()
            if now >= self._idle_s:
                self._idle(now)
        if self._stepped_within:
            self._stepped_within = self._is_plain = False  # on a GPU, on autograd's thread
            self._update_ends()
        elif not self._optimizer_depth:
            self._count_bare()
        return False

    @event("GradScaler")
    def loss_scaled(self, loss: Any, scaled: Any) -> bool:
        is_scaled = scaled is not loss and isinstance(loss, Tensor)  # else the scaler is disabled
        if self.mode.is_on and is_scaled and get_ident() == self._thread:
            self._scaled = id(scaled), loss.detach()
        return False

    def _loss(self, tensors: Any) -> Tensor | None:
        scaled, self._scaled = self._scaled, None
        if scaled is not None:  # a tensor computed from the scaled loss is no loss
            tensors = scaled[1] if scaled[0] == id(tensors) else None
        return readable(tensors)

    def _count_bare(self) -> None:
        """Take backward passes for the steps after many without an optimizer step."""
        hook_methods(UPDATES, self.own_update_begins, self.optimizer_ends, takes=1)
        self._bare_backwards += 1
        if self._boundaries.feed("pass") == "ends":
            self._close()
        elif self._bare_backwards >= self._findings.patience:
            self._give_optimizers_up()

    def _give_optimizers_up(self) -> None:
        if self._boundaries.state not in BY_UPDATES:
            return
        survey = Survey()
        if survey.has_optimizer_to_come():
            self._findings.patience *= 2
            return
        self._findings.is_news = True
        trained = survey.with_gradients()
        for module in trained:
            self._findings.add_root(module)
        self._findings.add_frozen(survey.frozen(trained))
        self._obey(self._boundaries.feed("no more comes"))
        self.counting.steps += self._bare_backwards - 1
        self._obey(self._boundaries.feed("passes alone"))

    # ── files and garbage collection ────────────────────────────────────────────────────

    @event("torch.save")
    def save_begins(self) -> bool:
        if not self.mode.is_on or get_ident() != self._thread:
            return False
        self._stop_skipping()
        held = self._held if self._asides.why is not None else self._to_train_on()
        begins = self._asides.saves()
        if begins:
            self._turn_aside(held)
        return begins

    @event("torch.save")
    def save_ends(self) -> bool:
        self._asides.saved()
        self._observer.aside(None)
        self._restart(self._held)
        return False

    @event("gc.freeze")
    def freezes(self) -> bool:
        before_freezing()
        return False

    # ── notebooks ───────────────────────────────────────────────────────────────────────

    @event("cell")
    def cell_begins(self) -> bool:
        if self.is_here and self.rests:
            self._retime()
        return False

    @property
    def rests(self) -> bool:
        return self._asides.why == "idle"

    @property
    def is_here(self) -> bool:
        return get_ident() == self._thread

    @event("cell")
    def flush(self) -> bool:
        if self.is_here:
            self.finish()
            self._observer.flush()
        return False

    @event("cell")
    def cell_ends(self) -> bool:
        """Forget where the script is: an interrupt may have come anywhere."""
        if not self.is_here:
            return False
        if self.rests:
            self.counting.fetching = False
            return False
        self.finish()
        self.counting.fetching = self._stepped_within = self._has_closure = False
        self._optimizer_depth = self._backward_depth = self._waiting = self._depth = 0
        self._scaled, self._captured, self._tally = None, None, StepCounts()
        self._asides.rests()
        self._is_new_cell = True
        self._observer.aside(self._asides.why)
        self.interrupt()
        if self.mode is not FIRST:
            self._open(is_on=self.mode.is_on)
        return False

    def _begin_anew(self) -> None:
        self._observer.begins_anew()
        self._findings.end()
        asides, feeds, tally = self._asides, self._feeds, self._tally
        self.reset()
        self._asides, self._feeds, self._tally = asides, feeds, tally
        self._asides.why, self._thread, self._optimizer_depth = None, get_ident(), 1
        feeds.begin_anew()

    def end(self) -> None:
        """Follow nothing any more. A hook that someone has kept does nothing."""
        self._findings.end()
        self.reset()
        self.switch_backward = no_switch  # a child that is forked later gets no hook back
        self._thread, self.mode = NOBODY, UNWATCHED

    # ── CUDA graphs ─────────────────────────────────────────────────────────────────────

    @event("CUDA graph")
    def capture_begins(self) -> bool:
        if self._thread is not None and get_ident() != self._thread:
            return False
        self._stop_skipping()
        self._captured, self._thread = False, NOBODY
        return False

    @event("CUDA graph")
    def capture_ends(self, graph: Any) -> bool:
        if self._captured is not None:
            self._findings.graphs[graph] = self._captured
            self._captured, self._thread, self._findings.is_news = None, get_ident(), True
        return False

    @event("CUDA graph")
    def replay_begins(self, graph: Any) -> bool:
        """Take a replay for a step if an optimizer steps in it."""
        if get_ident() != self._thread or not self._findings.graphs.get(graph):
            return False
        self._has_learned = True  # in the graph
        self._begin_step(id(graph))
        self._enter("replays")
        return True

    @event("CUDA graph")
    def replay_ends(self, _graph: Any) -> bool:
        self._update_ends()
        return False


def _lives(thread: int) -> bool:
    return thread in sys._current_frames()  # noqa: SLF001  # `threading` knows only its own threads
