"""Causes within a step: its input, the host, and the device that is at work."""

from collections.abc import Iterator, Mapping
from math import inf

from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.diagnosis.causes.cause import ASK_PROFILE, Cause, Limit, Measured, saving
from gpudash.diagnosis.causes.cores import (
    LEAST_DATA_PCT,
    is_inline,
    maker,
    slow_batches,
    used_cores,
    waits_for_core,
)
from gpudash.diagnosis.causes.outside import SHARED_GPU, SHARED_PCT
from gpudash.diagnosis.lanes import prepares
from gpudash.diagnosis.lever_change import change_pct
from gpudash.diagnosis.model import Model, full_share
from gpudash.diagnosis.parts import CODE, COMMUNICATION, COPY, DATA, DEVICE, LAUNCH, WAIT
from gpudash.diagnosis.profiled_step import pin_ms, pinning_of
from gpudash.diagnosis.proposals import loader_workers
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.answer import Gain
from gpudash.protocol.inspections import CodeLines
from gpudash.protocol.records import Settings
from gpudash.snapshot import Snapshot
from gpudash.trace.mfu import mfu_by_phase, mfu_text
from gpudash.trace.summary import SyncUse

GB = 1e9
MIB = 2**20
MOST_WAITS = 5
"""Most waits of a profile that are listed."""
IDLE_PCT = 25.0
"""Percent of a step in which a device idles for want of launches before they are the limit."""
THROTTLED_PCT = 30.0
"""Percent of the clock. A power cap costs large matmuls some of it by design."""
DRAM = 0.6
"""Share of the memory's peak while SMs are active: Nsight Compute calls a unit a kernel's limit
from 60 % on."""
CPU_PCT = 50.0
"""The larger part of a step."""


def within(now: Measured) -> Iterator[Cause]:
    model = now.model
    if model is None:
        return
    data, taken_pct = saving(INPUT, model), now.step.taken_pct or 0.0
    yield data._replace(pct=max(data.pct or 0.0, taken_pct))
    if now.step.on_gpu:
        yield from _on_device(now, model)
    else:
        yield saving(COMMUNICATING._replace(rank=2), model)
        yield saving(OWN_CODE._replace(label="your code", least_pct=CPU_PCT), model)
        yield saving(CPU, model)


def _on_device(now: Measured, model: Model) -> Iterator[Cause]:
    full_pct, works_pct = 100 * full_share(now.step), 100 * model.works_ms / model.step_ms
    longest = max((COPY, COMMUNICATION, DEVICE), key=lambda part: part.ms(model.scenarios[0]))
    for limit in (SYNC, COPYING, COMMUNICATING, OWN_CODE):
        cause = saving(limit, model)
        if limit.part is longest and works_pct >= full_pct:
            cause = Cause(limit._replace(rank=2), cause.takes_pct)
        yield cause
    yield _launching(now, model)
    at_work = _why_slow(now)._replace(label="the device is at work", least_pct=full_pct, rank=3)
    yield Cause(at_work, works_pct)


def _launching(now: Measured, model: Model) -> Cause:
    cause, step = saving(LAUNCHING, model), now.step
    if step.profile is not None:  # it may idle for another stream
        idle_pct = step.share_pct(step.idle_ms)
        return (
            cause
            if idle_pct is None
            else Cause(LAUNCHING, min(cause.pct or 0.0, idle_pct), idle_pct)
        )
    waits_as_much = model.without(WAIT).high > model.without(LAUNCH).low - 1e-6
    busy_pct = step.share_pct(step.host_ms) or 0.0
    return Cause(HOST if waits_as_much else LAUNCHING, cause.pct, busy_pct)


def _why_slow(now: Measured) -> Limit:
    step = now.step
    active, dram = step.sm_active_pct, step.dram_active_pct
    if (step.others_pct or 0.0) >= SHARED_PCT:  # what the counters say is theirs, too
        return SHARED_GPU
    if (step.throttled_pct or 0.0) >= THROTTLED_PCT:
        return THROTTLED
    if not active or dram is None:
        return GPU
    is_memory = dram >= DRAM * active and dram > (step.tensor_active_pct or 0.0)
    return MEMORY if is_memory else COMPUTE


def _input(now: Measured, pct: float) -> Iterator[str]:
    step, snapshot = now.step, now.snapshot
    who = "the GPU" if step.on_gpu else "the training"
    starved_pct = step.share_pct(step.starved_ms) or 0.0
    is_taken = (step.taken_pct or 0.0) > starved_pct
    waits = f"{who} waits for data {now.ms(starved_pct if is_taken else pct)}"
    yield from (maker(now), waits) if is_taken else (waits, maker(now))
    yield slow_batches(now)
    if snapshot.transform_ms:
        name, ms = max(snapshot.transform_ms.items(), key=lambda one: one[1])
        yield f"slowest transform: {fmt.plain(name)}, {fmt.milliseconds(ms)} ms a sample"
    yield used_cores(now) if step.no_core_free else ""
    yield waits_for_core(now) if (step.core_wait_pct or 0.0) >= CORE_WAIT_WARNS_PCT else ""


