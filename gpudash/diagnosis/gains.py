"""Estimate the gain of a lever as a range derived from measurements.

A step lasts as long as the longest of the parts that run at the same time. A lever that shortens
one part gains at most the time down to the next longest. No table of typical gains is used.
"""

from collections.abc import Callable, Mapping
from math import ceil

import msgspec

from gpudash import format as fmt
from gpudash.diagnosis.profiled_step import (
    pin_ms,
    pinned_copy_ms,
    pinning_of,
    products_of,
    traffic_ms,
)
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.diagnosis.rules import DEVICE_PCT, Limit
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.answer import Gain
from gpudash.protocol.training import Phase

ADDED_WORKER = 0.5
"""Least speed of an added worker, relative to a present one: two hardware threads share a core."""
COMPUTING_CORES = 0.5
"""Making a batch that uses more of a core computes. Else it mostly waits, as for files."""
HANDED_MS = (0.2, 1.0)
"""Least and usual time to get a batch from a loader worker, which batches that the training makes
itself do not need. On two slow cores 8 KiB took 0.9 ms, 0.4 of them the training's, and 5 MiB 6."""
LONG_MS = 10.0
"""A batch that takes so long to make takes much less to hand over, whatever its size."""
UPDATE = (3.0, 2.0)
"""Memory traffic of an update, in multiples of the weights' and of the optimizer state's size. Both
are read and written; the gradients, as large as the weights, are read."""
COMPRESSION = 4.0
"""Memory traffic of gradient compression, in multiples of the gradients' size: DDP's hook casts to
half as many bits, divides, and casts back."""
LEAST_PCT = 1.0
"""A lever that can gain less than this is not proposed."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a lever from value `a` to `b`, and the measurements to estimate its gain."""

    a: str
    b: str
    step: RecentStep
    phases: tuple[Phase, ...] = ()
    workers: int = 0
    """Workers of the data loader."""
    feeds: bool = False
    """Whether batches are available at any rate, because no loader makes them."""

    @property
    def step_ms(self) -> float:
        """The step's duration in ms; 0.0 if it was not measured."""
        return self.step.step_ms or 0.0


def gain_of(lever: str, case: Case) -> Gain | None:
    """Return the gain of changing this lever; None if no measurement supports a range."""
    derive = _DERIVED.get(lever)
    return derive(case) if derive is not None and case.step.step_ms else None


def without(limit: Limit, step: RecentStep) -> Gain | None:
    """Return the gain if a limit that no lever moves were gone; None if unknown."""
    derive = _GONE.get(limit)
    return derive(step) if derive is not None and step.step_ms else None


def batches_wait(step: RecentStep, workers: int) -> bool:
    """Return whether making a batch is known to wait, as for files, more than it computes.

    On a CPU it is known by the cores that loader workers use or wait for. Without workers it is
    what the training asks for beside its computing, in which it asks for one core at least.
    """
    if step.on_gpu:
        return False
    if workers:
        used, got = step.loader_cores, step.got_share
        return used is not None and used / got <= COMPUTING_CORES * workers
    asked, starved_ms, computing_ms = step.asked_cores, step.starved_ms, step.computing_ms
    if asked is None or computing_ms is None or not step.step_ms or not starved_ms:
        return False
    return asked * step.step_ms - computing_ms <= COMPUTING_CORES * starved_ms


def workers_needed(step: RecentStep, workers: int) -> int:
    """Return how many loader workers, each as fast as now, would keep the step from waiting.

    Other jobs make the rest of the step longer. Batches that wait take no longer by them: then as
    many workers are needed as without these jobs.
    """
    if not step.step_ms or not step.starved_ms:
        return workers
    rest_ms = step.step_ms - step.starved_ms
    if batches_wait(step, workers):
        rest_ms *= step.got_share
    batch_ms = workers * step.step_ms or step.starved_ms  # without workers made between the steps
    return ceil(batch_ms / max(rest_ms, 1e-3))


