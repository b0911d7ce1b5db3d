"""The table of all metrics: meaning, unit, CSV column, exported name, and where each is shown.

The order is that of the CSV's columns, so new metrics are only appended. Readings, and values of a
step, are dictionaries by these names, without what was not measured. A step may also have times of
phases that are not in the table: a workload names its own.
"""

from collections.abc import Mapping
from functools import partial
from typing import Literal, TypeAlias

from .protocol.readings import GpuReading, HostReading
from .protocol.records import Struct, replace
from .protocol.training import Progress

UTIL_WINDOW_S = 1.0
"""Longest averaging window of NVML's utilisation: 1/6 to 1 s by GPU, which NVML does not report."""
CORE_WAIT_WARNS_PCT = 15.0
"""From this `core_wait_pct` on, gpudash warns that other load on the machine slows the training."""

PAIRS_DIGITS = 2
"""Decimals of the numbers in a cell that holds several."""

Kind: TypeAlias = Literal["run", "step", "phase", "input", "gpu", "host", "own"]
OverTime: TypeAlias = Literal["last", "sum", "rate", "mean", "p50", "p95", "difference", "union"]
Column: TypeAlias = int | Literal["whole", "text", "pairs"]
OverRanks: TypeAlias = Literal["rank 0", "sum", "one"]

KINDS: dict[Kind, str] = {
    "run": "A value of a row of the CSV. With several GPUs, the row of each GPU has it.",
    "step": "Each rank has its own in its row of the CSV. The screen's charts show rank 0's times.",
    "phase": "Device time of the phases of some steps, like other times of a step. A workload may "
    "have other phases.",
    "input": "Loader workers of a rank.",
    "gpu": "A value of one GPU. Each GPU has a CSV row. The screen shows the one that trains.",
    "host": "The training process, its loader workers and the other processes that it has started.",
    "own": "What gpudash itself uses.",
}
"""What each kind of metric is about, and how it treats several ranks and GPUs."""
SOURCES: dict[Kind, str] = {
    "run": "the training process says it, or gpudash's clock",
    "step": "ends of steps by CUDA events, on a CPU by the clock",
    "phase": "CUDA events between phases, in two steps of each 100 ms; on a CPU the clock",
    "input": "the loader workers",
    "gpu": "NVML",
    "host": "/proc, of the process and its descendants",
    "own": "/proc, of gpudash itself",
}
"""What measures the metrics of a kind, where a metric does not say it."""
EXACT = "none: it is counted or said"
SENSOR = "± 5 % of the sensor, by NVIDIA's own figure"
WITHIN: dict[Kind, str] = {
    "run": EXACT,
    "step": "± 1 µs of a CUDA event, on a CPU ± 0.1 µs of the clock",
    "phase": "± 1 µs of a CUDA event, on a CPU ± 0.1 µs of the clock",
    "input": "± 1 µs of the clock",
    "gpu": "not published by NVIDIA",
    "host": "± 10 ms of CPU time at each end, the kernel's tick",
    "own": "± 10 ms of CPU time at each end, the kernel's tick",
}
"""How uncertain a single value of a kind is, where a metric does not say it."""
FORMULAS: dict[OverTime, str] = {
    "last": "the newest value",
    "sum": "the sum",
    "rate": "the number ÷ the time",
    "mean": "the mean",
    "p50": "the median",
    "p95": "the 95th percentile",
    "difference": "the counter at the end − at the begin",
    "union": "all reasons",
}
"""What becomes of the values of some time."""


