"""Every value that gpudash measures, once: what it means, and where it is recorded and shown.

The order of the table is that of the CSV's columns: new ones are only appended to it.
"""

from functools import partial
from typing import Literal, TypeAlias

import msgspec

from gpudash.protocol import GpuReading

UTIL_WINDOW_S = 1.0
"""NVML averages utilisation over 1/6 to 1 s, depending on the GPU, and does not say over what."""
CORE_WAIT_WARNS_PCT = 15.0
"""`core_wait_pct` from which on a rate is taken to tell of other load too, and that is said."""

Kind: TypeAlias = Literal["run", "step", "phase", "input", "gpu", "host", "own"]
OverTime: TypeAlias = Literal["last", "sum", "rate", "mean", "p50", "p95", "difference", "union"]

KINDS: dict[Kind, str] = {
    "run": "Of a row of the CSV; with several GPUs it stands in the row of each.",
    "step": "Of the steps of rank 0, timed by the device.",
    "phase": "Of rank 0, on the device, in some steps of each 100 ms. A workload may name others.",
    "input": "Of the loader workers of rank 0.",
    "gpu": "Of one GPU: each has a row of the CSV; the screen shows the one trained on.",
    "host": "Of the training process and its loader workers together.",
    "own": "Of gpudash itself.",
}
"""What a value tells of, and with it what becomes of several ranks and several GPUs."""


class Metric(msgspec.Struct, frozen=True):
    """One value by its name, which is also that of its column in the CSV."""

    kind: Kind
    unit: str
    meaning: str
    over_time: OverTime = "mean"
    """How a row of a recording comes by its value."""
    csv: int | Literal["text"] | None = None
    """Decimals of its column; None where it has no column."""
    label: str = ""
    """In the device panel; without one it is not shown there."""
    chart: Literal["throughput", "step time"] | None = None
    """What draws it over time."""
    hue: int | None = None
    """Of a phase, wherever it is shown."""
    spark: str = ""
    """In the sparklines beside the throughput; times of steps as their share of the step."""
    window: Literal["utilisation", "activity"] | None = None
    """A reading of it is a mean over this time before it; None where it tells of its moment."""


_row = partial(Metric, "run", "", over_time="last", csv="text")
_step = partial(Metric, "step", "ms", csv=4)
_gpu = partial(Metric, "gpu", csv=1)
_util = partial(Metric, "gpu", "%", csv=1, window="utilisation")
_active = partial(Metric, "gpu", "%", csv=1, window="activity")
_pcie = partial(Metric, "gpu", "MiB/s", csv=3, window="activity")


def _phase(meaning: str, hue: int) -> Metric:
    return Metric("phase", "ms", meaning, chart="step time", hue=hue)


