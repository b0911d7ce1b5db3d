"""Where the wall time went, unattributed time included. No I/O, no clock.

Between a worker's start and the end of its newest step, or its own end, every moment lies either
in a step's duration or in a gap beside it. In a gap the run is paused, evaluates, saves a
checkpoint, is profiled or switches, or it is unattributed; from one worker's last step until
another is ready the run restarts, unless it had ended. In a step, the device was at work on its
halves (overlap counted once), or idle; idle time is explained as far as the host waited for data
meanwhile, and unattributed beyond that.

Phases are measured in some steps only; their shares stand for the steps since the ones
measured before. So what is added over a stretch is that stretch's own. On a CPU every step knows
the CPU time it had: the device was at work for so long, and time lost to others is unattributed.
A rank that waits for the others in a collective needs no CPU for it: that is at work too, as it
is on a GPU, where the collective's kernel waits.
"""

from collections.abc import Iterable
from math import fsum
from typing import Literal, TypeAlias, get_args

import msgspec

from gpudash.protocol import (
    Changed,
    Event,
    Failed,
    Finished,
    Paused,
    Progress,
    Reading,
    Resumed,
    Started,
    Step,
    Timed,
)
from gpudash.views.same_steps import WAIT

Why: TypeAlias = Literal[
    "paused", "switching", "restarting", "timed", "evaluation", "checkpoint", "profile"
]


class TimeBreakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Wall seconds and what they went into; the parts add up to `wall_s`."""

    wall_s: float = 0.0
    phases_s: float = 0.0
    """The device was at work on a step, collectives included, or trained without instruments."""
    data_s: float = 0.0
    """The device was idle while the host waited for a batch."""
    paused_s: float = 0.0
    switching_s: float = 0.0
    restarting_s: float = 0.0
    """There was no worker that could train: one was killed and the next not ready yet."""
    unattributed_s: float = 0.0
    evaluation_s: float = 0.0
    """The training did without steps by itself, as far as that could be told."""
    checkpoint_s: float = 0.0
    profile_s: float = 0.0
    """Some steps were traced, and the trace written."""

    @property
    def unattributed_share(self) -> float | None:
        """From 0 to 1; None where no time has passed."""
        return self.unattributed_s / self.wall_s if self.wall_s > 0 else None

    def since(self, before: "TimeBreakdown") -> "TimeBreakdown":
        """Return what was added after `before`."""
        names = self.__struct_fields__
        return TimeBreakdown(
            **{name: getattr(self, name) - getattr(before, name) for name in names}
        )

    def rounded(self) -> "TimeBreakdown":
        """Return it to the microsecond, for a file."""
        names = self.__struct_fields__
        return TimeBreakdown(**{name: round(getattr(self, name), 6) for name in names})


class TimeAccount:
    """Folds a worker's events into an account; several workers of a run add up."""

    def __init__(self) -> None:
        self._stretches: list[tuple[float, float, Why]] = []  # from, to
        self._paused: tuple[float, Why] | None = None  # since when
        self._end_s: float | None = None  # of the newest step, or the worker's start
        self._wall_s = 0.0
        self._gaps: dict[Why, float] = dict.fromkeys(get_args(Why), 0.0)
        self._phases_s = self._data_s = self._unexplained_s = 0.0
        self._unshared_s = 0.0  # of the steps since the newest measured ones
        self._shares = (1.0, 0.0)  # of those: the device was busy, the host waited for data
        self._measured_s = self._busy_s = self._waited_s = 0.0  # in the report being folded

    def fold(self, item: Event | Reading) -> None:
        """Take one record."""
        match item:
            case Started():
                self._start(item.at_s)
            case Finished() | Failed():
                self._finish(item.trained_until_s or item.at_s)
            case Progress():
                for step in item.steps:
                    self._step(step)
                self._share_out()
            case Changed():
                self._stretches.append((item.at_s - item.took_ms / 1e3, item.at_s, "switching"))
            case Timed():  # without instruments, its steps are never reported
                self._stretches.append((item.at_s - item.seconds, item.at_s, "timed"))
            case Paused():
                self._resume(item.at_s)
                self._paused = item.at_s, "paused" if item.why == "asked" else item.why
            case Resumed():
                self._resume(item.at_s)

    def account(self) -> TimeBreakdown:
        """Return where the time up to the newest step went."""
        phases_s, data_s, unattributed_s = self._shared()
        gaps = {f"{why}_s": gap_s for why, gap_s in self._gaps.items() if why != "timed"}
        return TimeBreakdown(
            wall_s=self._wall_s,
            phases_s=self._phases_s + phases_s + self._gaps["timed"],
            data_s=self._data_s + data_s,
            unattributed_s=self._unexplained_s + unattributed_s,
            **gaps,
        )

    def settled(self) -> TimeBreakdown:
        """Return the account as it stays: what is measured later changes nothing of this time.

        What a recording adds to it is then the recording's own.
        """
        self._book(*self._shared())
        self._unshared_s = 0.0
        return self.account()

    def _resume(self, at_s: float) -> None:
        if self._paused is not None:
            since_s, why = self._paused
            self._stretches.append((since_s, at_s, why))
            self._paused = None

    def _finish(self, at_s: float) -> None:
        self._resume(at_s)
        if self._end_s is not None:
            self._gap(self._end_s, at_s)
        self._end_s = None  # the time until another start, if any, is not counted

    def _start(self, at_s: float) -> None:
        if self._end_s is not None and at_s > self._end_s:  # another worker trained until then
            self._stretches.append((self._end_s, at_s, "restarting"))
            self._gap(self._end_s, at_s)
        self._end_s = at_s if self._end_s is None else max(at_s, self._end_s)
        self._paused, self._stretches = None, []

    def _step(self, step: Step) -> None:
        if self._end_s is None:
            return
        step_s, data_s = (
            step.count * max(ms, 0.0) / 1e3 for ms in (step.step_ms, step.data_ms or 0.0)
        )
        finished_s = max(step.finished_s, self._end_s)
        self._gap(self._end_s, finished_s - step_s)
        within_s = min(step_s, finished_s - self._end_s)
        self._wall_s += within_s
        self._end_s = finished_s
        if step.cpu_ms is not None:
            waited_s = min(data_s, within_s)
            collective_ms = (step.phases_ms or {}).get(WAIT, 0.0)
            busy_s = step.count * max(step.cpu_ms + collective_ms, 0.0) / 1e3
            busy_s = min(busy_s, within_s - waited_s)  # of several threads
            self._book(busy_s, waited_s, within_s - waited_s - busy_s)
            return
        self._unshared_s += within_s
        if step.device_ms is not None:
            idle_s = max(step_s - step.count * max(step.device_ms, 0.0) / 1e3, 0.0)
            self._measured_s += step_s
            self._busy_s += step_s - idle_s
            self._waited_s += min(data_s, idle_s)

    def _share_out(self) -> None:
        if self._measured_s:
            self._shares = self._busy_s / self._measured_s, self._waited_s / self._measured_s
            self._book(*self._shared())
            self._unshared_s = self._measured_s = self._busy_s = self._waited_s = 0.0

    def _shared(self) -> tuple[float, float, float]:
        """Return how much of the steps not shared out was busy, waited for data, neither."""
        busy_s = self._unshared_s * self._shares[0]
        waited_s = min(self._unshared_s * self._shares[1], self._unshared_s - busy_s)
        return busy_s, waited_s, self._unshared_s - busy_s - waited_s

    def _book(self, busy_s: float, waited_s: float, neither_s: float) -> None:
        self._phases_s += busy_s
        self._data_s += waited_s
        self._unexplained_s += neither_s

    def _gap(self, began_s: float, ended_s: float) -> None:
        if ended_s <= began_s:
            return
        self._wall_s += ended_s - began_s
        left = [(began_s, ended_s)]  # a pause may have a switch in it
        for start_s, stop_s, why in self._stretches:
            within = [(max(from_s, start_s), min(to_s, stop_s)) for from_s, to_s in left]
            self._gaps[why] += _length_s(within)
            if start_s < stop_s:
                before = [(from_s, min(to_s, start_s)) for from_s, to_s in left]
                after = [(max(from_s, stop_s), to_s) for from_s, to_s in left]
                left = [(from_s, to_s) for from_s, to_s in (*before, *after) if from_s < to_s]
        self._stretches = [one for one in self._stretches if one[1] > ended_s]
        self._unexplained_s += _length_s(left)


def _length_s(pieces: Iterable[tuple[float, float]]) -> float:
    return fsum(max(to_s - from_s, 0.0) for from_s, to_s in pieces)
