"""Read the costs of copies, products and memory traffic from a profile."""

from typing import NamedTuple

from gpudash.diagnosis.recent_step import RecentStep
from gpudash.protocol.inspections import Pinning
from gpudash.trace.names import has_product
from gpudash.trace.summary import KernelUse, Summary


def pinning_of(step: RecentStep) -> Pinning | None:
    profile = step.profile
    return profile.profiled.pinning if profile is not None and profile.profiled else None


def pin_ms(pinning: Pinning, workers: int) -> float:
    return pinning.thread_pin_ms if workers else pinning.pin_ms


def pinned_copy_ms(step: RecentStep) -> float:
    copies = step.profile.copies if step.profile is not None else ()
    return sum(each.ms for each in copies if each.direction == "to device" and each.is_pinned)


CASTS = 3.0
"""Memory traffic of casts, in multiples of the weights' size: weights and their gradients are read
once, and once written in half as many bits."""


REACHED = 0.4
"""Least part of the peaks' ratio by which products become faster: narrow ones wait for memory."""


class Products(NamedTuple):
    """A step's matrix products and convolutions, none of them in bf16."""

    ms: float
    new_ms: float
    """In another precision, at the same share of the device's measured peak."""
    slow_ms: float
    """In it, at the least share."""
    cast_ms: float
    """To cast the weights to bf16, and their gradients back."""


def product_kernels(profile: Summary) -> list[KernelUse]:
    return [
        each
        for each in profile.kernels
        if each.uses_tensor_cores or has_product(each.operator.rpartition("::")[2])
    ]


def products_of(step: RecentStep, to: str = "bf16") -> Products | None:
    profile = step.profile
    traced = profile.profiled if profile is not None else None
    if profile is None or traced is None or traced.peak is None:
        return None
    if traced.precision not in ("fp32", "tf32", "cudnn_tf32"):
        return None
    others = "fp32" if traced.precision == "cudnn_tf32" else traced.precision
    kernels = product_kernels(profile)
    # cuDNN convolves in TF32 even where matrices are multiplied in fp32
    in_tf32 = {each.operator for each in kernels if each.uses_tensor_cores}
    ms = dict.fromkeys(("fp32", "tf32"), 0.0)
    for each in kernels:
        ms["tf32" if each.operator in in_tf32 else others] += each.ms
    tflops = traced.peak.matmul_tflops
    if not tflops.keys() >= {to, *(name for name in ms if ms[name])}:
        return None
    ratios = {name: max(tflops[to] / tflops[name], 1.0) for name in ms if ms[name]}
    return Products(
        ms=sum(ms.values()),
        new_ms=sum(ms[name] / ratio for name, ratio in ratios.items()),
        slow_ms=sum(ms[name] / max(REACHED * ratio, 1.0) for name, ratio in ratios.items()),
        cast_ms=traffic_ms(step, CASTS) or 0.0,
    )


def traffic_ms(step: RecentStep, weights: float, state: float = 0.0) -> float | None:
    """Take multiples of the weights' and of the optimizer state's size; None: bandwidth unknown."""
    traced = step.profile.profiled if step.profile is not None else None
    if traced is None or traced.peak is None or traced.weights is None:
        return None
    mib = weights * traced.weights.mib + state * traced.weights.state_mib
    return mib * 2**20 / 1e6 / traced.peak.memory_gb_s
