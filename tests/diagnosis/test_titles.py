"""No title is refuted by its own evidence: what is told first is what made it the limit."""

from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.diagnosis.causes import table
from gpudash.diagnosis.causes.cause import Cause, Limit, Measured
from gpudash.diagnosis.causes.facts import CONDITIONS, FACTS
from gpudash.diagnosis.causes.table import causes, evidence, limit_of
from gpudash.diagnosis.model import model_of
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.protocol.session import Straggler
from gpudash.trace.summary import Summary
from tests.diagnosis.trainings import changed, measured

LIMITS = [one for one in vars(table).values() if isinstance(one, Limit)]
OWN = {"ms", "pct", "without_waits"}
"""What is told of the cause itself."""


def names(clause):
    return {name for _, name, _, _ in Formatter().parse(clause) if name is not None}


@pytest.mark.parametrize("limit", LIMITS, ids=lambda one: one.title)
def test_each_clause_is_made_of_known_facts(limit):
    conditions = {f"{word}_{name}" for name in CONDITIONS for word in ("if", "unless")}
    for clause in (*limit.clauses, *limit.beside):
        assert names(clause) <= {*OWN, *FACTS, *conditions}


@pytest.mark.parametrize("limit", [one for one in LIMITS if one.part], ids=lambda one: one.title)
def test_a_part_that_limits_is_told_by_its_own_share(limit):
    first = "{clock}" if limit.word == "throttled" else limit.clauses[0]
    assert names(first) & {*OWN, "clock"}


MS = st.one_of(st.none(), st.floats(0.0, 10.0), st.floats(9.0, 10.0))
PCT = st.one_of(st.none(), st.floats(0.0, 100.0))
PHASES = ("copy", "communication", "your_code", "forward", "backward")
PROFILES = st.builds(
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
    device_ms=MS,
    phases_ms=st.dictionaries(st.sampled_from(PHASES), st.floats(0.0, 10.0)),
    gpu_util_pct=PCT,
    sm_active_pct=PCT,
    dram_active_pct=PCT,
    core_wait_pct=PCT,
    aside_pct=PCT,
    others_pct=PCT,
    on_gpu=st.booleans(),
    busy_cores=st.one_of(st.none(), st.floats(0.1, 8.0)),
    loader_cores=st.one_of(st.none(), st.floats(0.0, 8.0)),
    cores=st.sampled_from((None, 1, 8)),
    pinned=st.sampled_from((None, True, False)),
    workers=st.sampled_from((None, 0, 4)),
)
SLOW = st.builds(Straggler, rank=st.just(1), phase=st.just("data"), excess_ms=st.just(1.0),
                 slower_pct=st.just(10.0), others_wait_ms=MS)  # fmt: skip


@given(STEPS, st.one_of(st.none(), PROFILES), st.one_of(st.none(), SLOW))
def test_what_is_told_first_is_no_less_than_what_makes_it_the_limit(step, profile, straggler):
    step = changed(step, profile=profile if step.on_gpu else None)
    now = Measured(changed(measured(), straggler=straggler), step, model_of(step))
    cause = limit_of(causes(now))
    if cause.limit.part is None:
        return
    first = cause.limit.clauses[0]
    assert cause.told_pct >= cause.limit.least_pct
    assert evidence(cause, now)[0] == next(iter(told_of(first, cause, now)))


def told_of(clause, cause, now):
    return evidence(Cause(cause.limit._replace(clauses=(clause,)), cause.pct, cause.takes_pct), now)
