"""Facts: what is measured, in words. A clause of a limit is told if all of its facts are known."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import TypeVar

from gpudash import format as fmt
from gpudash.diagnosis.causes.cause import Measured
from gpudash.diagnosis.input_effects import pin_ms
from gpudash.diagnosis.lanes import prepares
from gpudash.diagnosis.lever_change import change_pct
from gpudash.diagnosis.parts import PARTS, WAIT
from gpudash.diagnosis.recent_step import asides_of
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.answer import Gain
from gpudash.protocol.inspections import CodeLine, CodeLines, Profiled
from gpudash.protocol.records import Settings
from gpudash.protocol.session import Straggler
from gpudash.snapshot import RankRow, Snapshot
from gpudash.trace.mfu import mfu_by_phase, mfu_text
from gpudash.trace.summary import Summary, SyncUse

LEAST_ASIDE_PCT = 10.0
"""From this part of the time on, evaluation and checkpoints are told beside a limit."""
LEAST_OF_DATA = 0.3
"""The part of a wait for batches from which on its owner is named."""
LEAST_OTHERS = 0.1
"""Cores that other jobs, or other processes of the training, use at least where they are given."""
LONGEST_NAME = 14
"""Most columns of a process's name: two of them are in sight at 80 columns."""
COPIES = ("to", "cuda", "copy_")
"""What a copy to the device is called by."""
MOST_WAITS = 5
"""Most waits of a profile that are listed."""
LARGER = 0.5
"""The larger part of a time: by less do the waits of equal ranks differ over a few steps."""
STILL = 0.5
"""A slow rank's newest steps wait for this part of what it was found to wait at least."""
ASK_PROFILE = "t profiles some steps and tells"
T = TypeVar("T")


class UnknownError(Exception):
    """A fact is not measured, or not worth a clause."""


def told(clauses: Iterable[str], now: Measured, told_pct: float = 0.0) -> Iterator[str]:
    """`told_pct` of a step is what `{ms}` and `{pct}` say."""
    facts = _Told(now, told_pct)
    for clause in clauses:
        with suppress(UnknownError):
            yield clause.format_map(facts)


class _Told(dict[str, str]):
    def __init__(self, now: Measured, told_pct: float) -> None:
        told_ms = told_pct * (now.step.step_ms or 0.0) / 100
        super().__init__(ms=fmt.milliseconds(told_ms), pct=fmt.percent(told_pct))
        self._now = now

    def __missing__(self, name: str) -> str:
        word, _, condition = name.partition("_")
        if word not in ("if", "unless"):
            return FACTS[name](self._now)
        _only_if(CONDITIONS[condition](self._now) is (word == "if"))
        return ""


def _known(value: T | None) -> T:
    if value is None:
        raise UnknownError
    return value


def _only_if(is_so: object) -> None:
    if not is_so:
        raise UnknownError


def _pct(share_pct: float | None) -> str:
    return fmt.percent(_known(share_pct))


def _ms(value: float | None) -> str:
    return fmt.milliseconds(_known(value))


# ── the cores, and who makes batches on them ────────────────────────────────────────────


def _is_one_of_several(now: Measured) -> bool:
    return len(now.snapshot.ranks) > 1


def _busiest(now: Measured) -> str:
    jobs = _known(now.snapshot.other_jobs).busiest
    _only_if(jobs)
    names = [f"{fmt.plain(fmt.clip(one.name, LONGEST_NAME))} (pid {one.pid})" for one in jobs]
    others = (f", {name} {one.cores:.1f}" for name, one in zip(names[1:], jobs[1:], strict=True))
    return f"{names[0]} uses {jobs[0].cores:.1f} cores{''.join(others)}"


def _other_jobs(now: Measured) -> str:
    jobs = now.snapshot.other_jobs
    is_seen = jobs is not None and jobs.used_cores >= LEAST_OTHERS  # not in other containers
    return fmt.cores(100 * jobs.used_cores, jobs.cores) if jobs and is_seen else "cores"


def _crowds_itself(now: Measured) -> bool:
    """Return whether cores may be short without any other job."""
    jobs = now.snapshot.other_jobs
    theirs = max(jobs.used_cores if jobs else 0.0, LEAST_OTHERS)
    return _is_one_of_several(now) or now.step.other_cores >= theirs


def _without_asides(now: Measured) -> str:
    """Return a range: a window of another begin holds one aside more or fewer."""
    share_pct, count = asides_of(now.snapshot)
    pct = _known(share_pct)
    one = pct / count
    _only_if(pct + one < 100)  # else too few were seen for an estimate
    low, high = (change_pct(100.0, 100 - pct + end) for end in (one, -one))
    return Gain(low, high).figures


