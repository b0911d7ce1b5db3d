"""Counts plain steps with as little host time as possible: one call for each event.

Between two calls torch runs a thousand functions of its own, so hardly any of this code or of its
data is still in a cache: it costs by its size. What is not plain goes to the tracker.
"""

import time
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any, TypeAlias

from torch import Tensor
from torch.optim import Optimizer

from ..instrument.guard import is_from_handler, without_ours
from ..instrument.patching import uncompiled
from .hooked_methods import Tell
from .samples import SEQUENCES
from .step_counts import StepCounts

OptimizerHook: TypeAlias = Callable[[Optimizer, Any, Any], None]
"""Gets the optimizer, and the arguments of its step."""


class Counting:
    """The steps so far, and how to count plain ones until the next that is measured in full."""

    __slots__ = (
        "border_at",
        "due_s",
        "fetching",
        "iterator",
        "keeps_loss",
        "look_at",
        "next_begun",
        "optimizer",
        "steps",
        "tally",
        "thread",
    )

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.steps = 0
        """Since the process began, measured or not."""
        self.next_begun = False
        """Whether the step after the newest counted one has begun."""
        self.fetching = False
        """The script waits for a batch."""
        self.begin(StepCounts(), thread=None)

    def begin(
        self,
        tally: StepCounts,
        *,
        thread: int | None,
        optimizer: int = 0,
        iterator: Callable[[], Any] = lambda: None,
        keeps_loss: bool = False,
        border_at: int = 0,
        look_at: float = 0.0,
        due_s: float = 0.0,
    ) -> None:
        """Count up to `border_at`, to before `look_at`, or until `due_s`.

        If `thread` is None, the tracker takes all steps.
        """
        self.tally, self.optimizer, self.iterator = tally, optimizer, iterator
        self.keeps_loss, self.border_at = keeps_loss, border_at
        self.look_at, self.due_s = look_at, due_s
        self.thread = thread


def count_batches(
    counting: Counting,
    tell: Tell,
    advance: Callable[[Any], Any],
    followed: Callable[[Any], Any],
) -> Callable[[Any], Any]:
    """Count batches in `advance`; `followed` is the same with the tracker following the wait."""

    @wraps(advance)
    def hooked(self: Any) -> Any:
        asked = None
        try:
            thread = get_ident()
            if thread != counting.thread or counting.iterator() is not self or counting.fetching:
                return followed(self)
            counting.fetching, tally = True, counting.tally
            asked = time.monotonic(), time.thread_time()
            batch = advance(self)
        except BaseException as error:
            without_ours(error)
            if asked is not None:
                tell("DataLoader: failed", self, asked)
            raise
        counting.fetching = False
        if thread != counting.thread or tally is not counting.tally:
            asked = None  # the clock has closed the steps that waited
        elif type(batch) in SEQUENCES and batch and type(batch[0]) is Tensor and batch[0].dim():
            tally.newest = size = batch[0].size(0)
            tally.data_s += time.monotonic() - asked[0]
            tally.data_cpu_s += time.thread_time() - asked[1]
            tally.batches += 1
            tally.fetched = None if tally.fetched is None else tally.fetched + size
            counting.next_begun = True
            return batch
        if tell("DataLoader: asked", self):
            tell("DataLoader: arrived", self, batch, asked)
        return batch

    return uncompiled(hooked, deeply=False)


@uncompiled
def count_backward(counting: Counting, tensors: Any) -> bool:
    """Return False where the tracker has to handle the pass."""
    if get_ident() != counting.thread or type(tensors) is not Tensor:
        return False
    tally = counting.tally
    try:
        if counting.keeps_loss:
            tally.loss = tensors.detach() if tensors.numel() == 1 else None
    except Exception as error:  # in a dispatch mode of the script's
        if is_from_handler(error):
            raise
        return False
    counting.next_begun = tally.is_open = True
    return True


def count_steps(counting: Counting, tell: Tell) -> tuple[OptimizerHook, OptimizerHook]:
    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        try:
            is_plain = id(optimizer) == counting.optimizer and len(args) == 1 and not kwargs
            if is_plain and get_ident() == counting.thread:
                return  # its end will do
            # a subclass may take something else as second argument
            has_closure = callable(kwargs.get("closure") if len(args) < 2 else args[1])
            tell("optimizer: begins", optimizer, has_closure)
        except BaseException as error:  # `with unseen` would take time in each step
            without_ours(error)
            raise

    def after(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        try:
            if get_ident() == counting.thread:
                step = counting.steps + 1
                goes_on = step != counting.border_at and step + 1 < counting.look_at
                if goes_on and time.monotonic() < counting.due_s:
                    counting.steps, counting.next_begun = step, False
                    return
            tell("optimizer: ends", optimizer)
        except BaseException as error:
            without_ours(error)
            raise

    return uncompiled(before), uncompiled(after)
