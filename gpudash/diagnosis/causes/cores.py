"""Clauses about the cores, and about who makes the batches on them."""

from gpudash import format as fmt
from gpudash.diagnosis.causes.cause import Measured
from gpudash.diagnosis.input_effects import batches_wait
from gpudash.diagnosis.proposals import loader_workers

LEAST_DATA_PCT = 10.0
"""As other tools have it: a wait for data of 10 % of the step is named."""


def waits_for_core(now: Measured) -> str:
    return f"{now.who} waits for a core {fmt.percent(now.step.core_wait_pct)} of the time"


def used_cores(now: Measured) -> str:
    step = now.step
    if step.busy_cores is None:
        return ""
    return f"{now.who} uses {fmt.cores(100 * step.busy_cores, step.cores)}"


def loaders_share(now: Measured) -> str:
    return f"loader workers use {fmt.percent(now.step.loader_pct)} of the CPU time"


def is_inline(now: Measured) -> bool:
    """Whether batches are made in the training process."""
    settings = now.snapshot.settings
    return settings.get("num_workers") == "0" and settings.get("data", "loader") == "loader"


def maker(now: Measured) -> str:
    """Say nothing of loader workers on cores that suffice."""
    if is_inline(now):
        return "batches are made in the training process"
    return loaders_share(now) if now.step.taken_pct is not None else ""


def slow_batches(now: Measured) -> str:
    step, settings = now.step, now.snapshot.settings
    workers = loader_workers(settings)
    is_known = "num_workers" in settings and settings.get("data", "loader") == "loader"
    if not is_known or not batches_wait(step, workers):
        return ""
    used = f"{now.who} uses {step.busy_cores or 0.0:.1f} cores"
    if workers:
        share = fmt.percent(100 * (step.loader_cores or 0.0) / workers)
        used = f"a worker uses {share} of a core"
    return f"making a batch waits more than it computes: {used}"