def _of_data(owner: str, now: Measured) -> str:
    """Return the owner's part of the wait for batches, if it is worth a clause."""
    ms, waits_ms = now.step.owned_ms(owner), now.step.data_ms or 0.0
    _only_if(now.step.workers and ms > 0 and ms >= LEAST_OF_DATA * waits_ms)
    return fmt.milliseconds(ms)


def _slowest_transform(now: Measured) -> str:
    transforms = now.snapshot.transform_ms
    name = _known(max(transforms, key=lambda one: transforms[one], default=None))
    return f"{fmt.plain(name)}, {fmt.milliseconds(transforms[name])} ms"


# ── host and device ─────────────────────────────────────────────────────────────────────


def _profile(now: Measured) -> Summary:
    return _known(now.step.profile)


def _pinning(now: Measured) -> str:
    pinned_in_ms = pin_ms(now.step, _known(now.step.pinning))
    _only_if(pinned_in_ms > (now.step.copy_ms or 0.0))
    return fmt.milliseconds(pinned_in_ms)


def _collectives(now: Measured) -> str:
    """Take the time of the rank with the shortest collectives: it waits least in them."""
    ranks = (row.values for row in now.snapshot.ranks if row.values.get("collective_bus_mib"))
    values = _known(min(ranks, key=lambda one: one.get("collective_ms") or inf, default=None))
    mib, ms = values["collective_bus_mib"], values.get("collective_ms")
    sends = f"each rank sends {fmt.significant(mib)} MiB a step"
    if not ms:
        return sends
    exposed_ms = values.get("collective_exposed_ms", values.get("communication_ms"))
    exposed_pct = None if exposed_ms is None else min(100 * exposed_ms / ms, 100.0)
    exposed = "" if exposed_pct is None else f", {fmt.percent(exposed_pct)} of it exposed"
    bus = now.snapshot.bus_gb_s
    most = "" if bus is None else f" of {fmt.significant(bus)} measured"
    reached = f"{fmt.significant(mib * 2**20 / 1e6 / ms)}{most} GB/s on the bus"
    return f"{sends} in {fmt.milliseconds(ms)} ms{exposed}, {reached}"


def _passes(now: Measured) -> str:
    """Return how many backward passes average gradients, where one could do."""
    lever = _known(next((one for one in now.snapshot.levers if one.name == "grad_sync"), None))
    is_default = now.snapshot.settings.get("grad_sync") == lever.default
    _only_if(is_default and lever.refusal is None)
    return f"{1 / (1 - lever.share):.0f}"


def _saved_most(now: Measured) -> str:
    model = _known(now.model)
    part = max(PARTS, key=lambda one: (model.without(one).low, one.ms(model.scenarios[0])))
    saved_ms = model.without(part).low
    _only_if(saved_ms)
    of_step = f"{fmt.milliseconds(saved_ms)} of {fmt.milliseconds(model.step_ms)} ms"
    return f"{part.name}: {of_step}"


def _without_waits(now: Measured) -> str:
    model = _known(now.model)
    low, high = (change_pct(model.step_ms, model.step_ms - ms) for ms in model.without(WAIT))
    return Gain(low, high).figures


def _wait(number: int, now: Measured, of: str = "") -> str:
    one = _known(next(iter(_profile(now).syncs[number:]), None))
    return f"{fmt.milliseconds(one.blocked_ms)}{of} ms {place(one)}"


def place(sync: SyncUse) -> str:
    where = f"at {fmt.plain(fmt.source_line(sync.file, sync.line))}" if sync.file else "in"
    return f"{where} {fmt.plain(sync.what)}".rstrip()


def _wait_in(now: Measured, *calls: str) -> SyncUse:
    """Return the longest wait in one of these calls whose line is known."""
    named = (one for one in _profile(now).syncs if one.what in calls and one.file)
    return _known(next(named, None))


def _emptied(now: Measured) -> str:
    one = _wait_in(now, "empty_cache")
    return f"{fmt.milliseconds(one.blocked_ms)} ms of that {place(one)}"


def _copied_at(now: Measured) -> str:
    one = _wait_in(now, *COPIES)
    return fmt.plain(fmt.source_line(one.file, one.line))


def _code_line(of: Callable[[CodeLines], CodeLine | None], now: Measured) -> str:
    code = _known(now.snapshot.code)
    return f"the script is at {_place(of, now)} in {_known(of(code)).count} of {code.looks} looks"


def _place(of: Callable[[CodeLines], CodeLine | None], now: Measured) -> str:
    first = _known(of(_known(now.snapshot.code)))
    return fmt.plain(fmt.source_line(first.file, first.line))


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


def _units(now: Measured) -> str:
    shares = {
        "SMs active": now.step.sm_active_pct,
        "DRAM traffic": now.step.dram_active_pct,
        "tensor cores": now.step.tensor_active_pct,
    }
    return ", ".join(
        f"{name} {fmt.percent(pct)}" for name, pct in shares.items() if pct is not None
    )


