"""Propose what an A/B should try against a limit, best first; only the A/B shows if it helps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

from msgspec.structs import replace

from gpudash.diagnosis.gains import LEAST_PCT, Case, batches_wait, gain_of, workers_needed
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.diagnosis.rules import BUSY_HOST_PCT, DATA_PCT, WAITING_LOSSES, Limit
from gpudash.offers import refusal
from gpudash.protocol.answer import Gain, Try
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown
from gpudash.snapshot import Snapshot
from workloads.levers import Count, Lever, LeverError

NEXT = "next"
"""Stands for the lever's next higher value."""
CUDA_ONLY = frozenset({"pipelined", "pin_memory", "cuda_graph", "backward_thread"})
"""A CPU refuses these levers, or they do nothing there."""
SLOW_LOADER_PCT = 50.0
"""A step that waits for data so long has a loader that is too slow on average, whatever batches are
kept ready."""


class _Remedy(NamedTuple):
    lever: str
    value: str
    why: str
    device: Literal["cpu", "cuda"] | None = None
    """The only device it helps on; None for both."""


FUSED = (
    _Remedy("fused_optimizer", "on", "one kernel updates all weights"),
    _Remedy("fused_optimizer", "fused", "one kernel updates all weights"),
)
"""A gpudash workload knows the first value, a script the second."""
FEWER_WAITS = (
    _Remedy("loss", "minmax", "same loss, and the host never waits", "cuda"),
    _Remedy("rotation", "batched", "same images, without two waits an image", "cuda"),
    _Remedy("pin_memory", "on", "the copy no longer holds up the host"),
)
"""Against waits for the GPU within a step."""
LESS_WORK = (
    _Remedy("loss", "minmax", "same loss, no sorting, no selecting"),
    _Remedy("rotation", "batched", "same images in one go"),
)
LESS_LOADING = (
    _Remedy("input", "tensor_decode", "same samples, less work for the workers", "cuda"),
    _Remedy("input", "crop_first", "same samples, less work for the workers", "cpu"),
    _Remedy("augment_on", "gpu", "the device augments a batch at once"),
)
MORE_LOADING = _Remedy("num_workers", NEXT, "more batches are made at a time")
EVEN_LOADING = _Remedy("prefetch_factor", NEXT, "evens out batches that take longer")
WITHOUT_LOADING = _Remedy("data", "cached", "a test: the rate without any loading")
FEWER_LAUNCHES = (
    _Remedy("cuda_graph", "on", "one launch replays the whole step"),
    _Remedy("compile", "on", "fewer kernels to launch"),
    *FUSED,
    _Remedy("batch_size", NEXT, "more work for each launch"),
)
LESS_TRAFFIC = (
    _Remedy("compile", "on", "fuses pointwise work"),
    _Remedy("precision", "bf16", "half the bits to read and write"),
    *FUSED,
    _Remedy("channels_last", "on", "saves transposes"),
)
BUSY_GPU = (
    *LESS_WORK,
    _Remedy("pipelined", "on", "both halves of the step at a time"),
    _Remedy("precision", "bf16", "half the bits for tensor cores and memory"),
    _Remedy("channels_last", "on", "saves transposes"),
    _Remedy("compile", "on", "fuses pointwise work"),
    _Remedy("batch_size", NEXT, "more work for each kernel"),
    *FUSED,
)
BUSY_CPU = (
    *LESS_WORK,
    *LESS_LOADING,
    MORE_LOADING,
    EVEN_LOADING,
    _Remedy("channels_last", "on", "saves transposes"),
    _Remedy("compile", "on", "fuses pointwise work"),
    _Remedy("batch_size", NEXT, "more work for each call"),
    _Remedy("precision", "bf16", "helps where the CPU has units for it"),
    *FUSED,
    WITHOUT_LOADING,
)
REMEDIES: dict[Limit, tuple[_Remedy, ...]] = {
    "data": (
        MORE_LOADING,
        *LESS_LOADING,
        _Remedy("pin_memory", "on", "the copy runs beside the host"),
        EVEN_LOADING,
        WITHOUT_LOADING,
    ),
    "copy": (
        _Remedy("pin_memory", "on", "the copy no longer holds up the host"),
        _Remedy("pipelined", "on", "the copy runs beside training"),
        _Remedy("augment_on", "gpu", "a quarter of the bytes to copy"),
    ),
    "communication": (
        _Remedy("pipelined", "on", "prepares the next batch beside the communication"),
        _Remedy("gradient_compression", "bf16", "half the bytes to send", "cuda"),
        _Remedy("gradient_as_bucket_view", "on", "saves a copy of each gradient"),
        _Remedy("bucket_cap_mb", NEXT, "fewer and larger collectives"),
        _Remedy("batch_size", NEXT, "more work for each exchange"),
    ),
    "sync": FEWER_WAITS,
    "launch": FEWER_LAUNCHES,
    "host": (*FEWER_WAITS, *FEWER_LAUNCHES),
    "throttled": BUSY_GPU,
    "memory": LESS_TRAFFIC,
    "compute": BUSY_GPU,
    "gpu": BUSY_GPU,
    "cpu": BUSY_CPU,
    "none": (
        *FEWER_WAITS,
        _Remedy("pipelined", "on", "both halves of the step at a time"),
        _Remedy("cuda_graph", "on", "one launch replays the whole step"),
        _Remedy("batch_size", NEXT, "more work for each launch"),
        MORE_LOADING,
    ),
}
"""Remedies for each limit, from benchmarks/RESULTS.md. None keeps other jobs off the cores. Those
for `data` may help a data wait that such jobs lengthen, and those for `cpu` save work."""


