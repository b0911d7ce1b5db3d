"""Backward passes, and the steps of trainings that have no optimizer."""

import time
from typing import Any

from torch import Tensor

from ..instrument.loss import readable
from .boundaries import BY_UPDATES
from .hooked_methods import UPDATES, hook_methods
from .meter import nothing
from .roots import Survey, look_at_all
from .steps import Handlers, Steps
from .updates import takes_over, update_ends


def _begins(steps: Steps, tensors: Any) -> bool:
    follower, meter, tally = steps.follower, steps.meter, steps.meter.tally
    if not follower.is_here and not takes_over(steps):
        return follower.failed_thread is not None
    if meter.mode.is_skipping:
        meter.counting.next_begun = tally.is_open = True
        tally.loss = readable(tensors)
        return False
    follower.backwards += 1
    if follower.backwards > 1:
        return True
    if follower.optimizers and not follower.has_closure:
        follower.optimizers = 0  # an exception may have left it above 0
    if steps.asides.why is not None:
        steps.observer.aside(None)
    steps.asides.learns()
    if (
        meter.mode.is_on
        and not (follower.optimizers and tally.backwards)  # a closure computes it again
        and not (tally.batches or steps.feeds.is_fed())
    ):
        steps.learned.learns(tally, tensors)
    meter.enter("learns")
    if meter.mode.is_timed:
        steps.sync.pass_begins()
    return True


def _ends(steps: Steps, tensors: Any) -> None:
    follower, meter, tally = steps.follower, steps.meter, steps.meter.tally
    if follower.failed_thread is not None:
        steps.restore_at_border(None)
        return
    follower.backwards -= 1
    if follower.backwards > 0:
        return
    tally.backwards += 1
    tally.is_open = follower.has_learned = True
    if steps.sync.pass_ends() and meter.mark is not nothing:
        meter.running.rename("communication")
    if meter.mode.is_on:
        meter.enter("updates" if follower.optimizers else "has learned")
        tally.loss = _loss(steps, tensors)
        steps.idle(time.monotonic())
    if follower.has_updated:
        follower.has_updated = meter.is_plain = False  # on a GPU, on autograd's thread
        update_ends(steps)
    elif not follower.optimizers:
        _count_bare(steps)


def _loss_scaled(steps: Steps, loss: Any, scaled: Any) -> None:
    is_scaled = scaled is not loss and isinstance(loss, Tensor)  # else the scaler is disabled
    if steps.meter.mode.is_on and is_scaled and steps.follower.may_be_here:
        steps.scaled = id(scaled), loss.detach()


def _loss(steps: Steps, tensors: Any) -> Tensor | None:
    scaled, steps.scaled = steps.scaled, None
    if scaled is not None:  # a tensor computed from the scaled loss is no loss
        tensors = scaled[1] if scaled[0] == id(tensors) else None
    return readable(tensors)


def _count_bare(steps: Steps) -> None:
    """Take backward passes for the steps after many without an optimizer step."""
    hook_methods(UPDATES, steps.tell, "optimizer: own begins", "optimizer: ends", takes=1)
    steps.bare_backwards += 1
    if steps.boundaries.feed("pass") == "ends":
        steps.close()
    elif steps.bare_backwards >= steps.findings.patience:
        _give_optimizers_up(steps)


def _give_optimizers_up(steps: Steps) -> None:
    if steps.boundaries.state not in BY_UPDATES:
        return
    look_at_all()
    survey = Survey()
    if survey.has_optimizer_to_come():
        steps.findings.patience *= 2
        return
    steps.findings.train_without_optimizer(survey)
    steps.obey(steps.boundaries.feed("no more comes"))
    steps.meter.counting.steps += steps.bare_backwards - 1
    steps.obey(steps.boundaries.feed("passes alone"))


HANDLERS: Handlers = {
    "backward: begins": _begins,
    "backward: ends": _ends,
    "GradScaler: scales": _loss_scaled,
}