def _mfu(text: Callable[[Profiled], str], now: Measured) -> str:
    profiled = _known(now.step.profiled)
    _only_if(profiled.flops is not None)
    return text(profiled)


def _ahead(now: Measured) -> str:
    ahead_ms = _known(now.step.step_ms) - _known(now.step.host_ms) - (now.step.data_ms or 0.0)
    return fmt.milliseconds(max(ahead_ms, 0.0))


def _unattributed(now: Measured) -> str:
    """Include that the device may idle between two events."""
    step = now.step
    named = step.share_pct(step.communication_ms), step.share_pct(step.starved_ms)
    return fmt.percent(max(100 - _known(step.at_work_pct) - sum(one or 0.0 for one in named), 0.0))


# ── a slow rank ─────────────────────────────────────────────────────────────────────────


def waited_share(snapshot: Snapshot) -> float:
    """Return the part of rank 0's communication that waits for a rank, if it is the larger one.

    Return 0 once the ranks are compared: then a slow one is named.
    """
    own_ms = next((row.waits_ms for row in snapshot.ranks if not row.rank), None)
    if not own_ms or snapshot.are_compared:
        return 0.0
    share = 1 - (_waits_least(snapshot).waits_ms or 0.0) / own_ms
    return share if share > LARGER else 0.0


def _waits_least(snapshot: Snapshot) -> RankRow:
    ranks = (row for row in snapshot.ranks if row.waits_ms is not None)
    return _known(min(ranks, key=lambda row: row.waits_ms or 0.0, default=None))


def _slow(now: Measured) -> Straggler:
    return _known(now.snapshot.straggler)


def _slow_data_ms(now: Measured) -> float | None:
    """Return how long the slow rank waits for its data, by its own messages."""
    slow = now.snapshot.straggler
    if slow is None or slow.phase != "data":
        return None
    own_ms = (row.values.get("data_ms") for row in now.snapshot.ranks if row.rank == slow.rank)
    return next((ms for ms in own_ms if ms is not None and ms >= STILL * slow.excess_ms), None)


def _slower(now: Measured) -> str:
    pct = _slow(now).slower_pct
    return f"{pct:.{0 if pct >= 9.95 else 1}f} % slow{_in_phase(now)}"


def _in_phase(now: Measured) -> str:
    phase, labels = _slow(now).phase, {one.name: one.label for one in now.snapshot.phases}
    said = {
        "": "",
        "data": " in its data loading",
        "host": " on the host",
        "compute": " in all that it computes",
    }
    return said.get(phase, f" in {fmt.plain(labels.get(phase, phase))}")


# ── all of them ─────────────────────────────────────────────────────────────────────────

