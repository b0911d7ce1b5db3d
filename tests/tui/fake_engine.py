"""An engine without a training: scripted snapshots, and a record of every call.

Tests publish snapshots by hand.
"""

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gpudash.compare.ab import Question
from gpudash.diagnosis.answer import Answers
from gpudash.errors import ExistsError, RecordingError, WorkerError
from gpudash.format import is_measured
from gpudash.protocol.commands import Plan
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Device, Phase
from gpudash.reference_levers import reference_levers
from gpudash.snapshot import (
    Listener,
    Marker,
    RecentMeans,
    RecordingStatus,
    Result,
    Series,
    Snapshot,
    Values,
)
from gpudash.statistics import mean
from gpudash.trace.summary import Summary
from workloads import CATALOGUE
from workloads.levers import resolve
from workloads.standard_levers import usable_cores

H200 = Device(kind="cuda", name="NVIDIA H200", uuid="GPU-0", mem_total_mib=143_771.0)
CPU = Device(kind="cpu", name="AMD EPYC 7R13")
NO_GPU = "the NVIDIA driver is not installed on this machine"


PHASES = (
    Phase(name="copy", label="copy", lane="prepare"),
    Phase(name="prepare", label="encode", lane="prepare"),
    Phase(name="forward", label="forward", lane="train"),
    Phase(name="backward", label="backward", lane="train"),
    Phase(name="optimizer", label="optimizer", lane="train"),
)


def settings(**changes: str) -> Settings:
    """Every lever of the default workload."""
    return resolve(
        CATALOGUE["encdec"].levers, {"num_workers": "8", "model_scale": "full", **changes}
    )


def wave(ticks: int, level: float, *, phase: float = 0.0, swing: float = 0.05) -> tuple[float, ...]:
    """A plausible series: a level, some swing, a little noise that is always the same."""
    return tuple(
        level * (1 + swing * math.sin((tick + phase) / 7) + swing / 3 * math.sin(tick * 12.9898))
        for tick in range(ticks)
    )


def series(ticks: int, *, on_gpu: bool = True, moved: float = 0.0) -> Series:
    """Series of `ticks` points; the second half pipelined, a little faster."""
    half = ticks // 2
    speed = tuple(
        value * (1.0 if tick < half else 1.07)
        for tick, value in enumerate(wave(ticks, 276.4, phase=moved, swing=0.02))
    )
    values = {
        "steps_per_s": speed,
        "samples_per_s": tuple(8 * value for value in speed),
        "cpu_pct": wave(ticks, 380, phase=moved),
        "worker_rss_mib": wave(ticks, 3100, swing=0.01),
        "step_ms": wave(ticks, 3.6, phase=moved),
        "data_ms": wave(ticks, 0.12, phase=moved, swing=0.5),
        "prepare_ms": wave(ticks, 0.92, phase=moved),
        "forward_ms": wave(ticks, 0.74, phase=moved),
        "backward_ms": wave(ticks, 1.42, phase=moved),
        "optimizer_ms": wave(ticks, 0.18, phase=moved),
        "host_ms": wave(ticks, 2.1, phase=moved),
        "device_ms": wave(ticks, 3.4, phase=moved),
    }
    if on_gpu:
        values |= {
            "gpu_util_pct": wave(ticks, 88, phase=moved),
            "sm_active_pct": wave(ticks, 61, phase=moved, swing=0.08),
            "mem_used_mib": wave(ticks, 6200, swing=0.01),
            "power_w": wave(ticks, 410, phase=moved),
            "copy_ms": wave(ticks, 0.34, phase=moved),
        }
    return Series(at_s=tuple(0.5 * (tick + 1) + moved for tick in range(ticks)), values=values)


def with_series(snapshot: Snapshot, **values: Values) -> Snapshot:
    """The snapshot with these series in it."""
    before = snapshot.series
    after = msgspec.structs.replace(before, values=before.values | values)
    return msgspec.structs.replace(snapshot, series=after)


