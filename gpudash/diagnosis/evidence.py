"""State what is measured behind a limit as clauses, the most important first; collectives too."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.diagnosis.causes import SHARED_PCT, Limit
from gpudash.diagnosis.input_effects import batches_wait
from gpudash.diagnosis.lanes import prepares
from gpudash.diagnosis.lever_change import change_pct
from gpudash.diagnosis.model import Model
from gpudash.diagnosis.parts import WAIT
from gpudash.diagnosis.profiled_step import pin_ms, pinning_of
from gpudash.diagnosis.proposals import loader_workers
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.answer import Gain
from gpudash.protocol.inspections import CodeLines
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Phase
from gpudash.snapshot import Snapshot
from gpudash.statistics import mean
from gpudash.trace.mfu import mfu_by_phase, mfu_text
from gpudash.trace.summary import SyncUse

GB = 1e9
MIB = 2**20


def collectives_line(snapshot: Snapshot) -> str:
    """Take the time of the rank with the shortest collectives: it waits least in them."""
    known = [row for row in snapshot.ranks if row.values.get("collective_bus_mib")]
    if not known:
        return ""
    row = min(known, key=lambda one: one.values.get("collective_ms") or inf)
    mib, ms = row.values["collective_bus_mib"], row.values.get("collective_ms")
    if not ms:
        return f"each rank sends {fmt.significant(mib)} MiB a step"
    parts = [f"each rank sends {fmt.significant(mib)} MiB a step in {fmt.milliseconds(ms)} ms"]
    exposed_ms = row.values.get("collective_exposed_ms", row.waits_ms)
    if exposed_ms is not None:
        parts.append(f"{fmt.percent(min(100 * exposed_ms / ms, 100.0))} of it exposed")
    bus = fmt.significant(mib * MIB / (ms / 1e3) / GB)
    measured = snapshot.bus_gb_s
    most = "" if measured is None else f" of {fmt.significant(measured)} measured"
    parts.append(f"{bus}{most} GB/s on the bus")
    return ", ".join(parts)


DATA_PCT = 10.0
"""As other tools have it: a wait for data of 10 % of the step is named."""
ASK_PROFILE = "t profiles some steps and tells"
LEAST_OTHERS = 0.1
"""Cores that other jobs use at least where they are given as a number."""
LONGEST_NAME = 14
"""Most columns of a process's name: two of them are in sight at 80 columns."""
MOST_WAITS = 5
"""Most waits of a profile that are listed."""


class Measured(NamedTuple):
    """The measurements that the clauses are made from."""

    snapshot: Snapshot
    step: RecentStep
    model: Model | None = None

    @property
    def who(self) -> str:
        return "rank 0" if len(self.snapshot.ranks) > 1 else "the training"

    @property
    def of_step(self) -> str:
        return f"of {fmt.milliseconds(self.step.step_ms)} ms"

    def share(self, ms: float | None) -> str:
        return fmt.percent(self.step.share_pct(ms))


def evidence_of(limit: Limit, measured: Measured) -> tuple[str, ...]:
    return tuple(filter(None, _EVIDENCE[limit](measured)))


def caution(limit: Limit, measured: Measured) -> str:
    """Return why an A/B is uncertain now and what to do, as a clause; else nothing."""
    if limit != "cores" and (measured.step.core_wait_pct or 0.0) < CORE_WAIT_WARNS_PCT:
        return ""
    return _crowded(measured.snapshot, "an A/B")


def caution_in_ab(snapshot: Snapshot, seconds: float) -> str:
    series = snapshot.series
    first = bisect_left(series.at_s, snapshot.elapsed_s - seconds)
    waits_pct = mean(series.of("core_wait_pct")[first:])
    if waits_pct is None and snapshot.host is not None:
        waits_pct = snapshot.host.number("core_wait_pct")
    return _crowded(snapshot, "the A/B") if (waits_pct or 0.0) >= CORE_WAIT_WARNS_PCT else ""