def _copy(now: Measured, pct: float) -> Iterator[str]:
    settings, pinning = now.snapshot.settings, pinning_of(now.step)
    yield f"copying takes {now.ms(pct)}"
    yield "nothing runs beside it"
    if settings.get("pin_memory") != "off":
        return
    if pinning is not None:
        pinned_in_ms = pin_ms(pinning, loader_workers(settings))
        if now.step.copy_ms is not None and pinned_in_ms > now.step.copy_ms:
            yield f"pinning would take {fmt.milliseconds(pinned_in_ms)} ms, longer than that"
    elif now.can_profile:
        yield f"{ASK_PROFILE} what pinning would take"


def _communication(now: Measured, pct: float) -> Iterator[str]:
    yield f"nothing but communication runs {now.ms(pct)}"
    yield collectives_line(now.snapshot)
    if now.step.profile is not None:
        yield f"the GPU is busy {now.share(now.step.profile.busy_ms)} of it"


def collectives_line(snapshot: Snapshot) -> str:
    """Take the time of the rank with the shortest collectives: it waits least in them."""
    known = [row for row in snapshot.ranks if row.values.get("collective_bus_mib")]
    if not known:
        return ""
    row = min(known, key=lambda one: one.values.get("collective_ms") or inf)
    mib, ms = row.values["collective_bus_mib"], row.values.get("collective_ms")
    sends = f"each rank sends {fmt.significant(mib)} MiB a step"
    if not ms:
        return sends
    exposed_ms = row.values.get("collective_exposed_ms", row.waits_ms)
    exposed = ""
    if exposed_ms is not None:
        exposed = f", {fmt.percent(min(100 * exposed_ms / ms, 100.0))} of it exposed"
    measured = snapshot.bus_gb_s
    most = "" if measured is None else f" of {fmt.significant(measured)} measured"
    bus = f"{fmt.significant(mib * MIB / (ms / 1e3) / GB)}{most} GB/s on the bus"
    return f"{sends} in {fmt.milliseconds(ms)} ms{exposed}, {bus}"


def _sync(now: Measured, pct: float) -> Iterator[str]:
    profile, model = now.step.profile, now.model
    if profile is None or not profile.syncs or model is None:
        yield from _host(now, now.step.share_pct(now.step.host_ms) or pct)
        return
    low, high = (change_pct(model.step_ms, model.step_ms - ms) for ms in model.without(WAIT))
    yield f"without its waits {Gain(low, high).label}"
    first, *others = profile.syncs[:MOST_WAITS]
    yield f"the host waits {fmt.milliseconds(first.blocked_ms)} {now.of_step} {place(first)}"
    yield from (f"{fmt.milliseconds(one.blocked_ms)} ms {place(one)}" for one in others)


def own_line(code: CodeLines) -> Iterator[str]:
    if (first := code.first) is not None:
        where = fmt.plain(fmt.source_line(first.file, first.line))
        yield f"the script is at {where} in {first.count} of {code.looks} looks"


def place(sync: SyncUse) -> str:
    where = f"at {fmt.plain(fmt.source_line(sync.file, sync.line))}" if sync.file else "in"
    return f"{where} {fmt.plain(sync.what)}".rstrip()


def _launch(now: Measured, pct: float) -> Iterator[str]:
    profile = now.step.profile
    if profile is None:
        yield from _host(now, pct)
        return
    yield f"the GPU has no work {now.ms(pct)}"
    if profile.launches is not None:
        yield f"{profile.launches:,.0f} launches take {fmt.milliseconds(profile.launch_ms)} ms"


def _own_code(now: Measured, pct: float) -> Iterator[str]:
    yield f"your own code runs {now.ms(pct)} beside launches"
    if now.step.on_gpu:
        yield f"the device is at work {fmt.percent(now.step.at_work_pct)} of it"
        yield f"{ASK_PROFILE} if it waits or copies" if now.can_profile else ""


def waiting_settings(snapshot: Snapshot) -> Settings:
    settings = snapshot.settings
    return {
        one.name: settings[one.name]
        for one in snapshot.levers
        if one.name in settings and any(set(wait) <= settings.items() for wait in one.waits)
    }


def _host(now: Measured, pct: float) -> Iterator[str]:
    snapshot, step = now.snapshot, now.step
    yield f"the host is busy {fmt.percent(pct)} {now.of_step}"
    waits = waiting_settings(snapshot)
    if step.pinned is False:
        waits["pin_memory"] = "off"
    names = " and ".join(f"{name}={value}" for name, value in waits.items())
    yield f"{names} can make it wait" if waits else "the host launches no faster than the GPU works"
    if step.gpu_util_pct is not None:
        yield f"a kernel runs {fmt.percent(step.gpu_util_pct)} of the time"
    yield ASK_PROFILE if "profile" in snapshot.can else ""