def result(number: int, configuration: str, rate: float, **changes: Any) -> Result:
    """A row of the results table."""
    row = Result(
        number=number,
        configuration=configuration,
        settings=settings(),
        workload="encdec",
        steps=1240 * number,
        steps_per_s=rate,
        samples_per_s=8 * rate,
        step_ms_p50=1000 / rate,
        step_ms_p95=1300 / rate,
        values={"host_ms": 600 / rate, "gpu_util_pct": 85.0 + number, "cpu_pct": 380.0},
        live=False,
    )
    return msgspec.structs.replace(row, **changes)


def training(ticks: int = 60, *, on_gpu: bool = True, moved: float = 0.0) -> Snapshot:
    """A run in full swing."""
    on_cpu: dict[str, Any] = {"values": {"host_ms": 2.1, "cpu_pct": 380.0}}
    device = {} if on_gpu else on_cpu
    return referred(
        Snapshot(
            state="training",
            status="",
            elapsed_s=ticks * 0.5 + moved,
            workload="encdec",
            device=H200 if on_gpu else CPU,
            settings=settings(pipelined="on", precision="bf16"),
            worker_pid=4242,
            total_steps=12_345,
            total_samples=98_760,
            steps_since_break=4_000,
            phases=PHASES,
            steps_per_s=295.7 + math.sin(moved),
            samples_per_s=2366.0 + 8 * math.sin(moved),
            step_ms_p50=3.41,
            step_ms_p95=3.92,
            loss=0.6931,
            gpu=gpu_sample() if on_gpu else None,
            gpu_missing=None if on_gpu else NO_GPU,
            host=HostReading(
                at_s=0.0, values={"cpu_pct": 381.0, "worker_rss_mib": 3140.0, "usable_cores": 16.0}
            ),
            series=series(ticks, on_gpu=on_gpu, moved=moved),
            markers=(Marker(kind="change", at_s=ticks * 0.25, label="pipelined=on"),),
            results=(
                result(1, "batch_size=8, data=loader", 276.4, **device),
                result(2, "pipelined=on", 295.7 + math.sin(moved), live=True, **device),
            ),
        )
    )


def gpu_sample(**values: float | str) -> GpuReading:
    """A reading with most values."""
    measured = {
        "gpu_util_pct": 88.0,
        "mem_util_pct": 41.0,
        "mem_used_mib": 6213.0,
        "mem_total_mib": 143_771.0,
        "mem_free_mib": 137_000.0,
        "power_w": 412.0,
        "temperature_c": 51.0,
        "sm_clock_mhz": 1980.0,
        "throttle": "none",
        "sm_active_pct": 61.0,
        "sm_occupancy_pct": 24.0,
        "tensor_active_pct": 17.0,
        "dram_active_pct": 33.0,
    }
    return GpuReading(at_s=0.0, index=3, uuid="GPU-0", name="NVIDIA H200", values=measured | values)


