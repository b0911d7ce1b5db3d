"""Facts: what is measured, in words. A clause of a limit is told if all of its facts are known."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf

from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.diagnosis.causes.cause import Cause, Measured
from gpudash.diagnosis.input_effects import batches_wait
from gpudash.diagnosis.lanes import prepares
from gpudash.diagnosis.lever_change import change_pct
from gpudash.diagnosis.parts import WAIT
from gpudash.diagnosis.profiled_step import pin_ms, pinning_of
from gpudash.diagnosis.proposals import loader_workers
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.answer import Gain
from gpudash.protocol.inspections import Profiled
from gpudash.protocol.records import Settings
from gpudash.protocol.session import Straggler
from gpudash.snapshot import Snapshot
from gpudash.trace.mfu import mfu_by_phase, mfu_text
from gpudash.trace.summary import SyncUse

GB = 1e9
MIB = 2**20
SHARED_PCT = CORE_WAIT_WARNS_PCT
"""Percent of the time in which others have work on the device: as for cores that others have."""
LEAST_DATA_PCT = 10.0
"""As other tools have it: a wait for data of 10 % of the step is named."""
LONGEST_NAME = 14
"""Most columns of a process's name: two of them are in sight at 80 columns."""
MOST_WAITS = 5
"""Most waits of a profile that are listed."""
ASK_PROFILE = "t profiles some steps and tells"


class _UnknownError(Exception):
    """A fact is not measured, or not worth a clause."""


class _Told(dict[str, str]):
    def __init__(self, cause: Cause, now: Measured) -> None:
        told_ms = cause.told_pct * (now.step.step_ms or 0.0) / 100
        super().__init__(ms=fmt.milliseconds(told_ms), pct=fmt.percent(cause.told_pct))
        self._now = now

    def __missing__(self, name: str) -> str:
        if name in CONDITIONS:
            fact = "" if CONDITIONS[name](self._now) else None
        else:
            fact = FACTS[name](self._now)
        if fact is None:
            raise _UnknownError
        return fact


def told(clauses: Iterable[str], cause: Cause, now: Measured) -> Iterator[str]:
    facts = _Told(cause, now)
    for clause in clauses:
        try:
            yield clause.format_map(facts)
        except _UnknownError:
            continue


def _pct(share_pct: float | None) -> str | None:
    return None if share_pct is None else fmt.percent(share_pct)


def _ms(value: float | None) -> str | None:
    return None if value is None else fmt.milliseconds(value)


# ── the cores, and who makes batches on them ────────────────────────────────────────────


def _who(now: Measured) -> str:
    return "rank 0" if _is_one_of_several(now) else "the training"


def _is_one_of_several(now: Measured) -> bool:
    return len(now.snapshot.ranks) > 1


def _busiest(now: Measured) -> str | None:
    jobs = now.snapshot.other_jobs.busiest if now.snapshot.other_jobs is not None else ()
    names = [f"{fmt.plain(fmt.clip(one.name, LONGEST_NAME))} (pid {one.pid})" for one in jobs]
    used = [f"{name} {one.cores:.1f}" for name, one in zip(names, jobs, strict=True)]
    if not jobs:
        return None
    return ", ".join((f"{names[0]} uses {jobs[0].cores:.1f} cores", *used[1:]))


def _cores(now: Measured) -> str | None:
    step = now.step
    return None if step.busy_cores is None else fmt.cores(100 * step.busy_cores, step.cores)


def _with_every_core(now: Measured) -> str | None:
    step, waits_pct, busy = now.step, now.step.core_wait_pct, now.step.busy_cores
    if waits_pct is None or not 0 < waits_pct < 100 or busy is None or step.asked_cores is None:
        return None
    asked = max(step.asked_cores, 1.0)  # cores; `core_wait_pct` is a share of them
    if _is_one_of_several(now) or (asked > 1 and not step.cores):
        return None  # only the number of cores bounds the wait of several threads
    least_pct = max(100 - waits_pct * asked, 100 * busy / step.cores if step.cores else 0.0)
    return fmt.significant(1 + max(change_pct(100.0, least_pct), 0.0) / 100)


