"""Account for a run's wall time, unattributed time included. No I/O, no clock.

Every moment lies in a step or in a gap between steps. In a gap the run is paused, evaluates, saves
a checkpoint, is profiled, changes levers or restarts; otherwise the gap is unattributed. In a step
the device was at work (overlap counted once) or idle. Idle time is data wait as far as the host
waited for a batch, and else unattributed.

Phases are measured in some steps only. Their shares stand for the steps since the previous measured
ones. On a CPU the device was at work for the CPU time of the step. A rank that waits in a
collective needs no CPU. That wait is work too, as on a GPU, where the collective's kernel waits.
"""

from collections.abc import Iterable
from math import fsum
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import asdict

from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Progress, State, Step, Timed
from gpudash.ranks.same_steps import WAIT_MS
from gpudash.snapshot import ENDED

Why: TypeAlias = Literal[
    "paused", "switching", "restarting", "phases", "evaluation", "checkpoint", "profile"
]
"""The part of the time that a stretch between steps belongs to."""


class TimeBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Wall time and its parts in seconds; the parts add up to `wall_s`."""

    wall_s: float = 0.0
    phases_s: float = 0.0
    """The device was at work on a step, collectives included, or trained without instruments."""
    data_s: float = 0.0
    """The device was idle while the host waited for a batch."""
    paused_s: float = 0.0
    switching_s: float = 0.0
    restarting_s: float = 0.0
    """No worker could train: one was killed and the next was not ready yet."""
    unattributed_s: float = 0.0
    evaluation_s: float = 0.0
    """A script evaluated between its steps, as far as that was recognised."""
    checkpoint_s: float = 0.0
    profile_s: float = 0.0
    """Steps were traced, and the trace was written."""

    @property
    def unattributed_share(self) -> float | None:
        return self.unattributed_s / self.wall_s if self.wall_s > 0 else None

    def since(self, before: "TimeBreakdown") -> "TimeBreakdown":
        return TimeBreakdown(
            **{name: spent_s - getattr(before, name) for name, spent_s in asdict(self).items()}
        )

    def rounded(self) -> "TimeBreakdown":
        return TimeBreakdown(**{name: round(s, 6) for name, s in asdict(self).items()})


class TimeAccount:
    """Folds events into a time breakdown; several workers of a run add up."""

    def __init__(self) -> None:
        self._stretches: list[tuple[float, float, Why]] = []  # from, to
        self._end_s: float | None = None  # of the newest step, or the worker's start
        self._spent_s: dict[str, float] = asdict(TimeBreakdown())
        self._unshared_s = 0.0  # in steps since the newest measured ones
        self._shares = (1.0, 0.0)  # parts of those: busy device, data wait
        self._measured_s = self._busy_s = self._waited_s = 0.0  # in the report being folded

    def fold(self, item: Event | Reading) -> None:
        match item:
            case State():
                self._turn(item)
            case Progress():
                for step in item.steps:
                    self._step(step)
                self._share_out()
            case Timed():  # without instruments, its steps are never reported
                self._stretches.append((item.at_s - item.seconds, item.at_s, "phases"))

    def account(self) -> TimeBreakdown:
        shared_s = self._shared()
        return TimeBreakdown(
            **{name: s + shared_s.get(name, 0.0) for name, s in self._spent_s.items()}
        )

    def settled(self) -> TimeBreakdown:
        """Fix the time up to here, so that what a recording adds is the recording's own."""
        self._book(**self._shared())
        self._unshared_s = 0.0
        return self.account()

    def _turn(self, state: State) -> None:
        until_s = state.trained_until_s or state.at_s
        if "starts" in state.turns:
            self._start(state)
            return
        if "changes" in state.turns:
            self._stretches.append((state.at_s - state.took_ms / 1e3, state.at_s, "switching"))
        if state.stood is not None:
            why, since_s = state.stood
            part: Why = "paused" if why == "asked" or why == "idle" else why  # noqa: PLR1714  # narrows
            self._stretches.append((since_s, until_s, part))
        if state.phase in ENDED:
            self._finish(until_s)

    def _finish(self, at_s: float) -> None:
        if self._end_s is not None:
            self._gap(self._end_s, at_s)
        self._end_s = None  # the time until another start, if any, is not counted

    def _start(self, state: State) -> None:
        if state.process is None:  # the time until it is ready belongs to the restart
            return
        at_s = state.process.ready_s
        if self._end_s is not None and at_s > self._end_s:  # another worker trained until then
            self._stretches.append((self._end_s, at_s, "restarting"))
            self._gap(self._end_s, at_s)
        self._end_s = at_s if self._end_s is None else max(at_s, self._end_s)
        self._stretches = []

    def _step(self, step: Step) -> None:
        if self._end_s is None:
            return
        step_s = step.count * max(step.step_ms, 0.0) / 1e3
        finished_s = max(step.finished_s, self._end_s)
        self._gap(self._end_s, finished_s - step_s)
        within_s = min(step_s, finished_s - self._end_s)
        self._spent_s["wall_s"] += within_s
        self._end_s = finished_s
        if "cpu_ms" in step.values:
            waited_s = min(_spent_s(step, "data_ms"), within_s)
            busy_s = _spent_s(step, "cpu_ms", WAIT_MS)
            busy_s = min(busy_s, within_s - waited_s)  # several threads can exceed the step
            left_s = within_s - waited_s - busy_s
            self._book(phases_s=busy_s, data_s=waited_s, unattributed_s=left_s)
            return
        self._unshared_s += within_s
        if "device_ms" in step.values:
            idle_s = max(step_s - _spent_s(step, "device_ms"), 0.0)
            self._measured_s += step_s
            self._busy_s += step_s - idle_s
            self._waited_s += min(_spent_s(step, "data_ms"), idle_s)

    def _share_out(self) -> None:
        if self._measured_s:
            self._shares = self._busy_s / self._measured_s, self._waited_s / self._measured_s
            self._book(**self._shared())
            self._unshared_s = self._measured_s = self._busy_s = self._waited_s = 0.0

    def _shared(self) -> dict[str, float]:
        busy_s = self._unshared_s * self._shares[0]
        waited_s = min(self._unshared_s * self._shares[1], self._unshared_s - busy_s)
        left_s = self._unshared_s - busy_s - waited_s
        return {"phases_s": busy_s, "data_s": waited_s, "unattributed_s": left_s}

    def _book(self, **spent_s: float) -> None:
        for name, more_s in spent_s.items():
            self._spent_s[name] += more_s

    def _gap(self, began_s: float, ended_s: float) -> None:
        if ended_s <= began_s:
            return
        self._spent_s["wall_s"] += ended_s - began_s
        left_s = self._left_s(began_s, ended_s) if self._stretches else ended_s - began_s
        self._spent_s["unattributed_s"] += left_s

    def _left_s(self, began_s: float, ended_s: float) -> float:
        """Book what a gap is known for; return the rest."""
        left = [(began_s, ended_s)]  # a pause may contain a lever change
        for start_s, stop_s, why in self._stretches:
            within = [(max(from_s, start_s), min(to_s, stop_s)) for from_s, to_s in left]
            self._book(**{f"{why}_s": _length_s(within)})
            if start_s < stop_s:
                before = [(from_s, min(to_s, start_s)) for from_s, to_s in left]
                after = [(max(from_s, stop_s), to_s) for from_s, to_s in left]
                left = [(from_s, to_s) for from_s, to_s in (*before, *after) if from_s < to_s]
        self._stretches = [one for one in self._stretches if one[1] > ended_s]
        return _length_s(left)


def _spent_s(step: Step, *names: str) -> float:
    return step.count * max(sum([step.values.get(name, 0.0) for name in names]), 0.0) / 1e3


def _length_s(pieces: Iterable[tuple[float, float]]) -> float:
    return fsum(max(to_s - from_s, 0.0) for from_s, to_s in pieces)