CONDITIONS: Mapping[str, Callable[[Measured], bool]] = {
    "several": _is_one_of_several,
    "crowds_itself": _crowds_itself,
    "crowded": lambda now: now.step.is_crowded,
    "pauses": lambda now: (asides_of(now.snapshot)[0] or 0.0) >= LEAST_ASIDE_PCT,
    "inline": lambda now: (
        now.snapshot.settings.get("num_workers") == "0"
        and now.snapshot.settings.get("data", "loader") == "loader"
    ),
    "helped": lambda now: now.step.other_cores >= LEAST_OTHERS,
    "blind": lambda now: now.step.profile is None and "profile" in now.snapshot.can,
    "asks": lambda now: (
        sum(now.step.counts.get(f"device_{name}", 0.0) for name in ("allocs", "frees")) >= 1
    ),
    "full": lambda now: now.step.free_cores < 1,
    "on_gpu": lambda now: now.step.on_gpu,
    "shared": lambda now: (now.step.others_pct or 0.0) >= CORE_WAIT_WARNS_PCT,
    "unpinned": lambda now: now.snapshot.settings.get("pin_memory") == "off",
    "traced": lambda now: now.step.profile is not None,
    "ran_out": lambda now: now.step.counts.get("alloc_retries", 0.0) > 0,
    "hidden": lambda now: _slow(now).others_wait_ms is None,
    "empties": lambda now: (
        now.step.counts.get("device_frees", 0.0) >= 1 and not CONDITIONS["ran_out"](now)
    ),
    "unseen": lambda now: now.step.profile is None and now.step.communication_ms is None,
    "late_data": lambda now: _slow(now).phase == "data",
    "slow_data": lambda now: _slow_data_ms(now) is not None,
    "loader_evens": lambda now: (
        _slow(now).phase == "data" and "num_workers" in now.snapshot.settings
    ),
}
"""A clause with `{if_several}` is told of several ranks alone, with `{unless_several}` of one."""
LOOKS: Mapping[str, Callable[[CodeLines], CodeLine | None]] = {
    "own_line": lambda code: None if code.beside else code.first,
    "work_line": lambda code: None if code.beside else code.most_frequent(code.work),
    "aside_line": lambda code: code.most_frequent(code.work) if code.beside else None,
}
"""The line that looks at the script saw most often: of its own frames, of any, of asides."""
FACTS: Mapping[str, Callable[[Measured], str]] = {
    "steps": lambda now: f"{now.step.steps:,.0f}",
    "step": lambda now: fmt.milliseconds(now.step.step_ms),
    "who": lambda now: "rank 0" if _is_one_of_several(now) else "the training",
    "device": lambda now: "the GPU" if now.step.on_gpu else "the training",
    # the cores, and who makes batches on them
    "busiest": _busiest,
    "other_jobs": _other_jobs,
    "core_wait": lambda now: _pct(now.step.core_wait_pct),
    "cores": lambda now: fmt.cores(100 * _known(now.step.busy_cores), now.step.cores),
    "other_processes": lambda now: fmt.cores(100 * now.step.other_cores),
    "aside_share": lambda now: _pct(asides_of(now.snapshot)[0]),
    "without_asides": _without_asides,
    "starts": partial(_of_data, "loader_start"),
    "unpacks": partial(_of_data, "unpack"),
    "slowest_transform": _slowest_transform,
    # host and device
    "pinning": _pinning,
    "ask": lambda _: ASK_PROFILE,
    "or_ask": lambda now: f"; {ASK_PROFILE}" if CONDITIONS["blind"](now) else "",
    "collectives": _collectives,
    "passes": _passes,
    "busy": lambda now: fmt.percent(now.step.share_pct(_profile(now).busy_ms)),
    "saved_most": _saved_most,
    "without_waits": _without_waits,
    "wait_0": lambda now: _wait(0, now, f" of {fmt.milliseconds(now.step.step_ms)}"),
    **{f"wait_{number}": partial(_wait, number) for number in range(1, MOST_WAITS)},
    "launches": lambda now: f"{_known(_profile(now).launches):,.0f}",
    "launch": lambda now: fmt.milliseconds(_profile(now).launch_ms),
    "waits": _waits,
    "allocs": lambda now: f"{now.step.counts.get('device_allocs', 0.0):,.1f}",
    "frees": lambda now: f"{now.step.counts.get('device_frees', 0.0):,.1f}",
    "emptied": _emptied,
    "copy_line": lambda now: f"the host waits for it at {_copied_at(now)}",
    "line_of_copy_line": _copied_at,
    "retries": lambda now: f"{now.step.counts['alloc_retries']:.1f}",
    **{name: partial(_code_line, of) for name, of in LOOKS.items()},
    **{f"line_of_{name}": partial(_place, of) for name, of in LOOKS.items()},
    "util": lambda now: _pct(now.step.gpu_util_pct),
    "at_work": lambda now: fmt.percent(now.step.at_work_pct),
    "clock": lambda now: fmt.significant(now.step.sm_clock_mhz),
    "top_clock": lambda now: fmt.significant(now.step.top_clock_mhz),
    "throttle": lambda now: ", ".join(map(fmt.plain, now.step.throttle)),
    "units": _units,
    "mfu": partial(_mfu, mfu_text),
    "mfu_by_phase": partial(_mfu, mfu_by_phase),
    "beside": lambda now: _pct(now.step.share_pct(now.step.overlap_ms)),
    "prepares": lambda now: prepares(now.snapshot, now.step),
    "ahead": _ahead,
    # between the device's events
    "worked": lambda now: _pct(now.step.at_work_pct),
    "working": lambda now: "GPU" if now.step.on_gpu else "computing",
    "communication": lambda now: _pct(now.step.share_pct(now.step.communication_ms)),
    "host": lambda now: _pct(now.step.share_pct(now.step.host_ms)),
    "data": lambda now: _pct(now.step.share_pct(now.step.starved_ms)),
    "unattributed": _unattributed,
    # others on the GPU, and a slow rank
    "others": lambda now: _pct(now.step.others_pct),
    "busiest_other": lambda now: fmt.plain(_known(_known(now.snapshot.gpu).busiest_other or None)),
    "waits_least": lambda now: f"rank {_waits_least(now.snapshot).rank}",
    "rank": lambda now: f"rank {_slow(now).rank}",
    "others_wait": lambda now: _ms(_slow(now).others_wait_ms),
    "why_slow": lambda now: _slow(now).why,
    "slow_data": lambda now: _ms(_slow_data_ms(now)),
    "longer": lambda now: f"{fmt.milliseconds(_slow(now).excess_ms)} ms longer",
    "slower": _slower,
    "in_phase": _in_phase,
}
