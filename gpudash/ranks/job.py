"""Aggregate the ranks of a training: a row for each, and what the job has, by the metric table."""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from gpudash.metrics import METRICS
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuReading
from gpudash.protocol.training import Progress, State, Step
from gpudash.ranks.rank import Rank
from gpudash.ranks.recent import Rate, ReadingT, RecentReadings
from gpudash.snapshot import ENDED, RankRow, RankState
from gpudash.statistics import total

TRAINING = "training"
"""The source name of training processes."""
SILENT_S = 10.0
"""A rank is silent if its newest message is older than another rank's by this; likewise a GPU or a
host, by its newest reading."""
SUMMED = tuple(
    name.removesuffix("_per_s") for name, of in METRICS.items() if of.over_ranks == "sum"
)
"""What a step of the job has of all ranks together; of all else, the job's is rank 0's."""
KeyT = TypeVar("KeyT")


class Ranks:
    """Folds the messages of all ranks, in order of arrival; new processes begin anew."""

    def __init__(self) -> None:
        self._gpus: dict[str, RecentReadings[GpuReading]] = {}
        self.gpu_uuid: str | None = None
        """The GPU that rank 0 trains on; before that is known, the first one that was read."""
        self._begin()

    def _begin(self) -> None:
        self._ranks = defaultdict[int, Rank](Rank, {0: Rank()})
        self._world_size = 1

    def take(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, GpuReading):
            self._gpus.setdefault(body.uuid, RecentReadings()).add(body)
            self.gpu_uuid = self.gpu_uuid or body.uuid
            return
        if isinstance(body, State) and body.phase == "starting":
            self._begin()
        if envelope.source == TRAINING:
            self._ranks[envelope.rank].heard_s = envelope.sent_s
        rank = self._ranks.get(envelope.rank)
        if rank is not None:
            rank.fold(body)
        if isinstance(body, State) and body.process is not None:
            self._world_size = body.process.world_size
            if not envelope.rank:
                self.gpu_uuid = body.process.device.uuid or self.gpu_uuid

    @property
    def lead(self) -> Rank:
        return self._ranks[0]

    @property
    def has_own_gpu(self) -> bool:
        """Whether rank 0 trains on one GPU alone, where no other rank trains."""
        process = self.lead.state.process
        others = {rank.gpu_uuid for number, rank in self._ranks.items() if number}
        return process is not None and process.gpus == 1 and self.gpu_uuid not in others

    def gpu_now(self) -> GpuReading | None:
        readings = self._gpus.get(self.gpu_uuid or "")
        return None if readings is None else readings.now()

    def rate(self, now_s: float, *, rests: bool) -> Rate:
        own, others = self.lead.rate(now_s, rests=rests), self._others()
        steps_per_s, rates = own.steps_per_s or 0.0, {name: f"{name}_per_s" for name in SUMMED}
        whole = {
            of: others.with_own(name, getattr(own, of), steps_per_s) for name, of in rates.items()
        }
        return own._replace(**whole)

    def of_all(self, report: Progress) -> Progress:
        """Return rank 0's report with what all ranks train."""
        if max(self._world_size, len(self._ranks)) == 1:
            return report
        others = self._others()

        def of_all(step: Step) -> Step:
            whole = (others.with_own(name, getattr(step, name), step.count) for name in SUMMED)
            return replace(step, **dict(zip(SUMMED, map(_rounded, whole), strict=True)))

        so_far = others.with_own("total_samples", report.total_samples, 1)
        steps = tuple(map(of_all, report.steps))
        return replace(report, steps=steps, total_samples=_rounded(so_far))

    def _others(self) -> "_Others":
        apart = self._world_size == 1  # else ranks from this number on are those of before
        ranks = [one for number, one in self._ranks.items() if apart or number < self._world_size]
        told = [one for one in ranks[1:] if one.report.steps]
        training = [one for one in told if one.state.phase != "parted"]
        ended = sum(one.state.phase == "parted" for one in ranks)
        more = {name: total(one.in_a_step(name) for one in training) for name in SUMMED}
        more["total_samples"] = total(one.report.total_samples for one in told)
        return _Others(max(self._world_size, len(ranks)) - ended - len(training), more)

    def rows(self, now_s: float, *, hang: bool = False) -> tuple[RankRow, ...]:
        if len(self._ranks) < 2:
            return ()
        heard_s = max(rank.heard_s for rank in self._ranks.values())
        gpus = _fresh({uuid: of.now() for uuid, of in self._gpus.items()})
        hosts = _fresh({number: rank.host.now() for number, rank in self._ranks.items()})
        return tuple(
            replace(
                rank.row(number, self._state(rank, heard_s), now_s, hang=hang),
                gpu=gpus.get(rank.gpu_uuid),
                host=hosts.get(number),
            )
            for number, rank in sorted(self._ranks.items())
        )

    def _state(self, rank: Rank, heard_s: float) -> RankState:
        phase = rank.state.phase
        if self.lead.state.phase in ENDED:
            phase = self.lead.state.phase
        if phase == "parted":
            return "ended"
        is_silent = phase == "training" and heard_s - rank.heard_s > SILENT_S
        return "silent" if is_silent else phase


class _Others(NamedTuple):
    """What ranks other than rank 0 add to its values."""

    alike: int
    """How many train as much as rank 0: itself, and those that have not told it yet."""
    more: dict[str, float | None]
    """Sums over the rest, of one step and of all so far; None if one of them does not know it."""

    def with_own(self, name: str, own: float | None, steps: float) -> float | None:
        """Return the sum over all ranks for so many steps, of which rank 0 has `own`."""
        more = self.more[name]
        return None if own is None or more is None else own * max(self.alike, 1) + more * steps


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def _fresh(read: Mapping[KeyT, ReadingT | None]) -> dict[KeyT, ReadingT]:
    """Leave out stale readings, which are of a lost node."""
    known = {key: one for key, one in read.items() if one is not None}
    newest_s = max((one.at_s for one in known.values()), default=0.0)
    return {key: one for key, one in known.items() if newest_s - one.at_s <= SILENT_S}