class Metric(Struct, frozen=True):
    """A metric. Its name in `METRICS` is also its CSV column's."""

    kind: Kind
    unit: str
    meaning: str
    over_time: OverTime = "mean"
    """How a row of a recording, or a point of a chart, aggregates readings or steps."""
    over_ranks: OverRanks = "rank 0"
    """What of several ranks is the job's: rank 0's value, or the sum of all. `one`: all ranks have
    the same, and rank 0's row alone has it, so that a sum over rows counts it once."""
    in_steps: Literal["each", "some"] | None = None
    """Whether each step has it, or two of each 100 ms; None if it is no value of a single step."""
    csv: Column | None = None
    """What its column holds: decimals, whole numbers, text, or several `name=value;name=value`.
    None if it has no column."""
    exported: str = ""
    """OpenTelemetry's name, where `sinks/exported.py` would derive another one; `{label}` if it is
    a label of other values, `@` if it is their time."""
    label: str = ""
    """The word for it on the screen, which does not show a metric without one. A phase's word is
    its workload's."""
    chart: Literal["throughput", "step time", "loss"] | None = None
    """The chart that draws it over time."""
    hue: int | None = None
    """Number of a phase's colour."""
    spark: bool = False
    """Whether it has a sparkline: times of a step are there as their share of the step."""
    rank: str = ""
    """Title of its column in the table of ranks. Phases have columns by their own labels."""
    side: str | None = None
    """The word before its values of the two sides of an A/B; None if an A/B does not have it."""
    window: Literal["utilisation", "activity"] | None = None
    """The window before a reading over which it is a mean; None for an instantaneous value."""
    source: str = ""
    """What measures it, in a few words, where that is not what measures all of its kind."""

    within: str = ""
    """How uncertain a single value is, where that differs from all of its kind."""

    @property
    def uncertainty(self) -> str:
        return self.within or WITHIN[self.kind]

    @property
    def formula(self) -> str:
        return FORMULAS[self.over_time]

    @property
    def measured_by(self) -> str:
        return self.source or SOURCES[self.kind]


COLLECTIVES = "DistributedDataParallel's statistics; with `fully_shard` sizes and CUDA events"
ALLOCATOR = "torch.cuda.memory_stats"
PCIE = "NVML's GPM, or its byte counters"
OF_THREAD = "clocks of the thread that trains, at its steps"
OF_HOST = "the host's clock, in the training process"
_row = partial(Metric, "run", "", over_time="last", csv="text")
_count = partial(_row, csv="whole")
_step = partial(Metric, "step", "ms", csv=4)
_time = partial(_step, in_steps="each")
_gpu = partial(Metric, "gpu", csv=1)
_util = partial(
    Metric,
    "gpu",
    "%",
    csv=1,
    window="utilisation",
    source="nvmlDeviceGetUtilizationRates",
    within="whole percent",
)
_active = partial(Metric, "gpu", "%", csv=1, window="activity", source="NVML's GPM")
_link = partial(Metric, "gpu", "MiB/s", csv=3, window="activity", source="NVML's GPM")
_host = partial(Metric, "host", csv=1)
_collective = partial(Metric, "host", over_time="last", csv=3, source=COLLECTIVES)


def _owner(meaning: str, label: str = "", source: str = OF_THREAD) -> Metric:
    share = f"Share of the time in which the thread that trains {meaning}"
    return _host("%", share, csv=2, label=label, source=source, within=WITHIN["step"])


def _counted(meaning: str, label: str, source: str = ALLOCATOR) -> Metric:
    return _host("", meaning, csv=3, label=label, source=source, within=EXACT)


def _memory(meaning: str, label: str) -> Metric:
    return _host("MiB", meaning, label=label, spark=True, source=ALLOCATOR, within=EXACT)


def _phase(meaning: str, hue: int, csv: int | None = None) -> Metric:
    return Metric("phase", "ms", meaning, in_steps="some", csv=csv, chart="step time", hue=hue)


