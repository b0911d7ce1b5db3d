"""Estimate what a change of a lever brings: how long a step of the model takes with it.

Levers say how they help by one word of `EFFECTS`, beside their definition. A lever brings at most
the time down to the next longest part, by the period of the changed schedule. None = nothing is
known.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Literal, NamedTuple, TypeAlias

from gpudash import format as fmt
from gpudash.diagnosis.model import Model, PartName, Times, played_ms
from gpudash.diagnosis.profiled_step import (
    pin_ms,
    pinned_copy_ms,
    pinning_of,
    product_kernels,
    products_of,
    traffic_ms,
)
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.answer import Gain
from gpudash.protocol.inspections import Timing
from gpudash.protocol.training import Phase

ERROR = 0.03
"""The model's own error, as a part of the step."""
LEAST_PCT = 5.0
"""A smaller gain is inside the model's error."""
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
UPDATE = (3.0, 2.0)
"""Memory traffic of an update, in multiples of the weights' and of the optimizer state's size. Both
are read and written; the gradients, as large as the weights, are read."""
COMPRESSION = 4.0
"""Memory traffic of gradient compression, in multiples of the gradients' size: DDP's hook casts to
half as many bits, divides, and casts back."""
AUTOCAST = 0.6
"""Launches that autocast adds at most, as a part of those there. In benchmarks/causes launch-bound
steps became up to 1.5 times as long."""
SPEED = {"fp32": 1.0, "cudnn_tf32": 1.0, "tf32": 8.0, "bf16": 16.0}
"""How fast GPUs since 2020 multiply, at most, in multiples of fp32 without tensor cores."""
IDLE_TENSOR_PCT = 10.0
"""A device whose tensor cores are busier multiplies on them already."""
PASSES = ("forward", "backward")
"""Phases that a rehearsal repeats, and that are compiled."""
LAUNCHED = 0.9
"""A rehearsal is bound by launches if the host is busy for this part of it."""
REHEARSAL_ERROR = 0.05
"""Of what a rehearsal measures: caches and clocks differ from those within a step."""

Played: TypeAlias = Callable[[Times], float]
"""Returns the duration of a step with a change, in ms."""


class LeverChange(NamedTuple):
    """A change of a lever, and what is measured."""

    helps: str
    """A word of `EFFECTS`."""
    before: str
    value: str
    step: RecentStep
    model: Model
    phases: tuple[Phase, ...] = ()
    workers: int = 0
    """Workers of the data loader."""
    feeds: bool = False
    """Whether batches are there at any rate, because no loader makes them."""
    timing: Timing | None = None
    """What a rehearsal of the change took."""

    @property
    def times(self) -> Times:
        """The first schedule that the measurements allow."""
        return self.model.scenarios[0]


class Outcome(NamedTuple):
    """What a change does to a step."""

    most: Played
    """At best."""
    least: Played | None = None
    """At worst; None if only the best is known."""
    source: str = ""
    times_samples: float = 1.0
    """Samples of a step, as a multiple of the present ones."""


NOTHING = Outcome(played_ms)
"""It is known to bring nothing."""


class Effect(NamedTuple):
    """How a lever helps."""

    why: str
    """In words, for the user."""
    estimate: Callable[[LeverChange], Outcome | None] | None = None
    """None if no measurement supports a figure."""
    shortens: tuple[PartName, ...] = ("device",)
    """The parts that it can shorten."""
    compiles: bool = False
    on: Literal["cpu", "cuda"] | None = None
    """The only device on which it helps; None for both."""


def gain_of(change: LeverChange) -> Gain | None:
    """Return the range of what the change gains; None if no measurement supports one."""
    effect = EFFECTS.get(change.helps)
    found = effect.estimate(change) if effect is not None and effect.estimate is not None else None
    if change.timing is not None:  # measured, not foretold
        found = _rehearsed(change, change.timing, found)
    if found is None:
        return None
    now_ms = change.model.step_ms * found.times_samples
    margin = ERROR + change.model.residual
    plays = [played for played in (found.least, found.most) if played is not None]
    # what a schedule does not explain of the step stays as it is, and is no gain
    changes_ms = [
        played(one) - played_ms(one) * found.times_samples
        for one in change.model.scenarios
        for played in plays
    ]
    least_ms, most_ms = now_ms + min(changes_ms), now_ms + max(changes_ms)
    low_pct = None if found.least is None else _change_pct(now_ms, most_ms * (1 + margin))
    if least_ms >= now_ms * (1 - 1e-9):
        return Gain(low_pct, 0.0, found.source)
    if _change_pct(now_ms, least_ms) >= LEAST_PCT:  # an error alone is no gain
        least_ms *= 1 - margin
    high_pct = _change_pct(now_ms, least_ms)
    return Gain(low_pct, high_pct, found.source)


