"""Several processes that train together, side by side: folds what each of them tells."""

from gpudash.protocol import (
    Envelope,
    Failed,
    Finished,
    GpuReading,
    Paused,
    Progress,
    Resumed,
    Started,
)
from gpudash.snapshot import ENDED, RankRow, State
from gpudash.statistics import Means, total
from gpudash.views.step_history import StepHistory
from gpudash.views.throughput import IDLE, UNKNOWN, RecentReadings, RecentSteps

TRAINING = "training"
"""The source that training processes speak as."""
WAITING = "communication"
"""The phase in which a rank waits for the collectives: not hidden behind computation."""


class Ranks:
    """Takes the envelopes of all ranks, in order of arrival."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._gpus: dict[str, RecentReadings[GpuReading]] = {}

    def take(self, envelope: Envelope) -> None:
        """Take one envelope: of a training process, or a reading of a GPU.

        Rank 0 tells the end for all.
        """
        if isinstance(envelope.body, GpuReading):
            self._gpus.setdefault(envelope.body.uuid, RecentReadings()).add(envelope.body)
        if envelope.source != TRAINING:
            return
        own = self._ranks.setdefault(envelope.rank, _Rank(envelope.rank))
        own.take(envelope)
        if envelope.rank == 0 and isinstance(envelope.body, Finished | Failed):
            for rank in self._ranks.values():
                rank.state = own.state

    def rows(self, now_s: float) -> tuple[RankRow, ...]:
        """Return a row for each rank; none for a single one."""
        ranks = sorted(self._ranks.items()) if len(self._ranks) > 1 else ()
        gpus = {uuid: readings.now() for uuid, readings in self._gpus.items()} if ranks else {}
        return tuple(rank.row(now_s, gpus.get(rank.gpu_uuid)) for _, rank in ranks)


class _Rank:
    """One training process after the other under the same rank."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._newest = -1  # `seq`: what is told again is known
        self.state: State = "starting"
        self._pid: int | None = None
        self._node = self.gpu_uuid = ""
        self._begin(0.0)

    def _begin(self, at_s: float) -> None:
        self._busy_since_s = at_s
        self._recent = RecentSteps()
        self._history = StepHistory()
        self._steps = 0
        self._loss: float | None = None
        self._collective: tuple[float | None, float | None] = (None, None)  # MiB, ms

    def take(self, envelope: Envelope) -> None:
        if envelope.seq <= self._newest:
            return
        self._newest = envelope.seq
        match envelope.body:
            case Started() as started:
                self._begin(started.at_s)
                self.state, self._pid = "training", started.pid
                self._node, self.gpu_uuid = started.node, started.device.uuid or ""
            case Progress() as progress:
                self._progress(progress)
            case Paused():
                self.state = "paused"
            case Resumed() as resumed:
                self.state = "training"
                self._busy_since_s = max(self._busy_since_s, resumed.at_s)
            case Finished():
                self.state = "finished"
            case Failed():
                self.state = "failed"

    def _progress(self, progress: Progress) -> None:
        for step in progress.steps:
            self._recent.add(step)
            self._history.add(step)
            self._busy_since_s = max(self._busy_since_s, step.finished_s)
        self._steps = progress.total_steps
        if progress.loss is not None:
            self._loss = progress.loss
        if progress.collective_mib is not None or progress.collective_ms is not None:
            self._collective = (progress.collective_mib, progress.collective_ms)

    def row(self, now_s: float, gpu: GpuReading | None) -> RankRow:
        rate = self._recent.rate(now_s - self._busy_since_s)
        if self.state != "training":
            rate = IDLE if self.state == "paused" else UNKNOWN
        data, phases = Means(), Means()
        for step in self._recent if self.state not in ENDED else ():
            data.add({"data_ms": step.data_ms}, step.count)
            phases.add(step.phases_ms or {}, step.count)
        steps = sum(step.count for step in self._recent)
        samples = total(step.samples for step in self._recent)
        tokens = total(step.tokens for step in self._recent)
        size = samples if tokens is None else tokens
        collective_mib, collective_ms = self._collective
        return RankRow(
            rank=self._rank,
            pid=self._pid,
            state=self.state,
            steps=self._steps,
            steps_per_s=rate.steps_per_s,
            samples_per_s=rate.samples_per_s,
            step_ms_p50=rate.step_ms_p50,
            data_ms=data.values().get("data_ms"),
            phases_ms=phases.values(),
            loss=self._loss,
            node=self._node,
            waits_ms=phases.values().get(WAITING),
            history=self._history.values(now_s),
            tokens=size / steps if steps and size is not None else None,
            gpu=gpu,
            collective_mib=collective_mib,
            collective_ms=collective_ms,
        )
