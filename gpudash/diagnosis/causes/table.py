"""What may limit a training, a row each, and how much of a step each takes."""

from collections.abc import Iterator

from gpudash.diagnosis.causes.cause import Cause, Limit, Measured, saving
from gpudash.diagnosis.causes.facts import CONDITIONS, MOST_WAITS, told, waited_share
from gpudash.diagnosis.model import Model, full_share
from gpudash.diagnosis.parts import (
    ALLOCATING,
    BLOCKED,
    CODE,
    COLLECTING,
    COMMUNICATION,
    COMPILING,
    COPY,
    CORE,
    DATA,
    DEVICE,
    LAUNCH,
    ROLLOUT,
    WAIT,
)
from gpudash.diagnosis.recent_step import RecentStep, asides_of
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.snapshot import Snapshot
from gpudash.statistics import mean

AB_TICKS = 10
"""The caution of a running A/B is by the core wait of so many last ticks."""
AT_WORK = "the device is at work"
THROTTLED_PCT = 30.0
"""Percent of the clock. A power cap costs large matmuls some of it by design."""
DRAM = 0.6
"""Share of the memory's peak while SMs are active: Nsight Compute calls a unit a kernel's limit
from 60 % on."""

# ── outside of a step ───────────────────────────────────────────────────────────────────

ASIDES = Limit(
    "asides",
    "paused",
    (
        "evaluation and checkpoints take {pct} of the time",
        "{aside_line}",
        "without them {without_asides}",
        "fewer samples or less often would do",
    ),
    "evaluation and checkpoints",
    least_pct=50.0,  # the larger part of the time
    rank=0,
    is_outside=True,
    also=(DATA,),
    beside=("{if_pauses}evaluation and checkpoints take {aside_share} of the time besides",),
)
CORES = Limit(
    "cores",
    "limited by other jobs",
    (
        "{busiest}",
        "{who} lacks {pct} of the core time it asks for",
        "{if_several}other ranks or other jobs have it",
        "{who} uses {cores}",
        "{if_helped}its other processes use {other_processes}",
    ),
    "the training waits for a core",
    least_pct=CORE_WAIT_WARNS_PCT,
    is_outside=True,
    also=(DATA, CORE),
    beside=("{if_crowded}other jobs take {core_wait} besides",),
)
WAITS_FOR_RANK = "the others wait {others_wait} ms a step"
STRAGGLER = Limit(
    "straggler",
    "limited by one rank after another",
    (
        "the slow rank changes",
        f"{WAITS_FOR_RANK} in the all-reduce",
        "{why_slow}",
        "the newest is {rank}, {slower}",
    ),
    "the others wait for a rank",
    least_pct=1.0,
    rank=1,
    is_outside=True,
    also=(DATA, COMMUNICATION),  # averaged less often, ranks wait less often for another
    beside=(
        f"{WAITS_FOR_RANK} for {{rank}}",
        "{if_hidden}{if_late_data}{rank} waits {longer} for data; so far nobody waits",
        "{if_hidden}{unless_late_data}the host of {rank} is busy {longer}; so far nobody waits",
    ),
)
SLOW_RANK = STRAGGLER._replace(
    also=(DATA,),
    clauses=(
        "{rank} waits for data {slow_data} of {step} ms",
        "{unless_slow_data}{rank} is {slower}",
        *STRAGGLER.clauses[1:3],
        "{if_loader_evens}the loader's levers may change that",
        "{unless_loader_evens}no lever evens that out",
    ),
)
LATE_RANK = STRAGGLER._replace(
    also=(DATA,),
    title="limited by a late rank",
    clauses=(
        "rank 0 waits {ms} of {step} ms in collectives",
        "{waits_least} waits least",
        "which rank is always late, and in what, shows after some 10 s",
    ),
    label="rank 0 waits for another rank",
    least_pct=10.0,
)
"""What the others wait for is no communication, from the first steps on."""
UNEQUAL = STRAGGLER._replace(
    title="limited by unequal batches",
    clauses=(
        "{rank} has more to work on{in_phase}",
        *STRAGGLER.clauses[1:3],
        "batches of equal size would even that out",
    ),
)
SHARED_GPU = Limit(
    "shared_gpu",
    "limited by other jobs on the GPU",
    (
        "processes of others use {others} of the GPU's time",
        "the busiest is {busiest_other}",
        "until they end, an A/B has a wide interval",
    ),
    AT_WORK,
    rank=3,
    is_outside=True,
    also=(DATA,),
    beside=("{if_shared}processes of others use {others} of the GPU's time",),
)

