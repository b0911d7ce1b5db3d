"""What levers of the input bring: more workers, less to load, a copy from pinned memory."""

from math import ceil, inf

from gpudash import format as fmt
from gpudash.diagnosis.lever_change import NOTHING, LeverChange, Outcome, Played, without
from gpudash.diagnosis.model import played_ms
from gpudash.diagnosis.parts import COPY, CORE, DATA, Times
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.protocol.inspections import Pinning

ADDED_WORKER = 0.5
"""Least speed of an added worker, relative to a present one: two hardware threads share a core."""
HANDED_MS = (0.2, 1.0)
"""Least and usual time to get a batch from a loader worker, which batches that the training makes
itself do not need. On two slow cores 8 KiB took 0.9 ms, 0.4 of them the training's, and 5 MiB 6."""
STAGED = 0.5
"""Least time to pin a batch, in multiples of its copy's time from memory that is not pinned. The
driver copies such memory into pinned memory, too."""
LATE = 0.5
"""Part of a step. A loader that is waited for so long is too slow on average, and batches kept
ready would not change that."""


def workers_needed(step: RecentStep, workers: int) -> int:
    """Return how many workers, each as fast as now, would keep the step from waiting."""
    if not step.step_ms or not step.starved_ms:
        return workers
    rest_ms = step.step_ms - step.starved_ms
    batch_ms = workers * step.step_ms or step.starved_ms  # without workers made between the steps
    return ceil(batch_ms / max(rest_ms, 1e-3))


def more_workers(change: LeverChange) -> Outcome | None:
    """Make as many more batches at a time.

    Nothing is gained where most of the wait has another owner. Workers share the cores with the
    training: a step takes at least its work's time on all cores.
    What it gains at least is by the added workers that find a core.
    """
    before, after, starved_ms = int(change.before), int(change.value), change.times.data
    step = change.step
    # workers neither draw what is in batches nor take them apart, and make none while they start
    start_ms = min(step.owned_ms("loader_start"), starved_ms)
    unpack_ms = min(step.owned_ms("unpack") if before else 0.0, starved_ms - start_ms)
    made_ms = starved_ms - start_ms - unpack_ms
    if after <= before or made_ms <= max(start_ms, unpack_ms):
        return NOTHING
    # one worker's time for a batch
    batch_ms = (change.model.step_ms - start_ms) * before if before else starved_ms - start_ms
    least_ms, usual_ms = (0.0, 0.0) if before else HANDED_MS
    on_all_cores_ms = change.model.step_ms * min((step.asked_cores or 0.0) / (step.cores or inf), 1)

    def with_(added: float, handed_ms: float, starts_ms: float) -> Played:
        makes_ms = (batch_ms + handed_ms) / (before + added)
        taken_ms = max(handed_ms, unpack_ms)
        return lambda times: max(
            starts_ms + max(played_ms(DATA.without(times)) + taken_ms, makes_ms), on_all_cores_ms
        )

    added = after - before
    free = min(added, step.free_cores // 1)
    gets_cores = free > 0 and not step.is_crowded
    more_starts_ms = start_ms * after / before if before else start_ms
    return Outcome(
        with_(added, least_ms, start_ms),
        with_(free * ADDED_WORKER, usual_ms, more_starts_ms) if gets_cores else None,
        f"a worker makes a step's input in {fmt.milliseconds(batch_ms)} ms; "
        f"without the wait a step takes {fmt.milliseconds(change.model.step_ms - made_ms)} ms",
    )


def steady_batches(change: LeverChange) -> Outcome | None:
    """Gain nothing if the loader is too slow on average; else it depends on uneven batches."""
    times, step = change.times, change.step
    is_slow = not step.workers or step.free_cores < 1 or times.data >= LATE * times.step
    return NOTHING if is_slow else None


def free_batches(change: LeverChange) -> Outcome:
    """If nothing were waited for, nor workers had a core that the thread that trains asks for."""
    if change.step.loader_cores:  # on a CPU
        return without(change, (DATA, CORE), "the step waits {ms} ms for data or a core {of}")
    return without(change, (DATA,), "the step waits {ms} ms for data {of}")


def pin_ms(step: RecentStep, pinning: Pinning) -> float:
    return pinning.thread_pin_ms if step.workers else pinning.pin_ms


def pinned(change: LeverChange) -> Outcome | None:
    """At best, pinning a batch is hidden, or is the limit if it takes longer than a step.

    At worst nothing is hidden, and both take as long as in the slowest measurement.
    """
    copying_ms, pinning = change.times.copy, change.step.pinning
    if pinning is None:
        source = f"a batch is copied in {fmt.milliseconds(copying_ms)} ms {change.of_step}"
        least_ms = STAGED * copying_ms

        def staged(times: Times) -> float:
            return max(played_ms(COPY.without(times)), least_ms)

        return Outcome(staged, source=source)
    pinned_in_ms = pin_ms(change.step, pinning)
    kept_ms = min(sum(one.ms for one in change.step.copies if one.is_pinned), copying_ms)
    worst_ms = pinning.slower * (pinning.copy_ms + pinned_in_ms)

    def at_best(times: Times) -> float:
        rest_ms = played_ms(times._replace(copy=kept_ms + pinning.copy_ms))
        return max(rest_ms, pinned_in_ms) if change.step.workers else rest_ms + pinned_in_ms

    return Outcome(
        at_best,
        lambda times: played_ms(times) - times.copy + kept_ms + worst_ms,
        f"a batch is pinned in {fmt.milliseconds(pinned_in_ms)} ms and then copied in "
        f"{fmt.milliseconds(pinning.copy_ms)}, now in {fmt.milliseconds(copying_ms)} "
        f"{change.of_step}",
    )