def _more_workers(case: Case) -> Gain | None:
    """Return the gain of more loader workers, until the step no longer waits."""
    step, before, after = case.step, int(case.a), int(case.b)
    starved_ms = step.starved_ms
    if not starved_ms or after <= before:
        return None
    rest_ms = case.step_ms - starved_ms
    batch_ms = case.step_ms * before if before else starved_ms  # one worker's time for a batch
    least_ms, usual_ms = (0.0, 0.0) if before else HANDED_MS

    def gain_with(efficiency: float, handed_ms: float) -> float:
        makes_ms = (batch_ms + handed_ms) / (before + (after - before) * efficiency)
        return _faster_pct(case.step_ms, max(rest_ms + handed_ms, makes_ms))

    low, high = gain_with(ADDED_WORKER, usual_ms), gain_with(1.0, least_ms)
    gets_cores = (step.core_wait_pct or 0.0) < CORE_WAIT_WARNS_PCT
    has_least = gets_cores and (before > 0 or batch_ms >= LONG_MS)
    made = f"a worker makes a batch in {fmt.milliseconds(batch_ms)} ms"
    return Gain(
        low if has_least else None,
        high,
        f"{made}; without the wait a step takes {fmt.milliseconds(rest_ms)} ms",
    )


def _free_batches(case: Case) -> Gain | None:
    """Return the gain if batches took no time, as cached ones do.

    On a CPU the wait alone is no upper bound: loader workers also keep the training off the cores.
    """
    step, starved_ms = case.step, case.step.starved_ms or 0.0
    waits = f"the step waits {fmt.milliseconds(starved_ms)} ms for data"
    if step.on_gpu:
        return _up_to(case, starved_ms, waits) if starved_ms else None
    held_up = _held_up(case)
    if held_up is None or held_up[0] <= starved_ms:
        return None if held_up is None else _up_to(case, starved_ms, waits)
    held_up_ms, source = held_up
    return Gain(None, _faster_pct(case.step_ms, case.step_ms - held_up_ms), source)


def _held_up(case: Case) -> tuple[float, str] | None:
    """Return for how many ms loader workers hold up a step at most, and what is assumed for it.

    None where they do not.

    The training's threads wait for each other, so a worker that runs on the core of one may hold up
    all. But the threads get their part of each core. The time in which other jobs have the cores is
    shared by workers and training.
    """
    step, starved_ms = case.step, case.step.starved_ms or 0.0
    if step.taken_pct is None or not step.loader_cores or not step.busy_cores or not step.step_ms:
        return None
    ran_ms = step.step_ms * step.loader_cores / min(step.busy_cores, 1.0)
    beside = ceil(case.workers / step.cores) if case.workers and step.cores else 1
    most_ms = starved_ms + (step.step_ms - starved_ms) * beside / (beside + 1)
    ran = f"{fmt.milliseconds(ran_ms)} ms of a core in a step of {_ms(case)}"
    if step.busy_cores < 1:  # other jobs have the rest
        ran = f"{fmt.percent(step.loader_pct)} of the CPU time of a step of {_ms(case)}"
    assumed = "stands still meanwhile"
    if ran_ms > most_ms:
        assumed = f"stands still for {fmt.milliseconds(most_ms)} ms, as cores are shared evenly"
    source = f"loader workers use {ran}; at most the training {assumed}"
    return min(ran_ms, most_ms), source


def _steady_batches(case: Case) -> Gain | None:
    """Return the gain if no batch were late; making them takes as long as before."""
    starved_ms = case.step.starved_ms
    if not starved_ms:
        return None
    return _up_to(case, starved_ms, f"the step waits {fmt.milliseconds(starved_ms)} ms for data")


def _batched(case: Case) -> Gain | None:
    """Return the gain if preparing took no time; on two streams, what it delays is unknown."""
    prepare_ms = case.step.phases_ms.get("prepare")
    if not prepare_ms or case.step.overlap_ms is not None:
        return None
    return _up_to(case, prepare_ms, f"preparing takes {fmt.milliseconds(prepare_ms)} ms")


def _pinned(case: Case) -> Gain | None:
    """Return the gain of copying from pinned (page-locked) memory.

    At best, pinning a batch is hidden. If it takes the loader's thread, or the host, longer than a
    step, pinning is the limit. At worst nothing is hidden, and both take as long as in the slowest
    measurement.
    """
    copying_ms, pinning = case.step.copy_ms, pinning_of(case.step)
    if not copying_ms:
        return None
    if pinning is None:
        ceiling = _up_to(
            case, copying_ms, f"a batch is copied in {fmt.milliseconds(copying_ms)} ms"
        )
        return ceiling if ceiling.high_pct < LEAST_PCT else None
    pinned_in_ms = pin_ms(pinning, case.workers)
    rest_ms = case.step_ms - max(copying_ms - pinned_copy_ms(case.step), 0.0) + pinning.copy_ms
    source = (
        f"a batch is pinned in {fmt.milliseconds(pinned_in_ms)} ms and then copied in "
        f"{fmt.milliseconds(pinning.copy_ms)}, now in {fmt.milliseconds(copying_ms)} of {_ms(case)}"
    )
    worst_ms = rest_ms - pinning.copy_ms + pinning.slower * (pinning.copy_ms + pinned_in_ms)
    return Gain(
        _change_pct(case.step_ms, worst_ms),
        _change_pct(case.step_ms, max(rest_ms, pinned_in_ms)),
        source,
    )