# ── the parts of a step ─────────────────────────────────────────────────────────────────
# Other tools call a wait of 10 % a warning. A copy's phase includes the time until its launch.

INPUT = Limit(
    "data",
    "input-bound",
    (
        "{device} waits for data {ms} of {step} ms",
        "starting an epoch's workers takes {starts} of it: persistent_workers=True keeps them",
        "taking batches apart in the training's process takes {unpacks} of it: fewer tensors help",
        "{if_inline}batches are made in the training process",
        "slowest transform: {slowest_transform} a sample",
        "{if_full}{who} uses {cores}",
        "{if_full}{if_helped}its other processes use {other_processes}",
        "{if_crowded}{who} lacks {core_wait} of the core time it asks for",
        "{work_line}",
    ),
    "the step waits for data",
    least_pct=10.0,
    part=DATA,
)
COPYING = Limit(
    "copy",
    "copy-bound",
    (
        "copying takes {ms} of {step} ms",
        "nothing runs beside it",
        "{copy_line}",
        "{if_unpinned}pinning would take {pinning} ms, longer than that",
        "{if_unpinned}{if_blind}{ask} what pinning would take",
    ),
    "a copy runs, and nothing beside it",
    least_pct=20.0,
    part=COPY,
)
AVERAGED = "gradients are averaged in each of {passes} backward passes a step"
COMMUNICATING = Limit(
    "communication",
    "communication-bound",
    (
        "nothing but communication runs {ms} of {step} ms",
        "{collectives}",
        AVERAGED,
        "the GPU is busy {busy} of it",
    ),
    "the step only communicates",
    least_pct=10.0,
    part=COMMUNICATION,
)
OWN_CODE = Limit(
    "own_code",
    "bound by your own code",
    (
        "your own code runs {ms} of {step} ms beside launches",
        "{own_line}",
        "{if_on_gpu}the device is at work {at_work} of it",
        "{if_on_gpu}{if_blind}{ask} if it waits or copies",
        "loader workers or the device could do it, or only every tenth step",
    ),
    "your code runs, and the device idles",
    least_pct=25.0,
    part=CODE,
)
ASKS = "{if_asks}a step asks the driver for memory {allocs} times, and gives it back {frees}"
ALLOCATOR = Limit(
    "allocator",
    "bound by the allocator",
    (
        "{if_traced}asking the driver for memory takes {ms} of {step} ms",
        "{unless_traced}asking the driver for memory takes about {ms} of {step} ms",
        ASKS,
        "{emptied}",
        "{own_line}",
        "{if_ran_out}memory runs out {retries} times a step: use less, or expandable_segments:True",
        "{if_empties}memory does not run out: leave out what empties the cache",
        "{if_blind}{ask}",
    ),
    "the driver is asked for memory",
    least_pct=10.0,
    part=ALLOCATING,
    rank=4,  # each call is a wait for the device, too
    beside=(ASKS,),
)
OWNERS = (
    ALLOCATOR,
    Limit(
        "blocked",
        "blocked off the CPU",
        (
            "the thread waits {ms} of {step} ms off the CPU",
            "it waits for a disk, a lock or a network, or it sleeps",
            "{own_line}",
            "a thread of its own could wait, or only every tenth step",
        ),
        "the thread waits off the CPU",
        least_pct=10.0,
        part=BLOCKED,
    ),
    Limit(
        "gc",
        "bound by the garbage collector",
        ("Python collects garbage {ms} of {step} ms", "{work_line}"),
        "Python collects garbage",
        least_pct=10.0,
        part=COLLECTING,
    ),
    Limit(
        "compiling",
        "compiling anew",
        (
            "Dynamo compiles {ms} of {step} ms",
            "{work_line}",
            "padding to a few sizes or dynamic=True helps",
        ),
        "the model is compiled anew",
        least_pct=10.0,
        part=COMPILING,
    ),
    Limit(
        "rollout",
        "rollout-bound",
        ("acting takes {ms} of {step} ms", "{own_line}", "many environments at once help"),
        "the step acts, and learns nothing",
        least_pct=25.0,
        part=ROLLOUT,
    ),
)
"""What the host does beside launches, where it has another owner than your code."""
LAUNCHING = Limit(
    "launch",
    "launch-bound",
    (
        "the GPU has no work {ms} of {step} ms",
        "{work_line}",
        "{launches} launches take {launch} ms",
    ),
    "the device has no work launched",
    least_pct=25.0,
    part=LAUNCH,
)
HOST = LAUNCHING._replace(
    word="host",
    title="launch- or sync-bound",
    clauses=(
        "the host is busy {pct} of the step",
        "{work_line}",
        "{waits}",
        "a kernel runs {util} of the time",
        "{if_blind}{ask}",
    ),
    also=(WAIT,),
)
"""Launching or waiting: only a profile can distinguish them."""
SYNC = Limit(
    "sync",
    "sync-bound",
    (
        "without its waits {without_waits}",
        "{own_line}",
        "the host waits {wait_0}",
        *(f"{{wait_{number}}}" for number in range(1, MOST_WAITS)),
    ),
    "saved without host waits",
    least_pct=10.0,
    part=WAIT,
    rank=4,  # it goes without less work
)
UNITS = ("{units}", "{mfu}", "{mfu_by_phase}")
GPU = Limit(
    "gpu",
    "GPU-bound",
    (
        "the GPU is busy {pct} of the step",
        *UNITS,
        "{if_several}{if_unseen}communication counts as work{or_ask}",
        AVERAGED,
        "{prepares} runs beside training {beside} of it",
        "the host is {ahead} ms ahead",
    ),
    AT_WORK,
    part=DEVICE,
    rank=3,
)
"""Where it is not measured what the GPU is busy with."""
MEMORY = GPU._replace(word="memory", title="memory-bandwidth-bound")
COMPUTE = GPU._replace(word="compute", title="compute-bound")
THROTTLED = GPU._replace(
    word="throttled",
    title="throttled",
    clauses=("{clock} of {top_clock} MHz", "held down by {throttle}", *UNITS),
)
CPU = Limit(
    "cpu",
    "CPU-bound",
    (
        "the CPU computes {pct} of the step",
        "{own_line}",
        "{who} uses {cores}",
    ),
    "the CPU computes",
    least_pct=OWN_CODE.least_pct,
    part=DEVICE._replace(slowed=("host",)),
    also=(DATA, COLLECTING),
)
NONE = Limit(
    "none",
    "unclear, because several parts limit alike",
    (
        "most is saved without {saved_most}",
        "{working} {worked}",
        "{own_line}",
        "communication {communication}",
        "{if_on_gpu}host {host}",
        "data {data}",
        "unattributed {unattributed}",
    ),
)
UNKNOWN = Limit("unknown", "unclear, because no times within a step are measured")


