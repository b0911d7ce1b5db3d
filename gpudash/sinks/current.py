"""Fold messages and rows into what exporters write: the values of a row, and the current values.

A counter grows from row to row, so nothing that a reader misses is lost. A gauge that no row has
had for a while is left out: an old value is not the present one. No I/O, no clock.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gpudash.format import is_measured
from gpudash.metrics import METRICS
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuReading, HostReading, Reading
from gpudash.protocol.training import State
from gpudash.recording.csv_format import counts_of, of_gpu, of_job, of_rank
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.recording.rank_steps import RankSteps
from gpudash.sinks import exported
from gpudash.sinks.exported import Exported, Labels
from gpudash.snapshot import ENDED

FRESH_S = 10.0
"""A gauge is current for so long, and for three rows: a slow reading is in every second one."""
UNWATCHED = "unwatched"
"""The state of a training that gpudash has left, or ended as it was left."""
LONGEST = 19
"""Digits that no batch size has."""
NOT_DRAWN = {"time_s", *(name for name in METRICS if exported.of(name).beside)}
"""Metrics that are labels of the others, or their time."""


class Subject(NamedTuple):
    """What values of a row are about: the job, a rank, or a GPU."""

    labels: Labels
    values: Mapping[str, Any]
    """Numbers, texts, and pairs of them, by metric."""
    steps: int = 0
    """Steps that means over steps are of."""
    counts: Mapping[str, int | None] = {}
    """What rates are of, by metric."""

    def counted(self, name: str, value: float | None) -> float | None:
        """Make a mean a sum again; None if not known."""
        metric = METRICS.get(name)
        if metric is not None and metric.over_time == "rate":
            return self.counts.get(name)
        if metric is None or metric.in_steps is not None:
            return None if value is None else value * self.steps
        return value

    def numbers(self) -> Iterator[tuple[str, str, float]]:
        """Yield what is a finite number and no label: its metric, its name, and the number."""
        for metric, value in self.values.items():
            held = value if isinstance(value, dict) else {"": value}
            for name, one in held.items():
                if isinstance(one, int | float) and is_measured(one) and metric not in NOT_DRAWN:
                    yield metric, f"{metric} {name}".rstrip(), one

    def tag(self, metric: str, name: str) -> str:
        labels = dict(self.labels)
        kind = METRICS[metric].kind if metric in METRICS else "phase"
        if "hw.name" in labels:
            return f"{labels['hw.name']}/{name}"
        rank = labels.get("rank", "0")
        return f"{kind}/{name}" if rank == "0" else f"rank {rank} {kind}/{name}"


def subjects(interval: Interval, origin: Origin) -> Iterator[Subject]:
    job = of_job(interval, origin)
    size = str(job["batch_size"])
    job["batch_size"] = int(size) if size.isdecimal() and len(size) < LONGEST else None
    for rank in interval.ranks:
        values, counts = of_rank(rank, interval.rated_s), counts_of(rank)
        shared = {name for name in values if _is_jobs(name)}
        if not rank.rank:
            job |= {name: values[name] for name in shared}
            yield Subject((), job, rank.timed, counts)
        own = {name: value for name, value in values.items() if name not in shared}
        yield Subject((("rank", str(rank.rank)),), own, rank.timed, counts)
    for gpu in interval.gpus:
        yield Subject(_labels(gpu), of_gpu(gpu))


def _is_jobs(name: str) -> bool:
    return name in METRICS and METRICS[name].over_ranks == "one"


def _labels(gpu: GpuInterval | GpuReading) -> Labels:
    return (("hw.id", gpu.uuid), ("hw.name", f"GPU {gpu.index}"), ("hw.type", "gpu"))


class Point(NamedTuple):
    """A current value."""

    labels: Labels
    value: float
    at_s: float
    """When it was read, or the end of the row that had it."""


Family = tuple[Exported, list[Point]]
"""Values of one name, in the order in which their labels were first seen."""


class Current:
    """The current values of a run."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._fresh_s = max(FRESH_S, 3 * origin.interval_s)
        self._families: dict[str, tuple[Exported, dict[Labels, Point]]] = {}
        self._state: State | None = None
        self.at_s = origin.began_s
        """The newest moment that is known: of a reading, or the end of a row."""

    def take(self, item: Envelope | Interval) -> None:
        if isinstance(item, Interval):
            self._row(item)
        else:
            self._tell(item.rank, item.body)

    def end(self) -> None:
        """Note that nothing more is told: whether a training goes on is not known then."""
        if self._state is not None and self._state.phase not in ENDED:
            self._say(UNWATCHED)

    def families(self, now_s: float) -> list[Family]:
        oldest_s = now_s - self._fresh_s
        found = (
            (
                of,
                [*points.values()]
                if _lasts(of)
                else [one for one in points.values() if one.at_s >= oldest_s],
            )
            for of, points in self._families.values()
        )
        return [family for family in found if family[1]]

    def _tell(self, rank: int, body: object) -> None:
        match body:
            case State() if not rank:
                self._state = body
                self._say(f"{body.phase}, {body.why}" if body.why else body.phase)
            case AnswerShown(answer=None):
                self._points(exported.LIMIT).clear()
            case AnswerShown(answer=answer) if answer is not None:
                self._set(exported.LIMIT, (("title", answer.title),), answer.limit)
            case GpuReading():
                self._set(exported.GPU, (("hw.id", body.uuid), ("hw.type", "gpu")), body.name)
                self._read(body, _labels(body))
            case HostReading():
                self._read(body, (("rank", str(rank)),))

    def _say(self, state: str) -> None:
        workload = self._state.workload if self._state is not None else ""
        self._set(exported.TRAINING, (("workload", workload),), state)

    def _read(self, reading: Reading, labels: Labels) -> None:
        """Take gauges from readings: they go on while no step finishes, and so no row is whole."""
        self.at_s = max(self.at_s, reading.at_s)
        for name, value in reading.values.items():
            of = exported.of(name)
            if of.name and not of.is_counter:
                self._set(of, of.labels + labels, value, reading.at_s)

    def _row(self, interval: Interval) -> None:
        at_s = interval.ended_s
        self.at_s = max(self.at_s, at_s)
        for subject in subjects(interval, self._origin):
            counted = set[tuple[str, Labels]]()
            for name, value in subject.values.items():
                of = exported.of(name)
                labels = of.labels + subject.labels
                if of.is_counter:
                    more = subject.counted(name, value)
                    if is_measured(more) and (of.name, labels) not in counted:
                        counted.add((of.name, labels))  # both the steps and their rate are known
                        self._count(of, labels, more, at_s)
                elif isinstance(value, dict) and of.name:
                    label = name.partition("_")[0].removesuffix("s")  # `levers`, `transform_ms`
                    for key, one in value.items():
                        self._set(of, (*labels, (label, key)), one, at_s)
                elif value is not None and of.name:
                    self._set(of, labels, value, at_s)
        self._last_step(interval.ranks[0], interval.ended_s)

    def _last_step(self, rank: RankSteps, ended_s: float) -> None:
        if rank.finished_s is not None:
            at_s = min(rank.finished_s, ended_s)
            self._put(exported.LAST_STEP, (), wall_s(self._origin, at_s), ended_s)

    def _set(
        self, of: Exported, labels: Labels, value: float | str, at_s: float | None = None
    ) -> None:
        at_s = self.at_s if at_s is None else at_s
        key = _key(of, labels)
        before = self._points(of).get(key)
        if before is not None and before.at_s > at_s:
            return
        if of.text:
            self._points(of)[key] = Point((*labels, (of.text, str(value))), 1, at_s)
        elif not isinstance(value, str) and is_measured(value):
            self._put(of, labels, value * of.unit.scale, at_s)

    def _count(self, of: Exported, labels: Labels, more: float, at_s: float) -> None:
        before = self._points(of).get(labels)
        self._put(of, labels, (before.value if before else 0) + more * of.unit.scale, at_s)

    def _put(self, of: Exported, labels: Labels, value: float, at_s: float) -> None:
        self._points(of)[labels] = Point(labels, value, at_s)

    def _points(self, of: Exported) -> dict[Labels, Point]:
        return self._families.setdefault(of.name, (of, {}))[1]


def wall_s(origin: Origin, at_s: float) -> float:
    return origin.began_utc.timestamp() + at_s - origin.began_s


def _key(of: Exported, labels: Labels) -> Labels:
    return () if of in (exported.TRAINING, exported.LIMIT) else labels


def _lasts(of: Exported) -> bool:
    return of.is_counter or of in exported.BESIDE