def _pipelined(case: Case) -> Gain | None:
    """Return the gain of pipelining: the shorter half is hidden as far as SMs are free for it."""
    step = case.step
    halves_ms = [_half_ms(case, lane) for lane in ("prepare", "train")]
    if not min(halves_ms):
        return None
    # the few steps whose phases were measured may be slower than the rest
    hidden_ms = min(halves_ms) * min(case.step_ms / sum(halves_ms), 1.0)
    source = f"the shorter half of the step takes {fmt.milliseconds(hidden_ms)} ms"
    if step.sm_active_pct is not None:
        free_ms = case.step_ms * (100 - step.sm_active_pct) / 100
        hidden_ms = min(hidden_ms, free_ms)
        source += f", and the SMs are active {fmt.percent(step.sm_active_pct)} of the time"
    return _up_to(case, hidden_ms, source)


def _half_ms(case: Case, lane: str) -> float:
    return sum(case.step.phases_ms.get(each.name, 0.0) for each in case.phases if each.lane == lane)


def _cuda_graph(case: Case) -> Gain | None:
    """Return the gain of launching the step at once: device work and data wait remain."""
    working = _working_ms(case)
    if working is None:
        return None
    least_ms, source = working[0] + (case.step.starved_ms or 0.0), working[1]
    high = _faster_pct(case.step_ms, least_ms)
    profile = case.step.profile
    launch_ms = profile.launch_ms if profile is not None else None
    if launch_ms is None:
        return Gain(None, high, source)
    low = _faster_pct(case.step_ms, max(case.step_ms - launch_ms, least_ms))
    return Gain(low, high, f"{source}; launching takes {fmt.milliseconds(launch_ms)} ms")


def _larger_batch(case: Case) -> Gain | None:
    """Return the gain of more samples for the same launches.

    A step takes no longer until the GPU's work fills it.
    """
    step_ms, working, times = case.step_ms, _working_ms(case), int(case.b) / int(case.a)
    if working is None or times <= 1 or 100 * working[0] >= DEVICE_PCT * step_ms:
        return None  # a busy GPU takes longer for more samples
    longer_ms = max(step_ms, times * working[0])
    low = _faster_pct(times * step_ms, longer_ms) if case.feeds else None
    source = f"{working[1]}, at {times:g} times the batch up to {fmt.milliseconds(longer_ms)} ms"
    return Gain(low, _faster_pct(times * step_ms, step_ms), source)


def _working_ms(case: Case) -> tuple[float, str] | None:
    """Return the GPU's work on a step in ms, and its source in words; None if unknown."""
    step = case.step
    if step.busy_ms is not None:
        return step.busy_ms, f"the GPU works {fmt.milliseconds(step.busy_ms)} ms of a step"
    if step.gpu_util_pct is None:
        return None
    at_work_ms = case.step_ms * step.gpu_util_pct / 100
    return at_work_ms, f"a kernel runs {fmt.percent(step.gpu_util_pct)} of the time"


def _fused_optimizer(case: Case) -> Gain | None:
    """Return the gain of updating all weights in one kernel, bounded by memory bandwidth."""
    optimizer_ms, least_ms = case.step.phases_ms.get("optimizer"), traffic_ms(case.step, *UPDATE)
    if not optimizer_ms:
        return None
    source = f"the optimizer takes {fmt.milliseconds(optimizer_ms)} ms"
    if least_ms is not None:
        source += f", its memory traffic at least {fmt.milliseconds(least_ms)} ms,"
    return _up_to(case, optimizer_ms - (least_ms or 0.0), source)