def loader_workers(settings: Settings) -> int:
    """Return the number of loader workers; 0 if unknown."""
    text = settings.get("num_workers", "")
    return int(text) if text.isdecimal() else 0


def tries(
    limit: Limit, snapshot: Snapshot, levers: Sequence[Lever], step: RecentStep
) -> tuple[Try, ...]:
    """Return what to try, best first.

    Changes that an A/B has shown to be faster with these settings come first, those that it has
    judged otherwise last.
    """
    if "blocks" not in snapshot.can:
        return ()
    known = {one.name: one for one in levers if not refusal(one.name, snapshot.levers)}
    verdicts = _verdicts(snapshot)
    found = (
        Try(remedy.lever, value, remedy.why, before)
        for remedy in _fitting(limit, snapshot.settings, step)
        if remedy.lever in known
        for lever in (known[remedy.lever],)
        for before in (snapshot.settings.get(lever.name, lever.default_text),)
        for value in _values(remedy, lever, before, step)
    )
    gaining = refreshed(found, snapshot, step)
    helping = (one for one in gaining if one.gain is None or one.gain.high_pct >= LEAST_PCT)
    proven = {one.change: one for one in _proven(verdicts.values(), snapshot.settings, known)}

    def is_judged(one: Try) -> bool:
        verdict = verdicts.get((one.lever, frozenset((one.value, one.before))))
        return verdict is not None and _measured_pct(verdict, one.value)[0] <= 0

    others = (one for one in helping if one.change not in proven)
    return (*proven.values(), *sorted(others, key=is_judged))


def _verdicts(snapshot: Snapshot) -> dict[tuple[str, frozenset[str]], ComparisonShown]:
    """Return the newest verdict on each two values; one with these settings replaces others."""
    ended = (one for one in snapshot.verdicts if one.verdict)
    by_fit = sorted(ended, key=lambda one: _is_of_now(one, snapshot.settings))
    return {(one.lever, frozenset((one.a, one.b))): one for one in by_fit}


def _is_of_now(verdict: ComparisonShown, settings: Settings) -> bool:
    """Return whether the other levers had these settings."""
    others = {name: value for name, value in settings.items() if name != verdict.lever}
    return verdict.settings == others


def _measured_pct(verdict: ComparisonShown, value: str) -> tuple[float, float]:
    """Return the interval of what the change to `value` gains, in percent; (0, 0) without one."""
    if verdict.low is None or verdict.high is None:
        return 0.0, 0.0
    ends = verdict.low, verdict.high
    if value == verdict.a:  # a rate keeps at least 1 %
        low, high = (1 / max(1 + end, 0.01) - 1 for end in reversed(ends))
        ends = low, high
    return 100 * ends[0], 100 * ends[1]