METRICS: dict[str, Metric] = {
    "time_s": Metric(
        "run",
        "s",
        "Time from the begin of the recording to the end of the row.",
        "last",
        csv=3,
        source="gpudash's monotonic clock",
        within="± 1 µs of the clock",
    ),
    "wall_time_utc": _row(
        "End of the row by the wall clock.",
        exported="@",
        source="the wall clock at the begin, the monotonic clock since",
        within="that of the machine's wall clock",
    ),
    "workload": _row("Name of the workload.", exported="{workload}"),
    "segment": _count("Number of lever changes and restarts so far in the run."),
    "batch_size": _count("Batch size of the active settings."),
    "levers": _row(
        "The active settings: `name=value;name=value`.", csv="pairs", exported="gpudash.lever.info"
    ),
    "step": _count(
        "Number of steps so far. A restarted worker begins at 0.", exported="gpudash.step_number"
    ),
    "steps": Metric(
        "step", "", "Steps that the device finished.", "sum", "one", csv="whole", within=EXACT
    ),
    "steps_per_s": Metric(
        "step",
        "steps/s",
        "Steps finished per second.",
        "rate",
        "one",
        csv=4,
        label="steps/s",
        chart="throughput",
        side="",
        within="± 1 step at each end of its time",
    ),
    "samples_per_s": Metric(
        "step",
        "samples/s",
        "Samples of the finished steps per second.",
        "rate",
        "sum",
        csv=3,
        label="samples/s",
        chart="throughput",
        side="",
        within="± 1 step at each end of its time",
    ),
    "step_ms_p50": _step("Median step time.", "p50", label="step p50", exported="gpudash.step_p50"),
    "step_ms_p95": _step(
        "95th percentile of the step time.", "p95", label="step p95", exported="gpudash.step_p95"
    ),
    "data_ms": _time(
        "Host time: waiting for a batch.",
        chart="step time",
        label="data wait",
        spark=True,
        rank="data ms",
        source=OF_HOST,
        within="± 0.1 µs of the clock",
    ),
    "host_ms": _time(
        "Host time: busy with a step. Waiting for a batch is not included.",
        label="host busy",
        spark=True,
        side="host",
        source=OF_HOST,
        within="± 0.1 µs of the clock",
    ),
    "device_ms": _step(
        "Device time of a step. Overlap of the streams counts once.",
        in_steps="some",
        source="CUDA events, in two steps of each 100 ms; on a CPU the clock",
    ),
    "loss": Metric(
        "step",
        "",
        "Newest loss that the host has read.",
        "last",
        csv=6,
        label="loss",
        chart="loss",
        source="the training's own loss, copied once the device has it",
        within="none: it is the script's own number",
    ),
    "gpu_index": Metric(
        "gpu",
        "",
        "Number of the GPU in the driver.",
        "last",
        csv="whole",
        exported="{hw.name}",
        within=EXACT,
    ),
    "gpu_uuid": Metric(
        "gpu",
        "",
        "UUID of the GPU in the driver.",
        "last",
        csv="text",
        exported="{hw.id}",
        within=EXACT,
    ),
    "gpu_util_pct": _util(
        "Share of time in which at least one kernel ran. It says nothing about occupancy.",
        exported="hw.gpu.utilization",
        label="busy",
        spark=True,
    ),
    "mem_util_pct": _util(
        "Share of time in which device memory was read or written.",
        exported="gpudash.mem_copy_util",
        label="memory bus busy",
    ),
    "mem_used_mib": _gpu(
        "MiB",
        "Device memory in use, by all processes.",
        exported="hw.gpu.memory.usage",
        label="memory",
        spark=True,
        source="nvmlDeviceGetMemoryInfo_v2",
        within="none: the driver counts it",
    ),
    "mem_total_mib": Metric(
        "gpu",
        "MiB",
        "Size of the device memory.",
        "last",
        exported="hw.gpu.memory.limit",
        source="nvmlDeviceGetMemoryInfo_v2",
        within=EXACT,
    ),
    "mem_free_mib": Metric(
        "gpu",
        "MiB",
        "Device memory that no process uses.",
        "last",
        source="nvmlDeviceGetMemoryInfo_v2",
        within="none: the driver counts it",
    ),
    "sm_active_pct": _active(
        "Share of time in which an SM had work, averaged over all SMs.",
        label="SMs",
        spark=True,
    ),
    "sm_occupancy_pct": _active(
        "Occupancy: warps on the SMs, in percent of the maximum.", label="SM occupancy"
    ),
    "tensor_active_pct": _active(
        "Share of time in which the tensor cores were busy.",
        exported="gpudash.pipe_tensor_active",
        label="tensor cores",
        spark=True,
    ),
    "dram_active_pct": _active(
        "Device memory traffic, in percent of the peak bandwidth.",
        label="DRAM traffic",
        spark=True,
    ),
    "pcie_rx_mib_s": _link("PCIe traffic to the GPU.", label="PCIe", source=PCIE),
    "pcie_tx_mib_s": _link("PCIe traffic from the GPU.", source=PCIE),
    "power_w": _gpu(
        "W",
        "Power draw of the GPU.",
        exported="hw.power",
        label="power",
        spark=True,
        source="NVML's field POWER_INSTANT, or nvmlDeviceGetPowerUsage",
        within=SENSOR,
    ),
    "energy_j": Metric(
        "gpu",
        "J",
        "Energy used, from the GPU's counter.",
        "difference",
        csv=3,
        exported="hw.energy",
        source="nvmlDeviceGetTotalEnergyConsumption, interpolated between readings",
        within=f"{SENSOR}, and a tick of 0.1 s at each end",
    ),
    "temperature_c": _gpu(
        "°C",
        "Temperature of the GPU core.",
        exported="hw.temperature",
        label="temperature",
        spark=True,
        source="nvmlDeviceGetTemperatureV",
        within="whole degrees; the sensor's own error is not published",
    ),
    "sm_clock_mhz": Metric(
        "gpu",
        "MHz",
        "SM clock.",
        csv=0,
        label="SM clock",
        spark=True,
        source="nvmlDeviceGetClockInfo",
        within="whole MHz, of one moment",
    ),
    "throttle": Metric(
        "gpu",
        "",
        "Reasons why the clocks were throttled, or `none`.",
        "union",
        csv="text",
        label="throttled by",
        spark=True,
        source="nvmlDeviceGetCurrentClocksEventReasons",
        within=EXACT,
    ),
    "cpu_pct": _host(
        "%", "CPU time in percent of one core. Two busy cores read 200.", label="CPU", spark=True
    ),
    "worker_rss_mib": _host(
        "MiB",
        "Resident memory. Shared pages count once for each process.",
        label="RAM",
        spark=True,
        within="pages of 4 KiB; shared ones count once for each process",
    ),
    "transform_ms": Metric(
        "input", "ms", "Time per sample and transform, from the newest report.", "last", csv="pairs"
    ),
    "skipped_samples": Metric(
        "input", "", "Unreadable samples that were skipped.", "last", csv="whole", within=EXACT
    ),
    "train_s": Metric(
        "run",
        "s",
        "Length of the row until the training ends, without pauses, lever changes, starts and "
        "restarts.",
        "sum",
        "one",
        csv=6,
        source="gpudash's monotonic clock, and ends of steps",
        within="± 1 µs of the clock",
    ),
    "core_wait_pct": _host(
        "%",
        "Core time that the training process and its loader workers asked for and did not get, in "
        "percent of what they asked for, or of one core if that is more.",
        label="core wait",
        spark=True,
        source="/proc/PID/task/TID/schedstat",
        within="± 1 ns of the scheduler at each end",
    ),
    "usable_cores": _host(
        "",
        "Cores on which its threads may run, and of which its cgroup has the time.",
        over_time="last",
        csv=None,
        source="sched_getaffinity of each thread, and the cgroup's quota",
        within=EXACT,
    ),
    "step_ms": _time("Time from the end of the step before to the end of the step.", csv=None),
    "overlap_ms": _step(
        "Time in which both streams were busy. Not measured without a second stream.",
        in_steps="some",
        csv=None,
        label="both streams",
        spark=True,
        source="CUDA events, in two steps of each 100 ms",
    ),
    "copy_ms": _phase("Copy of the batch to the device.", 1),
    "prepare_ms": _phase("Work without gradients, such as encoding or augmenting.", 2),
    "forward_ms": _phase("The forward pass.", 3),
    "backward_ms": _phase("The backward pass.", 4),
    "optimizer_ms": _phase("The optimizer's step.", 5),
    "graph_ms": _phase("Forward, backward and optimizer, replayed as a CUDA graph.", 6),
    "tokens_per_s": Metric(
        "step",
        "tokens/s",
        "Tokens of the finished steps per second, without padding where `padding_tokens` is known.",
        "rate",
        "sum",
        csv=1,
        label="tokens/s",
        within="± 1 step at each end of its time",
    ),
    "mem_reserved_mib": _memory("Device memory that PyTorch's allocator holds.", "reserved"),
    "mem_allocated_mib": _memory("Device memory in tensors, at the time of a report.", "allocated"),
    "mem_peak_mib": _host(
        "MiB",
        "Most device memory in tensors at once since the settings changed. In a script of your own "
        "since it began.",
        over_time="last",
        label="allocated, peak",
        source=ALLOCATOR,
        within=EXACT,
    ),
    "communication_ms": _phase(
        "Exposed communication: the wait for other processes with nothing left to compute.",
        7,
        csv=4,
    ),
    "collective_mib": _collective(
        "MiB", "What a process puts into the collectives of a step.", within=EXACT
    ),
    "collective_ms": _collective(
        "ms",
        "Time of the collectives of a step, hidden behind computation or not. In "
        "DistributedDataParallel from the begin of a backward pass's first to the end of its last; "
        "with `fully_shard` while at least one runs.",
        exported="gpudash.collective_time",
        within=WITHIN["step"],
    ),
    "nvlink_rx_mib_s": _link("NVLink traffic to the GPU, all links.", label="NVLink"),
    "nvlink_tx_mib_s": _link("NVLink traffic from the GPU, all links."),
    "rank": _count("Rank of the row's training process.", exported="{rank}"),
    "world_size": _count("Training processes that train together."),
    "collective_bus_mib": _collective(
        "MiB",
        "What each link carries one way for the collectives of a step, by the factors of NCCL's "
        "tests.",
        within=EXACT,
    ),
    "collective_exposed_ms": _collective(
        "ms",
        "The part of `collective_ms` in which the computation waits, with `fully_shard`. In "
        "DistributedDataParallel it is `communication_ms`.",
        within=WITHIN["step"],
    ),
    "loader_cpu_pct": _host(
        "%",
        "CPU time of the processes that a DataLoader has started, and of what these start, in "
        "percent of one core. It is a part of `cpu_pct`.",
        label="CPU of loader",
        source="/proc, of the processes that the training names",
    ),
    "cpu_ms": _time(
        "CPU time of the training process in a step, all threads. Not measured on a GPU.",
        csv=None,
        exported="gpudash.cpu_time",
        source="the process's CPU clock",
        within="± 1 µs of the CPU clock",
    ),
    "rollout_ms": replace(
        _phase(
            "Host time of a rollout: acting without gradients for what steps then learn from.", 8
        ),
        in_steps="each",
        source=OF_HOST,
    ),
    "frozen_ms": _phase("Forward passes without gradients, such as of a frozen encoder.", 9),
    "your_code_ms": _phase("The script's own code between the other phases.", 10),
    "power_limit_w": Metric(
        "gpu",
        "W",
        "Power draw above which the driver slows the clocks.",
        "last",
        source="nvmlDeviceGetEnforcedPowerLimit",
        within=EXACT,
    ),
    "own_cpu_pct": Metric(
        "own", "%", "CPU time in percent of one core, over 5 s.", label="gpudash: CPU"
    ),
    "own_rss_mib": Metric(
        "own",
        "MiB",
        "Resident memory.",
        label="gpudash: RAM",
        within="pages of 4 KiB; shared ones count once for each process",
    ),
    "untimed_steps": Metric(
        "step",
        "",
        "Those of the steps whose time is not known, or not a usual one: a script's first step, "
        "unless the script declares it, and profiled ones. Rates of settings leave them out.",
        "sum",
        "one",
        csv="whole",
        within=EXACT,
    ),
    "padding_tokens": Metric(
        "step",
        "",
        "Padding beside the tokens of a step, by the attention mask of a batch. Without a mask on "
        "the host it is not measured, and counts as tokens: the training is said to have “tokens "
        "with padding”.",
        in_steps="each",
        csv=1,
        source="the `attention_mask` beside the `input_ids` of a DataLoader's batches",
        within=EXACT,
    ),
    "own_code_ms": _step(
        "Host time in a script's own code: beside the passes of its models, updates, copies and "
        "waits for batches.",
        in_steps="some",
        source=OF_HOST,
        within="± 0.1 µs of the clock",
    ),
    "unpack_pct": _owner(
        "is on the CPU while it asks for a batch: it takes it apart, or makes it."
    ),
    "loader_start_pct": _owner(
        "starts an epoch of its loader: the workers, and what the sampler draws first.",
        source=OF_HOST,
    ),
    "no_core_pct": _owner("could run and has no core.", "no core", "/proc/thread-self/schedstat"),
    "blocked_pct": _owner(
        "waits off the CPU, neither for a batch nor for a core: for a disk, a lock, a network, or "
        "because it sleeps.",
        "blocked",
    ),
    "gc_pct": _owner("collects Python's garbage.", "garbage collector", "gc.callbacks"),
    "compile_pct": _owner("compiles.", "compiling", "Dynamo's callbacks"),
    "code_pct": _owner(
        "is on the CPU for all else: its own code, operators, launches, and waits for the device, "
        "which spin."
    ),
    "other_cpu_pct": _host(
        "%",
        "CPU time of what else the training has started, such as loggers, in percent of one core. "
        "It is a part of `cpu_pct`.",
        label="CPU of its others",
    ),
    "alloc_retries": _counted(
        "How often a step runs out of device memory: PyTorch's allocator gives its cache back to "
        "the driver, and asks again.",
        "out of memory",
    ),
    "device_allocs": _counted(
        "How often a step asks the driver for device memory.", "driver allocates"
    ),
    "device_frees": _counted(
        "How often a step gives device memory back to the driver.", "driver frees"
    ),
    "compiles": _counted("How often a step compiles.", "compiles", "Dynamo's callbacks"),
}


