"""Estimate what a change of a lever brings: how long a step of the model takes with it.

Levers say how they help by one word of `EFFECTS`. A lever brings at most the time down to the next
longest part, by the period of the changed schedule. None = nothing is known.
"""

from collections.abc import Mapping
from functools import partial
from typing import Literal, NamedTuple

from gpudash import format as fmt
from gpudash.diagnosis.input_effects import free_batches, more_workers, pinned, steady_batches
from gpudash.diagnosis.lever_change import (
    NOTHING,
    Estimate,
    LeverChange,
    Outcome,
    change_pct,
    without,
    without_ms,
)
from gpudash.diagnosis.model import played_ms
from gpudash.diagnosis.parts import (
    COLLECTING,
    COMMUNICATION,
    COPY,
    CORE,
    DATA,
    DEVICE,
    LAUNCH,
    WAIT,
    ModelPart,
    Times,
)
from gpudash.diagnosis.pass_effects import (
    FROZEN,
    NO_PASSES,
    faster_products,
    fewer_kernels,
    rehearsed,
)
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.protocol.answer import LEAST_PCT, Gain
from gpudash.protocol.training import Lever

ERROR = 0.03
"""The model's own error, as a part of the step."""
UPDATE = (3.0, 2.0)
"""Memory traffic of an update, in multiples of the weights' and of the optimizer state's size. Both
are read and written; the gradients, as large as the weights, are read."""
COMPRESSION = 4.0
"""Memory traffic of gradient compression, in multiples of the gradients' size: DDP's hook casts to
half as many bits, divides, and casts back."""

WORK = (DEVICE, WAIT)
"""What is shorter where the device works less: a host that waits for it waits as much less."""
LAUNCHES = (LAUNCH, *WORK)
"""What is shorter where less is launched."""
BESIDE = 0.25
"""What collectives take from the kernels beside them, at most: NCCL runs on up to 32 of the 108 to
132 SMs of a GPU."""
SELECTING = 0.3
"""Of a step, in the experiment that the lever is from: 1.43 times as fast without."""
OF_A_REDUCTION = 4
"""Launches for a bucket of gradients, at most: copies in and out, the collective, a scaling."""


class Effect(NamedTuple):
    """How a lever helps."""

    why: str
    estimate: Estimate | None = None
    shortens: tuple[ModelPart, ...] = WORK
    compiles: bool = False
    on: Literal["cpu", "cuda"] | None = None
    """The only device on which it helps; None for both."""

    @property
    def loads(self) -> bool:
        """Whether it is about how batches are made."""
        return DATA in self.shortens


def gain_of(change: LeverChange) -> Gain | None:
    """None if no measurement supports a range, and the parts that it shortens are worth a try."""
    effect = EFFECTS[change.helps]
    foretells = effect.estimate or (lambda _: None)
    foretold = rehearsed(change, foretells) if change.timings else foretells(change)
    found = foretold or Outcome(partial(without_ms, parts=effect.shortens))
    now_ms = change.model.step_ms * found.times_samples
    margin = ERROR + change.model.residual
    plays = [played for played in (found.least, found.most) if played is not None]
    # at most the parts go that it shortens; what a schedule does not explain of the step stays
    changes_ms = [
        max(played(one), without_ms(one, effect.shortens)) - played_ms(one) * found.times_samples
        for one in change.model.scenarios
        for played in plays
    ]
    least_ms, most_ms = now_ms + min(changes_ms), now_ms + max(changes_ms)
    low_pct = None if found.least is None else change_pct(now_ms, most_ms * (1 + margin))
    if change_pct(now_ms, least_ms) >= LEAST_PCT:  # an error alone is no gain
        least_ms *= 1 - margin
    high_pct = max(0.0, change_pct(now_ms, least_ms))
    if foretold is None and high_pct >= LEAST_PCT:
        return None
    return Gain(low_pct, high_pct, found.source, "rehearsed" if change.timings else "")


def _batched(change: LeverChange) -> Outcome | None:
    """If preparing took no time; on two streams, what it delays is unknown."""
    prepare_ms = change.step.phases_ms.get("prepare")
    if not prepare_ms or change.step.overlap_ms is not None:
        return NOTHING
    return Outcome(
        lambda times: max(played_ms(times) - prepare_ms, 0.0),
        source=f"preparing takes {fmt.milliseconds(prepare_ms)} ms {change.of_step}",
    )


def _no_selection(change: LeverChange) -> Outcome:
    """Nothing waits for a CPU: there the work goes that selecting was in the lever's source."""
    left = 1.0 if change.step.on_gpu else 1 - SELECTING
    return Outcome(
        lambda times: without_ms(times._replace(device=times.device * left), (WAIT,)),
        source="the host would launch ahead of the device"
        if change.step.on_gpu
        else f"selecting took {100 * SELECTING:.0f} % of a step in the source's experiment",
    )