def _proven(
    verdicts: Iterable[ComparisonShown], settings: Settings, known: Mapping[str, Lever]
) -> tuple[Try, ...]:
    """Return the changes that an A/B has shown to be faster with these settings, best first."""
    found = []
    for one in verdicts:
        if one.lever not in known or not one.proven or not _is_of_now(one, settings):
            continue
        before = settings.get(one.lever, known[one.lever].default_text)
        if before not in (one.a, one.b):
            continue
        value = one.a if before == one.b else one.b
        low, high = _measured_pct(one, value)
        if low > 0 and high >= LEAST_PCT:
            source = f"an A/B of {one.pairs} pairs, with the other settings as now"
            gain = Gain(low, high, source, measured=True)
            found.append((low, Try(one.lever, value, "measured by an A/B", before, gain)))
    return tuple(one for _, one in sorted(found, key=lambda pair: -pair[0]))


def refreshed(proposals: Iterable[Try], snapshot: Snapshot, step: RecentStep) -> tuple[Try, ...]:
    """Return the same changes with the gains that follow from these measurements.

    What an A/B has measured stays.
    """
    case = partial(
        Case,
        step=step,
        phases=snapshot.phases,
        workers=loader_workers(snapshot.settings),
        feeds=snapshot.settings.get("data", "loader") != "loader",
    )
    return tuple(
        one
        if one.gain is not None and one.gain.measured
        else replace(one, gain=gain_of(one.lever, case(a=one.before, b=one.value)))
        for one in proposals
    )


def _fitting(limit: Limit, settings: Settings, step: RecentStep) -> Iterator[_Remedy]:
    """Yield the remedies that can have an effect on this device, with these settings."""
    device = "cuda" if step.on_gpu else "cpu"
    waits = settings.get("loss") in WAITING_LOSSES
    resident = settings.get("data") == "resident"
    treated = _treated(limit, step)
    is_fed = treated == "cpu" and not _is_starved(step)
    is_light = is_fed and (step.taken_pct or 0.0) < DATA_PCT
    useless = {
        "loss": not waits and limit in ("sync", "host", "none"),
        "rotation": settings.get("augment_on") != "gpu",
        "pin_memory": resident,
        "cuda_graph": waits,  # the training refuses it: a graph cannot wait for a size
        # autocast adds launches: at batch 4 on an H200 bf16 made encdec 21 % slower
        "precision": (step.share_pct(step.host_ms) or 0.0) >= BUSY_HOST_PCT and step.on_gpu,
        "num_workers": is_fed or settings.get("data", "loader") != "loader" or step.no_core_free,
        # no worker prefetches, none has the time to, or batches are late on average
        "prefetch_factor": is_fed
        or settings.get("num_workers") == "0"
        or step.no_core_free
        or (step.share_pct(step.starved_ms) or 0.0) >= SLOW_LOADER_PCT,
        **(dict.fromkeys(("input", "augment_on", "data"), True) if is_light else {}),
    }
    for remedy in REMEDIES.get(treated, ()):
        here = step.on_gpu or remedy.lever not in CUDA_ONLY
        if here and remedy.device in (None, device) and not useless.get(remedy.lever):
            yield remedy


def _treated(limit: Limit, step: RecentStep) -> Limit:
    """Return the limit whose remedies are tried.

    A CPU without a free core gains by any work that is saved, in the training or in the loader.
    """
    if step.on_gpu:
        return "data" if limit == "cores" and _is_starved(step) else limit
    is_short = limit in ("data", "none") and step.taken_pct is not None
    return "cpu" if limit == "cores" or is_short else limit


def _is_starved(step: RecentStep) -> bool:
    return (step.share_pct(step.starved_ms) or 0.0) >= DATA_PCT


def _values(remedy: _Remedy, lever: Lever, active: str, step: RecentStep) -> Iterator[str]:
    """Yield the remedy's value, if the lever has it and it is not active."""
    if remedy.value not in (NEXT, *lever.values):
        return
    try:
        value = lever.step(active, +1) if remedy.value == NEXT else remedy.value
        if lever.name == "num_workers":
            enough = max(int(value), workers_needed(step, int(active)))
            most = _most_workers(step, int(active)) or int(value)
            value = lever.canonical(str(min(enough, most)))
    except LeverError:
        return
    higher = not isinstance(lever, Count) or int(value) > int(active)
    if value != active and higher:
        yield value


def _most_workers(step: RecentStep, workers: int) -> int | None:
    """Return the most loader workers to propose; None if the number of cores is unknown.

    There is a core for each. If those there mostly wait, as many again find cores.
    """
    if not step.cores or not workers:
        return step.cores
    return max(step.cores, 2 * workers) if batches_wait(step, workers) else step.cores