def _without_asides(now: Measured) -> str | None:
    """Return a range: a window of another begin holds one aside more or fewer."""
    pct, asides = now.step.aside_pct, now.step.asides
    if pct is None or not asides or pct + pct / asides >= 100:
        return None  # too few were seen for an estimate
    low, high = (change_pct(100.0, 100 - pct + end) for end in (pct / asides, -pct / asides))
    return Gain(low, high).label


def _is_starved(now: Measured) -> bool:
    return (now.step.share_pct(now.step.starved_ms) or 0.0) >= LEAST_DATA_PCT


def _is_taken(now: Measured) -> bool:
    return (now.step.taken_pct or 0.0) >= LEAST_DATA_PCT


def _loads(now: Measured) -> bool:
    settings = now.snapshot.settings
    return "num_workers" in settings and settings.get("data", "loader") == "loader"


def _is_inline(now: Measured) -> bool:
    return _loads(now) and now.snapshot.settings["num_workers"] == "0"


def _maker(now: Measured) -> str | None:
    """Say nothing of loader workers on cores that suffice."""
    if _is_inline(now):
        return "batches are made in the training process"
    if now.step.taken_pct is None:
        return None
    return f"loader workers use {fmt.percent(now.step.loader_pct)} of the CPU time"


def _slow_batches(now: Measured) -> str | None:
    step, workers = now.step, loader_workers(now.snapshot.settings)
    if not _loads(now) or not batches_wait(step, workers):
        return None
    if not workers:
        return f"{_who(now)} uses {step.busy_cores or 0.0:.1f} cores"
    return f"a worker uses {fmt.percent(100 * (step.loader_cores or 0.0) / workers)} of a core"


def _slowest_transform(now: Measured) -> str | None:
    by_ms = sorted((ms, name) for name, ms in now.snapshot.transform_ms.items())
    if not by_ms:
        return None
    ms, name = by_ms[-1]
    return f"{fmt.plain(name)}, {fmt.milliseconds(ms)} ms"


# ── host and device ─────────────────────────────────────────────────────────────────────


def _pinning(now: Measured) -> str | None:
    pinning = pinning_of(now.step)
    if pinning is None:
        return None
    pinned_in_ms = pin_ms(pinning, loader_workers(now.snapshot.settings))
    return fmt.milliseconds(pinned_in_ms) if pinned_in_ms > (now.step.copy_ms or 0.0) else None


def _ask_profile(now: Measured) -> str | None:
    is_open = now.step.profile is None and "profile" in now.snapshot.can
    return ASK_PROFILE if is_open else None


def collectives(now: Measured) -> str | None:
    """Take the time of the rank with the shortest collectives: it waits least in them."""
    known = [row for row in now.snapshot.ranks if row.values.get("collective_bus_mib")]
    if not known:
        return None
    row = min(known, key=lambda one: one.values.get("collective_ms") or inf)
    mib, ms = row.values["collective_bus_mib"], row.values.get("collective_ms")
    sends = f"each rank sends {fmt.significant(mib)} MiB a step"
    if not ms:
        return sends
    exposed_ms, bus = row.values.get("collective_exposed_ms", row.waits_ms), now.snapshot.bus_gb_s
    exposed = ""
    if exposed_ms is not None:
        exposed = f", {fmt.percent(min(100 * exposed_ms / ms, 100.0))} of it exposed"
    most = "" if bus is None else f" of {fmt.significant(bus)} measured"
    reached = f"{fmt.significant(mib * MIB / (ms / 1e3) / GB)}{most} GB/s on the bus"
    return f"{sends} in {fmt.milliseconds(ms)} ms{exposed}, {reached}"


def _without_waits(now: Measured) -> str | None:
    model = now.model
    if model is None:
        return None
    low, high = (change_pct(model.step_ms, model.step_ms - ms) for ms in model.without(WAIT))
    return Gain(low, high).label


def _wait(number: int, now: Measured, of: str = "") -> str | None:
    syncs = now.step.profile.syncs if now.step.profile is not None else ()
    waits = (f"{fmt.milliseconds(one.blocked_ms)}{of} ms {place(one)}" for one in syncs[number:])
    return next(waits, None)