def referred(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the levers of its workload, which a script has none of."""
    own = snapshot.levers if snapshot.found else ()
    levers = own or reference_levers(snapshot.workload, snapshot.settings)
    return msgspec.structs.replace(snapshot, levers=levers)


def with_recent(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the means over the last two seconds of its series, unless it has some."""
    if snapshot.recent.values:
        return snapshot
    return msgspec.structs.replace(snapshot, recent=means_of(snapshot.series, slice(-4, None)))


def means_of(series: Series, ticks: slice) -> RecentMeans:
    """The means over these ticks, each with the weight of its steps."""
    rates = [rate if is_measured(rate) else 0.0 for rate in series.of("steps_per_s")[ticks]]
    means = {name: mean(values[ticks], rates) for name, values in series.values.items()}
    known = {name: value for name, value in means.items() if is_measured(value)}
    return RecentMeans(steps=sum(rates) * series.tick_s, values=known)


def answered(
    snapshot: Snapshot, answers: Answers | None = None, profile: Summary | None = None
) -> Snapshot:
    """The snapshot with its answer; unless it has one, that of `answers` after a look at it."""
    snapshot = with_recent(referred(snapshot))
    if snapshot.answer is not None:
        return snapshot
    answers = answers or Answers()
    answers.look(snapshot, usable_cores(), profile)
    return msgspec.structs.replace(snapshot, answer=answers.newest)


def _noted(name: str) -> Callable[..., None]:
    return lambda self, *args: self.calls.append((name, *args))


def _requested(name: str) -> Callable[..., int]:
    return lambda self, *args: self._request((name, *args))


class FakeEngine:
    """Records every call; publishes the snapshots of a test or a script."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan or Plan(workload="encdec", settings={})
        self.calls: list[tuple[Any, ...]] = []
        self.requests = 0
        self.listener: Listener | None = None
        self.started_on: threading.Thread | None = None
        self.refuse_record: str | None = None
        self.refuse_worker: str | None = None
        self.sink_failures: dict[str, RecordingError] = {}
        self._answers = Answers()
        self._profiled: tuple[Any, ...] = ()
        self.meters = False

    # ── what the dashboard calls ────────────────────────────────────────────────────────

    rehearse, end_comparison, stop, pause, resume, memory_owners, conduct, slow, profile = map(
        _requested,
        ("rehearse", "end_comparison", "stop", "pause", "resume", "memory_owners", "conduct",
         "slow", "profile"),
    )  # fmt: skip
    leave, type, new_row, stop_recording = map(
        _noted, ("leave", "type", "new_row", "stop_recording")
    )

    def start(self, listener: Listener) -> None:
        self.calls.append(("start",))
        self.started_on = threading.current_thread()
        self._start_worker()
        self.listener = listener

    def change(self, settings: Settings) -> int:
        return self._request(("change", dict(settings)))

    def compare(self, question: Question, *, goes_on: bool = False) -> int:
        return self._request(("compare", question, goes_on) if goes_on else ("compare", question))

    def restart(self, plan: Plan) -> int:
        number = self._request(("restart", plan))
        self.plan = plan
        self._start_worker()
        return number

    def deepen(self, workload: str, settings: Settings, summary: Summary) -> None:
        self.calls.append(("deepen", workload, settings))
        self._profiled = workload, settings, summary

    def begin_sink(self, name: str, path: Path, *, force: bool = False) -> None:
        assert name == "recording"
        self.calls.append(("record", path, force))
        if self.refuse_record is not None:
            raise RecordingError(self.refuse_record)
        if path.exists() and not force:
            raise ExistsError(f"{path} exists")

    def _request(self, call: tuple[Any, ...]) -> int:
        self.calls.append(call)
        self.requests += 1
        return self.requests

    def _start_worker(self) -> None:
        if self.refuse_worker is not None:
            raise WorkerError(self.refuse_worker)

    # ── what a test or a script calls ───────────────────────────────────────────────────

    def calls_of(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of every call of this name."""
        return [call[1:] for call in self.calls if call[0] == name]

    def publish(self, snapshot: Snapshot, last_command: int | None = None) -> None:
        """Publish a snapshot that knows of every request, or of those up to one.

        Its answer is found here, unless it has one.
        """
        assert self.listener is not None, "the dashboard has not started the engine"
        known = self.requests if last_command is None else last_command
        *of, summary = self._profiled or (None,)
        is_of = of == [snapshot.workload, snapshot.settings]
        shown = answered(snapshot, self._answers, summary if is_of else None)
        self.listener.on_snapshot(msgspec.structs.replace(shown, last_command=known))

    def log(self, *lines: str) -> None:
        assert self.listener is not None, "the dashboard has not started the engine"
        self.listener.on_log(lines)

    def print(self, *lines: str, replaces: int = 0) -> None:
        assert self.listener is not None, "the dashboard has not started the engine"
        self.listener.on_output(lines, replaces)


def recording(path: str = "run.csv", rows: int = 270) -> RecordingStatus:
    """A file being written."""
    return RecordingStatus(path=path, rows=rows)