def causes(now: Measured) -> tuple[Cause, ...]:
    found = (*_outside(now), *(_within(now, now.model) if now.model is not None else ()))
    return tuple(
        sorted(
            found, key=lambda one: (not one.binds, one.limit.rank * one.binds, -(one.pct or 0.0))
        )
    )


def limit_of(found: tuple[Cause, ...]) -> Cause:
    is_measured = any(one.pct is not None for one in found if not one.limit.is_outside)
    return next((one for one in found if one.binds), Cause(NONE if is_measured else UNKNOWN, None))


def evidence(cause: Cause, now: Measured, known: tuple[Cause, ...] = ()) -> tuple[str, ...]:
    """Return the clauses; where something else takes the time, what limits the rest is second."""
    others = (
        one
        for one in (ASIDES, SHARED_GPU, STRAGGLER, CORES, ALLOCATOR)
        if one.word != cause.limit.word
    )
    beside = (clause for one in others for clause in one.beside)
    said = [*filter(None, told((*cause.limit.clauses, *beside), now, cause.told_pct))]
    rest = (
        1 - CORE.ms(model.scenarios[0]) / model.step_ms
        if (model := now.model) is not None and cause.limit.is_outside
        else 1.0
    )
    within = (
        one
        for one in known
        # blocked is what two measured waits differ by: their error may be much of the rest
        if (one.pct or 0.0) >= one.limit.least_pct * (1 if one.limit.part is BLOCKED else rest)
        and not one.limit.is_outside
        and one.limit.word != cause.limit.word
    )
    has_more = cause.limit.word in (ASIDES.word, CORES.word, SHARED_GPU.word, CPU.word)
    if has_more and (then := next(within, None)) is not None:
        first = next(filter(None, told(then.limit.clauses, now, then.told_pct)), "")
        said.insert(
            1, f"then: {', '.join(filter(None, (then.limit.title, first, line(then.limit, now))))}"
        )
    return tuple(said)


def line(limit: Limit, now: Measured) -> str:
    lines = (f"{{line_of_{one[1:]}" for one in limit.clauses if one.endswith("_line}"))
    return next(told(lines, now), "")


