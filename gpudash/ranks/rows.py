"""Fold the messages of several training processes into a row for each rank."""

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from gpudash.metrics import process_reading
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.training import Progress, State, Step
from gpudash.snapshot import ENDED, RankRow, RankState, Values
from gpudash.statistics import Means, total
from gpudash.views.readings import ReadingT, RecentReadings
from gpudash.views.throughput import UNKNOWN, RecentSteps

TRAINING = "training"
"""The source name of training processes."""
SILENT_S = 10.0
"""A rank is silent if its newest message is older than another rank's by this; likewise a GPU or a
host, by its newest reading."""
KeyT = TypeVar("KeyT")
COLLECTIVES = ("collective_bus_mib", "collective_ms", "collective_exposed_ms")


class Ranks:
    """Folds the envelopes of all ranks, in order of arrival."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._gpus: dict[str, RecentReadings[GpuReading]] = {}
        self._hosts: dict[int, RecentReadings[HostReading]] = {}

    def take(self, envelope: Envelope) -> None:
        """Fold one envelope: of a training process, or a reading.

        Rank 0's end is the end of all ranks.
        """
        if isinstance(envelope.body, GpuReading | HostReading):
            self._take_reading(envelope.rank, envelope.body)
        state = envelope.body if isinstance(envelope.body, State) else None
        if state is not None and state.phase == "starting":  # new processes, which count from 0
            self._ranks.clear()
            self._hosts.clear()
        if envelope.source != TRAINING:
            return
        own = self._ranks.get(envelope.rank)
        if own is None:
            own = self._ranks[envelope.rank] = _Rank(envelope.rank)
        own.take(envelope)
        if envelope.rank == 0 and own.state in ENDED:
            for rank in self._ranks.values():
                rank.state = own.state

    def _take_reading(self, rank: int, reading: GpuReading | HostReading) -> None:
        if isinstance(reading, GpuReading):
            self._gpus.setdefault(reading.uuid, RecentReadings()).add(reading)
        else:
            self._hosts.setdefault(rank, RecentReadings()).add(reading)
            if rank in self._ranks:
                self._ranks[rank].read(reading)

    def rows(self, now_s: float, *, hang: bool = False) -> tuple[RankRow, ...]:
        """Return a row for each rank; none for a single one."""
        if len(self._ranks) < 2:
            return ()
        heard_s = max(rank.heard_s for rank in self._ranks.values())
        gpus, hosts = _now(self._gpus), _now(self._hosts)
        return tuple(
            replace(
                rank.row(now_s, heard_s, hang=hang),
                gpu=gpus.get(rank.gpu_uuid),
                host=hosts.get(number),
            )
            for number, rank in sorted(self._ranks.items())
        )


def _now(read: Mapping[KeyT, RecentReadings[ReadingT]]) -> dict[KeyT, ReadingT]:
    """Return the newest readings, without stale ones: those are of a lost node."""
    newest = {key: one for key, of in read.items() if (one := of.now()) is not None}
    newest_s = max((one.at_s for one in newest.values()), default=0.0)
    return {key: one for key, one in newest.items() if newest_s - one.at_s <= SILENT_S}


class _Rank:
    """One rank; a restart replaces its process."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._life: State | None = None
        self.state: RankState = "starting"
        self.heard_s = 0.0
        """When the newest message was sent."""
        self._pid: int | None = None
        self._restarts = 0
        self._node = self.gpu_uuid = ""
        self._begin(0.0)

    def _begin(self, at_s: float) -> None:
        self._busy_since_s = at_s
        self._recent = RecentSteps()
        self._history = StepHistory()
        self._steps = 0
        self._loss: float | None = None
        self._collectives: dict[str, float] = {}  # what it reported last of them

    def take(self, envelope: Envelope) -> None:
        """Fold a message of this rank."""
        self.heard_s = envelope.sent_s
        match envelope.body:
            case State() as state:
                self._turn(state)
            case Progress() as progress:
                self._progress(progress)

    def _turn(self, state: State) -> None:
        before, self._life = self._life, state
        self.state = "ended" if state.phase == "parted" else state.phase
        process = state.process
        if process is not None and state.starts_after(before):
            self._begin(process.ready_s)
            self._restarts += self._pid not in (None, process.pid)
            self._pid = process.pid
            self._node, self.gpu_uuid = process.node, process.device.uuid or ""
        if state.phase == "training":
            self._busy_since_s = max(self._busy_since_s, state.since_s)

    def _progress(self, progress: Progress) -> None:
        for step in progress.steps:
            self._recent.add(step)
            self._history.add(step)
            self._busy_since_s = max(self._busy_since_s, step.finished_s)
        self._steps = progress.total_steps
        if progress.loss is not None:
            self._loss = progress.loss
        if (reported := process_reading(progress)) is not None:
            self.read(reported)

    def read(self, reading: HostReading) -> None:
        """Fold a reading: in a replay it has what the rank reported of its collectives."""
        told = {name: reading.number(name) for name in COLLECTIVES}
        known = {name: value for name, value in told.items() if value is not None}
        self._collectives = known or self._collectives

    def row(self, now_s: float, others_heard_s: float, *, hang: bool) -> RankRow:
        """Return the rank's row."""
        is_silent = self.state == "training" and others_heard_s - self.heard_s > SILENT_S
        rate = UNKNOWN
        if self.state == "paused" or (self.state == "training" and hang):
            rate = self._recent.at_rest()
        elif self.state == "training":
            rate = self._recent.rate(now_s - self._busy_since_s)
        steps = [] if self.state in (*ENDED, "ended") else list(self._recent)
        means = Means()
        for step in steps:
            means.add(step.values, step.count)
        count = sum(step.count for step in steps)
        samples = total(step.samples for step in steps)
        tokens = total(step.tokens for step in steps)
        size = samples if tokens is None else tokens
        return RankRow(
            rank=self._rank,
            pid=self._pid,
            state="silent" if is_silent else self.state,
            restarts=self._restarts,
            steps=self._steps,
            steps_per_s=rate.steps_per_s,
            samples_per_s=rate.samples_per_s,
            step_ms_p50=rate.step_ms_p50,
            values=means.values() | self._collectives,
            loss=self._loss,
            node=self._node,
            history=self._history.values(now_s),
            tokens=size / count if count and size is not None else None,
        )


SPAN_S = 60


class StepHistory:
    """The mean step time of each second; its size does not depend on the rate of steps."""

    def __init__(self) -> None:
        self._means: dict[int, float] = {}  # of seconds with a step, the newest last
        self._ms, self._count = 0.0, 0  # sums over the newest second

    def add(self, step: Step) -> None:
        """Add a step; steps come in order."""
        second = int(step.finished_s)
        if second not in self._means:
            self._ms, self._count = 0.0, 0
        self._ms += step.count * step.step_ms
        self._count += step.count
        self._means[second] = self._ms / self._count
        if len(self._means) > SPAN_S:
            del self._means[min(self._means)]

    def values(self, now_s: float) -> Values:
        """Return the mean step time of each whole second in ms; None for seconds without a step."""
        end = int(now_s)
        first, newest = min(self._means, default=end), max(self._means, default=end)
        begin = max(first, newest - SPAN_S + 1, end - SPAN_S)
        return tuple(map(self._means.get, range(begin, end)))
