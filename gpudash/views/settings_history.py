"""Fold steps into the results table, a row for each setting. Memory does not grow with the run.

Warm-up steps after a start, a change or a pause are left out. A rate is the number of steps over
the sum of their durations, which contain neither pauses nor lever changes. A row without counted
steps is dropped when the next one begins. `Metered` has a setting's energy, by readings once a
second.
"""

from collections import deque
from collections.abc import Iterable
from math import sqrt

from gpudash.metrics import since
from gpudash.protocol.readings import GpuReading, HostReading, Reading
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Step
from gpudash.snapshot import Result, SampleEnergy
from gpudash.statistics import percentiles, warm
from gpudash.window import Pace, Window

LEAST_S = 2.0
"""No figure from less."""
TICK_S = 0.1
"""The longest period of a counter that was measured."""


class Metered:
    """Energy of one setting."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None  # moment and joules
        self._joules = self._seconds = 0.0
        self._stretches = 0
        self._is_first = True  # no time of the stretch has counted yet

    def add(self, at_s: float, energy_j: float, since_s: float) -> None:
        """Take a reading; the setting has trained since `since_s` without a break."""
        last = self._last
        if last is not None and last[0] == at_s:  # told again
            return
        self._last = at_s, energy_j
        if last is None or last[0] < since_s or energy_j < last[1]:  # or the driver was reloaded
            self._is_first = True
            return
        self._joules += energy_j - last[1]
        self._seconds += at_s - last[0]
        self._stretches += self._is_first
        self._is_first = False

    def of_sample(self, samples_per_s: float | None) -> SampleEnergy | None:
        if not samples_per_s or self._seconds < LEAST_S or not self._joules:
            return None
        joules = self._joules / self._seconds / samples_per_s
        ends_s = TICK_S * sqrt(2 * self._stretches / 12)  # each is anywhere within its tick
        return SampleEnergy(joules=joules, within_j=1.96 * joules * ends_s / self._seconds)


RESERVOIR = 4096
"""Latest steps of a row that its percentiles are taken over."""
MOST_ROWS = 200
"""With more rows, the oldest is dropped, except the first: it names the others."""
_GAP_S = 0.02
"""Steps further apart than this were separated by a pause or a change."""


class _Row:
    """One row while it grows: sums, and the latest step times."""

    def __init__(self, segment: int, workload: str, settings: Settings) -> None:
        self.segment = segment
        self.workload = workload
        self.settings = settings
        self.window = Window()
        self.own = Pace()  # of rank 0's GPU, whose energy is read
        self.times_ms: deque[tuple[float, int]] = deque(maxlen=RESERVOIR)  # and how many steps
        self.most_mib: dict[str, float] = {}  # by metric
        self.metered = Metered()
        self.span: tuple[float, float] | None = None  # the counted steps since the last gap
        self.shown: tuple[tuple[int, bool, _Row, Settings], Result] | None = None

    def count(self, finished: Step, own: Step, each: Iterable[Step]) -> None:
        step, own_step = warm(finished), warm(own)
        if step is None or own_step is None:
            return
        began_s = step.finished_s - step.count * step.step_ms / 1000
        if self.span is None or began_s > self.span[1] + _GAP_S:
            self.span = (began_s, step.finished_s)
        self.span = (self.span[0], max(self.span[1], step.finished_s))
        self.window.add(step)
        self.own.add(own_step)
        self.times_ms.extend((one.step_ms, one.warm) for one in each)
        self.shown = None

    def sample(self, sample: Reading) -> None:
        if self.span is None or not self.span[0] <= sample.at_s <= self.span[1]:
            return
        if isinstance(sample, GpuReading):
            energy_j = sample.number("energy_j")
            if energy_j is not None and (sample.energy_at_s or 0.0) >= self.span[0]:
                self.metered.add(sample.energy_at_s or 0.0, energy_j, self.span[0])
            sample = since(sample, self.span[0])
        self.window.read(sample, ("gpu_util_pct", "cpu_pct"))
        for name in ("mem_peak_mib", "mem_reserved_mib"):
            mib = sample.number(name)
            if mib is not None:
                self.most_mib[name] = max(self.most_mib.get(name, 0.0), mib)
        self.shown = None

    def result(self, number: int, first: "_Row", own: Settings, *, live: bool) -> Result:
        """Return the same object while nothing changed."""
        key = (number, live, first, own)
        if self.shown is None or self.shown[0] != key:
            self.shown = (key, self._result(number, first, own, live=live))
        return self.shown[1]

    def _result(self, number: int, first: "_Row", own: Settings, *, live: bool) -> Result:
        p50, p95 = percentiles(self.times_ms)
        return Result(
            number=number,
            configuration=_configuration(self, first, own),
            settings=self.settings,
            workload=self.workload,
            steps=round(self.window.steps),
            steps_per_s=self.window.per_s("steps"),
            samples_per_s=self.window.per_s("samples"),
            step_ms_p50=p50,
            step_ms_p95=p95,
            values=self.window.values() | self.most_mib,
            energy=self.metered.of_sample(self.own.per_s("samples")),
            live=live,
        )


class SettingsHistory:
    """Folds steps and samples into rows, one per setting tried."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._dropped = 0
        self._own: Settings = {}  # a script's
        self._waiting: deque[Reading] = deque(maxlen=1024)  # taken after the newest step known

    def start(self, segment: int, workload: str, settings: Settings) -> None:
        self._waiting.clear()
        self._begin(_Row(segment, workload, settings))

    def offered(self, own: Settings) -> None:
        self._own = own

    def change(self, segment: int, settings: Settings) -> None:
        """Count steps still on the device in the row before."""
        if self._rows:
            self._begin(_Row(segment, self._rows[-1].workload, settings))

    def go_on(self, segment: int) -> None:
        """Give the newest row this segment; those between belong to no row."""
        if self._rows:
            self._rows[-1].segment = segment

    def new_row(self) -> None:
        """Begin another row with the active settings, without a new warm-up."""
        if self._rows:
            row = self._rows[-1]
            self._begin(_Row(row.segment, row.workload, row.settings))

    def step(self, step: Step, own: Step | None = None, each: Iterable[Step] = ()) -> None:
        """Take a step, or a stretch with `each` of its steps.

        `own` is rank 0's part, without samples where they are not all that its GPU works on.
        """
        row = next((row for row in reversed(self._rows) if row.segment <= step.segment), None)
        if row is None or row.segment != step.segment:
            return
        row.count(step, own or step, each or (step,))
        while self._waiting and self._waiting[0].at_s <= step.finished_s:
            row.sample(self._waiting.popleft())

    def sample(self, sample: GpuReading | HostReading) -> None:
        """Count it once the step in which it was taken is known."""
        row = self._rows[-1] if self._rows else None
        if row is not None and row.span is not None and sample.at_s <= row.span[1]:
            row.sample(sample)
        else:
            self._waiting.append(sample)

    def results(self, *, live: bool) -> tuple[Result, ...]:
        """`live` says whether the last row is still growing."""
        shown = [row for row in self._rows if row.window.steps or row is self._rows[-1]]
        results: list[Result] = []
        for index, row in enumerate(shown):
            number = index + 1 + (self._dropped if index else 0)
            is_live = live and row is self._rows[-1]
            results.append(row.result(number, shown[0], self._own, live=is_live))
        return tuple(results)

    def _begin(self, row: _Row) -> None:
        # the previous row may still get steps that are on the device: it is kept for now
        self._rows = [one for one in self._rows[:-1] if one.window.steps] + self._rows[-1:] + [row]
        if len(self._rows) > MOST_ROWS:
            del self._rows[1]
            self._dropped += 1


def _configuration(row: _Row, first: _Row, own: Settings) -> str:
    """Say how a row differs from the first, and the first from the script."""
    if row is first and not own:
        return " ".join(_named(dict(list(row.settings.items())[:2]), {}))
    if row is first:
        return " ".join(_named(row.settings, own)) or "as the script"
    changed = [f"workload={row.workload}"] if row.workload != first.workload else []
    return " ".join([*changed, *_named(row.settings, first.settings)]) or "as row 1"


def _named(settings: Settings, base: Settings) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items() if base.get(name) != value]