def _bf16(case: Case) -> Gain | None:
    """Return the gain of bf16: faster products, half the traffic elsewhere, less the casts.

    Autocast casts only the operands of products, and what is computed from their results.
    """
    step = case.step
    products = products_of(step)
    if products is None or step.busy_ms is None or case.b != "bf16":
        return None
    optimizer_ms = step.phases_ms.get("optimizer", 0.0)  # in the weights' precision
    others_ms = max(step.busy_ms - products.ms - optimizer_ms, 0.0) if products.ms else 0.0
    saved_ms = products.ms - products.new_ms - products.cast_ms + others_ms / 2
    source = (
        f"products take {fmt.milliseconds(products.ms)} ms, in bf16 at best "
        f"{fmt.milliseconds(products.new_ms)} and {fmt.milliseconds(products.cast_ms)} for casts,"
    )
    return _up_to(case, saved_ms, source)


def _gradient_compression(case: Case) -> Gain | None:
    """Return the gain of sending half the bytes.

    At best half of the exposed communication goes, and the casts are hidden.
    """
    exposed = case.step.exposed_ms
    if not exposed:
        return None
    source = f"nothing but communication runs {fmt.milliseconds(exposed)} ms"
    gain = _up_to(case, exposed / 2, source)
    casts_ms = traffic_ms(case.step, COMPRESSION)
    if casts_ms is None:
        return gain
    low_pct = _change_pct(case.step_ms, case.step_ms - exposed / 2 + casts_ms)
    return Gain(
        low_pct, gain.high_pct, f"{gain.source}, and casts take {fmt.milliseconds(casts_ms)} ms"
    )


def _without_syncs(step: RecentStep) -> Gain | None:
    """Return the gain if the host went on launching where it now waits for the device."""
    saved = step.saved_ms
    if not saved or step.step_ms is None:
        return None
    return Gain(None, _faster_pct(step.step_ms, step.step_ms - saved))


def _without_asides(step: RecentStep) -> Gain | None:
    """Return the gain of training all the time, without evaluation and checkpoints.

    It is a range, since a window that begins at another moment holds one more or one fewer.
    """
    if step.aside_pct is None or not step.asides:
        return None
    one = step.aside_pct / step.asides
    if step.aside_pct + one >= 100:
        return None  # too few were seen for an estimate
    low, high = (
        _faster_pct(100.0, 100 - pct) for pct in (step.aside_pct - one, step.aside_pct + one)
    )
    return Gain(low, high)


def _without_core_wait(step: RecentStep) -> Gain | None:
    """Return the gain if every thread had a core: at most the waiting time is saved."""
    waits_pct, busy, asked = step.core_wait_pct, step.busy_cores, step.asked_cores
    if waits_pct is None or not 0 < waits_pct < 100 or busy is None or asked is None:
        return None
    asked = max(asked, 1.0)  # cores; `core_wait_pct` is a share of them
    if asked > 1 and not step.cores:
        return None  # only the number of cores bounds the wait of several threads
    least_pct = max(100 - waits_pct * asked, 100 * busy / step.cores if step.cores else 0.0)
    return Gain(None, _faster_pct(100.0, least_pct))


def _up_to(case: Case, removed_ms: float, source: str) -> Gain:
    high_pct = _faster_pct(case.step_ms, case.step_ms - removed_ms)
    return Gain(None, high_pct, f"{source} of {_ms(case)}")


def _ms(case: Case) -> str:
    return f"{fmt.milliseconds(case.step_ms)} ms"


def _faster_pct(before_ms: float, after_ms: float) -> float:
    """Return the gain in throughput in percent, at least 0."""
    return max(_change_pct(before_ms, after_ms), 0.0)


def _change_pct(before_ms: float, after_ms: float) -> float:
    """Return the change in throughput in percent; a step keeps at least 1 % of its time."""
    return 100 * (before_ms / max(after_ms, before_ms / 100) - 1)


_DERIVED: Mapping[str, Callable[[Case], Gain | None]] = {
    "num_workers": _more_workers,
    "prefetch_factor": _steady_batches,
    "data": _free_batches,
    "input": _free_batches,
    "augment_on": _free_batches,
    "rotation": _batched,
    "pin_memory": _pinned,
    "pipelined": _pipelined,
    "cuda_graph": _cuda_graph,
    "batch_size": _larger_batch,
    "fused_optimizer": _fused_optimizer,
    "precision": _bf16,
    "gradient_compression": _gradient_compression,
}
"""Levers that act on a measured part. Others, such as `compile`, have no estimate."""

_GONE: Mapping[Limit, Callable[[RecentStep], Gain | None]] = {
    "asides": _without_asides,
    "cores": _without_core_wait,
    "sync": _without_syncs,
}
"""Limits that no lever moves: they lie in the script, or outside it."""
