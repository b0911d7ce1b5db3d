"""A profile's figures for steps that are not profiled: launching takes longer under a profiler."""

from gpudash.trace.summary import Summary
from gpudash.views.recent_step import RecentStep


def of_device(profile: Summary | None) -> Summary | None:
    """Return a profile that tells of the device; None for one without any event of it."""
    return profile if profile is not None and profile.on_device else None


def at_work_pct(step: RecentStep, profile: Summary | None) -> float | None:
    """Return how long the device is at work; the script's own code may rest between two events.

    So it is no longer than kernels ran, or on a CPU than the training asked for a core.
    """
    if profile is not None:
        return step.share_pct(busy_ms(step, profile))
    between, most = step.share_pct(step.device_ms), step.gpu_util_pct
    beside = step.share_pct(step.copy_alone_ms)
    if not step.on_gpu:
        most, beside = step.busy_cores and 100 * step.busy_cores, step.core_wait_pct
    if between is None or most is None:
        return between
    return min(between, most + (beside or 0.0))


def busy_ms(step: RecentStep, profile: Summary) -> float | None:
    """Return how long the device is at work: kernels take as long in a step not profiled."""
    if profile.busy_ms is None or step.step_ms is None:
        return None
    return min(profile.busy_ms, step.step_ms)


def exposed_ms(step: RecentStep, profile: Summary | None) -> float | None:
    """Return how long a rank communicates with nothing beside it; a profile sees all of it."""
    if profile is not None and profile.exposed_ms is not None:
        return profile.exposed_ms
    return step.phases_ms.get("communication")


def copy_ms(step: RecentStep, profile: Summary | None) -> float | None:
    """Return how long a batch is copied with nothing beside it; a script may have no such phase."""
    if step.copy_alone_ms is not None or profile is None or profile.overlap_ms is not None:
        return step.copy_alone_ms
    return sum(each.ms for each in profile.copies if each.direction == "to device")


def idle_ms(step: RecentStep, profile: Summary) -> float | None:
    """Return how long the device has nothing to do, though data are there, for want of launches.

    Profiling makes the host slower, so it is no more than what a step leaves beside the work.
    """
    at_work_ms, seen_ms = busy_ms(step, profile), profile.idle_ms.get("host")
    if at_work_ms is None or seen_ms is None or step.step_ms is None:
        return None
    return max(min(seen_ms, step.step_ms - at_work_ms) - (step.starved_ms or 0.0), 0.0)


def saved_ms(step: RecentStep, profile: Summary) -> float | None:
    """Return by how much a step would be shorter if the host did not wait within it.

    The host would go on launching meanwhile; the step lasts as long as the longer of the two.
    """
    at_work_ms, waited_ms = busy_ms(step, profile), profile.blocked_ms
    if at_work_ms is None or waited_ms is None or step.step_ms is None or step.host_ms is None:
        return None
    launching_ms = max(step.host_ms - waited_ms, 0.0) + (step.starved_ms or 0.0)
    return max(min(waited_ms, step.step_ms - max(at_work_ms, launching_ms)), 0.0)