def can_help(change: LeverChange, least_ms: float) -> bool:
    """Return whether a lever without an estimate may save so much: if the part took no time."""
    shortens = EFFECTS[change.helps].shortens
    return any(change.model.without(part).high >= least_ms for part in shortens)


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


# ── the input ───────────────────────────────────────────────────────────────────────────


def _more_workers(change: LeverChange) -> Outcome | None:
    before, after, starved_ms = int(change.before), int(change.value), change.times.data
    step = change.step
    if not starved_ms or after <= before or (step.no_core_free and not batches_wait(step, before)):
        return NOTHING
    # one worker's time for a batch
    batch_ms = change.model.step_ms * before if before else starved_ms
    least_ms, usual_ms = (0.0, 0.0) if before else HANDED_MS

    def with_(efficiency: float, handed_ms: float) -> Played:
        makes_ms = (batch_ms + handed_ms) / (before + (after - before) * efficiency)
        return lambda times: max(
            played_ms(times._replace(data=0.0, loader=0.0)) + handed_ms, makes_ms
        )

    gets_cores = (step.core_wait_pct or 0.0) < CORE_WAIT_WARNS_PCT
    has_least = gets_cores and (before > 0 or batch_ms >= LONG_MS)
    rest_ms = change.model.step_ms - starved_ms
    return Outcome(
        with_(1.0, least_ms),
        with_(ADDED_WORKER, usual_ms) if has_least else None,
        f"a worker makes a batch in {fmt.milliseconds(batch_ms)} ms; "
        f"without the wait a step takes {fmt.milliseconds(rest_ms)} ms",
    )


def _steady_batches(change: LeverChange) -> Outcome | None:
    times = change.times
    if not change.workers or change.step.no_core_free or times.data >= LATE * times.step:
        return NOTHING
    return _fewer_waits_for_data(change)


def _free_batches(change: LeverChange) -> Outcome | None:
    """On a CPU the wait alone is no bound: loader workers also keep the training off the cores."""
    held_up = _held_up(change)
    if held_up is None or held_up[0] <= change.times.data:
        return _fewer_waits_for_data(change)
    held_up_ms, source = held_up
    return Outcome(lambda times: played_ms(times) - held_up_ms, source=source)


def _fewer_waits_for_data(change: LeverChange) -> Outcome:
    waits = f"the step waits {fmt.milliseconds(change.times.data)} ms for data of {_ms(change)}"
    return Outcome(lambda times: played_ms(times._replace(data=0.0, loader=0.0)), source=waits)


def _held_up(change: LeverChange) -> tuple[float, str] | None:
    """Return for how many ms loader workers hold up a step at most, and what is assumed for it.

    None where they do not.

    The training's threads wait for each other, so a worker that runs on the core of one may hold up
    all. But the threads get their part of each core. The time in which other jobs have the cores is
    shared by workers and training.
    """
    step, starved_ms = change.step, change.times.data
    if step.taken_pct is None or not step.loader_cores or not step.busy_cores or not step.step_ms:
        return None
    ran_ms = step.step_ms * step.loader_cores / min(step.busy_cores, 1.0)
    beside = ceil(change.workers / step.cores) if change.workers and step.cores else 1
    most_ms = starved_ms + (step.step_ms - starved_ms) * beside / (beside + 1)
    ran = f"{fmt.milliseconds(ran_ms)} ms of a core in a step of {_ms(change)}"
    if step.busy_cores < 1:  # other jobs have the rest
        ran = f"{fmt.percent(step.loader_pct)} of the CPU time of a step of {_ms(change)}"
    assumed = "stands still meanwhile"
    if ran_ms > most_ms:
        assumed = f"stands still for {fmt.milliseconds(most_ms)} ms, as cores are shared evenly"
    return min(ran_ms, most_ms), f"loader workers use {ran}; at most the training {assumed}"


def _pinned(change: LeverChange) -> Outcome | None:
    """At best, pinning a batch is hidden. If it takes longer than a step, it is the limit.

    At worst nothing is hidden, and both take as long as in the slowest measurement.
    """
    copying_ms, pinning = change.times.copy, pinning_of(change.step)
    if not copying_ms:
        return NOTHING
    if pinning is None:
        source = f"a batch is copied in {fmt.milliseconds(copying_ms)} ms of {_ms(change)}"
        least_ms = STAGED * copying_ms

        def staged(times: Times) -> float:
            return max(played_ms(times._replace(copy=0.0)), least_ms)

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
        f"{fmt.milliseconds(pinning.copy_ms)}, now in {fmt.milliseconds(copying_ms)} of "
        f"{_ms(change)}",
    )


