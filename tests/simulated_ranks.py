"""What ranks tell that train in step, simulated: jitter, outliers, drift, and a slow one."""

from collections.abc import Iterable, Iterator
from itertools import accumulate

import numpy as np
from msgspec.structs import replace

from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Device, Phase, Progress, State, Step, TrainingProcess

PARTS_MS = {"copy": 0.5, "forward": 4.3, "your_code": 0.2, "backward": 10.0, "optimizer": 0.7}
"""In the order of a step; between `backward` and `optimizer` the ranks wait for each other."""
COLLECTIVE_MS = 0.5
DATA_MS = 0.3
HOST_MS = 6.0
STEP_MS = sum(PARTS_MS.values()) + COLLECTIVE_MS
HOST = ("data", "host")
BEFORE = ("copy", "forward", "your_code", "backward")
"""What a rank does before it waits for the others."""
MANY = 256
NAMES = (*list(PARTS_MS)[:4], "communication", "optimizer")


def start(rank: int, kind: str = "cuda", world_size: int = 4, node: str = "") -> State:
    process = TrainingProcess(
        pid=1000 + rank,
        ready_s=0.0,
        device=Device(kind=kind, name="NVIDIA H200", uuid=f"GPU-{rank}"),
        versions={},
        phases=tuple(Phase(name=name, label=name, lane="train") for name in NAMES),
        world_size=world_size,
        node=node,
    )
    return State(
        at_s=0.0,
        phase="training",
        process=process,
        workload="train.py",
        warmup_steps=5,
        worker=1,
        turns=("starts",),
    )


class Ranks:
    """Trains so many seconds; `delay(step, rank)` says in what a rank is slower, and by how much.

    A step is measured closely twice in each 100 ms, by each rank at other times; those between are
    told of together.
    """

    def __init__(
        self,
        ranks: int = 4,
        *,
        seed: int = 0,
        jitter: float = 0.04,
        spread: float = 0.0025,
        kind: str = "cuda",
        hides: bool = False,
        delay=lambda _step, _rank: {},
        tokens=lambda _step, _rank: 1000,
    ) -> None:
        self.ranks, self.kind = ranks, kind
        self._rng = np.random.default_rng(seed)
        self._jitter, self._hides = jitter, hides
        self._speed = self._rng.uniform(1 - spread, 1 + spread, ranks)  # no two GPUs are alike
        self._delay, self._tokens = delay, tokens
        self._steps = self._simulated()
        self._step = 0
        self._ends_ms = [0.0] * ranks
        self._due_ms = self._rng.uniform(0, 100, ranks).tolist()
        self._left = [0] * ranks
        self._told = [0] * ranks  # the newest step of each

    def train(self, seconds: float) -> Iterator[tuple[int, Progress]]:
        until_ms = self._ends_ms[0] + 1e3 * seconds
        while self._ends_ms[0] < until_ms:
            yield from self._one()

    def _simulated(self) -> Iterator[list[dict[str, float]]]:
        """What each part of a step takes on each rank, before any delay; drawn for many at once."""
        rng, shape, drift = self._rng, (MANY, self.ranks), 0.0
        usual = np.outer([*PARTS_MS.values()], self._speed)
        while True:
            moves = rng.normal(0, 0.001, MANY)
            moves[0] += drift
            drifts = [*accumulate(moves, lambda before, moved: 0.999 * before + moved)]
            drift = 0.999 * drifts[-1]
            took = usual * (1 + np.reshape(drifts, (MANY, 1, 1)))
            took *= rng.lognormal(0, self._jitter, (MANY, 1, self.ranks))
            took *= rng.lognormal(0, self._jitter / 2, took.shape)
            took *= np.where(rng.random(shape) < 0.01 / self.ranks, 5.0, 1.0)[:, None]
            data = DATA_MS * rng.lognormal(0, 0.3, shape)
            host = HOST_MS * rng.lognormal(0, 0.03, shape)
            for each in np.dstack([data, host, took.swapaxes(1, 2)]).tolist():
                yield [dict(zip((*HOST, *PARTS_MS), one, strict=True)) for one in each]

    def _one(self) -> Iterator[tuple[int, Progress]]:
        self._step += 1
        took, began, ready = next(self._steps), self._ends_ms, []
        for rank, parts in enumerate(took):
            ready.append(began[rank] + sum(parts[name] for name in BEFORE))
            for part, ms in self._delay(self._step, rank).items():
                parts[part] += ms
                if part in BEFORE or (part in HOST and not self._hides):
                    ready[rank] += ms
        together = max(ready) + COLLECTIVE_MS
        self._ends_ms = [together + parts["optimizer"] for parts in took]
        for rank, parts in enumerate(took):
            if self._ends_ms[rank] >= self._due_ms[rank]:
                self._due_ms[rank], self._left[rank] = self._ends_ms[rank] + 100, 2
            if not self._left[rank]:
                continue
            self._left[rank] -= 1
            step = Step(
                step=self._step,
                segment=0,
                samples=8,
                tokens=self._tokens(self._step, rank),
                finished_s=self._ends_ms[rank] / 1e3,
                step_ms=self._ends_ms[rank] - began[rank],
                values={
                    **{f"{name}_ms": ms for name, ms in parts.items()},
                    "device_ms": sum(parts[name] for name in PARTS_MS),
                    "communication_ms": together - ready[rank],
                },
            )
            yield rank, self._progress(*self._between(rank, step), step)

    def _between(self, rank: int, step: Step) -> list[Step]:
        count = step.step - self._told[rank] - 1
        self._told[rank] = step.step
        if not count:
            return []
        known = {name: step.values[name] for name in ("data_ms", "host_ms")}
        blind = replace(step, step=step.step - 1, count=count, values=known)
        return [replace(blind, finished_s=step.finished_s - step.step_ms / 1e3)]

    def _progress(self, *steps: Step) -> Progress:
        done = steps[-1].step
        until_s = steps[-1].finished_s
        return Progress(until_s=until_s, steps=steps, total_steps=done, total_samples=8 * done)


def enveloped(told: Iterable[tuple[int, Event | Reading]], seq: int = 1) -> Iterator[Envelope]:
    """The same as a session is told it."""
    for number, (rank, body) in enumerate(told, seq):
        at_s = getattr(body, "until_s", getattr(body, "at_s", 0.0))
        yield Envelope(source="training", rank=rank, seq=number, sent_s=at_s, body=body)