def fitting_threads(step: RecentStep) -> int | None:
    """Return how many threads find a core each, a power of two, if another number may be slower.

    More threads find none where others have the cores.
    """
    cores, now = step.computing_cores, step.threads
    if now is None or not step.cores or cores < 1:
        return None
    fitting = 1 << (int(cores).bit_length() - 1)
    return fitting if now > cores or (now < fitting and not step.is_crowded) else None


def _split_among_cores(change: LeverChange) -> Outcome | None:
    """At best all work of operators is split, and no thread waits for a core any more."""
    before, after, cores = change.step.threads, int(change.value), change.step.computing_cores
    if before is None:
        return None
    share = min(before, cores) / min(after, cores)

    def at_best(times: Times) -> float:
        rest = CORE.without(times) if before > after else times
        return played_ms(rest._replace(device=times.device * share))

    return Outcome(
        at_best,
        source=f"threads of an operator: {before}, cores that are there for them: {cores:.1f}",
    )


def _pipelined(change: LeverChange) -> Outcome | None:
    """Hide the shorter half of the step, as far as SMs are free for it."""
    step = change.step
    hidden_ms = min(
        change.ms_of(each.name for each in change.snapshot.phases if each.lane == lane)
        for lane in ("prepare", "train")
    )
    source = f"the shorter half of the step takes {fmt.milliseconds(hidden_ms)} ms {change.of_step}"
    if step.sm_active_pct is not None:
        hidden_ms = min(hidden_ms, change.model.step_ms * (100 - step.sm_active_pct) / 100)
        source += f", and the SMs are active {fmt.percent(step.sm_active_pct)} of the time"
    return Outcome(lambda times: played_ms(times) - hidden_ms, source=source)


def _one_launch(change: LeverChange) -> Outcome | None:
    if any(one.waits for one in change.model.scenarios) and change.step.profile is not None:
        return NOTHING  # a graph cannot wait
    return without(change, (LAUNCH,), change.works)


def _more_samples(change: LeverChange) -> Outcome | None:
    """Take no longer for more samples until the device's work fills the step."""
    times_samples = int(change.value) / max(int(change.before), 1)
    works_ms = change.times.device + change.times.copy
    if times_samples <= 1 or works_ms >= 0.9 * change.model.step_ms:
        return NOTHING  # a busy device takes longer for more samples

    def as_long(times: Times) -> float:  # the input has more to do in any case
        return played_ms(
            times._replace(
                data=times.data * times_samples,
                loader=times.loader * times_samples,
                copy=times.copy * times_samples,
            )
        )

    def longer(times: Times) -> float:
        return as_long(times._replace(device=times.device * times_samples))

    is_fed = change.snapshot.settings.get("data", "loader") != "loader"  # no loader is too slow
    source = f"{change.works}, then at most {fmt.milliseconds(longer(change.times))} ms"
    return Outcome(as_long, longer if is_fed else None, source, times_samples)


def _one_update(change: LeverChange) -> Outcome | None:
    """Fuse all weights into one kernel, bounded by memory bandwidth."""
    forms = ("single", "foreach", "fused")  # the later the fewer kernels
    if change.before in forms and change.value in forms[: forms.index(change.before) + 1]:
        return NOTHING
    optimizer_ms = change.step.phases_ms.get("optimizer")
    least_ms = change.traffic_ms(*UPDATE)
    if not optimizer_ms:
        return None
    source = f"the optimizer takes {fmt.milliseconds(optimizer_ms)} ms"
    if least_ms is not None:
        source += f", its memory traffic at least {fmt.milliseconds(least_ms)} ms,"
    saved_ms = max(optimizer_ms - (least_ms or 0.0), 0.0)
    return Outcome(lambda times: played_ms(times) - saved_ms, source=f"{source} {change.of_step}")


def _half_the_bytes(change: LeverChange) -> Outcome | None:
    """Halve the exposed communication and hide the casts, at best."""
    exposed_ms = change.times.communication
    source = f"nothing but communication runs {fmt.milliseconds(exposed_ms)} ms {change.of_step}"
    casts_ms = change.traffic_ms(COMPRESSION)
    if casts_ms is not None:
        source += f", and casts take {fmt.milliseconds(casts_ms)} ms"
    return Outcome(
        lambda times: played_ms(times) - exposed_ms / 2,
        None if casts_ms is None else lambda times: played_ms(times) - exposed_ms / 2 + casts_ms,
        source,
    )