# ── the step ────────────────────────────────────────────────────────────────────────────


def _batched(change: LeverChange) -> Outcome | None:
    """If preparing took no time; on two streams, what it delays is unknown."""
    prepare_ms = change.step.phases_ms.get("prepare")
    if not prepare_ms or change.step.overlap_ms is not None:
        return NOTHING
    source = f"preparing takes {fmt.milliseconds(prepare_ms)} ms of {_ms(change)}"
    return Outcome(lambda times: max(played_ms(times) - prepare_ms, 0.0), source=source)


def _never_waiting(change: LeverChange) -> Outcome | None:
    """If the host went on launching where it now waits for the device."""
    if not any(one.waits for one in change.model.scenarios):
        return NOTHING
    source = "the host would launch ahead of the device"
    return Outcome(lambda times: played_ms(times._replace(waits=False)), source=source)


def _pipelined(change: LeverChange) -> Outcome | None:
    """Hide the shorter half of the step, as far as SMs are free for it."""
    step = change.step
    halves_ms = [_half_ms(change, lane) for lane in ("prepare", "train")]
    if not min(halves_ms):
        return NOTHING
    # the few steps whose phases were measured may be slower than the rest
    hidden_ms = min(halves_ms) * min(change.model.step_ms / sum(halves_ms), 1.0)
    source = f"the shorter half of the step takes {fmt.milliseconds(hidden_ms)} ms of {_ms(change)}"
    if step.sm_active_pct is not None:
        free_ms = change.model.step_ms * (100 - step.sm_active_pct) / 100
        hidden_ms = min(hidden_ms, free_ms)
        source += f", and the SMs are active {fmt.percent(step.sm_active_pct)} of the time"
    return Outcome(lambda times: played_ms(times) - hidden_ms, source=source)


def _half_ms(change: LeverChange, lane: str) -> float:
    names = (each.name for each in change.phases if each.lane == lane)
    return sum(change.step.phases_ms.get(name, 0.0) for name in names)


def _one_launch(change: LeverChange) -> Outcome | None:
    """Device work and data wait remain; at worst the host saves its calls alone."""
    if any(one.waits for one in change.model.scenarios) and change.step.profile is not None:
        return NOTHING  # a graph cannot wait
    profile = change.step.profile
    source = _works(change)
    launch_ms = profile.launch_ms if profile is not None else None

    def at_worst(times: Times) -> float:
        return played_ms(times._replace(host=max(times.host - (launch_ms or 0.0), times.code)))

    if launch_ms is not None:
        source += f"; launching takes {fmt.milliseconds(launch_ms)} ms"
    return Outcome(
        lambda times: played_ms(times._replace(host=times.code)),
        at_worst if launch_ms is not None else None,
        source,
    )


def _fewer_kernels(change: LeverChange) -> Outcome | None:
    """If forward and backward pass launched products alone, and computed nothing else.

    The rest of the step is not compiled. A product takes a launch as long as now.
    """
    step, profile = change.step, change.step.profile
    update_ms = step.phases_ms.get("optimizer", 0.0)
    passes_ms = sum(step.phases_ms.get(name, 0.0) for name in PASSES) or change.model.step_ms
    device_ms = max(change.times.device - update_ms, 0.0)
    launched = 0.0
    if profile is not None and profile.kernels:
        products = product_kernels(profile)
        products_ms = min(sum(one.ms for one in products), device_ms)
        others_ms = device_ms - products_ms
        launches = sum(one.count for one in profile.kernels)
        launched = sum(one.count for one in products) / launches
    else:
        active, dram = step.sm_active_pct, step.dram_active_pct
        others_ms = device_ms * min(dram / active, 1.0) if active and dram is not None else 0.0
    source = f"{_works(change)}, {fmt.milliseconds(others_ms)} ms of it no products"

    def play(times: Times) -> float:
        least_ms = min(times.code + update_ms, times.host)
        host_ms = max(times.host - passes_ms * (1 - launched), least_ms)
        device_ms = max(times.device - min(others_ms, passes_ms), 0.0)
        return played_ms(times._replace(host=host_ms, device=device_ms))

    return Outcome(play, source=source)