def _crowded(snapshot: Snapshot, which: str) -> str:
    if len(snapshot.ranks) > 1:
        return f"too few cores: until other jobs end, {which} has a wide interval"
    jobs, take = snapshot.other_jobs, "cores"
    if jobs is not None and jobs.used_cores >= LEAST_OTHERS:  # those of other containers are unseen
        take = fmt.cores(100 * jobs.used_cores, jobs.cores)
    return f"other jobs take {take}: until they end, {which} has a wide interval"


def _asides(measured: Measured) -> Iterator[str]:
    yield f"evaluation and checkpoints take {fmt.percent(measured.step.aside_pct)} of the time"
    yield _without_asides(measured.step)


def _other_jobs(measured: Measured) -> Iterator[str]:
    step = measured.step
    yield _busiest(measured.snapshot)
    yield _core_wait(measured)
    yield "other ranks or other jobs have it" if len(measured.snapshot.ranks) > 1 else ""
    yield _cores(measured)
    yield _loader(measured) if (step.taken_pct or 0.0) >= DATA_PCT else ""
    # a loader may wait for a core too, or for something that a lever changes
    if (step.share_pct(step.starved_ms) or 0.0) >= DATA_PCT:
        yield f"besides, it waits for data {fmt.milliseconds(step.starved_ms)} {measured.of_step}"
        yield _batches_wait(measured)
    if len(measured.snapshot.ranks) <= 1:  # with several ranks, only rank 0's cores are known
        yield _with_every_core(measured.step)


def _shared_gpu(measured: Measured) -> Iterator[str]:
    gpu = measured.snapshot.gpu
    yield _others_use(measured.step)
    yield f"the busiest is {fmt.plain(gpu.busiest_other)}" if gpu and gpu.busiest_other else ""
    yield "until they end, an A/B has a wide interval"


def _straggler(measured: Measured) -> Iterator[str]:
    snapshot = measured.snapshot
    straggler = snapshot.straggler
    if straggler is None:
        return
    rank = f"rank {straggler.rank}"
    in_what = _in_what(straggler.phase, snapshot.phases)
    wait = fmt.milliseconds(straggler.others_wait_ms)
    match straggler.kind:
        case "persistent":
            first = f"{rank} is {_pct(straggler.slower_pct)} slow{in_what}"
            loads = straggler.phase == "data" and "num_workers" in snapshot.settings
            last = "the loader's levers may change that" if loads else "no lever evens that out"
        case "imbalance":
            first = f"{rank} has more to work on{in_what}"
            last = "batches of equal size would even that out"
        case "wandering":
            first = "the slow rank changes"
            last = f"the newest is {rank}, {_pct(straggler.slower_pct)} slow{in_what}"
    yield from (first, f"the others wait {wait} ms a step in the all-reduce", straggler.why, last)


def _others_use(step: RecentStep) -> str:
    return f"processes of others use {fmt.percent(step.others_pct)} of the GPU's time"


def beside(limit: Limit, measured: Measured) -> Iterator[str]:
    """Yield clauses about others on the GPU and a slow rank that are not the limit."""
    straggler, step = measured.snapshot.straggler, measured.step
    if limit != "shared_gpu" and (step.others_pct or 0.0) >= SHARED_PCT:
        yield _others_use(step)
    if straggler is None or limit == "straggler":
        return
    rank, excess = f"rank {straggler.rank}", f"{fmt.milliseconds(straggler.excess_ms)} ms longer"
    if straggler.others_wait_ms is not None:
        waits = fmt.milliseconds(straggler.others_wait_ms)
        yield f"the others wait {waits} ms a step for {rank}"
    elif straggler.phase == "data":
        yield f"{rank} waits {excess} for data; hidden so far: nobody waits"
    else:
        yield f"the host of {rank} is busy {excess}; hidden so far: nobody waits"


def _in_what(phase: str, phases: Iterable[Phase]) -> str:
    labels = {one.name: one.label for one in phases}
    said = {"": "", "data": " in its data loading", "host": " on the host"}
    return said.get(phase, f" in {fmt.plain(labels.get(phase, phase))}")