def _outside(now: Measured) -> Iterator[Cause]:
    step, slow = now.step, now.snapshot.straggler
    yield Cause(ASIDES, asides_of(now.snapshot)[0])
    yield Cause(
        CORES._replace(title="short of cores") if CONDITIONS["crowds_itself"](now) else CORES,
        step.core_wait_pct,
    )
    if slow is not None:
        rows = {
            "persistent": SLOW_RANK._replace(title=f"limited by rank {slow.rank}"),
            "imbalance": UNEQUAL,
        }
        yield Cause(rows.get(slow.kind, STRAGGLER), step.share_pct(slow.others_wait_ms))
    elif waited_ms := (step.communication_ms or 0.0) * waited_share(now.snapshot):
        yield Cause(LATE_RANK, step.share_pct(waited_ms))


def _within(now: Measured, model: Model) -> Iterator[Cause]:
    yield from (saving(limit, model) for limit in (INPUT, *OWNERS))
    if now.step.on_gpu:
        yield from _on_device(now, model)
    else:
        yield _sending(now, saving(COMMUNICATING._replace(rank=2), model))
        yield saving(OWN_CODE._replace(label="your code"), model)
        yield saving(CPU, model)


def _on_device(now: Measured, model: Model) -> Iterator[Cause]:
    full_pct, works_pct = 100 * full_share(now.step), 100 * model.works_ms / model.step_ms
    longest = max((COPY, COMMUNICATION, DEVICE), key=lambda part: part.ms(model.scenarios[0]))
    for limit in (COPYING, COMMUNICATING, OWN_CODE):
        cause = saving(limit, model)
        if limit.part is longest and works_pct >= full_pct:
            cause = Cause(limit._replace(rank=2), cause.takes_pct)
        yield _sending(now, cause) if limit is COMMUNICATING else cause
    seen_pct = (now.step.at_work_pct or 0.0) + saving(COMMUNICATING, model).takes_pct
    # where the driver's counter reads less, work between events is what fills a step
    at_work_pct = min(seen_pct, works_pct) if seen_pct >= full_pct else works_pct
    yield Cause(_why_slow(now.step)._replace(least_pct=full_pct), at_work_pct)
    sync, launch = saving(SYNC, model), saving(LAUNCHING, model)
    profile, busy_pct = now.step.profile, now.step.share_pct(now.step.host_ms) or 0.0
    if profile is None or not profile.syncs:
        sync = Cause(SYNC._replace(clauses=HOST.clauses), sync.pct, busy_pct)
    yield sync
    if profile is None:
        waits_as_much = model.without(WAIT).high > model.without(LAUNCH).low - 1e-6
        named = HOST if waits_as_much else LAUNCHING._replace(clauses=HOST.clauses)
        launch = Cause(named, launch.pct, busy_pct)
    else:  # what launches take beside the device's work leaves it with nothing to do
        launch = Cause(LAUNCHING, launch.pct)
    yield launch


def _sending(now: Measured, cause: Cause) -> Cause:
    """Leave what the rank that comes last takes: it only sends."""
    sends = 1 - waited_share(now.snapshot)
    return Cause(cause.limit, (cause.pct or 0.0) * sends, cause.takes_pct * sends)


def _why_slow(step: RecentStep) -> Limit:
    active, dram = step.sm_active_pct, step.dram_active_pct
    if (step.others_pct or 0.0) >= CORE_WAIT_WARNS_PCT:  # what the counters say is theirs, too
        return SHARED_GPU
    if (step.throttled_pct or 0.0) >= THROTTLED_PCT:
        return THROTTLED
    if not active or dram is None:
        return GPU
    is_memory = dram >= DRAM * active and dram > (step.tensor_active_pct or 0.0)
    return MEMORY if is_memory else COMPUTE


# ── other jobs and an A/B ───────────────────────────────────────────────────────────────


def caution(now: Measured, which: str = "an A/B") -> str:
    """Return why it is uncertain now and what to do, as a clause; else nothing."""
    clauses = (
        f"{{if_crowds_itself}}too few cores: until other jobs end, {which} has a wide interval",
        f"other jobs take {{other_jobs}}: until they end, {which} has a wide interval",
    )
    return next(told(clauses, now)) if now.step.is_crowded else ""


def caution_in_ab(snapshot: Snapshot) -> str:
    ticks = snapshot.series.of("core_wait_pct")[-AB_TICKS:]
    return caution(Measured(snapshot, RecentStep(core_wait_pct=mean(ticks))), "the A/B")
