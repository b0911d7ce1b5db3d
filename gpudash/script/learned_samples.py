"""Counts the samples that backward passes are about, where no DataLoader shows them.

The numbers that autograd gives its operations tell which calls of models a loss was computed from.
Calls that only act, or compute a target, are not among them. Where a model was called more than
once for a loss, nothing shows whether for the same samples.
"""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .step_counts import StepCounts, total

MOST_OPERATIONS = 500
"""Operations between a loss and the calls that it was computed from. With more the search is given
up, for all of the training: it takes a millisecond."""
MOST_CALLS = 64


class _Call(NamedTuple):
    subject: Hashable
    samples: int | None
    began: int
    """The number of autograd's next operation."""
    ended: int


class LearnedSamples:
    """Follows calls of models with gradients, and the losses that are computed from them."""

    def __init__(self) -> None:
        self._calls: deque[_Call] = deque(maxlen=MOST_CALLS)
        self._begun: list[tuple[Hashable | None, int | None, int]] = []
        self._gives_up = False
        self._counted: set[_Call] = set()  # since the newest update

    def reset(self) -> None:
        self._calls.clear()
        self._begun.clear()
        self._counted.clear()

    def called(self, subject: Hashable | None, samples: int | None) -> None:
        """Learn nothing from a call without a subject. None: its samples are not known."""
        self._begun.append((subject, samples, _next_number()))

    def returned(self) -> None:
        subject, samples, began = self._begun.pop() if self._begun else (None, None, 0)
        if subject is not None:
            self._calls.append(_Call(subject, samples, began, _next_number()))

    def learns(self, tally: StepCounts, tensors: Any) -> None:
        self._begun.clear()  # an exception may have left some
        about = self._about(tensors)
        if about is None:
            tally.learned = None
            return
        fresh = [call for call in about if call not in self._counted]
        self._counted.update(fresh)
        if fresh:
            tally.learned = total(tally.learned, _samples(fresh))

    def updates(self, tally: StepCounts) -> None:
        if tally.learned != 0:
            tally.updates.append(tally.learned)
            tally.learned = 0
        self._counted.clear()

    def _about(self, tensors: Any) -> list[_Call] | None:
        if len(self._calls) <= 1:  # it takes no search
            return list(self._calls)
        if self._gives_up:
            return None
        calls = sorted(self._calls, key=lambda call: call.began)
        found: list[_Call] = []
        nodes = [node for one in _tensors(tensors) if (node := one.grad_fn) is not None]
        seen = set(nodes)
        while nodes:
            node = nodes.pop()
            number = getattr(node, "_sequence_nr", _unnumbered)()  # no public name
            call = next((one for one in calls if one.began <= number < one.ended), None)
            if call is not None:
                if call not in found:
                    found.append(call)
                continue
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    nodes.append(following)
            if len(seen) > MOST_OPERATIONS:
                self._gives_up = True
                return None
        return found


def samples_of(tally: StepCounts) -> int | None:
    """Return the samples of each of a step's updates; None if these differ."""
    each = {*tally.updates, tally.learned} - {0}
    return each.pop() if len(each) == 1 else None


def _samples(calls: list[_Call]) -> int | None:
    """Return None if the calls may be of several batches."""
    sizes, subjects = {call.samples for call in calls}, {call.subject for call in calls}
    return sizes.pop() if len(sizes) == 1 and len(subjects) == len(calls) else None


def _unnumbered() -> int:
    return -1


def _tensors(tensors: Any) -> list[Tensor]:
    each = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    return [one for one in each if isinstance(one, Tensor)]


_next_number: Callable[[], int] = getattr(torch._C._autograd, "_get_sequence_nr", lambda: 0)  # noqa: SLF001  # no public name; without it no samples are known