def _pct(share_pct: float) -> str:
    return f"{share_pct:.{0 if share_pct >= 9.95 else 1}f} %"


def _input(measured: Measured) -> Iterator[str]:
    step = measured.step
    who = "the GPU" if step.on_gpu else "the training"
    waits = f"{who} waits for data {fmt.milliseconds(step.starved_ms)} {measured.of_step}"
    takes = _maker(measured)
    is_more = (step.taken_pct or 0.0) > (step.share_pct(step.starved_ms) or 0.0)
    yield from (takes, waits) if is_more else (waits, takes)
    yield _batches_wait(measured)
    transforms = measured.snapshot.transform_ms
    if transforms:
        name, ms = max(transforms.items(), key=lambda one: one[1])
        yield f"slowest transform: {fmt.plain(name)}, {fmt.milliseconds(ms)} ms a sample"
    yield _cores(measured) if step.no_core_free else ""
    if (step.core_wait_pct or 0.0) >= CORE_WAIT_WARNS_PCT:
        yield _core_wait(measured)


def _copy(measured: Measured) -> Iterator[str]:
    copying, settings = measured.step.copy_ms, measured.snapshot.settings
    yield f"copying takes {fmt.milliseconds(copying)} {measured.of_step}"
    yield "nothing runs beside it"
    if settings.get("pin_memory") != "off":
        return
    if (pinning := pinning_of(measured.step)) is not None:
        pinned_in_ms = pin_ms(pinning, loader_workers(settings))
        if pinned_in_ms > (copying or 0.0):
            yield f"pinning would take {fmt.milliseconds(pinned_in_ms)} ms, longer than that"
    elif measured.step.profile is None and "profile" in measured.snapshot.can:
        yield f"{ASK_PROFILE} what pinning would take"


def _communication(measured: Measured) -> Iterator[str]:
    exposed = fmt.milliseconds(measured.step.exposed_ms)
    yield f"nothing but communication runs {exposed} {measured.of_step}"
    yield collectives_line(measured.snapshot)
    if measured.step.profile is not None:
        yield f"the GPU is busy {measured.share(measured.step.profile.busy_ms)} of it"


def _sync(measured: Measured) -> Iterator[str]:
    profile = measured.step.profile
    if profile is None or not profile.syncs:
        yield from _host(measured)
        return
    first, *others = profile.syncs[:MOST_WAITS]
    yield f"the host waits {fmt.milliseconds(first.blocked_ms)} {measured.of_step} {place(first)}"
    if measured.model is not None and measured.model.without(WAIT).high:
        yield f"without its waits {_without_waits(measured.model).label}"
    for one in others:
        yield f"{fmt.milliseconds(one.blocked_ms)} ms {place(one)}"


def _launch(measured: Measured) -> Iterator[str]:
    profile = measured.step.profile
    if profile is None:
        yield from _host(measured)
        return
    yield f"the GPU has no work {fmt.milliseconds(measured.step.idle_ms)} {measured.of_step}"
    if profile.launches is not None:
        yield f"{profile.launches:,.0f} launches take {fmt.milliseconds(profile.launch_ms)} ms"


def _own_code(measured: Measured) -> Iterator[str]:
    step, model = measured.step, measured.model
    code_ms = model.scenarios[0].code if model is not None else None
    yield f"your own code runs {fmt.milliseconds(code_ms)} {measured.of_step} beside launches"
    if step.on_gpu:
        yield f"the device is at work {fmt.percent(step.at_work_pct)} of it"
    if step.on_gpu and step.profile is None and "profile" in measured.snapshot.can:
        yield f"{ASK_PROFILE} if it waits or copies"


def waiting_settings(snapshot: Snapshot) -> Settings:
    settings = snapshot.settings
    return {
        one.name: settings[one.name]
        for one in snapshot.levers
        if one.name in settings and any(set(wait) <= settings.items() for wait in one.waits)
    }


