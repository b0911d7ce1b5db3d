"""Finds the steps and phases of a training that was not written for gpudash.

The patches of torch report what the script does. The tracker decides when a step ends and which
phase begins. It follows one thread, the one that trains. It ignores other threads, and what gpudash
itself tries out between steps. If another thread trains too, the findings say so. No failure here
reaches the script: it turns all hooks off.
"""

import sys
import time
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..instrument.collectives import Moved, together
from ..instrument.guard import event
from ..instrument.loss import readable
from ..levers.training_objects import NewestCall, Root
from .batches import BatchedSteps
from .boundaries import BY_UPDATES
from .discovery import Discovery
from .gradient_sync import GradientSync
from .grammar import Symbol
from .mode import FIRST, UNWATCHED
from .own_optimizers import hook_own_optimizers
from .roots import Survey, before_freezing
from .samples import first_dimension, needs_gradient
from .step_counts import Tally, total
from .steps import NOBODY, no_switch, nothing

AUTOCAST_EVERY = 16
"""After so many steps, look again whether a root is called inside an autocast."""
FEW = 4
"""A rollout in evaluation mode acts on so many times fewer samples at once than a step learns
from."""
OTHERS_STEPS = 8
"""After so many steps of another thread's optimizers, and none of ours, follow that thread."""
NO_TASK = -1
"""Autograd's id of the current backward pass on a thread that runs none."""


