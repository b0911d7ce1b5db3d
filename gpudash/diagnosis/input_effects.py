"""What levers of the input bring: more workers, less to load, a copy from pinned memory."""

from math import ceil

from gpudash import format as fmt
from gpudash.diagnosis.lever_change import NOTHING, LeverChange, Outcome, Played, without
from gpudash.diagnosis.model import played_ms
from gpudash.diagnosis.parts import COPY, DATA, Times
from gpudash.diagnosis.profiled_step import pin_ms, pinned_copy_ms, pinning_of
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.metrics import CORE_WAIT_WARNS_PCT

ADDED_WORKER = 0.5
"""Least speed of an added worker, relative to a present one: two hardware threads share a core."""
COMPUTING_CORES = 0.5
"""Making a batch that uses more of a core computes. Else it mostly waits, as for files."""
HANDED_MS = (0.2, 1.0)
"""Least and usual time to get a batch from a loader worker, which batches that the training makes
itself do not need. On two slow cores 8 KiB took 0.9 ms, 0.4 of them the training's, and 5 MiB 6."""
LONG_MS = 10.0
"""A batch that takes so long to make takes much less to hand over, whatever its size."""
STAGED = 0.5
"""Least time to pin a batch, in multiples of its copy's time from memory that is not pinned. The
driver copies such memory into pinned memory, too."""
LATE = 0.5
"""Part of a step. A loader that is waited for so long is too slow on average, and batches kept
ready would not change that."""