def _fewer_reductions(change: LeverChange) -> Outcome | None:
    """Leave one pass's share of what is exposed, taken from kernels, and launched.

    At worst the ranks wait as long for a slower one, once.
    """
    step, saved = change.step, change.share
    # the rank that waits least in its collectives waits for no slower one
    collective_ms, waits_ms = map(change.least_of_ranks, ("collective_ms", "communication_ms"))
    if step.exposed_ms is None and collective_ms is None:
        return None
    exposed_ms = step.exposed_ms or 0.0
    beside_ms = max((collective_ms or 0.0) - exposed_ms, 0.0) if step.on_gpu else 0.0

    counts = {} if step.profile is None else step.profile.counts
    launches = OF_A_REDUCTION * counts.get("collectives", 0.0) / (counts.get("launches") or 1.0)

    def left(times: Times, beside_ms: float, exposed_ms: float, launches: float = 0.0) -> float:
        device_ms = max(times.device - saved * beside_ms, 0.0)
        left_ms = times.communication - saved * min(exposed_ms, times.communication)
        launch_ms = times.launch * (1 - saved * min(launches, 1.0))
        return played_ms(times._replace(device=device_ms, communication=left_ms, launch=launch_ms))

    return Outcome(
        lambda times: left(times, BESIDE * beside_ms, times.communication, launches),
        None if waits_ms is None else lambda times: left(times, 0.0, waits_ms),
        f"nothing but communication runs {fmt.milliseconds(exposed_ms)} ms, "
        f"and collectives beside kernels {fmt.milliseconds(beside_ms)}, {change.of_step}",
    )


BF16 = partial(faster_products, to="bf16", acts_on=lambda phase: phase not in NO_PASSES)
EFFECTS: Mapping[str, Effect] = {
    "more workers": Effect("more batches are made at a time", more_workers, (DATA,)),
    "batches ahead": Effect("evens out batches that take longer", steady_batches, (DATA,)),
    "no loading": Effect("a probe: the rate without any loading", free_batches, (DATA, CORE)),
    "less loading": Effect("same samples, less work for the workers", free_batches, (DATA, CORE)),
    "loading on the device": Effect(
        "the device does it for a batch at once", free_batches, (DATA, CORE)
    ),
    "pinned copy": Effect("the copy no longer holds up the host", pinned, (COPY,), on="cuda"),
    "batched work": Effect("same result in one go, without waits", _batched, LAUNCHES),
    "no waits": Effect(
        "same result with less work, and the host never waits", _no_selection, (WAIT, DEVICE)
    ),
    # a script may ask for collections itself: these are no fewer
    "rarer collections": Effect("Python looks less often", shortens=(COLLECTING,)),
    "fewer collections": Effect(
        "Python looks at fewer objects",
        partial(without, parts=(COLLECTING,), said="Python collects garbage {ms} ms {of}"),
        (COLLECTING,),
    ),
    "as many threads as cores": Effect(
        "a core for each thread", _split_among_cores, (DEVICE, CORE), on="cpu"
    ),
    "halves at a time": Effect(
        "both halves of the step at a time", _pipelined, (COPY, *LAUNCHES), on="cuda"
    ),
    "one launch": Effect("one launch replays the whole step", _one_launch, (LAUNCH,), on="cuda"),
    "fewer kernels": Effect("fewer kernels to launch", fewer_kernels, LAUNCHES, compiles=True),
    "more samples": Effect("more work for each launch", _more_samples, LAUNCHES),
    "one update": Effect("one kernel updates all weights", _one_update, LAUNCHES),
    "tf32": Effect(
        "products on the tensor cores",
        partial(faster_products, to="tf32", acts_on=lambda phase: phase != "optimizer"),
        on="cuda",
    ),
    "bf16": Effect("half the bits for cores and memory", BF16, (*WORK, COMMUNICATION)),
    "image order": Effect("saves transposes"),
    "half the bytes": Effect(
        "half the bytes to send", _half_the_bytes, (COMMUNICATION,), on="cuda"
    ),
    "fewer reductions": Effect(
        "gradients are averaged once a step", _fewer_reductions, (COMMUNICATION, *LAUNCHES)
    ),
    "fewer collectives": Effect("fewer and larger collectives", shortens=(COMMUNICATION,)),
    "fewer gradient copies": Effect("saves a copy of each gradient", shortens=(COMMUNICATION,)),
    "fewer kernels in frozen models": Effect(
        "fewer kernels to launch", partial(fewer_kernels, passes=FROZEN), LAUNCHES, compiles=True
    ),
    "image order in frozen models": Effect("saves transposes"),
    "bf16 in frozen models": Effect(
        "half the bits for cores and memory", partial(BF16, acts_on=FROZEN.__contains__)
    ),
}


def helps_of(lever: Lever) -> dict[str, str]:
    return {value: word for value, word in lever.helps if word in EFFECTS}
