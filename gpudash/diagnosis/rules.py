"""State each possible limit of a training as a rule with a value and a threshold.

Rules are tried in order, and the first one that matches is the answer. A rule whose value was not
measured never matches. docs/concepts/diagnosis.md explains the rules and their thresholds.
"""

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple, TypeAlias

from gpudash.diagnosis.recent_step import RecentStep
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.records import Settings
from gpudash.protocol.session import Straggler
from gpudash.snapshot import Snapshot
from gpudash.trace.summary import Summary

Limit: TypeAlias = Literal[
    "asides",  # evaluation and checkpoints
    "cores",  # other jobs use them
    "straggler",  # the others wait for one rank
    "data",
    "copy",
    "communication",
    "sync",
    "launch",
    "host",  # launching or waiting: only a profile can distinguish them
    "throttled",
    "memory",
    "compute",
    "gpu",  # where it is not measured what the GPU is busy with
    "cpu",
    "none",  # no single thing
    "unknown",
]
"""What limits a training."""

ASIDES_PCT = 50.0
"""Percent of the time in evaluation and checkpoints."""
STRAGGLER_PCT = 1.0
"""The others' wait for a named rank, in percent of the step. The rank's own delay is larger, as a
part of it may be hidden."""
DATA_PCT = 10.0
"""As other tools have it: an input wait of 10 % of the step warns, 20 % is critical."""
LOADER_PCT = 50.0
"""Percent of the training's CPU time in loader workers, where both share a CPU: the larger part."""
COPY_PCT = 20.0
"""The critical value of a wait. A copy's phase also includes the time until its launch."""
LOST_PCT = 10.0
"""Percent of the step, as for data: the device idles for a cause that a profile or the driver
shows."""
WAITS_PCT = 20.0
"""The critical value of a wait: the host's, with a setting that makes it wait."""
HOST_PCT = 90.0
"""benchmarks/RESULTS.md, encdec on an H200: a launch-bound step had 100 %. At 82 % the GPU was the
limit: a second stream gained 17 %, with the host's time unchanged."""
BUSY_HOST_PCT = 75.0
"""From here on, an idle GPU waits for the host, and the host has no time for more launches."""
THROTTLED_PCT = 30.0
"""Percent of the clock. A power cap costs large matmuls some of it by design."""
DRAM_PCT = 60.0
"""Percent of peak bandwidth; Nsight Compute calls a unit a kernel's limit from 60 % on."""
SM_PCT = 80.0
"""Percent of the time. Under a large matmul an H200 reads 96 %."""
DEVICE_PCT = 90.0
"""As other tools have it: from here on a step is called compute-bound."""
CPU_PCT = 50.0
"""The larger part. A CPU that does not compute is not idle: it makes batches, or runs your code."""
BESIDE: frozenset[Limit] = frozenset({"asides", "cores", "straggler"})
"""Limits that are not a part of a single process's step."""
HYSTERESIS_PCT = 2.0
"""An answer stands until its value is this far below the threshold, so that it does not flicker."""
WAITING_LOSSES = ("nonzero", "where", "counted")


class Rule(NamedTuple):
    """A possible limit: a value of the recent steps, and its threshold."""

    kind: Limit
    label: str
    """What the value measures."""
    value_pct: float | None
    from_pct: float
    beaten: str = ""
    """Why the rule does not match, whatever its value."""

    def matches(self, before: str | None = None) -> bool:
        """Return whether the rule matches; `before` does so a little below its threshold."""
        if self.value_pct is None or self.beaten:
            return False
        return self.value_pct >= self.from_pct - HYSTERESIS_PCT * (self.kind == before)


def rules(snapshot: Snapshot, step: RecentStep, *, launches: bool = False) -> tuple[Rule, ...]:
    """Return every rule with its value, in the order in which they are tried.

    `launches` says that the host is known never to wait.
    """
    profile, waits = step.profile, known_waits(snapshot.settings)
    first = (
        Rule("asides", "evaluation and checkpoints", step.aside_pct, ASIDES_PCT),
        *_by_cores_or_rank(step, snapshot.straggler),
        _by_wait(step),
    )
    exposed_pct = step.share_pct(step.exposed_ms)
    exposed = Rule("communication", "the step only communicates", exposed_pct, LOST_PCT)
    if not step.on_gpu:
        loader = Rule("data", "CPU time of the loader workers", step.taken_pct, LOADER_PCT)
        return (*first, loader, exposed, Rule("cpu", "the CPU computes", step.at_work_pct, CPU_PCT))
    copies = step.share_pct(step.copy_ms)
    return (
        *first,
        Rule("copy", "a copy runs, and nothing beside it", copies, COPY_PCT),
        exposed,
        *(_by_profile(step, profile, waits) if profile is not None else ()),
        *(_by_host(step, "sync") if profile is None and waits else ()),
        Rule("throttled", "of its clock the GPU is denied", step.throttled_pct, THROTTLED_PCT),
        _bandwidth(step),
        Rule("compute", "the SMs are active", step.sm_active_pct, SM_PCT),
        *(
            _by_host(step, "launch" if launches else "host")
            if profile is None and not waits
            else ()
        ),
        Rule("gpu", "the GPU is at work on a step", step.at_work_pct, DEVICE_PCT),
    )


