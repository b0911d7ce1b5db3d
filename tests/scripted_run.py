"""A scripted training: the records that a worker and a sampler would send, on a made-up clock."""

from msgspec.structs import replace

from gpudash.protocol import (
    Changed,
    Device,
    Finished,
    GpuReading,
    HostReading,
    Note,
    Paused,
    Phase,
    Plan,
    Progress,
    Resumed,
    Settings,
    Started,
    Step,
)
from gpudash.run.normalise import Normaliser

FIELDS = GpuReading.__struct_fields__
BEGAN_S = 1000.0
SETTINGS: Settings = {"pipelined": "off", "batch_size": "8", "num_workers": "2"}
PLAN = Plan(workload="encdec", settings=SETTINGS)
DEVICE = Device(kind="cuda", name="NVIDIA H200", uuid="GPU-1111")


def started(at_s: float, settings: Settings = SETTINGS, workload: str = "encdec") -> Started:
    return Started(
        at_s=at_s,
        pid=42,
        workload=workload,
        device=DEVICE,
        settings=settings,
        warmup_steps=2,
        versions={"torch": "2.11.0"},
        notes=(Note(lever=None, text="8 loader workers"),),
        phases=(Phase(name="forward", label="forward", lane="train"),),
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

    def __init__(self, at_s: float = BEGAN_S) -> None:
        self._stamp = Normaliser().stamp
        self.now_s = at_s
        self.number = 0
        self.segment = 0
        self.settings = SETTINGS

    def start(self, settings: Settings = SETTINGS, workload: str = "encdec") -> Started:
        self.number = self.segment = 0
        self.settings = settings
        return self._stamp(started(self.now_s, settings, workload))

    def steps(self, count: int, step_ms: float = 50.0) -> list[Progress]:
        return [self.step(step_ms) for _ in range(count)]

    def step(self, step_ms: float = 50.0) -> Progress:
        self.now_s = round(self.now_s + step_ms / 1000, 6)  # steps end on the grid exactly
        self.number += 1
        done = step(self.number, self.now_s, step_ms, self.segment)
        return self.progress(done)

    def progress(self, *steps: Step) -> Progress:
        report = Progress(
            until_s=self.now_s,
            steps=steps,
            total_steps=self.number,
            total_samples=8 * self.number,
            loss=1 / self.number if self.number else None,
            loss_step=self.number or None,
        )
        return self._stamp(report)

    def wait(self, seconds: float) -> Progress:
        self.now_s = round(self.now_s + seconds, 6)
        return self.progress()

    def change(self, **changes: str) -> Changed:
        self.segment += 1
        self.settings = self.settings | changes
        changed = Changed(
            at_s=self.now_s,
            segment=self.segment,
            after_step=self.number,
            changes=changes,
            settings=self.settings,
            took_ms=0.5,
            warmup_steps=2,
        )
        return self._stamp(changed)

    def pause(self) -> Paused:
        self._stamp(Paused(at_s=self.now_s, after_step=self.number))
        return Paused(at_s=self.now_s)

    def resume(self) -> Resumed:
        return Resumed(at_s=self.now_s)

    def finish(self) -> Finished:
        return Finished(at_s=self.now_s, total_steps=self.number)
