"""What a lever can bring, as a range that follows from what was measured.

A step ends when the longest of what runs at the same time does. So a lever that removes time from
one part brings at most what the others leave; no table says what a lever is worth.
"""

from collections.abc import Callable, Mapping
from math import ceil

import msgspec

from gpudash import format as fmt
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol import Phase
from gpudash.trace.summary import Summary
from gpudash.views.profiled_step import (
    busy_ms,
    copy_ms,
    exposed_ms,
    pin_ms,
    pinned_copy_ms,
    pinning_of,
    products_of,
    saved_ms,
    traffic_ms,
)
from gpudash.views.recent_step import RecentStep
from gpudash.views.rules import DEVICE_PCT, Limit

ADDED_WORKER = 0.5
"""The least that a worker more makes, of what one makes now: two hardware threads share a core."""
UPDATE = (3.0, 2.0)
"""Times the weights, and the optimizer's state: what is updated is read and written, and the
gradients, as large as the weights, are read."""
COMPRESSION = 4.0
"""Times the gradients: DDP's hook casts them to half as many bits, divides, and casts them back."""
LEAST_PCT = 1.0
"""A lever that can bring no more than this is not proposed."""


class Gain(msgspec.Struct, frozen=True):
    """Throughput more than now, in percent."""

    low_pct: float | None
    """None where only a ceiling is known."""
    high_pct: float
    source: str = ""
    """What it was derived from, in a line; empty where the answer's other clauses say it."""

    @property
    def label(self) -> str:
        """Return `+80 to +150 %`, or `up to +17 %`."""
        high = f"{_signed(self.high_pct)} %"
        if self.low_pct is None:
            return f"up to {high}"
        low = _signed(self.low_pct)
        return f"about {high}" if f"{low} %" == high else f"{low} to {high}"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A lever's move from one value to another, and all that was measured."""

    a: str
    b: str
    step: RecentStep
    phases: tuple[Phase, ...] = ()
    profile: Summary | None = None
    workers: int = 0
    """Of the loader."""
    feeds: bool = False
    """Whether batches are there however many are asked for."""


def gain_of(lever: str, case: Case) -> Gain | None:
    """Return what moving this lever can bring; None where nothing measured supports a range."""
    derive = _DERIVED.get(lever)
    return derive(case) if derive is not None and case.step.step_ms else None


def without(limit: Limit, step: RecentStep, profile: Summary | None = None) -> Gain | None:
    """Return what the training gains if a limit that no lever moves is gone; None if unknown."""
    derive = _GONE.get(limit)
    return derive(step, profile) if derive is not None and step.step_ms else None


def workers_needed(step: RecentStep, workers: int) -> int:
    """Return how many loader workers would keep the step from waiting, if each makes as much."""
    if not step.step_ms or not step.starved_ms:
        return workers
    if not workers:  # batches are made between the steps
        return ceil(step.starved_ms / max(step.step_ms - step.starved_ms, 1e-3))
    return ceil(workers * step.step_ms / max(step.step_ms - step.starved_ms, 1e-3))


def _more_workers(case: Case) -> Gain | None:
    """Batches come faster by the workers added, until the step no longer waits."""
    step, before, after = case.step, int(case.a), int(case.b)
    step_ms, starved_ms = step.step_ms or 0.0, step.starved_ms or 0.0
    if not starved_ms or after <= before:
        return None
    rest_ms = step_ms - starved_ms
    batch_ms = step_ms * before if before else starved_ms  # that one worker takes for a batch
    added = after - max(before, 1)

    def step_with(efficiency: float) -> float:
        able = max(before, 1) + added * efficiency if before else after * efficiency
        return max(rest_ms, batch_ms / max(able, ADDED_WORKER))

    low, high = (_faster_pct(step_ms, step_with(each)) for each in (ADDED_WORKER, 1.0))
    gets_cores = (step.core_wait_pct or 0.0) < CORE_WAIT_WARNS_PCT
    made = f"a worker makes a batch in {fmt.milliseconds(batch_ms)} ms"
    return Gain(
        low if gets_cores else None,
        high,
        f"{made}; without the wait a step takes {fmt.milliseconds(rest_ms)} ms",
    )


def _no_wait(case: Case) -> Gain | None:
    """Make batches free: that is what cached ones are.

    On a CPU that is no ceiling: what workers no longer take of its cores, the training gets.
    """
    starved_ms = case.step.starved_ms
    if not starved_ms or not case.step.on_gpu:
        return None
    return _up_to(case, starved_ms, f"the step waits {fmt.milliseconds(starved_ms)} ms for data")