def known_waits(settings: Settings) -> Settings:
    """Return the `waiting_levers` that wait for the GPU's work; a copy has its own phase."""
    waiting = waiting_levers(settings)
    return {name: value for name, value in waiting.items() if name != "pin_memory"}


def waiting_levers(settings: Settings) -> Settings:
    """Return the settings that are known to make the host wait for the GPU within a step."""
    waits = {
        "loss": settings.get("loss") in WAITING_LOSSES,
        "rotation": settings.get("rotation") == "per_image" and settings.get("augment_on") == "gpu",
        "pin_memory": settings.get("pin_memory") == "off" and settings.get("data") != "resident",
    }
    return {name: settings[name] for name, waits_now in waits.items() if waits_now}


def limit_of(asked: Iterable[Rule], before: str | None = None) -> Limit:
    """Return the kind of the first rule that matches, or why there is none."""
    within_step = False
    for rule in asked:
        if rule.matches(before):
            return rule.kind
        within_step |= rule.value_pct is not None and rule.kind not in BESIDE
    return "none" if within_step else "unknown"


def _by_cores_or_rank(step: RecentStep, straggler: Straggler | None) -> tuple[Rule, ...]:
    """Return the rules for causes outside a rank: missing cores and a slow rank, the larger first.

    If no rank is late, the data wait that would remain with every core comes before both.
    """
    cores = Rule("cores", "the training waits for a core", step.core_wait_pct, CORE_WAIT_WARNS_PCT)
    by_rank = _by_rank(step, straggler) if straggler is not None else ()
    own_wait = () if by_rank else _by_own_wait(step)
    return (*own_wait, *sorted((cores, *by_rank), key=lambda one: -(one.value_pct or 0.0)))


def _by_own_wait(step: RecentStep) -> tuple[Rule, ...]:
    """Return the rule for the data wait that other jobs do not explain.

    With every core it wants, the training would be faster by at most its core wait.
    """
    starved_pct = step.share_pct(step.starved_ms)
    if starved_pct is None or step.core_wait_pct is None:
        return ()
    left_pct = max(starved_pct - step.core_wait_pct, 0.0)
    from_pct = max(_data_from_pct(step) - step.core_wait_pct, DATA_PCT)
    return (Rule("data", "the data wait beyond the core wait", left_pct, from_pct),)


def _by_wait(step: RecentStep) -> Rule:
    """Return the rule for the wait for data."""
    label = "the step waits for data" if step.on_gpu else "the step mainly waits for data"
    return Rule("data", label, step.share_pct(step.starved_ms), _data_from_pct(step))


def _data_from_pct(step: RecentStep) -> float:
    """Return from where on a wait for data is the limit.

    A GPU that waits is idle, whatever else the step is. A CPU computes for the rest of the step:
    the longer of both is the limit.
    """
    return DATA_PCT if step.on_gpu else max(step.at_work_pct or 0.0, DATA_PCT)


def _by_rank(step: RecentStep, straggler: Straggler) -> tuple[Rule, ...]:
    """Return the rule for a slow rank; none if every rank waits much longer for data."""
    waits_ms, starved_ms = straggler.others_wait_ms, step.starved_ms or 0.0
    if waits_ms is None or starved_ms > 2 * waits_ms:
        return ()
    share_pct = step.share_pct(waits_ms)
    return (Rule("straggler", "the others wait for a rank", share_pct, STRAGGLER_PCT),)


def _by_host(step: RecentStep, kind: Limit) -> tuple[Rule]:
    """Return the rule for a busy host: the limit is the GPU's idle time, if that is measured.

    The host's own time is no evidence in a script, where nothing holds back a host that is ahead.
    """
    busy_pct = step.share_pct(step.host_ms)
    if kind == "sync" or step.gpu_util_pct is None or (busy_pct or 0.0) < BUSY_HOST_PCT:
        return (Rule(kind, "the host is busy with a step", busy_pct, HOST_PCT),)
    idle_pct = max(100 - step.gpu_util_pct - (step.share_pct(step.starved_ms) or 0.0), 0.0)
    return (Rule(kind, "the host is busy, and no kernel runs", idle_pct, LOST_PCT),)


def _by_profile(step: RecentStep, profile: Summary, waits: Collection[str]) -> tuple[Rule, ...]:
    waited_pct = step.share_pct(profile.blocked_ms)
    avoidable = Rule("sync", "the host waits, and a lever avoids it", waited_pct, WAITS_PCT)
    saved_pct = step.share_pct(step.saved_ms)
    idle_pct = step.share_pct(step.idle_ms)
    return (
        Rule("sync", "would go if the host never waited", saved_pct, LOST_PCT),
        *((avoidable,) if waits else ()),
        Rule("launch", "the GPU has no work launched", idle_pct, LOST_PCT),
    )


def _bandwidth(step: RecentStep) -> Rule:
    dram_pct, tensor_pct = step.dram_active_pct, step.tensor_active_pct
    is_less = dram_pct is not None and (tensor_pct or 0.0) > dram_pct
    beaten = "the tensor cores are busier" if is_less else ""
    return Rule("memory", "of the memory's bandwidth is used", dram_pct, DRAM_PCT, beaten)
