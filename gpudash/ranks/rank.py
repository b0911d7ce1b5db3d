"""Fold the messages of one training process into its present values, alike for every rank."""

from msgspec.structs import replace

from gpudash.metrics import METRICS
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import HostReading, Reading
from gpudash.protocol.training import Progress, State, Step
from gpudash.ranks.recent import UNKNOWN, Rate, RecentReadings, RecentSteps
from gpudash.snapshot import RankRow, RankState, Values
from gpudash.statistics import total
from gpudash.window import Pace, stretches

SPAN_S = 60


class Rank:
    """What a rank has told last, and its recent steps; another process of it begins anew."""

    def __init__(self) -> None:
        self.state = State(at_s=0.0, phase="starting")
        """The newest one."""
        self.heard_s = 0.0
        """When the newest message was sent."""
        self.host = RecentReadings[HostReading]()
        """The readings of its processes."""
        self._restarts = 0
        self._begin(0.0)

    def _begin(self, ready_s: float) -> None:
        self.report = Progress(until_s=ready_s, steps=(), total_steps=0, total_samples=0)
        """The newest report; what it leaves out holds on from those before, the steps too."""
        self.newest: tuple[tuple[Step, tuple[Step, ...]], ...] = ()
        """The stretches of the newest report."""
        self.busy_since_s = ready_s
        """End of the newest step, or when the process was ready or went on."""
        self.recent = RecentSteps()
        self.whole_run = Pace()
        """Without the first step, which starts the loader and compiles."""
        self._history = StepHistory()

    def fold(self, body: Event | Reading) -> None:
        match body:
            case State():
                self._turn(body)
            case Progress():
                self._progress(body)
            case HostReading():
                self.host.add(body)
                self._hold(body)

    def _turn(self, state: State) -> None:
        self.state = state
        self._restarts += "replaces" in state.turns
        if state.process is not None and "starts" in state.turns:
            self._begin(state.process.ready_s)
        if state.phase == "training":
            self.busy_since_s = max(self.busy_since_s, state.since_s)

    def _progress(self, report: Progress) -> None:
        in_block, before = self.state.run is not None, self.report
        self.newest = tuple(stretches(report.steps))
        for step, each in self.newest:
            self.recent.add(*each, in_block=in_block)
            self.whole_run.add(step)
            self._history.add(step)
            self.busy_since_s = max(self.busy_since_s, step.finished_s)
        for first in (one for one in report.steps[:1] if one.step == one.count):
            self.whole_run.add(first, -1 / first.count)
        self.report = replace(
            report,
            steps=report.steps or before.steps,
            loss=before.loss if report.loss is None else report.loss,
            transform_ms=report.transform_ms or before.transform_ms,
            values=before.values | report.values,
        )

    def _hold(self, reading: HostReading) -> None:
        """Hold what is no mean: in a replay a reading has what the process reported of itself."""
        told = {
            name: value
            for name in reading.values
            if name in METRICS
            and METRICS[name].over_time == "last"
            and (value := reading.number(name)) is not None
        }
        if told:
            self.report = replace(self.report, values=self.report.values | told)

    @property
    def gpu_uuid(self) -> str:
        process = self.state.process
        return (process and process.device.uuid) or ""

    def host_now(self) -> HostReading | None:
        told, host = self.report.values, self.host.now()
        if host is None:
            return HostReading(at_s=self.report.until_s, values=dict(told)) if told else None
        return replace(host, values=host.values | told)

    def rate(self, now_s: float, *, rests: bool) -> Rate:
        return self.recent.at_rest() if rests else self.recent.rate(now_s - self.busy_since_s)

    def in_a_step(self, name: str) -> float | None:
        steps = self.report.steps
        amount: float | None = total(getattr(step, name) for step in steps)
        return None if amount is None else amount / sum(step.count for step in steps)

    def row(self, rank: int, state: RankState, now_s: float, *, hang: bool) -> RankRow:
        process, is_measured = self.state.process, state in ("training", "silent", "paused")
        rests = hang or state == "paused"
        rate = self.rate(now_s, rests=rests) if is_measured else UNKNOWN
        return RankRow(
            rank=rank,
            pid=None if process is None else process.pid,
            state=state,
            restarts=self._restarts,
            steps=self.report.total_steps,
            steps_per_s=rate.steps_per_s,
            samples_per_s=rate.samples_per_s,
            step_ms_p50=rate.step_ms_p50,
            values=(self.recent.values() if is_measured else {}) | self.report.values,
            loss=self.report.loss,
            node="" if process is None else process.node,
            history=self._history.values(now_s),
        )


class StepHistory:
    """The mean step time of each second; its size does not depend on the rate of steps."""

    def __init__(self) -> None:
        self._seconds: dict[int, Pace] = {}  # those with a step

    def add(self, step: Step) -> None:
        self._seconds.setdefault(int(step.finished_s), Pace()).add(step)
        if len(self._seconds) > SPAN_S:
            del self._seconds[min(self._seconds)]

    def values(self, now_s: float) -> Values:
        """None for seconds without a step."""
        end = int(now_s)
        first, newest = min(self._seconds, default=end), max(self._seconds, default=end)
        begin = max(first, newest - SPAN_S + 1, end - SPAN_S)
        seconds = map(self._seconds.get, range(begin, end))
        return tuple(None if one is None else one.step_ms for one in seconds)