def _own_line(now: Measured) -> str | None:
    code = now.snapshot.code
    if code is None or code.first is None:
        return None
    where = fmt.plain(fmt.source_line(code.first.file, code.first.line))
    return f"the script is at {where} in {code.first.count} of {code.looks} looks"


def place(sync: SyncUse) -> str:
    where = f"at {fmt.plain(fmt.source_line(sync.file, sync.line))}" if sync.file else "in"
    return f"{where} {fmt.plain(sync.what)}".rstrip()


def _busy(now: Measured) -> str | None:
    profile = now.step.profile
    return None if profile is None else fmt.percent(now.step.share_pct(profile.busy_ms))


def _launches(now: Measured) -> str | None:
    profile = now.step.profile
    if profile is None or profile.launches is None:
        return None
    return f"{profile.launches:,.0f} launches take {fmt.milliseconds(profile.launch_ms)} ms"


def waiting_settings(snapshot: Snapshot) -> Settings:
    settings = snapshot.settings
    return {
        one.name: settings[one.name]
        for one in snapshot.levers
        if one.name in settings and any(set(wait) <= settings.items() for wait in one.waits)
    }


def _waits(now: Measured) -> str:
    waits = waiting_settings(now.snapshot)
    if now.step.pinned is False:
        waits["pin_memory"] = "off"
    if not waits:
        return "the host launches no faster than the GPU works"
    return f"{' and '.join(f'{name}={value}' for name, value in waits.items())} can make it wait"


def _units(now: Measured) -> str | None:
    step = now.step
    shares = {
        "SMs active": step.sm_active_pct,
        "DRAM traffic": step.dram_active_pct,
        "tensor cores": step.tensor_active_pct,
    }
    known = [f"{name} {fmt.percent(pct)}" for name, pct in shares.items() if pct is not None]
    return ", ".join(known)


def _mfu(text: Callable[[Profiled], str], now: Measured) -> str | None:
    profiled = now.step.profile.profiled if now.step.profile is not None else None
    if profiled is None or profiled.flops is None:
        return None
    return text(profiled)


def _or_ask(now: Measured) -> str:
    return f"; {ask}" if (ask := _ask_profile(now)) else ""


def _ahead(now: Measured) -> str | None:
    step = now.step
    if step.step_ms is None or step.host_ms is None:
        return None
    return fmt.milliseconds(max(step.step_ms - step.host_ms - (step.data_ms or 0.0), 0.0))


def _between_events(now: Measured) -> RecentStep:
    """Return a step of which all parts are of the same steps: a profile has others."""
    return replace(now.step, profile=None)


def _unattributed(now: Measured) -> str | None:
    """Include that the device may idle between two events."""
    step = _between_events(now)
    at_work, left = step.at_work_pct, step.share_pct(step.unattributed_ms)
    if at_work is not None and left is not None:
        left += (step.share_pct(step.computing_ms) or 0.0) - at_work
    return _pct(left)


# ── a slow rank ─────────────────────────────────────────────────────────────────────────


def _of_slow(fact: Callable[[Straggler], str | None], now: Measured) -> str | None:
    return fact(now.snapshot.straggler) if now.snapshot.straggler is not None else None


def _hidden_excess(slow: Straggler, *, is_data: bool) -> str | None:
    is_hidden = slow.others_wait_ms is None and (slow.phase == "data") is is_data
    return f"{fmt.milliseconds(slow.excess_ms)} ms longer" if is_hidden else None


def _busiest_other(now: Measured) -> str | None:
    gpu = now.snapshot.gpu
    return None if gpu is None or not gpu.busiest_other else fmt.plain(gpu.busiest_other)


def _slower(now: Measured) -> str | None:
    slow = now.snapshot.straggler
    if slow is None:
        return None
    decimals = 0 if slow.slower_pct >= 9.95 else 1
    return f"{slow.slower_pct:.{decimals}f} % slow{_in_phase(now)}"


def _in_phase(now: Measured) -> str | None:
    slow, labels = now.snapshot.straggler, {one.name: one.label for one in now.snapshot.phases}
    if slow is None:
        return None
    said = {"": "", "data": " in its data loading", "host": " on the host"}
    return said.get(slow.phase, f" in {fmt.plain(labels.get(slow.phase, slow.phase))}")