def batches_wait(step: RecentStep, workers: int) -> bool:
    """Tell whether a batch waits, as for files, more than it computes.

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
    """Return how many workers, each as fast as now, would keep the step from waiting.

    Other jobs make the rest of the step longer, but not batches that wait. Then as many workers are
    needed as without these jobs.
    """
    if not step.step_ms or not step.starved_ms:
        return workers
    rest_ms = step.step_ms - step.starved_ms
    if batches_wait(step, workers):
        rest_ms *= step.got_share
    batch_ms = workers * step.step_ms or step.starved_ms  # without workers made between the steps
    return ceil(batch_ms / max(rest_ms, 1e-3))


def more_workers(change: LeverChange) -> Outcome | None:
    """Make as many more batches at a time.

    Workers share the cores with the training: a step takes at least its work's time on all cores.
    What it gains at least is by the added workers that find a core.
    """
    before, after, starved_ms = int(change.before), int(change.value), change.times.data
    step = change.step
    if not starved_ms or after <= before:
        return NOTHING
    # workers neither draw what is in batches nor take them apart, and make none while they start
    start_ms = min(step.owned_ms("loader_start"), starved_ms)
    unpack_ms = min(step.owned_ms("unpack") if before else 0.0, starved_ms - start_ms)
    # one worker's time for a batch
    batch_ms = (change.model.step_ms - start_ms) * before if before else starved_ms - start_ms
    least_ms, usual_ms = (0.0, 0.0) if before else HANDED_MS
    waits, on_all_cores_ms = batches_wait(step, before), 0.0
    work_cores = step.busy_cores if waits else step.asked_cores
    if work_cores is not None and step.cores:
        on_all_cores_ms = change.model.step_ms * min(work_cores / step.cores, 1.0)

    def with_(added: float, handed_ms: float, starts_ms: float) -> Played:
        makes_ms = (batch_ms + handed_ms) / (before + added)
        taken_ms = max(handed_ms, unpack_ms)
        return lambda times: max(
            starts_ms + max(played_ms(DATA.without(times)) + taken_ms, makes_ms), on_all_cores_ms
        )

    added = after - before
    free = added if waits or not step.cores else int(step.free_cores)
    gets_cores = free > 0 and (step.core_wait_pct or 0.0) < CORE_WAIT_WARNS_PCT
    has_least = gets_cores and (before > 0 or batch_ms >= LONG_MS)
    more_starts_ms = start_ms * after / before if before else start_ms
    rest_ms = change.model.step_ms - starved_ms + start_ms + unpack_ms
    return Outcome(
        with_(added, least_ms, start_ms),
        with_(min(added, free) * ADDED_WORKER, usual_ms, more_starts_ms) if has_least else None,
        f"a worker makes a step's input in {fmt.milliseconds(batch_ms)} ms; "
        f"without the wait a step takes {fmt.milliseconds(rest_ms)} ms",
    )


def steady_batches(change: LeverChange) -> Outcome | None:
    """Gain nothing if the loader is too slow on average; else it depends on uneven batches."""
    times = change.times
    is_slow = not change.workers or change.step.no_core_free or times.data >= LATE * times.step
    return NOTHING if is_slow else None


def free_batches(change: LeverChange) -> Outcome | None:
    """On a CPU the wait alone is no bound: loader workers also keep the training off the cores."""
    waits = f"the step waits {fmt.milliseconds(change.times.data)} ms for data {change.of_step}"
    held_up_ms, source = _held_up(change) or (0.0, "")
    if held_up_ms <= change.times.data:
        return without(DATA, waits)
    return Outcome(lambda times: played_ms(times) - held_up_ms, source=source)


def _held_up(change: LeverChange) -> tuple[float, str] | None:
    """Return for how many ms workers hold up a step at most, and what is assumed for it.

    The training's threads wait for each other, so a worker on the core of one may hold up all. The
    time in which other jobs have the cores is shared by workers and training.
    """
    step, starved_ms = change.step, change.times.data
    if step.taken_pct is None or not step.loader_cores or not step.busy_cores or not step.step_ms:
        return None
    ran_ms = step.step_ms * step.loader_cores / min(step.busy_cores, 1.0)
    beside = ceil(change.workers / step.cores) if change.workers and step.cores else 1
    most_ms = starved_ms + (step.step_ms - starved_ms) * beside / (beside + 1)
    ran = f"{fmt.milliseconds(ran_ms)} ms of a core in a step {change.of_step}"
    if step.busy_cores < 1:  # other jobs have the rest
        ran = f"{fmt.percent(step.loader_pct)} of the CPU time of a step {change.of_step}"
    assumed = "stands still meanwhile"
    if ran_ms > most_ms:
        assumed = f"stands still for {fmt.milliseconds(most_ms)} ms, as cores are shared evenly"
    return min(ran_ms, most_ms), f"loader workers use {ran}; at most the training {assumed}"


def pinned(change: LeverChange) -> Outcome | None:
    """At best, pinning a batch is hidden, or is the limit if it takes longer than a step.

    At worst nothing is hidden, and both take as long as in the slowest measurement.
    """
    copying_ms, pinning = change.times.copy, pinning_of(change.step)
    if pinning is None:
        source = f"a batch is copied in {fmt.milliseconds(copying_ms)} ms {change.of_step}"
        least_ms = STAGED * copying_ms

        def staged(times: Times) -> float:
            return max(played_ms(COPY.without(times)), least_ms)

        return Outcome(staged, source=source)
    pinned_in_ms = pin_ms(pinning, change.workers)
    kept_ms = min(pinned_copy_ms(change.step), copying_ms)
    worst_ms = pinning.slower * (pinning.copy_ms + pinned_in_ms)

    def at_best(times: Times) -> float:
        rest_ms = played_ms(times._replace(copy=kept_ms + pinning.copy_ms))
        return max(rest_ms, pinned_in_ms) if change.workers else rest_ms + pinned_in_ms

    return Outcome(
        at_best,
        lambda times: played_ms(times) - times.copy + kept_ms + worst_ms,
        f"a batch is pinned in {fmt.milliseconds(pinned_in_ms)} ms and then copied in "
        f"{fmt.milliseconds(pinning.copy_ms)}, now in {fmt.milliseconds(copying_ms)} "
        f"{change.of_step}",
    )