COMPARED = tuple(name for name, one in METRICS.items() if one.side is not None)
"""What an A/B has of both sides."""


def since(reading: GpuReading, began_s: float) -> GpuReading:
    """Leave out means whose window began before `began_s` (monotonic)."""
    windows = {"utilisation": reading.at_s - UTIL_WINDOW_S, "activity": reading.activity_since_s}
    early = {name for name, from_s in windows.items() if from_s is not None and from_s < began_s}
    values = {
        name: value
        for name, value in reading.values.items()
        if name not in METRICS or METRICS[name].window not in early
    }
    return replace(reading, values=values)


def process_reading(report: Progress) -> HostReading | None:
    if not report.values:
        return None
    return HostReading(at_s=report.until_s, values=dict(report.values))


def phases_ms(values: Mapping[str, float]) -> dict[str, float]:
    """Include phases that are not in the table."""
    return {
        name.removesuffix("_ms"): ms
        for name, ms in values.items()
        if name not in METRICS or METRICS[name].kind == "phase"
    }


def has_phases(values: Mapping[str, float]) -> bool:
    """Whether phases were measured, which a rollout's time alone does not show."""
    each = {name for name, metric in METRICS.items() if metric.in_steps == "each"}
    return any(f"{phase}_ms" not in each for phase in phases_ms(values))
