"""Causes outside of a step: pauses, other jobs on the cores and on the GPU, a slow rank."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from gpudash import format as fmt
from gpudash.diagnosis.causes.cause import Cause, Limit, Measured
from gpudash.diagnosis.causes.cores import (
    LEAST_DATA_PCT,
    loaders_share,
    slow_batches,
    used_cores,
    waits_for_core,
)
from gpudash.diagnosis.lever_change import change_pct
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.answer import Gain
from gpudash.protocol.session import Straggler
from gpudash.protocol.training import Phase
from gpudash.snapshot import Snapshot
from gpudash.statistics import mean

SHARED_PCT = CORE_WAIT_WARNS_PCT
"""Percent of the time in which others have work on the device: as for cores that others have."""
LEAST_OTHERS = 0.1
"""Cores that other jobs use at least where they are given as a number."""
LONGEST_NAME = 14
"""Most columns of a process's name: two of them are in sight at 80 columns."""


def outside(now: Measured) -> Iterator[Cause]:
    step, straggler = now.step, now.snapshot.straggler
    yield Cause(ASIDES, step.aside_pct)
    several = len(now.snapshot.ranks) > 1
    yield Cause(CORES._replace(title="short of cores") if several else CORES, step.core_wait_pct)
    if straggler is None:
        yield Cause(STRAGGLER, None)
        return
    titles = {
        "imbalance": "limited by unequal batches",
        "persistent": f"limited by rank {straggler.rank}",
    }
    slow = STRAGGLER._replace(title=titles.get(straggler.kind, STRAGGLER.title))
    yield Cause(slow, step.share_pct(straggler.others_wait_ms))


def caution(cause: Cause, now: Measured) -> str:
    """Return why an A/B is uncertain now and what to do, as a clause; else nothing."""
    is_calm = (now.step.core_wait_pct or 0.0) < CORE_WAIT_WARNS_PCT
    return "" if is_calm and cause.limit.word != CORES.word else _crowded(now.snapshot, "an A/B")


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


def beside(limit: Limit, now: Measured) -> Iterator[str]:
    """Yield clauses about others on the GPU and a slow rank that are not the limit."""
    straggler, step = now.snapshot.straggler, now.step
    if limit.word != SHARED_GPU.word and (step.others_pct or 0.0) >= SHARED_PCT:
        yield _others_use(step)
    if straggler is None or limit.word == STRAGGLER.word:
        return
    rank, excess = f"rank {straggler.rank}", f"{fmt.milliseconds(straggler.excess_ms)} ms longer"
    if straggler.others_wait_ms is not None:
        yield f"{_others_wait(straggler)} for {rank}"
    elif straggler.phase == "data":
        yield f"{rank} waits {excess} for data; hidden so far: nobody waits"
    else:
        yield f"the host of {rank} is busy {excess}; hidden so far: nobody waits"


def _asides(now: Measured, pct: float) -> Iterator[str]:
    """Give the gain without them as a range: another window holds one aside more or fewer."""
    yield f"evaluation and checkpoints take {fmt.percent(pct)} of the time"
    one = pct / now.step.asides if now.step.asides else 100.0
    if pct + one < 100:  # else too few were seen for an estimate
        low, high = (change_pct(100.0, 100 - pct + end) for end in (one, -one))
        yield f"without them {Gain(low, high).label}"


def _other_jobs(now: Measured, _pct: float) -> Iterator[str]:
    step, several = now.step, len(now.snapshot.ranks) > 1
    yield _busiest(now.snapshot)
    yield waits_for_core(now)
    yield "other ranks or other jobs have it" if several else ""
    yield used_cores(now)
    yield loaders_share(now) if (step.taken_pct or 0.0) >= LEAST_DATA_PCT else ""
    # a loader may wait for a core too, or for something that a lever changes
    if (step.share_pct(step.starved_ms) or 0.0) >= LEAST_DATA_PCT:
        yield f"besides, it waits for data {fmt.milliseconds(step.starved_ms)} {now.of_step}"
        yield slow_batches(now)
    if not several:  # else only rank 0's cores are known
        yield _with_every_core(step)


def _busiest(snapshot: Snapshot) -> str:
    busiest = snapshot.other_jobs.busiest if snapshot.other_jobs is not None else ()
    used = [
        (f"{fmt.plain(fmt.clip(one.name, LONGEST_NAME))} (pid {one.pid})", f"{one.cores:.1f}")
        for one in busiest
    ]
    first = (f"{name} uses {of} cores" for name, of in used[:1])
    return ", ".join((*first, *(f"{name} {of}" for name, of in used[1:])))


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


def _shared_gpu(now: Measured, _pct: float) -> Iterator[str]:
    gpu = now.snapshot.gpu
    yield _others_use(now.step)
    yield f"the busiest is {fmt.plain(gpu.busiest_other)}" if gpu and gpu.busiest_other else ""
    yield "until they end, an A/B has a wide interval"


def _others_use(step: RecentStep) -> str:
    return f"processes of others use {fmt.percent(step.others_pct)} of the GPU's time"


def _straggler(now: Measured, _others_pct: float) -> Iterator[str]:
    straggler = now.snapshot.straggler
    if straggler is None:
        return
    rank = f"rank {straggler.rank}"
    in_what = _in_what(straggler.phase, now.snapshot.phases)
    slow = f"{_pct(straggler.slower_pct)} slow{in_what}"
    loads = straggler.phase == "data" and "num_workers" in now.snapshot.settings
    evens = "the loader's levers may change that" if loads else "no lever evens that out"
    first, last = {
        "persistent": (f"{rank} is {slow}", evens),
        "imbalance": (
            f"{rank} has more to work on{in_what}",
            "batches of equal size would even that out",
        ),
        "wandering": ("the slow rank changes", f"the newest is {rank}, {slow}"),
    }[straggler.kind]
    yield from (first, f"{_others_wait(straggler)} in the all-reduce", straggler.why, last)


def _others_wait(straggler: Straggler) -> str:
    return f"the others wait {fmt.milliseconds(straggler.others_wait_ms)} ms a step"


def _in_what(phase: str, phases: Iterable[Phase]) -> str:
    labels = {one.name: one.label for one in phases}
    said = {"": "", "data": " in its data loading", "host": " on the host"}
    return said.get(phase, f" in {fmt.plain(labels.get(phase, phase))}")


def _pct(share_pct: float) -> str:
    return f"{share_pct:.{0 if share_pct >= 9.95 else 1}f} %"


ASIDES = Limit(
    "asides", "paused", _asides, "evaluation and checkpoints", 50.0, rank=0, is_outside=True
)
CORES = Limit(
    "cores",
    "limited by other jobs",
    _other_jobs,
    "the training waits for a core",
    CORE_WAIT_WARNS_PCT,
    rank=1,
    is_outside=True,
)
STRAGGLER = Limit(
    "straggler",
    "limited by one rank after another",
    _straggler,
    "the others wait for a rank",
    1.0,
    rank=1,
    is_outside=True,
)
SHARED_GPU = Limit("shared_gpu", "limited by other jobs on the GPU", _shared_gpu, is_outside=True)
