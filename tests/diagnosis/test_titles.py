"""No title is refuted by its own evidence: what is told first is what made it the limit."""

from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash import format as fmt
from gpudash.diagnosis.causes import table
from gpudash.diagnosis.causes.cause import Limit, Measured
from gpudash.diagnosis.causes.facts import CONDITIONS, FACTS
from gpudash.diagnosis.causes.table import causes, evidence, limit_of
from gpudash.diagnosis.effects import EFFECTS, ERROR, gain_of
from gpudash.diagnosis.lever_change import LeverChange, change_pct, without_ms
from gpudash.diagnosis.model import model_of, played_ms
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.protocol.answer import LEAST_PCT
from gpudash.snapshot import Snapshot
from gpudash.trace.summary import Summary
from tests.diagnosis.trainings import changed

LIMITS = [one for one in vars(table).values() if isinstance(one, Limit)]
KNOWN = {
    "ms",
    "pct",
    *FACTS,
    *(f"{word}_{name}" for name in CONDITIONS for word in ("if", "unless")),
}
OF_CAUSE = {"throttled": "clock", "sync": "without_waits"}
"""What is told first of a cause whose share of a step says less."""


@pytest.mark.parametrize("limit", LIMITS, ids=lambda one: one.title)
def test_a_part_is_told_by_its_own_share_first_and_all_clauses_by_facts(limit):
    first, *others = (
        {name for _, name, _, _ in Formatter().parse(clause) if name is not None}
        for clause in (*limit.clauses, *limit.beside, "")
    )
    assert first.union(*others) <= KNOWN
    assert limit.part is None or first & {"ms", "pct", OF_CAUSE.get(limit.word)}


MS = st.one_of(st.none(), st.floats(0.0, 10.0), st.floats(9.0, 10.0))
PCT = st.one_of(st.none(), st.floats(0.0, 100.0))
PHASES = ("copy", "communication", "your_code", "prepare", "forward", "backward", "optimizer")
SUMMARIES = st.builds(
    Summary,
    steps=st.just(10),
    step_ms=st.just(10.0),
    on_device=st.just(True),
    busy_ms=MS,
    blocked_ms=MS,
    exposed_ms=MS,
    overlap_ms=MS,
    idle_ms=st.dictionaries(st.sampled_from(("host", "stream")), st.floats(0.0, 10.0)),
)
STEPS = st.builds(
    RecentStep,
    step_ms=st.just(10.0),
    data_ms=MS,
    host_ms=MS,
    own_code_ms=MS,
    traced_code_ms=MS,
    owners_ms=st.dictionaries(st.sampled_from(("blocked", "gc", "no_core")), st.floats(0.0, 10.0)),
    device_ms=MS,
    phases_ms=st.dictionaries(st.sampled_from(PHASES), st.floats(0.0, 10.0)),
    gpu_util_pct=PCT,
    sm_active_pct=PCT,
    dram_active_pct=PCT,
    others_pct=PCT,
    on_gpu=st.booleans(),
    busy_cores=st.one_of(st.none(), st.floats(0.1, 8.0)),
    loader_cores=st.one_of(st.none(), st.floats(0.0, 8.0)),
    cores=st.sampled_from((None, 1, 8)),
    pinned=st.sampled_from((None, True, False)),
    workers=st.sampled_from((None, 0, 4)),
    profile=st.one_of(st.none(), SUMMARIES),
).map(lambda step: changed(step, profile=step.profile if step.on_gpu else None))


OF_HOST = {"own_code", "blocked", "gc", "launch"}
"""Words of limits that the thread that trains has alone."""


@given(STEPS)
def test_what_has_the_hosts_time_shortens_a_step_by_its_least_share_at_least(step):
    model = model_of(step)
    limit = limit_of(causes(Measured(Snapshot(), step, model))).limit
    if limit.word in OF_HOST:
        assert 10 * model.without(limit.part).low >= limit.least_pct - 1e-6


@given(STEPS)
def test_what_is_told_of_a_limit_is_enough_to_limit(step):
    now = Measured(Snapshot(), step, model_of(step))
    cause = limit_of(causes(now))
    assert cause.told_pct >= cause.limit.least_pct
    if cause.limit.part is not None and cause.limit.word not in OF_CAUSE:
        told = fmt.percent(cause.told_pct), fmt.milliseconds(cause.told_pct / 10)
        assert any(one in evidence(cause, now)[0] for one in told)


MOVED = ("one update", "batched work", "fewer kernels", "half the bytes", "less loading")


@given(STEPS, st.sampled_from(MOVED))
def test_no_promise_is_above_what_the_parts_leave_that_a_lever_shortens(step, helps):
    model = model_of(step)
    if model is None or (gain := gain_of(LeverChange(helps, "off", "on", step, model))) is None:
        return
    parts = EFFECTS[helps].shortens
    saved_ms = max(played_ms(one) - without_ms(one, parts) for one in model.scenarios)
    least_ms = (10.0 - saved_ms) * (1 - ERROR - model.residual)
    assert gain.high_pct <= max(change_pct(10.0, least_ms), LEAST_PCT) + 1e-6