class Tracker(BatchedSteps):
    """Handles all events of the script. A begin returns whether to report its end."""

    def reset(self) -> None:
        """Forget the training found so far."""
        super().reset()
        self._findings = Discovery(self)
        self._gradient_sync = GradientSync(self, self.gradient_came)
        self._waiting = 0  # depth of nested waits for other processes
        self._borders: list[Any] = []  # the clock's timestamps in a call of collectives
        self._stepped_within = False  # an optimizer has stepped in this backward pass
        self._scaled: tuple[int, Tensor] | None = None  # the id of a scaled loss, and the loss
        self._bare_backwards = 0  # backward passes since an optimizer stepped
        self._captured: bool | None = None  # an optimizer stepped in the capture; None: no capture
        self._is_new_cell = False  # no optimizer has stepped since a notebook's cell ended
        self._other_steps = 0  # steps of another thread's optimizers …
        self._other_steps_after = 0  # … since this step

    # ── optimizers ──────────────────────────────────────────────────────────────────────

    @event("optimizer")
    def optimizer_begins(self, optimizer: Optimizer, has_closure: bool) -> bool:  # noqa: FBT001
        """Note that an optimizer is about to step."""
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
        self._learned.updates(self._tally)
        if key not in self._findings.optimizers:
            for other in self._findings.meet(key, optimizer):
                self._boundaries.expect(other)
        if not has_closure:
            self._enter("updates")
        return True

    @event("optimizer")
    def optimizer_ends(self, optimizer: Optimizer) -> bool:
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
        self._bare_backwards = 0
        if self._backward_depth:
            self._stepped_within = True
            self._enter("learns")
        else:
            self._update_ends()
        return False

    @event("GradScaler")
    def scaler_steps(self) -> bool:
        """Note that a GradScaler is about to step an optimizer, or to skip the step."""
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
        """Return whether to count an optimizer step on another thread than the one followed."""
        if self._captured is not None:
            self._captured = True
        if self._thread == NOBODY:
            return False
        return self._runs_backward_here() or self._takes_over(trains=True)

    def _runs_backward_here(self) -> bool:
        """Return whether this thread, maybe autograd's, runs the backward pass."""
        return self._backward_depth > 0 and torch._C._current_graph_task_id() != NO_TASK  # noqa: SLF001  # no public name

    def _takes_over(self, *, trains: bool = False) -> bool:
        """Follow this thread if no other is followed; return whether it is followed now.

        `trains`: an optimizer of this thread is about to step, so it may replace a thread that no
        longer trains.
        """
        if self._thread == NOBODY:
            return False
        is_followed = self._thread is not None and _lives(self._thread)
        if is_followed and not (trains and self._followed_has_stopped()):
            return False
        self._thread, self.counting.thread = get_ident(), None
        self._optimizer_depth = self._backward_depth = 0  # left by the former thread
        return True

    def _followed_has_stopped(self) -> bool:
        """Note that another thread trains too; return whether the followed one has stopped."""
        if not self._findings.other_thread:
            self._findings.other_thread = self._findings.is_news = True
        if self._other_steps_after != self.steps:
            self._other_steps, self._other_steps_after = 0, self.steps
        self._other_steps += 1
        is_busy = self._optimizer_depth or self._backward_depth or self.counting.fetching
        return self._other_steps > OTHERS_STEPS and not is_busy

    def _begin_step(self, key: int) -> None:
        """Begin an optimizer's step. This may show that the training step before has ended."""
        state = self._boundaries.state
        if state == "declared":
            return
        afresh = self._tally.batches > 0
        known = afresh if afresh or self._feeds.is_fed() else None
        self._obey(self._boundaries.update_begins(key, afresh=known))
        self._findings.is_news |= state == "passes"
        if self._asides.why is not None:
            self._observer.aside(None)
        if self._asides.is_between:
            self._asides.trains()

    def _update_ends(self) -> None:
        """End the training step if it is over, or note that it may be."""
        says = self._boundaries.update_ends()
        if says in ("late", "goes on"):
            self._enter("has updated")
        if says == "late":
            self._asides.is_between = True
        self._obey(says)

    @event("optimizer")
    def own_update_begins(self, optimizer: Any) -> bool:
        """Note that an optimizer that is not PyTorch's is about to update the weights."""
        known, is_expected = self._findings, self._boundaries.state == "passes"
        if get_ident() != self._thread or not (is_expected or known.own_optimizer):
            return False
        self._stop_skipping()
        if not known.own_optimizer:  # the backward pass before has ended this step already
            known.own_optimizer = type(optimizer).__module__.partition(".")[0]
            self._boundaries.feed("own optimizer")
            known.is_news = True
            return False
        self._newest_optimizer = id(optimizer)
        self._begin_step(self._newest_optimizer)
        self._learned.updates(self._tally)
        self._enter("updates")
        return True

    @event("optimizer")
    def own_update_ends(self) -> bool:
        """Note that it has updated them."""
        self._bare_backwards = 0
        self._update_ends()
        return False

    # ── backward passes ─────────────────────────────────────────────────────────────────

    @event("backward")
    def backward_begins(self, tensors: Any) -> bool:
        """Note that a backward pass from these tensors is about to begin."""
        if get_ident() != self._thread and not self._takes_over():
            return self._failed_thread is not None
        if self.mode.is_skipping:
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
        if not (self._optimizer_depth and self._tally.backwards):  # a closure computes it again
            self._learn_from(tensors)
        self._enter("learns")
        if self.mode.is_timed:
            self._gradient_sync.pass_begins()
        return True

    @event("backward")
    def backward_ends(self, tensors: Any) -> bool:
        """Note that a backward pass has ended, maybe by an exception."""
        if self._failed_thread is not None:
            return self._restore_at_border(None)
        self._backward_depth -= 1
        if self._backward_depth > 0:
            return False
        tally = self._tally
        tally.backwards += 1
        tally.is_open = True
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
        """Note that a GradScaler has scaled a loss, or several."""
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
        """Count backward passes without an optimizer step: after many, they are the steps."""
        self._bare_backwards += 1
        self._obey(self._boundaries.feed("pass"))
        is_due = self._boundaries.state in BY_UPDATES
        if is_due and self._bare_backwards >= self._findings.patience:
            self._give_optimizers_up()

    def _give_optimizers_up(self) -> None:
        """Let each backward pass end a step, unless an optimizer has unused gradients."""
        survey = Survey()
        if survey.has_optimizer_to_come():
            self._findings.patience *= 2
            return
        self._findings.is_news = True
        hook_own_optimizers(self)
        trained = survey.with_gradients()
        for module in trained:
            self._findings.add_root(module)
        self._findings.add_frozen(survey.frozen(trained))
        self._obey(self._boundaries.feed("no more comes"))
        self.counting.steps += self._bare_backwards - 1
        self._obey(self._boundaries.feed("passes alone"))

    # ── other processes ─────────────────────────────────────────────────────────────────

    @event("gradients")
    def gradient_came(self) -> bool:
        """Note a gradient that may be the last of the pass, which is sent next.

        On a GPU this runs on autograd's thread, while the thread that trains waits for it.
        """
        if self._backward_depth:
            self._mark("backward")
        return False

    @event("communication")
    def wait_begins(self) -> bool:
        """Note that the computation is about to wait for other processes."""
        if not self.mode.is_timed or (get_ident() != self._thread and not self._backward_depth):
            return False
        self._waiting += 1
        if self._waiting == 1:
            self._phases.cut()
            self._mark("communication")
        return True

    @event("communication")
    def wait_ends(self) -> bool:
        """Note that the wait is over."""
        self._waiting -= 1
        if self._waiting == 0:
            self._mark("backward" if self._backward_depth else self._phases.phase)
        return False

    @event("communication")
    def collectives_begin(self) -> bool:
        """Note a call of collectives that is about to begin; return whether to report its end."""
        is_looked_at = self.mode.is_timed and not self.mode.is_skipping
        return is_looked_at and (get_ident() == self._thread or self._backward_depth > 0)

    @event("communication")
    def collectives_are_timed(self) -> bool:
        """Return whether to report the begin and the ends of the collectives of this call."""
        self._borders = []
        return self.clock is not None and self.clock.times_collectives

    @event("communication")
    def collective_border(self) -> bool:
        """Note on the current stream that the first collective begins, or that one ends."""
        assert self.clock is not None
        self._borders.append(self.clock.timestamp())
        return False

    @event("communication")
    def collectives_end(self, moved: list[Moved] | None) -> bool:
        """Add what each collective of the call moves; None: not known."""
        tally, borders, self._borders = self._tally, self._borders, []
        tally.moved = together((tally.moved, *([None] if moved is None else moved)))
        if moved is None or (moved and len(borders) != len(moved) + 1):
            tally.borders = None
        elif moved and tally.borders is not None:
            tally.borders.append(borders)
        return False

    # ── the model's calls ───────────────────────────────────────────────────────────────

    @event("forward")
    def called(
        self, root: Root, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Note that a root is about to be called."""
        if get_ident() != self._thread or self._backward_depth:
            return False
        inputs = (*args, *kwargs.values())
        if root.is_frozen:
            return self._frozen_called(root, args, kwargs)
        has_gradients = torch.is_grad_enabled()
        learns = module.training and has_gradients
        if learns and self.mode.is_skipping:
            self.counting.next_begun = True
        elif self._stop_skipping():
            self._asides.trains()
        samples = first_dimension(inputs)
        symbol: Symbol = "trains" if has_gradients else "freezes"
        if learns:
            self._call(root, args, kwargs, samples)
        else:
            self._is_plain = False  # the next step may have such a call too
            is_before = self._asides.is_between and not self._tally.batches
            if is_before and not has_gradients and self._acts(root, module, samples):
                symbol = "acts"
            elif (not module.training or not self._tally.batches) and self._asides.calls():
                self._turn_aside()
            elif is_before and not has_gradients and self._asides.why is None:
                symbol = "acts"
        self._tally.calls += 1
        return self._call_begins(root, symbol, samples)

    def _call_begins(self, root: Root, symbol: Symbol, samples: int | None) -> bool:
        """Follow a call where steps are measured in full; return whether to report its end."""
        if self.mode.is_skipping or not self.mode.is_on:
            return False
        is_learned_from = not (root.is_frozen or self._tally.batches or self._feeds.is_fed())
        known = samples if root.has_samples_first else None
        self._learned.called(root if is_learned_from else None, known)
        self._enter(symbol, root)
        return True

    @event("forward")
    def returned(self) -> bool:
        """Note that the newest call has ended."""
        self._learned.returned()
        self._enter("returns")
        return False

    def _frozen_called(self, root: Root, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Handle a call of a model without an optimizer, maybe within another model's call."""
        if self.mode.is_skipping:
            return False
        if not root.was_called:
            root.was_called = self._findings.is_news = True
        if root.keeps_calls:
            root.newest = NewestCall(args, kwargs, self._autocast())
        has_gradients = torch.is_grad_enabled() and needs_gradient((*args, *kwargs.values()))
        return self._call_begins(root, "trains" if has_gradients else "freezes", None)

    def _acts(self, root: Root, module: nn.Module, samples: int | None) -> bool:
        """Return whether a call without gradients, before a step, is for what to learn from.

        A rollout acts on few samples at a time, and steps then learn from many. An evaluation has
        as many as a step, or more. In evaluation mode only far fewer are taken for a rollout, and
        only where there is no DataLoader.
        """
        is_fed, learned = self._feeds.feed is not None, root.trained_on
        if self._asides.why is not None:
            return False
        if samples is None or learned is None:
            return module.training and not is_fed
        return samples < learned if module.training else not is_fed and samples * FEW <= learned

    def _learn_from(self, tensors: Any) -> None:
        if self.mode.is_on and not (self._tally.batches or self._feeds.is_fed()):
            self._learned.learns(self._tally, tensors)

    @event("eval")
    def turns_to_evaluation(self) -> bool:
        """Note a call of `nn.Module.eval`: calls that cannot train may follow."""
        if get_ident() != self._thread:
            return False
        if self.mode.is_skipping:
            self._put_hooks_in()
        if self._no_more_comes():  # no optimizer that may have been due has stepped
            self._asides.border()
        return False

    def _call(
        self, root: Root, args: tuple[Any, ...], kwargs: dict[str, Any], samples: int | None
    ) -> None:
        """Handle a training call, on so many samples."""
        root.trained_on = samples
        if self._asides.why is not None:
            self._resume()
        if self._asides.is_between:
            self._asides.trains()
        tally = self._tally
        if root.keeps_calls or self.steps >= root.looked_at:
            root.looked_at, root.was_called = self.steps + AUTOCAST_EVERY, True
            autocast, before = self._autocast(), root.autocast
            root.autocast = None if autocast is None else autocast[1]
            self._findings.is_news |= root.autocast != before
            if root.keeps_calls:
                root.newest = NewestCall(args, kwargs, autocast)
        if tally.is_open and not tally.batches and not (self._optimizer_depth and tally.backwards):
            tally.called = total(tally.called, samples if root.has_samples_first else None)
        tally.is_open = False

    def _autocast(self) -> tuple[str, torch.dtype] | None:
        """Return the autocast that is active now, if there is one."""
        kind = self._findings.device_type
        return (kind, torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else None

    # ── files ───────────────────────────────────────────────────────────────────────────

    @event("torch.save")
    def save_begins(self) -> bool:
        """Note that the script is about to save a file."""
        if not self.mode.is_on or get_ident() != self._thread:
            return False
        self._stop_skipping()
        begins = self._asides.saves()
        if begins:
            self._turn_aside()
        return begins

    @event("torch.save")
    def save_ends(self) -> bool:
        """Note that the file is saved."""
        self._asides.saved()
        self._observer.aside(None)
        self._restart()
        return False

    # ── garbage collection ──────────────────────────────────────────────────────────────

    @event("gc.freeze")
    def freezes(self) -> bool:
        """Note that the script is about to call `gc.freeze`."""
        before_freezing()
        return False

    # ── notebooks ───────────────────────────────────────────────────────────────────────

    @event("cell")
    def cell_begins(self) -> bool:
        """Note that a notebook's cell begins: the next step is not longer than that."""
        if self.is_here and self.rests:
            self._retime()
        return False

    @property
    def rests(self) -> bool:
        """Whether nothing has trained since a notebook's cell ended."""
        return self._asides.why == "idle"

    @property
    def is_here(self) -> bool:
        """Whether this thread is the one that trains."""
        return get_ident() == self._thread

    @event("cell")
    def flush(self) -> bool:
        """Have all steps reported until here, in the middle of a cell."""
        if self.is_here:
            self.finish()
            self._observer.flush()
        return False

    @event("cell")
    def cell_ends(self) -> bool:
        """Note that a notebook's cell has ended on this thread, perhaps within a step.

        An interrupt may have come anywhere, so nothing is known of where the script is.
        """
        if not self.is_here:
            return False
        if self.rests:
            self.counting.fetching = False
            return False
        self.finish()
        self.counting.fetching = self._stepped_within = self._has_closure = False
        self._optimizer_depth = self._backward_depth = self._waiting = self._depth = 0
        self._scaled, self._captured, self._tally = None, None, Tally()
        self._asides.rests()
        self._is_new_cell = True
        self._observer.aside(self._asides.why)
        self.interrupt()
        if self.mode is not FIRST:
            self._open(is_on=self.mode.is_on)
        return False

    def _begin_anew(self) -> None:
        """Forget the training before: in a later cell, an optimizer that is new begins another."""
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
        """Note that a CUDA graph is about to be captured: until its end, nothing is timed."""
        if self._thread is not None and get_ident() != self._thread:
            return False
        self._stop_skipping()
        self._captured, self._thread = False, NOBODY
        return True

    @event("CUDA graph")
    def capture_ends(self, graph: Any) -> bool:
        """Note that a capture has ended, maybe by an exception."""
        if self._captured is not None:
            self._findings.graphs[graph] = self._captured
            self._captured, self._thread, self._findings.is_news = None, get_ident(), True
        return False

    @event("CUDA graph")
    def replay_begins(self, graph: Any) -> bool:
        """Note that a graph is about to be replayed. It is a step if an optimizer steps in it."""
        if get_ident() != self._thread or not self._findings.graphs.get(graph):
            return False
        self._begin_step(id(graph))
        self._enter("replays")
        return True

    @event("CUDA graph")
    def replay_ends(self) -> bool:
        """Note that a replay has been enqueued."""
        self._bare_backwards = 0
        self._update_ends()
        return False


def _lives(thread: int) -> bool:
    return thread in sys._current_frames()  # noqa: SLF001  # `threading` knows only its own threads