def _pinned(case: Case) -> Gain | None:
    """Copy from page-locked memory; to put a batch there takes no time of its own at best.

    It may take the loader's thread, or the host, longer than a step is: that is then the limit.
    """
    step_ms = case.step.step_ms or 0.0
    copying_ms, pinning = copy_ms(case.step, case.profile), pinning_of(case.profile)
    if not copying_ms:
        return None
    if pinning is None:
        without = _up_to(
            case, copying_ms, f"a batch is copied in {fmt.milliseconds(copying_ms)} ms"
        )
        return without if without.high_pct < LEAST_PCT else None
    pinned_in_ms = pin_ms(pinning, case.workers)
    rest_ms = step_ms - max(copying_ms - pinned_copy_ms(case.profile), 0.0) + pinning.copy_ms
    source = (
        f"a batch is pinned in {fmt.milliseconds(pinned_in_ms)} ms and then copied in "
        f"{fmt.milliseconds(pinning.copy_ms)}, now in {fmt.milliseconds(copying_ms)} of {_ms(case)}"
    )
    return Gain(
        _change_pct(step_ms, rest_ms + pinned_in_ms),
        _change_pct(step_ms, max(rest_ms, pinned_in_ms)),
        source,
    )


def _halves(case: Case) -> Gain | None:
    """Run both halves at a time: the shorter one is hidden, as far as SMs are left for it."""
    step = case.step
    prepare_ms, train_ms = (_half_ms(case, lane) for lane in ("prepare", "train"))
    hidden_ms = min(prepare_ms, train_ms)
    if not hidden_ms:
        return None
    source = f"the shorter half of the step takes {fmt.milliseconds(hidden_ms)} ms"
    if step.sm_active_pct is not None:
        free_ms = (step.step_ms or 0.0) * (100 - step.sm_active_pct) / 100
        hidden_ms = min(hidden_ms, free_ms)
        source += f", and the SMs are active {fmt.percent(step.sm_active_pct)} of the time"
    return _up_to(case, hidden_ms, source)


def _half_ms(case: Case, lane: str) -> float:
    return sum(case.step.phases_ms.get(each.name, 0.0) for each in case.phases if each.lane == lane)


def _replayed(case: Case) -> Gain | None:
    """Launch the step at once: what is left is the device's own work, and waiting for data."""
    step_ms, starved_ms = case.step.step_ms or 0.0, case.step.starved_ms or 0.0
    working = _working_ms(case)
    if working is None:
        return None
    least_ms, source = working[0] + starved_ms, working[1]
    high = _faster_pct(step_ms, least_ms)
    launch_ms = case.profile.launch_ms if case.profile is not None else None
    if launch_ms is None:
        return Gain(None, high, source)
    low = _faster_pct(step_ms, max(step_ms - launch_ms, least_ms))
    return Gain(low, high, f"{source}; launching takes {fmt.milliseconds(launch_ms)} ms")


def _larger_batch(case: Case) -> Gain | None:
    """As many launches for more samples: a step is no longer until the GPU's work fills it."""
    step_ms, working, times = case.step.step_ms or 0.0, _working_ms(case), int(case.b) / int(case.a)
    if working is None or times <= 1 or 100 * working[0] >= DEVICE_PCT * step_ms:
        return None  # a GPU that is busy takes longer for more
    longer_ms = max(step_ms, times * working[0])
    low = _faster_pct(times * step_ms, longer_ms) if case.feeds else None
    source = f"{working[1]}, at {times:g} times the batch up to {fmt.milliseconds(longer_ms)} ms"
    return Gain(low, _faster_pct(times * step_ms, step_ms), source)


def _working_ms(case: Case) -> tuple[float, str] | None:
    """Return how long the GPU works on a step, and how that is known."""
    step = case.step
    if case.profile is not None and (at_work_ms := busy_ms(step, case.profile)) is not None:
        return at_work_ms, f"the GPU works {fmt.milliseconds(at_work_ms)} ms of a step"
    if step.gpu_util_pct is None or not step.step_ms:
        return None
    at_work_ms = step.step_ms * step.gpu_util_pct / 100
    return at_work_ms, f"a kernel runs {fmt.percent(step.gpu_util_pct)} of the time"


def _one_kernel(case: Case) -> Gain | None:
    """Update all weights at once: no form is faster than memory, where that was measured."""
    optimizer_ms, least_ms = case.step.phases_ms.get("optimizer"), traffic_ms(case.profile, *UPDATE)
    if not optimizer_ms:
        return None
    source = f"the optimizer takes {fmt.milliseconds(optimizer_ms)} ms"
    if least_ms is not None:
        source += f", its memory traffic at least {fmt.milliseconds(least_ms)} ms,"
    return _up_to(case, max(optimizer_ms - (least_ms or 0.0), 0.0), source)