def _host(measured: Measured) -> Iterator[str]:
    snapshot, step = measured.snapshot, measured.step
    yield f"the host is busy {measured.share(step.host_ms)} {measured.of_step}"
    waits = waiting_settings(snapshot)
    if step.pinned is False:
        waits["pin_memory"] = "off"
    names = " and ".join(f"{name}={value}" for name, value in waits.items())
    yield f"{names} can make it wait" if waits else "the host launches no faster than the GPU works"
    if step.gpu_util_pct is not None:
        yield f"a kernel runs {fmt.percent(step.gpu_util_pct)} of the time"
    yield ASK_PROFILE if "profile" in snapshot.can else ""


def _throttled(measured: Measured) -> Iterator[str]:
    step = measured.step
    yield f"{fmt.significant(step.sm_clock_mhz)} of {fmt.significant(step.top_clock_mhz)} MHz"
    yield f"held down by {', '.join(map(fmt.plain, step.throttle))}"
    yield from _units(measured)


def _gpu(measured: Measured) -> Iterator[str]:
    snapshot, step = measured.snapshot, measured.step
    yield f"the GPU is busy {fmt.percent(step.at_work_pct)} {measured.of_step}"
    yield from _units(measured)
    is_unseen = measured.step.profile is None and step.communication_ms is None
    if len(snapshot.ranks) > 1 and is_unseen:
        asks = f"; {ASK_PROFILE}" if "profile" in snapshot.can else ""
        yield f"communication counts as work{asks}"
    if step.overlap_ms is not None:
        hidden = measured.share(step.overlap_ms)
        yield f"{prepares(snapshot, step)} runs beside training {hidden} of it"
    if step.step_ms is not None and step.host_ms is not None:
        ahead_ms = max(step.step_ms - step.host_ms - (step.data_ms or 0.0), 0.0)
        yield f"the host is {fmt.milliseconds(ahead_ms)} ms ahead"


def _units(measured: Measured) -> Iterator[str]:
    step, profile = measured.step, measured.step.profile
    shares = {
        "SMs active": step.sm_active_pct,
        "DRAM traffic": step.dram_active_pct,
        "tensor cores": step.tensor_active_pct,
    }
    known = (f"{name} {fmt.percent(pct)}" for name, pct in shares.items() if pct is not None)
    yield ", ".join(known)
    noted = profile.profiled if profile is not None else None
    if noted is not None and noted.flops is not None:
        yield mfu_text(noted)
        yield mfu_by_phase(noted)


def _cpu(measured: Measured) -> Iterator[str]:
    step = measured.step
    yield f"the CPU computes {fmt.percent(step.at_work_pct)} {measured.of_step}"
    is_starved = (step.share_pct(step.starved_ms) or 0.0) >= DATA_PCT
    yield f"besides, it waits for data {fmt.milliseconds(step.starved_ms)} ms" if is_starved else ""
    if (is_starved and _makes_batches(measured)) or (step.taken_pct or 0.0) >= DATA_PCT:
        yield _maker(measured)
    yield _batches_wait(measured) if is_starved else ""
    yield _cores(measured)


def _shares(measured: Measured) -> Iterator[str]:
    step = replace(measured.step, profile=None)  # all parts are of the same steps
    at_work, left = step.at_work_pct, step.share_pct(step.unattributed_ms)
    if at_work is not None and left is not None:  # the device may idle between two events
        left += (step.share_pct(step.computing_ms) or 0.0) - at_work
    shares = {
        "GPU" if step.on_gpu else "computing": at_work,
        "communication": step.share_pct(step.communication_ms),
        "host": step.share_pct(step.host_ms) if step.on_gpu else None,
        "data": step.share_pct(step.starved_ms),
        "unattributed": left,
    }
    yield from (f"{name} {fmt.percent(pct)}" for name, pct in shares.items() if pct is not None)


def _without_asides(step: RecentStep) -> str:
    """Return a range, since a window of another begin holds one aside more or fewer."""
    if step.aside_pct is None or not step.asides:
        return ""
    one = step.aside_pct / step.asides
    if step.aside_pct + one >= 100:
        return ""  # too few were seen for an estimate
    low, high = (
        100 * (100 / (100 - pct) - 1) for pct in (step.aside_pct - one, step.aside_pct + one)
    )
    return f"without them {Gain(low, high).label}"


