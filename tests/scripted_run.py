"""A scripted training: the records that a worker and a sampler would send, on a made-up clock."""

from msgspec.structs import replace

from gpudash.instrument.state_sender import OUTSIDE_BLOCKS
from gpudash.protocol.commands import Plan
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.records import Settings
from gpudash.protocol.training import (
    Aside,
    Device,
    Note,
    Phase,
    Progress,
    State,
    Step,
    TrainingProcess,
)
from gpudash.ranks.normalise import Normaliser
from tests.lives import Next, in_process

FIELDS = GpuReading.__struct_fields__
BEGAN_S = 1000.0
SETTINGS: Settings = {"pipelined": "off", "batch_size": "8", "num_workers": "2"}
PLAN = Plan(workload="encdec", settings=SETTINGS)
DEVICE = Device(kind="cuda", name="NVIDIA H200", uuid="GPU-1111")


def started(at_s: float, settings: Settings = SETTINGS, workload: str = "encdec") -> State:
    """The first state of a process, as it sends it."""
    return State(
        at_s=at_s,
        phase="training",
        process=TrainingProcess(
            pid=42,
            ready_s=at_s,
            device=DEVICE,
            versions={"torch": "2.11.0"},
            phases=(Phase(name="forward", label="forward", lane="train"),),
        ),
        workload=workload,
        settings=settings,
        warmup_steps=2,
        notes=(Note(lever=None, text="8 loader workers"),),
    )


def step(number: int, finished_s: float, step_ms: float = 50.0, segment: int = 0) -> Step:
    return Step(
        step=number,
        segment=segment,
        samples=8,
        finished_s=finished_s,
        step_ms=step_ms,
        values={"data_ms": 1.0, "host_ms": 2.0, "device_ms": 40.0, "forward_ms": 10.0},
    )


def measured(one: Step, **values: float | None) -> Step:
    """Return the step with these values besides its own; without those that are None."""
    found = one.values | values
    return replace(one, values={name: ms for name, ms in found.items() if ms is not None})


def gpu(at_s: float, **values: object) -> GpuReading:
    known = {"index": 0, "uuid": "GPU-1111", "name": "NVIDIA H200"}
    if "energy_j" in values:
        known["energy_at_s"] = at_s
    known |= {name: values.pop(name) for name in list(values) if name in FIELDS}
    return GpuReading(at_s=at_s, values=values, **known)


def host(at_s: float, cpu_pct: float = 150.0, **values: float) -> HostReading:
    known = {"cpu_pct": cpu_pct, "worker_rss_mib": 512.0}
    return HostReading(at_s=at_s, values=known | values)


class Trainer:
    """Trains on a made-up clock, and reports each step as the session passes it on."""

    def __init__(self, at_s: float = BEGAN_S, *, stamps: bool = True) -> None:
        """Without `stamps` messages are as a process sends them."""
        self.stamp = Normaliser().stamp if stamps else lambda item: item
        self.now_s = at_s
        self.number = 0
        self.segment = 0
        self.settings = SETTINGS
        self.state = started(at_s)

    def start(
        self,
        settings: Settings = SETTINGS,
        workload: str = "encdec",
        warmup_steps: int = 2,
        **process: object,
    ) -> State:
        self.number = self.segment = 0
        self.settings = settings
        first = replace(started(self.now_s, settings, workload), warmup_steps=warmup_steps)
        self.state = in_process(first, **process)
        return self.stamp(self.state)

    def turn(self, **changes: object) -> State:
        """The next state, that differs in this."""
        return self.say(Next({"at_s": self.now_s} | changes))

    def say(self, item: object) -> object:
        """What happens in the training, as the session passes it on."""
        if isinstance(item, Next):
            self.state = item = item.after(self.state)
        return self.stamp(item) if isinstance(item, State) and not item.worker else item

    def steps(self, count: int, step_ms: float = 50.0) -> list[Progress]:
        return [self.step(step_ms) for _ in range(count)]

    def step(self, step_ms: float = 50.0) -> Progress:
        self.now_s = round(self.now_s + step_ms / 1000, 6)  # steps end on the grid exactly
        self.number += 1
        return self.progress(step(self.number, self.now_s, step_ms, self.segment))

    def progress(self, *steps: Step) -> Progress:
        report = Progress(
            until_s=self.now_s,
            steps=steps,
            total_steps=self.number,
            total_samples=8 * self.number,
            loss=1 / self.number if self.number else None,
            loss_step=self.number or None,
        )
        return self.stamp(report)

    def silent(self, seconds: float) -> tuple[()]:
        """For so long nothing is told."""
        self.now_s = round(self.now_s + seconds, 6)
        return ()

    def wait(self, seconds: float) -> Progress:
        self.silent(seconds)
        return self.progress()

    def change(self, **changes: str) -> State:
        return self.change_and({}, **changes)

    def change_and(self, more: dict[str, object], **changes: str) -> State:
        self.segment += 1
        self.settings = self.settings | changes
        about = {"changes": changes, "settings": self.settings, "took_ms": 0.5}
        return self.turn(segment=self.segment, after_step=self.number, **(about | more))

    def enter_block(self, number: int | None, run: int = 1, **changes: str) -> State:
        baseline = self.state.baseline or self.settings
        return self.change_and({"run": run, "block": number, "baseline": baseline}, **changes)

    def leave_blocks(self, answers: tuple[int, ...] = (), **changes: str) -> State:
        return self.change_and({"answers": answers, **OUTSIDE_BLOCKS}, **changes)

    def pause(self, why: Aside = "asked", after_step: int | None = None) -> State:
        after_step = self.number if after_step is None else after_step
        return self.turn(phase="paused", why=why, after_step=after_step)

    def resume(self) -> State:
        return self.turn(phase="training", why=None)

    def finish(self) -> State:
        return self.turn(phase="finished", why=None, after_step=self.number)
