"""Average a step over recent warm steps, since the last start, change or pause."""

from collections.abc import Iterator
from math import ceil, inf, isfinite

import msgspec

from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.inspections import Pinning, Profiled
from gpudash.protocol.session import Straggler
from gpudash.protocol.training import Aside
from gpudash.ranks.same_steps import WAIT
from gpudash.snapshot import ASIDES, Snapshot
from gpudash.statistics import WARMUP_STEPS
from gpudash.trace.summary import CopyUse, Summary

MEASURED_STEPS = 20
"""Steps after a break that an answer needs, …"""
MEASURED_S = 10.0
"""… or fewer if they take longer than this together, …"""
LEAST_STEPS = WARMUP_STEPS + 3
"""… but at least these."""
LASTING: tuple[Aside, ...] = ("evaluation", "checkpoint")
"""Interruptions that can limit a training."""
ASIDE_S = 60.0
"""The share of evaluation and checkpoints is taken over so many seconds, …"""
LEAST_ASIDE_S = 5.0
"""… over fewer at the beginning, but at least over these."""

MEANS = (
    *("step_ms", "data_ms", "host_ms", "own_code_ms", "device_ms", "overlap_ms"),
    *("gpu_util_pct", "sm_active_pct", "tensor_active_pct", "dram_active_pct", "sm_clock_mhz"),
)
"""Metrics whose means over the recent steps are fields of the same name."""
OWNERS = ("unpack", "loader_start", "no_core", "blocked", "gc", "compile")
"""Who has the time of the thread that trains, as metrics tell it in percent."""
COUNTS = ("alloc_retries", "device_allocs", "device_frees", "compiles")
"""Metrics that count what a step has."""


