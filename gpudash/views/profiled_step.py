"""Apply a profile's figures to steps without a profiler, in which launching is faster."""

from typing import NamedTuple

from gpudash.protocol import Pinning
from gpudash.trace.names import has_product
from gpudash.trace.summary import Summary
from gpudash.views.recent_step import RecentStep


def of_device(profile: Summary | None) -> Summary | None:
    """Return the profile if it has device events, else None."""
    return profile if profile is not None and profile.on_device else None


def at_work_pct(step: RecentStep, profile: Summary | None) -> float | None:
    """Return how long the device is at work, in percent of the step.

    The device may idle between two events. So without a profile the share is at most that of the
    time in which kernels ran, or on a CPU in which the training had a core or waited for one.
    """
    if profile is not None:
        return step.share_pct(busy_ms(step, profile))
    between, most = step.share_pct(step.computing_ms), step.gpu_util_pct
    beside = step.share_pct(step.copy_alone_ms)
    if not step.on_gpu:
        most, beside = step.busy_cores and 100 * step.busy_cores, step.core_wait_pct
    if between is None or most is None:
        return between
    return min(between, most + (beside or 0.0))


def busy_ms(step: RecentStep, profile: Summary) -> float | None:
    """Return the device's work on a step in ms; kernels take as long without a profiler."""
    if profile.busy_ms is None or step.step_ms is None:
        return None
    return min(profile.busy_ms, step.step_ms)


def exposed_ms(step: RecentStep, profile: Summary | None) -> float | None:
    """Return a step's exposed communication in ms; a profile sees all of it."""
    if profile is not None and profile.exposed_ms is not None:
        return profile.exposed_ms
    return step.communication_ms


def copy_ms(step: RecentStep, profile: Summary | None) -> float | None:
    """Return the exposed copy of a batch in ms, from the profile if there is no copy phase."""
    if step.copy_alone_ms is not None or profile is None or profile.overlap_ms is not None:
        return step.copy_alone_ms
    return sum(each.ms for each in profile.copies if each.direction == "to device")


def pinning_of(profile: Summary | None) -> Pinning | None:
    """Return the cost of pinned (page-locked) memory; None if not measured."""
    return profile.profiled.pinning if profile is not None and profile.profiled else None


def pin_ms(pinning: Pinning, workers: int) -> float:
    """Return the time to pin a batch in ms; a loader with workers has a thread for that."""
    return pinning.thread_pin_ms if workers else pinning.pin_ms


def pinned_copy_ms(profile: Summary | None) -> float:
    """Return the time of copies to the device from pinned memory, in ms."""
    copies = profile.copies if profile is not None else ()
    return sum(each.ms for each in copies if each.direction == "to device" and each.is_pinned)


CASTS = 3.0
"""Memory traffic of casts, in multiples of the weights' size: weights and their gradients are read
once, and once written in half as many bits."""


class Products(NamedTuple):
    """A step's matrix products and convolutions, none of them in bf16."""

    ms: float
    bf16_ms: float
    """In bf16, at the same share of the device's measured peak."""
    cast_ms: float
    """To cast the weights to bf16, and their gradients back."""


def products_of(profile: Summary) -> Products | None:
    """Return a step's products and their time in bf16; None if the peaks were not measured."""
    traced = profile.profiled
    if traced is None or traced.peak is None or traced.precision not in ("fp32", "tf32"):
        return None
    kernels = [
        each
        for each in profile.kernels
        if each.uses_tensor_cores or has_product(each.operator.rpartition("::")[2])
    ]
    # cuDNN convolves in TF32 even where matrices are multiplied in fp32
    in_tf32 = {each.operator for each in kernels if each.uses_tensor_cores}
    ms = dict.fromkeys(("fp32", "tf32"), 0.0)
    for each in kernels:
        ms["tf32" if each.operator in in_tf32 else traced.precision] += each.ms
    tflops = traced.peak.matmul_tflops
    if not tflops.keys() >= {"bf16", *(name for name in ms if ms[name])}:
        return None
    return Products(
        ms=sum(ms.values()),
        bf16_ms=sum(ms[name] * tflops[name] / tflops["bf16"] for name in ms if ms[name]),
        cast_ms=traffic_ms(profile, CASTS) or 0.0,
    )


def traffic_ms(profile: Summary | None, weights: float, state: float = 0.0) -> float | None:
    """Return the time of memory traffic in ms, at the measured bandwidth; None if that is unknown.

    `weights` and `state` are multiples of the weights' and of the optimizer state's size.
    """
    traced = profile.profiled if profile is not None else None
    if traced is None or traced.peak is None or traced.weights is None:
        return None
    mib = weights * traced.weights.mib + state * traced.weights.state_mib
    return mib * 2**20 / 1e6 / traced.peak.memory_gb_s


def idle_ms(step: RecentStep, profile: Summary) -> float | None:
    """Return how long the device idles for want of launches although data are there, in ms.

    A profiler slows the host down. So the result is at most the part of a step without device work.
    """
    at_work_ms, seen_ms = busy_ms(step, profile), profile.idle_ms.get("host")
    if at_work_ms is None or seen_ms is None or step.step_ms is None:
        return None
    return max(min(seen_ms, step.step_ms - at_work_ms) - (step.starved_ms or 0.0), 0.0)


def saved_ms(step: RecentStep, profile: Summary) -> float | None:
    """Return by how many ms a step would be shorter if the host did not wait within it.

    The host would go on launching, and the step would last as long as the longer of launching and
    device work.
    """
    at_work_ms, waited_ms = busy_ms(step, profile), profile.blocked_ms
    if at_work_ms is None or waited_ms is None or step.step_ms is None or step.host_ms is None:
        return None
    launching_ms = max(step.host_ms - waited_ms, 0.0) + (step.starved_ms or 0.0)
    return max(min(waited_ms, step.step_ms - max(at_work_ms, launching_ms)), 0.0)
