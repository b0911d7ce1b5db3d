"""Where the wall time went, down to what nobody can explain. No I/O, no clock.

Between the worker's start and the end of its newest step, every moment lies either in a
step's duration or in a gap between two steps. A gap is paused, switching, or unexplained. In
a step, the device was at work on its halves (overlap counted once), or idle; idle time is
explained as far as the host waited for data meanwhile, and unexplained beyond that.

Phases are measured in some steps only; their shares stand for all.
"""

import msgspec

from gpudash.records import Changed, Event, Paused, Progress, Resumed, Sample, Started, Step


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Wall seconds and what they went into; the parts add up to `wall_s`."""

    wall_s: float = 0.0
    phases_s: float = 0.0
    """The device was at work on a step."""
    data_s: float = 0.0
    """The device was idle while the host waited for a batch."""
    paused_s: float = 0.0
    switching_s: float = 0.0
    unexplained_s: float = 0.0

    @property
    def unexplained_share(self) -> float | None:
        """From 0 to 1; None where no time has passed."""
        return self.unexplained_s / self.wall_s if self.wall_s > 0 else None

    def since(self, before: "Account") -> "Account":
        """Return what was added after `before`."""
        names = self.__struct_fields__
        return Account(**{name: getattr(self, name) - getattr(before, name) for name in names})


class Reconciliation:
    """Folds a worker's events into an account; several workers of a run add up."""

    def __init__(self) -> None:
        self._stretches: list[tuple[float, float, bool]] = []  # from, to, whether it is a pause
        self._paused_s: float | None = None
        self._end_s: float | None = None  # of the newest step, or the worker's start
        self._wall_s = self._steps_s = 0.0
        self._gaps = {True: 0.0, False: 0.0}  # paused, switching
        self._strays_s = 0.0  # gaps that were neither
        self._measured_s = self._busy_s = self._waited_s = 0.0  # of the steps with phases

    def fold(self, item: Event | Sample) -> None:
        """Take one record."""
        match item:
            case Started(rank=0):
                self._end_s, self._paused_s, self._stretches = item.at_s, None, []
            case Progress(rank=0):
                for step in item.steps:
                    self._step(step)
            case Changed(rank=0):
                self._stretches.append((item.at_s - item.took_ms / 1e3, item.at_s, False))
            case Paused():
                self._paused_s = item.at_s
            case Resumed() if self._paused_s is not None:
                self._stretches.append((self._paused_s, item.at_s, True))
                self._paused_s = None

    def account(self) -> Account:
        """Return where the time up to the newest step went."""
        busy, waited = (
            (self._busy_s / self._measured_s, self._waited_s / self._measured_s)
            if self._measured_s
            else (1.0, 0.0)
        )
        phases_s, data_s = self._steps_s * busy, self._steps_s * waited
        return Account(
            wall_s=self._wall_s,
            phases_s=phases_s,
            data_s=data_s,
            paused_s=self._gaps[True],
            switching_s=self._gaps[False],
            unexplained_s=self._steps_s - phases_s - data_s + self._strays_s,
        )

    def _step(self, step: Step) -> None:
        if self._end_s is None:
            return
        step_s = step.step_ms / 1e3
        gap_s = step.finished_s - step_s - self._end_s
        if gap_s > 0:
            self._gap(self._end_s, step.finished_s - step_s)
        self._wall_s += step.finished_s - self._end_s
        self._steps_s += min(step_s, step.finished_s - self._end_s)
        self._end_s = step.finished_s
        if step.device_ms is not None:
            idle_ms = max(step.step_ms - step.device_ms, 0.0)
            self._measured_s += step_s
            self._busy_s += step_s - idle_ms / 1e3
            self._waited_s += min(step.data_ms, idle_ms) / 1e3

    def _gap(self, began_s: float, ended_s: float) -> None:
        left_s = ended_s - began_s
        for start_s, stop_s, is_pause in self._stretches:
            within_s = max(min(stop_s, ended_s) - max(start_s, began_s), 0.0)
            within_s = min(within_s, left_s)
            self._gaps[is_pause] += within_s
            left_s -= within_s
        self._stretches = [one for one in self._stretches if one[1] > ended_s]
        self._strays_s += left_s
