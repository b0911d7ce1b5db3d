"""What levers of the models' passes bring: fewer kernels, faster products, what was rehearsed."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from gpudash import format as fmt
from gpudash.diagnosis.lever_change import NOTHING, Estimate, LeverChange, Outcome, Played
from gpudash.diagnosis.model import played_ms
from gpudash.diagnosis.parts import Times
from gpudash.protocol.inspections import Timing
from gpudash.ranks.same_steps import WAIT
from gpudash.trace.names import has_product
from gpudash.trace.summary import KernelUse, Summary

MORE_LAUNCHES = {"bf16": 0.6}
"""Launches that autocast adds at most, as a part of those there. In benchmarks/causes launch-bound
steps became up to 1.5 times as long."""
SPEED = {"fp32": 1.0, "cudnn_tf32": 1.0, "tf32": 8.0, "bf16": 16.0}
"""How fast GPUs since 2020 multiply, at most, in multiples of fp32 without tensor cores."""
LAUNCHED = 0.9
"""A rehearsal is bound by launches if the host is busy for this part of it."""
REHEARSAL_ERROR = 0.05
"""Of what a rehearsal measures: caches and clocks differ from those within a step."""
CASTS = 3.0
"""Memory traffic of casts, in multiples of the weights' size: weights and their gradients are read
once, and once written in half as many bits."""
REACHED = 0.4
"""Least part of the peaks' ratio by which products become faster: narrow ones wait for memory."""
UPDATES = ("aten::_foreach", "aten::_fused")
"""Operators of optimizers."""
PASSES, FROZEN = ("forward", "backward"), ("frozen",)
"""Phases of the models that train, and of those without an optimizer."""
NO_PASSES = ("optimizer", "your_code", "rollout", *FROZEN)

ActsOn: TypeAlias = Callable[[str], bool]
"""Says of a phase whether a lever acts on what the device computes in it."""


def fewer_kernels(change: LeverChange, passes: tuple[str, ...] = PASSES) -> Outcome | None:
    """If each of these passes launched products and one kernel of a model's, and nothing else.

    A fused kernel takes as long as the longest of its parts, and a product as long as now.
    """
    step, profile = change.step, change.step.profile
    update_ms = step.phases_ms.get("optimizer", 0.0)
    passes_ms = change.ms_of(passes)
    if not passes_ms and passes == FROZEN:
        return None
    passes_ms = passes_ms or change.model.step_ms
    device_ms = max(change.times.device - update_ms, 0.0)
    launched = 0.0
    if profile is not None and profile.kernels:
        products, launched = _product_kernels(profile), _kept_launches(profile)
        products_ms = min(sum(one.ms for one in products), device_ms)
        others = (one for one in profile.kernels if one.module and one not in products)
        longest_ms = max((one.ms / one.count for one in others), default=0.0)
        others_ms = max(device_ms - products_ms - longest_ms * len(passes), 0.0)
    else:
        active, dram = step.sm_active_pct, step.dram_active_pct
        others_ms = device_ms * min(dram / active, 1.0) if active and dram is not None else 0.0
    source = f"{change.works}, {fmt.milliseconds(others_ms)} ms of it no products"

    def play(times: Times) -> float:
        launch_ms = max(times.launch - passes_ms * (1 - launched), min(update_ms, times.launch))
        device_ms = max(times.device - min(others_ms, passes_ms), 0.0)
        return played_ms(times._replace(launch=launch_ms, device=device_ms))

    return Outcome(play, source=source)


def _product_kernels(profile: Summary) -> list[KernelUse]:
    return [
        each
        for each in profile.kernels
        if each.uses_tensor_cores or has_product(each.operator.rpartition("::")[2])
    ]


def _kept_launches(profile: Summary) -> float:
    """Return the part of the passes' launches that stays: products, and what no model launches."""
    products = _product_kernels(profile)
    passes = [one for one in profile.kernels if not one.operator.startswith(UPDATES)]
    has_modules = any(one.module for one in passes)
    kept = (one for one in passes if one in products or (has_modules and not one.module))
    return sum(one.count for one in kept) / max(sum(one.count for one in passes), 1.0)


# ── faster products ─────────────────────────────────────────────────────────────────────


def faster_products(change: LeverChange, to: str, acts_on: ActsOn) -> Outcome | None:
    """For bf16, halve the traffic elsewhere, less the casts. Autocast adds launches."""
    reached_ms = _reached_ms(change, acts_on)
    if not change.step.on_gpu or change.before not in SPEED or reached_ms is None:
        return None  # on a CPU it depends on its units
    if SPEED[change.before] >= SPEED[to] or not reached_ms:
        return NOTHING
    products = _products_of(change, to)
    if products is not None:
        return _of_products(change, products, to, reached_ms)
    if change.before == "cudnn_tf32" and to == "tf32":
        return None  # what is no convolution is not known
    return _of_units(change, to, reached_ms)


def _reached_ms(change: LeverChange, acts_on: ActsOn) -> float | None:
    """Return at most, as the device may idle within phases; None if unknown."""
    times, known = change.times, change.step.phases_ms.keys()
    rehearsed = {name for one in change.timings for name in _phases_of(one)}
    reached = {name for name in known - {"copy", WAIT} if acts_on(name)}
    if not reached and not rehearsed:
        is_whole = not known and acts_on(PASSES[0])
        return times.device if is_whole else None
    most_ms = max(times.device - change.ms_of(("optimizer",)), 0.0)
    return min(change.ms_of(reached - rehearsed), most_ms)