def _with_every_core(step: RecentStep) -> str:
    waits_pct, busy, asked = step.core_wait_pct, step.busy_cores, step.asked_cores
    if waits_pct is None or not 0 < waits_pct < 100 or busy is None or asked is None:
        return ""
    asked = max(asked, 1.0)  # cores; `core_wait_pct` is a share of them
    if asked > 1 and not step.cores:
        return ""  # only the number of cores bounds the wait of several threads
    least_pct = max(100 - waits_pct * asked, 100 * busy / step.cores if step.cores else 0.0)
    times = 1 + max(change_pct(100.0, least_pct), 0.0) / 100
    return f"on an idle machine up to {fmt.significant(times)} times as fast"


def _without_waits(model: Model) -> Gain:
    low, high = (change_pct(model.step_ms, model.step_ms - ms) for ms in model.without(WAIT))
    return Gain(low, high)


def _core_wait(measured: Measured) -> str:
    return f"{measured.who} waits for a core {fmt.percent(measured.step.core_wait_pct)} of the time"


def _busiest(snapshot: Snapshot) -> str:
    busiest = snapshot.other_jobs.busiest if snapshot.other_jobs is not None else ()
    names = [f"{fmt.plain(fmt.clip(one.name, LONGEST_NAME))} (pid {one.pid})" for one in busiest]
    cores = [f"{one.cores:.1f}" for one in busiest]
    if not names:
        return ""
    others = (f", {name} {of}" for name, of in zip(names[1:], cores[1:], strict=True))
    return f"{names[0]} uses {cores[0]} cores{''.join(others)}"


def _loader(measured: Measured) -> str:
    return f"loader workers use {fmt.percent(measured.step.loader_pct)} of the CPU time"


def _maker(measured: Measured) -> str:
    """Say nothing of loader workers on cores that suffice."""
    if _makes_batches(measured):
        return "batches are made in the training process"
    return _loader(measured) if measured.step.taken_pct is not None else ""


def _makes_batches(measured: Measured) -> bool:
    settings = measured.snapshot.settings
    return settings.get("num_workers") == "0" and settings.get("data", "loader") == "loader"


def _batches_wait(measured: Measured) -> str:
    step, settings = measured.step, measured.snapshot.settings
    workers = loader_workers(settings)
    is_known = "num_workers" in settings and settings.get("data", "loader") == "loader"
    if not is_known or not batches_wait(step, workers):
        return ""
    said = "making a batch waits more than it computes"
    if not workers:
        return f"{said}: {measured.who} uses {step.busy_cores or 0.0:.1f} cores"
    return (
        f"{said}: a worker uses {fmt.percent(100 * (step.loader_cores or 0.0) / workers)} of a core"
    )


def _cores(measured: Measured) -> str:
    step = measured.step
    if step.busy_cores is None:
        return ""
    return f"{measured.who} uses {fmt.cores(100 * step.busy_cores, step.cores)}"


def own_line(code: CodeLines) -> Iterator[str]:
    if (first := code.first) is not None:
        where = fmt.plain(fmt.source_line(first.file, first.line))
        yield f"the script is at {where} in {first.count} of {code.looks} looks"


def place(sync: SyncUse) -> str:
    where = f"at {fmt.plain(fmt.source_line(sync.file, sync.line))}" if sync.file else "in"
    return f"{where} {fmt.plain(sync.what)}".rstrip()


_EVIDENCE: Mapping[Limit, Callable[[Measured], Iterator[str]]] = {
    "asides": _asides,
    "cores": _other_jobs,
    "shared_gpu": _shared_gpu,
    "straggler": _straggler,
    "data": _input,
    "copy": _copy,
    "communication": _communication,
    "sync": _sync,
    "launch": _launch,
    "own_code": _own_code,
    "host": _host,
    "throttled": _throttled,
    "memory": _gpu,
    "compute": _gpu,
    "gpu": _gpu,
    "cpu": _cpu,
    "none": _shares,
    "unknown": lambda _measured: iter(()),
}