def _throttled(now: Measured, _pct: float) -> Iterator[str]:
    step = now.step
    yield f"{fmt.significant(step.sm_clock_mhz)} of {fmt.significant(step.top_clock_mhz)} MHz"
    yield f"held down by {', '.join(map(fmt.plain, step.throttle))}"
    yield from _units(now)


def _gpu(now: Measured, pct: float) -> Iterator[str]:
    snapshot, step = now.snapshot, now.step
    yield f"the GPU is busy {fmt.percent(pct)} {now.of_step}"
    yield from _units(now)
    if len(snapshot.ranks) > 1 and step.profile is None and step.communication_ms is None:
        asks = f"; {ASK_PROFILE}" if now.can_profile else ""
        yield f"communication counts as work{asks}"
    if step.overlap_ms is not None:
        hidden = now.share(step.overlap_ms)
        yield f"{prepares(snapshot, step)} runs beside training {hidden} of it"
    if step.step_ms is not None and step.host_ms is not None:
        ahead_ms = max(step.step_ms - step.host_ms - (step.data_ms or 0.0), 0.0)
        yield f"the host is {fmt.milliseconds(ahead_ms)} ms ahead"


def _units(now: Measured) -> Iterator[str]:
    step, profile = now.step, now.step.profile
    shares = {
        "SMs active": step.sm_active_pct,
        "DRAM traffic": step.dram_active_pct,
        "tensor cores": step.tensor_active_pct,
    }
    yield ", ".join(_known(shares))
    noted = profile.profiled if profile is not None else None
    if noted is not None and noted.flops is not None:
        yield mfu_text(noted)
        yield mfu_by_phase(noted)


def _known(shares: Mapping[str, float | None]) -> Iterator[str]:
    return (f"{name} {fmt.percent(pct)}" for name, pct in shares.items() if pct is not None)


def _cpu(now: Measured, pct: float) -> Iterator[str]:
    step = now.step
    yield f"the CPU computes {fmt.percent(pct)} {now.of_step}"
    is_starved = (step.share_pct(step.starved_ms) or 0.0) >= LEAST_DATA_PCT
    yield f"besides, it waits for data {fmt.milliseconds(step.starved_ms)} ms" if is_starved else ""
    if (is_starved and is_inline(now)) or (step.taken_pct or 0.0) >= LEAST_DATA_PCT:
        yield maker(now)
    yield slow_batches(now) if is_starved else ""
    yield used_cores(now)


def _shares(now: Measured, _pct: float) -> Iterator[str]:
    step = replace(now.step, profile=None)  # all parts are of the same steps
    at_work, left = step.at_work_pct, step.share_pct(step.unattributed_ms)
    if at_work is not None and left is not None:  # the device may idle between two events
        left += (step.share_pct(step.computing_ms) or 0.0) - at_work
    yield from _known(
        {
            "GPU" if step.on_gpu else "computing": at_work,
            "communication": step.share_pct(step.communication_ms),
            "host": step.share_pct(step.host_ms) if step.on_gpu else None,
            "data": step.share_pct(step.starved_ms),
            "unattributed": left,
        }
    )


# ── the rows ────────────────────────────────────────────────────────────────────────────
# Other tools call a wait of 10 % a warning. A copy's phase includes the time until its launch.

INPUT = Limit("data", "input-bound", _input, "the step waits for data", 10.0, DATA)
COPYING = Limit("copy", "copy-bound", _copy, "a copy runs, and nothing beside it", 20.0, COPY)
COMMUNICATING = Limit(
    "communication",
    "communication-bound",
    _communication,
    "the step only communicates",
    10.0,
    COMMUNICATION,
)
SYNC = Limit(
    "sync",
    "sync-bound",
    _sync,
    "saved without host waits",
    10.0,
    WAIT,
    rank=4,  # it goes without less work
    meets_code=True,
)
OWN_CODE = Limit(
    "own_code",
    "bound by your own code",
    _own_code,
    "your code runs, and the device idles",
    IDLE_PCT,
    CODE,
    meets_code=True,
)
LAUNCHING = Limit(
    "launch",
    "launch-bound",
    _launch,
    "the device has no work launched",
    IDLE_PCT,
    LAUNCH,
    meets_code=True,
)
HOST = LAUNCHING._replace(word="host", title="launch- or sync-bound", evidence=_host)
"""Launching or waiting: only a profile can distinguish them."""
GPU = Limit("gpu", "GPU-bound", _gpu, part=DEVICE)
"""Where it is not measured what the GPU is busy with."""
MEMORY = GPU._replace(word="memory", title="memory-bandwidth-bound")
COMPUTE = GPU._replace(word="compute", title="compute-bound")
THROTTLED = GPU._replace(word="throttled", title="throttled", evidence=_throttled)
CPU = Limit(
    "cpu",
    "CPU-bound",
    _cpu,
    "the CPU computes",
    CPU_PCT,
    DEVICE._replace(slowed=("host",)),
    meets_code=True,
)
NONE = Limit("none", "unclear, because no part fills the step", _shares, meets_code=True)
UNKNOWN = Limit(
    "unknown", "unclear, because no times within a step are measured", lambda *_: iter(())
)