def _bf16(case: Case) -> Gain | None:
    """Multiply as fast as bf16 does here, with half the traffic otherwise; casts come on top.

    Autocast casts nothing but what is multiplied, and what follows from it.
    """
    step, profile = case.step, case.profile
    at_work_ms = busy_ms(step, profile) if profile is not None else None
    if profile is None or at_work_ms is None or case.b != "bf16":
        return None
    products = products_of(profile)
    if products is None:
        return None
    optimizer_ms = step.phases_ms.get("optimizer", 0.0)  # it works in what the weights are
    others_ms = max(at_work_ms - products.ms - optimizer_ms, 0.0) if products.ms else 0.0
    saved_ms = products.ms - products.bf16_ms - products.cast_ms + others_ms / 2
    source = (
        f"products take {fmt.milliseconds(products.ms)} ms, in bf16 at best "
        f"{fmt.milliseconds(products.bf16_ms)} and {fmt.milliseconds(products.cast_ms)} for casts,"
    )
    return _up_to(case, saved_ms, source)


def _half_the_bytes(case: Case) -> Gain | None:
    """Send half as much: at best half of the exposed communication goes, and casts are hidden."""
    exposed = exposed_ms(case.step, case.profile)
    if not exposed:
        return None
    source = f"nothing but communication runs {fmt.milliseconds(exposed)} ms"
    gain = _up_to(case, exposed / 2, source)
    casts_ms, step_ms = traffic_ms(case.profile, COMPRESSION), case.step.step_ms or 0.0
    if casts_ms is None:
        return gain
    low_pct = _change_pct(step_ms, step_ms - exposed / 2 + casts_ms)
    return Gain(
        low_pct, gain.high_pct, f"{gain.source}, and casts take {fmt.milliseconds(casts_ms)} ms"
    )


def _no_waits(step: RecentStep, profile: Summary | None) -> Gain | None:
    """Let the host go on launching where it waits for the device."""
    saved, step_ms = saved_ms(step, profile) if profile is not None else None, step.step_ms or 0.0
    if not saved:
        return None
    return Gain(None, _faster_pct(step_ms, step_ms - saved))


def _no_asides(step: RecentStep, _profile: Summary | None) -> Gain | None:
    """Train all the time; a window that begins at another moment holds one aside more or fewer."""
    if step.aside_pct is None or not step.asides:
        return None
    one = step.aside_pct / step.asides
    if step.aside_pct + one >= 100:
        return None  # too few were seen to tell how much they take
    low, high = (
        _faster_pct(100.0, 100 - pct) for pct in (step.aside_pct - one, step.aside_pct + one)
    )
    return Gain(low, high)


def _no_core_wait(step: RecentStep, _profile: Summary | None) -> Gain | None:
    """Give every thread its core: no second is saved that none waited in, nor any core's work."""
    waits_pct, busy = step.core_wait_pct, step.busy_cores
    if waits_pct is None or not 0 < waits_pct < 100 or busy is None:
        return None
    asked = max(busy / (1 - waits_pct / 100), 1.0)  # cores, as `core_wait_pct` is a share of them
    least_pct = max(100 - waits_pct * asked, 100 * busy / step.cores if step.cores else 0.0)
    return Gain(None, _faster_pct(100.0, least_pct)) if least_pct > 0 else None


def _up_to(case: Case, removed_ms: float, source: str) -> Gain:
    step_ms = case.step.step_ms or 0.0
    return Gain(None, _faster_pct(step_ms, step_ms - removed_ms), f"{source} of {_ms(case)}")


def _ms(case: Case) -> str:
    return f"{fmt.milliseconds(case.step.step_ms)} ms"


def _faster_pct(before_ms: float, after_ms: float) -> float:
    """Return how much more is done in the same time, where it can be no less."""
    return max(_change_pct(before_ms, after_ms), 0.0)


def _change_pct(before_ms: float, after_ms: float) -> float:
    """Return how much more or less is done; a step cannot become shorter than 1 %."""
    return 100 * (before_ms / max(after_ms, before_ms / 100) - 1)


def _signed(pct: float) -> str:
    return f"{pct:+z,.0f}"


_DERIVED: Mapping[str, Callable[[Case], Gain | None]] = {
    "num_workers": _more_workers,
    "prefetch_factor": _no_wait,
    "data": _no_wait,
    "input": _no_wait,
    "augment_on": _no_wait,
    "pin_memory": _pinned,
    "pipelined": _halves,
    "cuda_graph": _replayed,
    "batch_size": _larger_batch,
    "fused_optimizer": _one_kernel,
    "precision": _bf16,
    "gradient_compression": _half_the_bytes,
}
"""Levers that act on a part that was measured. Of others, such as `compile`, nothing tells."""

_GONE: Mapping[Limit, Callable[[RecentStep, Summary | None], Gain | None]] = {
    "asides": _no_asides,
    "cores": _no_core_wait,
    "sync": _no_waits,
}
"""Limits that lie in the script, or outside of it."""
