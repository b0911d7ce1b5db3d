"""Several processes that train together, side by side: folds what each of them tells."""

from gpudash.protocol import (
    Envelope,
    Failed,
    Finished,
    Parted,
    Paused,
    Progress,
    Resumed,
    Started,
)
from gpudash.snapshot import ENDED, RankRow, RankState
from gpudash.statistics import Means
from gpudash.views.throughput import IDLE, UNKNOWN, RecentSteps

TRAINING = "training"
"""The source that training processes speak as."""
SILENT_S = 10.0
"""A rank is silent that has said nothing for so much longer than another one."""


class Ranks:
    """Takes the envelopes of all ranks, in order of arrival."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}

    def take(self, envelope: Envelope) -> None:
        """Take one envelope; what does not come from a training process is passed over.

        Rank 0 tells the end for all.
        """
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
        heard_s = max((rank.heard_s for _, rank in ranks), default=0.0)
        return tuple(rank.row(now_s, heard_s) for _, rank in ranks)


class _Rank:
    """One training process after the other under the same rank."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._newest = -1  # `seq`: what is told again is known
        self.state: RankState = "starting"
        self.heard_s = 0.0
        """When the newest message was sent."""
        self._pid: int | None = None
        self._restarts = 0
        self._begin(0.0)

    def _begin(self, at_s: float) -> None:
        self._busy_since_s = at_s
        self._recent = RecentSteps()
        self._steps = 0
        self._loss: float | None = None

    def take(self, envelope: Envelope) -> None:
        if envelope.seq <= self._newest:
            return
        self._newest, self.heard_s = envelope.seq, envelope.sent_s
        match envelope.body:
            case Started() as started:
                self._begin(started.at_s)
                self._restarts += self._pid not in (None, started.pid)
                self.state, self._pid = "training", started.pid
            case Progress() as progress:
                self._progress(progress)
            case Parted():
                self.state = "ended"
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
            self._busy_since_s = max(self._busy_since_s, step.finished_s)
        self._steps = progress.total_steps
        if progress.loss is not None:
            self._loss = progress.loss

    def row(self, now_s: float, others_heard_s: float) -> RankRow:
        is_silent = self.state == "training" and others_heard_s - self.heard_s > SILENT_S
        rate = self._recent.rate(now_s - self._busy_since_s)
        if self.state != "training":
            rate = IDLE if self.state == "paused" else UNKNOWN
        data, phases = Means(), Means()
        for step in self._recent if self.state not in (*ENDED, "ended") else ():
            data.add({"data_ms": step.data_ms}, step.count)
            phases.add(step.phases_ms or {}, step.count)
        return RankRow(
            rank=self._rank,
            pid=self._pid,
            state="silent" if is_silent else self.state,
            restarts=self._restarts,
            steps=self._steps,
            steps_per_s=rate.steps_per_s,
            step_ms_p50=rate.step_ms_p50,
            data_ms=data.values().get("data_ms"),
            phases_ms=phases.values(),
            loss=self._loss,
        )