METRICS: dict[str, Metric] = {
    "time_s": Metric("run", "s", "From the recording's begin to the row's end.", "last", 3),
    "wall_time_utc": _row("The row's end by the wall clock."),
    "workload": _row("What is trained."),
    "segment": _row("Counts changes of levers and restarts, and never goes back."),
    "batch_size": _row("That of the active settings."),
    "levers": _row("The active settings: `name=value;name=value`."),
    "step": _row("The worker's count of steps so far; a restarted worker counts anew."),
    "steps": Metric("step", "", "Steps that the device finished.", "sum", "text"),
    "steps_per_s": Metric("step", "steps/s", "`steps` a second.", "rate", 4, chart="throughput"),
    "samples_per_s": Metric(
        "step",
        "samples/s",
        "Samples of the finished steps a second.",
        "rate",
        3,
        chart="throughput",
    ),
    "step_ms_p50": _step("What half of the steps took at most.", "p50"),
    "step_ms_p95": _step("What 95 % of the steps took at most.", "p95"),
    "data_ms": _step("The host waited for a batch.", chart="step time", spark="data wait"),
    "host_ms": _step(
        "The host was occupied with a step, waiting for data excluded.", spark="host busy"
    ),
    "device_ms": _step("The device was at work on a step, overlapping halves counted once."),
    "loss": Metric("step", "", "The newest that was read back, of a step so far.", "last", 6),
    "gpu_index": Metric("gpu", "", "The driver's number of the GPU.", "last", "text"),
    "gpu_uuid": Metric("gpu", "", "What the driver knows the GPU by.", "last", "text"),
    "gpu_util_pct": _util(
        "Time in which any kernel ran: not occupancy.",
        label="utilisation",
        spark="busy",
    ),
    "mem_util_pct": _util(
        "Time in which device memory was read or written.", label="memory bus busy"
    ),
    "mem_used_mib": _gpu(
        "MiB",
        "Device memory in use, by all processes.",
        label="memory used",
        spark="memory",
    ),
    "mem_total_mib": Metric("gpu", "MiB", "Device memory there is.", "last"),
    "sm_active_pct": _active(
        "Time in which an SM had work, of all SMs.",
        label="SM active",
        spark="SM active",
    ),
    "sm_occupancy_pct": _active("Warps on the SMs, of their room for them.", label="SM occupancy"),
    "tensor_active_pct": _active(
        "Time in which tensor cores were at work.", label="tensor cores active", spark="tensor"
    ),
    "dram_active_pct": _active(
        "Device memory's traffic, of what it can do.", label="DRAM active", spark="DRAM"
    ),
    "pcie_rx_mib_s": _pcie("What the GPU received over PCIe.", label="PCIe"),
    "pcie_tx_mib_s": _pcie("What the GPU sent over PCIe."),
    "power_w": _gpu(
        "W",
        "Electrical power that the GPU draws.",
        label="power",
        spark="power",
    ),
    "energy_j": Metric("gpu", "J", "Energy spent, by the GPU's own counter.", "difference", 3),
    "temperature_c": _gpu("°C", "Of the GPU's core.", label="temperature", spark="temperature"),
    "sm_clock_mhz": Metric(
        "gpu", "MHz", "Clock of the SMs.", csv=0, label="SM clock", spark="clock"
    ),
    "throttle": Metric(
        "gpu",
        "",
        "What held the clocks down, or `none`.",
        "union",
        "text",
        "clocks held down by",
        spark="held by",
    ),
    "cpu_pct": Metric(
        "host",
        "%",
        "CPU time, of one core: two busy cores read 200.",
        csv=1,
        label="CPU",
        spark="CPU",
    ),
    "worker_rss_mib": Metric(
        "host",
        "MiB",
        "Resident memory; shared pages count once for each process.",
        csv=1,
        label="memory",
        spark="RAM",
    ),
    "transform_ms": Metric("input", "ms", "Of a sample, by transform, as last told.", "last", 2),
    "skipped_samples": Metric("input", "", "Unreadable samples passed over.", "last", "text"),
    "train_s": Metric("run", "s", "Not paused, switching, starting or restarting.", "sum", 6),
    "core_wait_pct": Metric(
        "host",
        "%",
        "Core time its threads asked for and did not get, of what they asked for or of one core.",
        csv=1,
        label="waits for a core",
        spark="core wait",
    ),
    "step_ms": Metric("step", "ms", "From the end of the step before to its end."),
    "overlap_ms": Metric(
        "step",
        "ms",
        "Both streams were busy; absent without a second stream.",
        spark="both streams",
    ),
    "copy_ms": _phase("The batch goes to the device.", 1),
    "prepare_ms": _phase("Encoding, augmenting or whatever needs no gradients.", 2),
    "forward_ms": _phase("The forward pass.", 3),
    "backward_ms": _phase("The backward pass.", 4),
    "optimizer_ms": _phase("The optimizer's step.", 5),
    "graph_ms": _phase("The last three replayed as a CUDA graph.", 6),
    "own_cpu_pct": Metric("own", "%", "CPU time, of one core over 5 s.", label="CPU"),
    "own_rss_mib": Metric("own", "MiB", "Resident memory.", label="memory"),
}


def since(reading: GpuReading, began_s: float) -> GpuReading:
    """Return the reading without the means over a time that began before `began_s` (monotonic)."""
    windows = {"utilisation": reading.at_s - UTIL_WINDOW_S, "activity": reading.activity_since_s}
    early = {name for name, from_s in windows.items() if from_s is not None and from_s < began_s}
    values = {
        name: value
        for name, value in reading.values.items()
        if name not in METRICS or METRICS[name].window not in early
    }
    return msgspec.structs.replace(reading, values=values)