def _more_samples(change: LeverChange) -> Outcome | None:
    """More samples for the same launches: no longer until the device's work fills the step."""
    times_samples = int(change.value) / max(int(change.before), 1)
    works_ms = change.times.device + change.times.copy
    if times_samples <= 1 or works_ms >= 0.9 * change.model.step_ms:
        return NOTHING  # a busy device takes longer for more samples

    def as_long(times: Times) -> float:  # the input has more to do in any case
        data_ms, loader_ms = times.data * times_samples, times.loader * times_samples
        copy_ms = times.copy * times_samples
        return played_ms(times._replace(data=data_ms, loader=loader_ms, copy=copy_ms))

    def longer(times: Times) -> float:
        return as_long(times._replace(device=times.device * times_samples))

    longer_ms = fmt.milliseconds(longer(change.times))
    source = f"{_works(change)}, then at most {longer_ms} ms"
    return Outcome(as_long, longer if change.feeds else None, source, times_samples)


def _one_update(change: LeverChange) -> Outcome | None:
    """All weights in one kernel, bounded by memory bandwidth."""
    forms = ("single", "foreach", "fused")  # the later the fewer kernels
    known = change.before in forms and change.value in forms
    if known and forms.index(change.value) <= forms.index(change.before):
        return NOTHING
    optimizer_ms = change.step.phases_ms.get("optimizer")
    least_ms = traffic_ms(change.step, *UPDATE)
    if not optimizer_ms:
        return None
    source = f"the optimizer takes {fmt.milliseconds(optimizer_ms)} ms"
    if least_ms is not None:
        source += f", its memory traffic at least {fmt.milliseconds(least_ms)} ms,"
    saved_ms = min(max(optimizer_ms - (least_ms or 0.0), 0.0), change.model.step_ms)
    return Outcome(lambda times: played_ms(times) - saved_ms, source=f"{source} of {_ms(change)}")


def _tf32(change: LeverChange) -> Outcome | None:
    return _faster_products(change, "tf32")


def _bf16(change: LeverChange) -> Outcome | None:
    """Faster products, half the traffic elsewhere, less the casts; autocast adds launches."""
    return _faster_products(change, "bf16")


def _faster_products(change: LeverChange, to: Literal["tf32", "bf16"]) -> Outcome | None:
    if not change.step.on_gpu:
        return None  # it depends on the CPU's units
    if change.before not in SPEED:
        return None
    if SPEED[change.before] >= SPEED[to]:
        return NOTHING
    step = change.step
    products = products_of(step, to)
    optimizer_ms = step.phases_ms.get("optimizer", 0.0)  # in the weights' precision
    more = AUTOCAST if to == "bf16" else 0.0

    def with_(saved_ms: float, launches: float) -> Played:
        def play(times: Times) -> float:
            launch_ms = (times.host - times.code) * launches
            device_ms = max(times.device - saved_ms, 0.0)
            return played_ms(times._replace(host=times.host + launch_ms, device=device_ms))

        return play

    if products is not None:
        others_ms = max(change.times.device - products.ms - optimizer_ms, 0.0)
        saved_ms = products.ms - products.new_ms
        best_ms = saved_ms + (others_ms / 2 if to == "bf16" and products.ms else 0.0)
        worst_ms = products.ms - products.slow_ms - (products.cast_ms if to == "bf16" else 0.0)
        source = (
            f"products take {fmt.milliseconds(products.ms)} ms, in {to} at best "
            f"{fmt.milliseconds(products.new_ms)}, of {_ms(change)}"
        )
        return Outcome(with_(best_ms, 0.0), with_(worst_ms, more), source)
    if change.before == "cudnn_tf32" and to == "tf32":
        return None  # what is no convolution is not known
    active, dram, tensor = step.sm_active_pct, step.dram_active_pct, step.tensor_active_pct
    memory = min(dram / active, 1.0) if active and dram is not None else 0.0
    at_work_ms = max(change.times.device - optimizer_ms, 0.0)
    is_used = change.before == "cudnn_tf32" and (tensor or 0.0) >= IDLE_TENSOR_PCT
    ratio = SPEED[to] / SPEED["tf32" if is_used else change.before]
    saved_ms = at_work_ms * (1 - memory) * (1 - 1 / ratio)
    saved_ms += at_work_ms * memory / 2 if to == "bf16" else 0.0
    source = f"tensor cores are active {fmt.percent(tensor)} of the time, SMs {fmt.percent(active)}"
    return Outcome(with_(saved_ms, 0.0), with_(0.0, more) if more else None, source)