class Products(NamedTuple):
    """A step's matrix products and convolutions, none of them in bf16."""

    ms: float
    new_ms: float
    """In another precision, at the same share of the device's measured peak."""
    slow_ms: float
    """In it, at the least share."""
    cast_ms: float
    """To cast the weights to bf16, and their gradients back."""


def _products_of(change: LeverChange, to: str) -> Products | None:
    profile, traced = change.step.profile, change.step.profiled
    precisions = ("fp32", "tf32", "cudnn_tf32")
    if (
        profile is None
        or traced is None
        or traced.peak is None
        or traced.precision not in precisions
    ):
        return None
    others = "fp32" if traced.precision == "cudnn_tf32" else traced.precision
    kernels = _product_kernels(profile)
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
        cast_ms=change.traffic_ms(CASTS) or 0.0,
    )


def _of_products(change: LeverChange, products: Products, to: str, most_ms: float) -> Outcome:
    """At best as many of the products as may be there, at worst as must be."""
    works_ms = max(change.times.device - change.ms_of(("optimizer",)), 0.0)
    all_ms = max(products.ms, 1e-9)
    most = min(most_ms / all_ms, 1.0)
    least = max(1 - max(works_ms - most_ms, 0.0) / all_ms, 0.0)
    best_ms = most * (products.ms - products.new_ms)
    worst_ms = least * (products.ms - products.slow_ms)
    if to == "bf16" and products.ms:
        others_ms = min(works_ms, most_ms) - products.ms
        best_ms += max(others_ms, 0.0) / 2
        worst_ms -= products.cast_ms
    source = (
        f"products take {fmt.milliseconds(most * products.ms)} ms, in {to} at best "
        f"{fmt.milliseconds(most * products.new_ms)}, {change.of_step}"
    )
    return Outcome(_quicker(best_ms), _quicker(worst_ms, MORE_LAUNCHES.get(to, 0.0)), source)


def _of_units(change: LeverChange, to: str, most_ms: float) -> Outcome:
    active, dram = change.step.sm_active_pct, change.step.dram_active_pct
    memory = min(dram / active, 1.0) if active and dram is not None else 0.0
    saved_ms = most_ms * (1 - memory) * (1 - SPEED[change.before] / SPEED[to])
    saved_ms += most_ms * memory / 2 if to == "bf16" else 0.0
    more = MORE_LAUNCHES.get(to, 0.0)
    shares = fmt.percent(change.step.tensor_active_pct), fmt.percent(active)
    source = "tensor cores are active {} of the time, SMs {}".format(*shares)
    return Outcome(_quicker(saved_ms), _quicker(0.0, more) if more else None, source)


def _quicker(saved_ms: float, launches: float = 0.0) -> Played:
    """Play a device that works less, and a host that launches more by this part."""

    def play(times: Times) -> float:
        device_ms = max(times.device - saved_ms, 0.0)
        return played_ms(times._replace(launch=times.launch * (1 + launches), device=device_ms))

    return play


# ── what was rehearsed ──────────────────────────────────────────────────────────────────


def rehearsed(change: LeverChange, foretells: Estimate) -> Outcome:
    """Take the models' passes to change as their calls did on one batch, give or take its repeats.

    Calls that the host cannot launch faster say nothing of the device. If that is so with the new
    value alone, the device takes as long at most, and at best what is foretold.
    """
    parts = [_Part.of(change, one) for one in change.timings]
    rest, foretold = foretells(change) or NOTHING, None
    if any(one.is_at_most for one in parts):
        foretold = foretells(change._replace(timings=()))

    def at_best(times: Times) -> float:
        return rest.most(_edited(times, ((one, one.best) for one in parts)))

    def at_worst(times: Times) -> float:
        return (rest.least or played_ms)(_edited(times, ((one, one.worst) for one in parts)))

    said = ", ".join(one.said for one in parts)
    return Outcome(at_best if foretold is None else foretold.most, at_worst, f"rehearsed: {said}")


class _Part(NamedTuple):
    """What a rehearsal says of some phases."""

    before_ms: float
    """Of the device's work."""
    best: float
    """Its work afterwards, as a part of that."""
    worst: float
    more_ms: float
    """What the host launches longer. No lever that is rehearsed launches less: a host that was
    quicker was so by chance."""
    is_at_most: bool
    """Whether the device may take less: the host could not launch faster."""
    said: str

    @classmethod
    def of(cls, change: LeverChange, timing: Timing) -> "_Part":
        phases_ms = change.ms_of(_phases_of(timing))
        if not phases_ms and not timing.is_frozen:
            phases_ms = change.times.device
        ratio, error = timing.after_ms / timing.before_ms, max(timing.spread, REHEARSAL_ERROR)
        is_launched = timing.before_host_ms >= LAUNCHED * timing.before_ms
        if is_launched:
            ratio, error = 1.0, 0.0
        before_ms, after_ms = map(fmt.milliseconds, (timing.before_ms, timing.after_ms))
        passes = "frozen forward passes" if timing.is_frozen else "forward and backward"
        return cls(
            min(phases_ms, change.times.device),
            ratio / (1 + error),
            ratio * (1 + error),
            max(timing.after_host_ms - timing.before_host_ms, 0.0),
            not is_launched and timing.after_host_ms >= LAUNCHED * timing.after_ms,
            f"{passes} take {after_ms} instead of {before_ms} ms",
        )


def _phases_of(timing: Timing) -> tuple[str, ...]:
    return FROZEN if timing.is_frozen else PASSES


def _edited(times: Times, parts: Iterable[tuple[_Part, float]]) -> Times:
    for part, share in parts:
        device_ms = max(times.device + part.before_ms * (share - 1), 0.0)
        times = times._replace(device=device_ms, launch=times.launch + part.more_ms)
    return times
