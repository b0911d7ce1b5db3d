"""Count what a trace has in each of its steps, by name.

What the device does belongs to the step in which the host launched it, however late it runs.
"""

import re
from pathlib import PurePath
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpudash.trace.model import Trace
from gpudash.trace.names import ALLOCATES, BACKWARD, STEP, copied, short
from gpudash.trace.nesting import innermost
from gpudash.trace.phases import COMPILED
from gpudash.trace.syncs import OPERATOR, noted, step_of

COLLECTIVE = re.compile(r"(_c10d_functional|c10d)::(?!wait_tensor)\w+")


Each: TypeAlias = dict[str, dict[str, tuple[int, ...]]]
"""By counter and name: how often in each step. What a training cannot have is absent."""


def count(trace: Trace) -> Each:
    """Count nothing of a trace without annotated steps."""
    return _StepCounting(trace).each() if trace.steps else {}


class _StepCounting:
    def __init__(self, trace: Trace) -> None:
        self._trace, events = trace, trace.events
        called_us = np.where(events.launch >= 0, events.begin_us[events.launch], events.begin_us)
        self._step = step_of(trace, called_us)

    def each(self) -> Each:
        trace, events = self._trace, self._trace.events
        operators = events.are("operator")
        marks = events.are("annotation") & trace.named(STEP.fullmatch)
        marks |= operators & trace.named(BACKWARD.fullmatch)
        # a thread that loads batches is ahead by as many steps as it likes
        training = np.isin(events.lane, np.unique(events.lane[marks]))
        collectives = operators & trace.named(COLLECTIVE.fullmatch)
        called = training & operators & trace.named(OPERATOR.fullmatch) & ~collectives
        called[called] = innermost(events, called, called) < 0
        regions = training & trace.named(lambda name: name.startswith(COMPILED[0]))
        found = {"operators": called, "collectives": collectives, "compiled regions": regions}
        device = events.are("kernel", "set", "collective")
        if device.any():
            found |= {
                "launches": self._first_of_each_launch(device),
                "copies": events.are("copy"),
                "calls for device memory": trace.named(ALLOCATES.fullmatch),
            }
        counted = {name: self._by_name(chosen) for name, chosen in found.items()}
        return counted | ({"syncs": self._syncs()} if device.any() else {})

    def _first_of_each_launch(self, device: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Choose one event for each call: a graph launches many kernels at once."""
        of = np.flatnonzero(device & (self._trace.events.launch >= 0))
        _, first = np.unique(self._trace.events.launch[of], return_index=True)
        chosen = np.zeros(len(device), np.bool_)
        chosen[of[first]] = True
        return chosen

    def _by_name(self, chosen: NDArray[np.bool_]) -> dict[str, tuple[int, ...]]:
        chosen = chosen & (self._step >= 0)
        names = [_label(name) for name in self._trace.names]
        of = self._trace.events.name[chosen]
        return self._of_steps([names[one] for one in of.tolist()], self._step[chosen])

    def _syncs(self) -> dict[str, tuple[int, ...]]:
        calls = noted(self._trace)
        places = [
            f"{one.what or one.function} at {PurePath(one.file).name}:{one.line}"
            for _, one in calls
        ]
        return self._of_steps(places, step_of(self._trace, np.array([at for at, _ in calls])))

    def _of_steps(self, names: list[str], steps: NDArray[np.int64]) -> dict[str, tuple[int, ...]]:
        found = dict[str, list[int]]()
        for name, step in zip(names, steps.tolist(), strict=True):
            if step >= 0:
                found.setdefault(name, [0] * len(self._trace.steps))[step] += 1
        return {name: tuple(counts) for name, counts in found.items()}


def _label(name: str) -> str:
    direction, is_pinned = copied(name)
    if direction == "other":
        return short(name)
    return direction + ("" if is_pinned is not False else ", not pinned")