def _rehearsed(change: LeverChange, timing: Timing, foretold: Outcome | None) -> Outcome:
    """Forward and backward pass change as they did on one batch, give or take its repeats.

    A rehearsal that the host cannot launch faster says nothing of the device. If that is so with
    the new value alone, the device takes as long at most, and at best what is foretold.
    """
    phases_ms = sum(change.step.phases_ms.get(name, 0.0) for name in PASSES)
    passes_ms = min(phases_ms or change.times.device, change.times.device)
    more_ms = timing.after_host_ms - timing.before_host_ms
    ratio, error = timing.after_ms / timing.before_ms, max(timing.spread, REHEARSAL_ERROR)
    is_launched = timing.before_host_ms >= LAUNCHED * timing.before_ms
    if is_launched:
        ratio, error = 1.0, 0.0

    def with_(ratio: float) -> Played:
        def play(times: Times) -> float:
            device_ms = times.device + passes_ms * (ratio - 1)
            host_ms = max(times.host + more_ms, times.code)
            return played_ms(times._replace(device=max(device_ms, 0.0), host=host_ms))

        return play

    source = (
        f"rehearsed: forward and backward take {fmt.milliseconds(timing.after_ms)} instead of "
        f"{fmt.milliseconds(timing.before_ms)} ms"
    )
    best = with_(ratio / (1 + error))
    if timing.after_host_ms >= LAUNCHED * timing.after_ms and not is_launched:
        best = foretold.most if foretold is not None else best
    return Outcome(best, with_(ratio * (1 + error)), source)


def _half_the_bytes(change: LeverChange) -> Outcome | None:
    """At best half of the exposed communication goes, and the casts are hidden."""
    exposed_ms = change.times.communication
    if not exposed_ms:
        return NOTHING
    source = f"nothing but communication runs {fmt.milliseconds(exposed_ms)} ms of {_ms(change)}"
    casts_ms = traffic_ms(change.step, COMPRESSION)
    if casts_ms is not None:
        source += f", and casts take {fmt.milliseconds(casts_ms)} ms"
    return Outcome(
        lambda times: played_ms(times) - exposed_ms / 2,
        None if casts_ms is None else lambda times: played_ms(times) - exposed_ms / 2 + casts_ms,
        source,
    )


def _works(change: LeverChange) -> str:
    return f"the device works {fmt.milliseconds(change.times.device)} of {_ms(change)}"


def _ms(change: LeverChange) -> str:
    return f"{fmt.milliseconds(change.model.step_ms)} ms"


def _change_pct(before_ms: float, after_ms: float) -> float:
    """Return the change in throughput in percent; a step keeps at least 1 % of its time."""
    return 100 * (before_ms / max(after_ms, before_ms / 100) - 1)


DATA: tuple[PartName, ...] = ("data",)
EFFECTS: Mapping[str, Effect] = {
    "more workers": Effect("more batches are made at a time", _more_workers, shortens=DATA),
    "batches ahead": Effect(
        "evens out batches that take longer", _steady_batches, shortens=("data",)
    ),
    "no loading": Effect("a test: the rate without any loading", _free_batches, shortens=DATA),
    "less loading": Effect(
        "same samples, less work for the workers", _free_batches, shortens=("data",)
    ),
    "loading on the device": Effect(
        "the device does it for a batch at once", _free_batches, shortens=("data",)
    ),
    "pinned copy": Effect("the copy no longer holds up the host", _pinned, on="cuda"),
    "batched work": Effect("same result in one go, without waits", _batched),
    "no waits": Effect("same result, and the host never waits", _never_waiting, on="cuda"),
    "halves at a time": Effect("both halves of the step at a time", _pipelined, on="cuda"),
    "one launch": Effect("one launch replays the whole step", _one_launch, on="cuda"),
    "fewer kernels": Effect("fewer kernels to launch", _fewer_kernels, compiles=True),
    "more samples": Effect("more work for each launch", _more_samples),
    "one update": Effect("one kernel updates all weights", _one_update),
    "tf32": Effect("products on the tensor cores", _tf32, on="cuda"),
    "bf16": Effect("half the bits for cores and memory", _bf16),
    "image order": Effect("saves transposes"),
    "half the bytes": Effect("half the bytes to send", _half_the_bytes, on="cuda"),
    "fewer collectives": Effect("fewer and larger collectives", shortens=("communication",)),
    "fewer gradient copies": Effect("saves a copy of each gradient", shortens=("communication",)),
}
"""How levers help: the words that `helps` of a lever may have."""