class RecentStep(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the recent steps; times in ms a step. None = not measured."""

    steps: float = 0.0
    step_ms: float | None = None
    data_ms: float | None = None
    host_ms: float | None = None
    own_code_ms: float | None = None
    """Host time in the script's own code, with waits for the device there."""
    traced_code_ms: float | None = None
    """The same by a profile, which knows it of all phases, and without such waits."""
    owners_ms: dict[str, float] = {}
    counts: dict[str, float] = {}
    device_ms: float | None = None
    overlap_ms: float | None = None
    """None on one stream."""
    phases_ms: dict[str, float] = {}
    on_gpu: bool = True
    core_wait_pct: float | None = None
    busy_cores: float | None = None
    """Cores used by the training and its loader workers."""
    loader_cores: float | None = None
    """Cores used by the loader workers alone; on a CPU, which they share with the training."""
    other_cores: float = 0.0
    """Cores used by what else the training has started, such as loggers; 0 if unknown."""
    cores: int | None = None
    """Cores that all of these may use."""
    threads: int | None = None
    """Threads that compute an operator on the CPU."""
    gpu_util_pct: float | None = None
    """This and what follows: means of the GPU's readings over the same time."""
    sm_active_pct: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    sm_clock_mhz: float | None = None
    top_clock_mhz: float | None = None
    """The highest clock seen in this run; None if the GPU is not throttled."""
    throttle: tuple[str, ...] = ()
    others_pct: float | None = None
    """Percent of the last second in which processes of others had work on the GPU."""
    pinned: bool | None = None
    """Whether batches are copied from pinned memory."""
    workers: int | None = None
    profile: Summary | None = None
    """A profile of such steps, if it has device events. It slows the host down, but not kernels."""

    @property
    def profiled(self) -> Profiled | None:
        """What its profile has measured besides."""
        return self.profile.profiled if self.profile is not None else None

    @property
    def pinning(self) -> Pinning | None:
        return self.profiled.pinning if self.profiled is not None else None

    @property
    def copies(self) -> list[CopyUse]:
        """Those to the device, by its profile."""
        of = () if self.profile is None else self.profile.copies
        return [one for one in of if one.direction == "to device"]

    def owned_ms(self, owner: str) -> float:
        """Return 0 where it is not measured."""
        return self.owners_ms.get(owner, 0.0)

    @property
    def no_core_ms(self) -> float:
        """Where the thread's own wait is not measured: as long as all threads' on average."""
        usual_ms = (self.host_ms or 0.0) * (self.core_wait_pct or 0.0) / 100 if self.on_gpu else 0.0
        return self.owners_ms.get("no_core", usual_ms)

    @property
    def starved_ms(self) -> float | None:
        """Time in which the host waited for a batch and the device idled."""
        if self.step_ms is None or self.data_ms is None:
            return None
        idle_ms = self.step_ms - (self.device_ms or 0.0)
        return min(self.data_ms, max(idle_ms, 0.0))

    @property
    def copy_alone_ms(self) -> float | None:
        """Time in which a batch was copied and no other stream was at work."""
        copy_ms = self.phases_ms.get("copy")
        return None if copy_ms is None else max(copy_ms - (self.overlap_ms or 0.0), 0.0)

    @property
    def communication_ms(self) -> float | None:
        return self.phases_ms.get(WAIT)

    @property
    def throttled_pct(self) -> float | None:
        if not self.sm_clock_mhz or not self.top_clock_mhz:
            return 0.0 if self.sm_clock_mhz and not self.throttle else None
        return 100 * (1 - self.sm_clock_mhz / self.top_clock_mhz)

    @property
    def computing_ms(self) -> float | None:
        waits_ms = self.communication_ms or 0.0
        return None if self.device_ms is None else max(self.device_ms - waits_ms, 0.0)

    @property
    def asked_cores(self) -> float | None:
        """What the core wait is a share of, unless it is less than one core."""
        if self.busy_cores is None:
            return None
        waits = (self.core_wait_pct or 0.0) / 100
        return max(self.busy_cores / max(1 - waits, 0.01), min(self.busy_cores + waits, 1.0))

    @property
    def computing_cores(self) -> float:
        """Cores that operators on a CPU may have: neither loader workers nor loggers use them."""
        return (self.cores or inf) - (self.loader_cores or 0.0) - self.other_cores

    @property
    def free_cores(self) -> float:
        return (self.cores or inf) - (self.asked_cores or 0.0) - self.other_cores

    @property
    def is_crowded(self) -> bool:
        """Whether others, or its own processes, have cores that it asks for."""
        return (self.core_wait_pct or 0.0) >= CORE_WAIT_WARNS_PCT

    @property
    def at_work_pct(self) -> float | None:
        """At most the time in which kernels ran, or a CPU training had or awaited a core."""
        if self.profile is not None:
            return self.share_pct(self.busy_ms)
        between, most = self.share_pct(self.computing_ms), self.gpu_util_pct
        if not self.on_gpu:
            most = self.busy_cores and 100 * self.busy_cores + (self.core_wait_pct or 0.0)
        return between if between is None or most is None else min(between, most)

    @property
    def busy_ms(self) -> float | None:
        busy_ms = None if self.profile is None else self.profile.busy_ms
        return None if busy_ms is None or self.step_ms is None else min(busy_ms, self.step_ms)

    @property
    def exposed_ms(self) -> float | None:
        seen_ms = None if self.profile is None else self.profile.exposed_ms
        return self.communication_ms if seen_ms is None else seen_ms

    @property
    def copy_ms(self) -> float | None:
        """The exposed copies of batches; a profile sees those of the script's own, too."""
        alone_ms, profile = self.copy_alone_ms, self.profile
        if profile is None or profile.overlap_ms is not None:
            return alone_ms
        seen_ms = sum(one.ms for one in self.copies)
        return max(alone_ms or 0.0, min(seen_ms, self.step_ms or seen_ms))

    def share_pct(self, ms: float | None) -> float | None:
        return None if ms is None or not self.step_ms else min(100 * ms / self.step_ms, 100.0)


def of_slow_loader(step: RecentStep, straggler: Straggler | None) -> RecentStep:
    """Return the step of the rank whose loading the others wait for in their collectives."""
    late = straggler is not None and straggler.kind == "persistent" and straggler.phase == "data"
    if straggler is None or not late or straggler.rank == 0:
        return step  # the measured steps are rank 0's
    communication_ms = step.communication_ms or 0.0
    waits_ms = min(straggler.others_wait_ms or 0.0, communication_ms)
    return msgspec.structs.replace(
        step,
        data_ms=(step.data_ms or 0.0) + straggler.excess_ms,
        device_ms=None if step.device_ms is None else max(step.device_ms - waits_ms, 0.0),
        phases_ms=step.phases_ms | {WAIT: communication_ms - waits_ms},
    )


def steps_needed(step_ms: float | None) -> int:
    within = ceil(1e3 * MEASURED_S / step_ms) if step_ms and isfinite(step_ms) else MEASURED_STEPS
    return max(LEAST_STEPS, min(within, MEASURED_STEPS))


def recent_step(
    snapshot: Snapshot, cores: int | None = None, profile: Summary | None = None
) -> RecentStep:
    """`cores` may be used by the training; `profile` is of steps with the present settings."""
    mean = snapshot.recent.values.get
    on_gpu = snapshot.device is None or snapshot.device.kind != "cpu"
    cpu_pct, throttle = _of_host(snapshot, "cpu_pct"), _throttle(snapshot)
    other_pct = _of_host(snapshot, "other_cpu_pct") or 0.0
    loader_pct = None if on_gpu else _of_host(snapshot, "loader_cpu_pct")
    workers = snapshot.settings.get("num_workers", "")
    pins = snapshot.settings.get("pin_memory", "")
    clocks_mhz = snapshot.series.of("sm_clock_mhz") if throttle else ()
    means = {name: mean(name) for name in MEANS}
    phases_ms = {phase.name: mean(f"{phase.name}_ms") for phase in snapshot.phases}
    # the few steps whose phases are measured may take longer than the others
    slower = max((means["device_ms"] or 0.0) / (means["step_ms"] or inf), 1.0)
    times = {name: ms for name in ("device_ms", "overlap_ms") if (ms := means[name]) is not None}
    step_ms = means["step_ms"] or 0.0
    return RecentStep(
        steps=snapshot.recent.steps,
        owners_ms={
            name: step_ms * pct / 100
            for name in OWNERS
            if (pct := _of_host(snapshot, f"{name}_pct")) is not None
        },
        counts={one: n for one in COUNTS if (n := _of_host(snapshot, one)) is not None},
        phases_ms={name: ms / slower for name, ms in phases_ms.items() if ms is not None},
        on_gpu=on_gpu,
        core_wait_pct=_of_host(snapshot, "core_wait_pct"),
        busy_cores=None if cpu_pct is None else max(cpu_pct - other_pct, 0.0) / 100,
        loader_cores=None if loader_pct is None else loader_pct / 100,
        other_cores=other_pct / 100,
        cores=cores,
        threads=_threads(snapshot),
        top_clock_mhz=max(filter(None, clocks_mhz), default=None),
        throttle=throttle,
        others_pct=None if snapshot.gpu is None else snapshot.gpu.others_pct,
        workers=int(workers) if workers.isdecimal() else None,
        pinned={"on": True, "off": False}.get(pins)
        if snapshot.settings.get("data") != "resident"
        else None,
        profile=profile if profile is not None and profile.on_device else None,
        traced_code_ms=None if profile is None else profile.own_code_ms,
        **means | {name: ms / slower for name, ms in times.items()},
    )


def _threads(snapshot: Snapshot) -> int | None:
    moved = snapshot.settings.get("threads", "")
    own = None if snapshot.process is None else snapshot.process.threads
    return int(moved) if moved.isdecimal() else own


def asides_of(snapshot: Snapshot) -> tuple[float | None, int]:
    """Return the share of the last minute in evaluation and checkpoints in percent, and how many.

    Without one the share is None.
    """
    breaks_s = [mark.at_s for mark in snapshot.markers if mark.kind not in ASIDES]
    trained_s = ASIDE_S if snapshot.training_s is None else snapshot.training_s
    since_s = max(*breaks_s[-1:], snapshot.elapsed_s - min(trained_s, ASIDE_S), 0.0)
    took_s = list(_took_s(snapshot, LASTING, since_s))
    seconds = snapshot.elapsed_s - since_s - sum(_took_s(snapshot, ("profile",), since_s))
    if not took_s or seconds < LEAST_ASIDE_S:
        return None, len(took_s)
    return min(100 * sum(took_s) / seconds, 100.0), len(took_s)


def _took_s(snapshot: Snapshot, kinds: tuple[Aside, ...], since_s: float) -> Iterator[float]:
    for mark in snapshot.asides:
        ended_s = mark.at_s + mark.lasts_s
        if mark.kind in kinds and ended_s > since_s:
            yield ended_s - max(mark.at_s, since_s)


def _throttle(snapshot: Snapshot) -> tuple[str, ...]:
    reasons = snapshot.gpu.values.get("throttle") if snapshot.gpu is not None else None
    return tuple(reasons.split("+")) if isinstance(reasons, str) and reasons != "none" else ()


def _of_host(snapshot: Snapshot, name: str) -> float | None:
    mean = snapshot.recent.values.get(name)
    if mean is None and snapshot.host is not None:
        return snapshot.host.number(name)
    return mean