def _evens_out(now: Measured) -> str:
    slow = now.snapshot.straggler
    is_loader = slow is not None and slow.phase == "data" and "num_workers" in now.snapshot.settings
    return "the loader's levers may change that" if is_loader else "no lever evens that out"


CONDITIONS: Mapping[str, Callable[[Measured], bool]] = {
    "if_several": _is_one_of_several,
    "if_starved": _is_starved,
    "if_taken": _is_taken,
    "if_short": lambda now: _is_taken(now) or (_is_starved(now) and _is_inline(now)),
    "if_crowded": lambda now: (now.step.core_wait_pct or 0.0) >= CORE_WAIT_WARNS_PCT,
    "if_full": lambda now: now.step.no_core_free,
    "if_on_gpu": lambda now: now.step.on_gpu,
    "if_shared": lambda now: (now.step.others_pct or 0.0) >= SHARED_PCT,
    "if_unpinned": lambda now: now.snapshot.settings.get("pin_memory") == "off",
    "if_unseen": lambda now: now.step.profile is None and now.step.communication_ms is None,
}
"""Empty where they hold; a clause is not told where one does not."""
FACTS: Mapping[str, Callable[[Measured], str | None]] = {
    "step": lambda now: fmt.milliseconds(now.step.step_ms),
    "who": _who,
    "device": lambda now: "the GPU" if now.step.on_gpu else "the training",
    # the cores, and who makes batches on them
    "busiest": _busiest,
    "core_wait": lambda now: _pct(now.step.core_wait_pct),
    "cores": _cores,
    "with_every_core": _with_every_core,
    "without_asides": _without_asides,
    "starved": lambda now: _ms(now.step.starved_ms),
    "maker": _maker,
    "loaders_share": lambda now: _pct(now.step.loader_pct),
    "slow_batches": _slow_batches,
    "slowest_transform": _slowest_transform,
    # host and device
    "pinning": _pinning,
    "ask": _ask_profile,
    "collectives": collectives,
    "busy": _busy,
    "without_waits": _without_waits,
    "wait_0": lambda now: _wait(0, now, f" of {fmt.milliseconds(now.step.step_ms)}"),
    **{f"wait_{number}": partial(_wait, number) for number in range(1, MOST_WAITS)},
    "launches": _launches,
    "waits": _waits,
    "own_line": _own_line,
    "util": lambda now: _pct(now.step.gpu_util_pct),
    "at_work": lambda now: _pct(now.step.at_work_pct),
    "clock": lambda now: fmt.significant(now.step.sm_clock_mhz),
    "top_clock": lambda now: fmt.significant(now.step.top_clock_mhz),
    "throttle": lambda now: ", ".join(map(fmt.plain, now.step.throttle)),
    "units": _units,
    "mfu": partial(_mfu, mfu_text),
    "mfu_by_phase": partial(_mfu, mfu_by_phase),
    "or_ask": _or_ask,
    "beside": lambda now: _pct(now.step.share_pct(now.step.overlap_ms)),
    "prepares": lambda now: prepares(now.snapshot, now.step),
    "ahead": _ahead,
    # between the device's events: all of the same steps
    "worked": lambda now: _pct(_between_events(now).at_work_pct),
    "working": lambda now: "GPU" if now.step.on_gpu else "computing",
    "communication": lambda now: _pct(now.step.share_pct(now.step.communication_ms)),
    "host": lambda now: _pct(now.step.share_pct(now.step.host_ms)),
    "data": lambda now: _pct(now.step.share_pct(now.step.starved_ms)),
    "unattributed": _unattributed,
    # others on the GPU, and a slow rank
    "others": lambda now: _pct(now.step.others_pct),
    "busiest_other": _busiest_other,
    "rank": partial(_of_slow, lambda slow: f"rank {slow.rank}"),
    "others_wait": partial(_of_slow, lambda slow: _ms(slow.others_wait_ms)),
    "why_slow": partial(_of_slow, lambda slow: slow.why),
    "loads_longer": partial(_of_slow, partial(_hidden_excess, is_data=True)),
    "host_longer": partial(_of_slow, partial(_hidden_excess, is_data=False)),
    "slower": _slower,
    "in_phase": _in_phase,
    "evens_out": _evens_out,
}
