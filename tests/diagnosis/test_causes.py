"""What limits a training by the model of its step, on forty trainings that an H200 recorded."""

import pytest
from msgspec.structs import replace

from gpudash.diagnosis.causes.cause import Measured
from gpudash.diagnosis.causes.table import causes, limit_of
from gpudash.diagnosis.model import model_of
from gpudash.diagnosis.parts import ALLOCATING, CODE, DEVICE, LAUNCH
from gpudash.diagnosis.recent_step import RecentStep, recent_step
from gpudash.snapshot import Snapshot
from gpudash.trace.summary import Summary
from tests.diagnosis.recorded import NAMES, recorded

WORDS = {"data": "input", "cores": "others", "asides": "paused", "none": "unclear"}


def modelled(name, *, profiled):
    """The limit of a recorded training, and the model of its step."""
    known, snapshot = recorded(name)
    step = recent_step(snapshot, known.cores, known.summary if profiled else None)
    model = model_of(step)
    return limit_of(causes(Measured(snapshot, step, model))).limit.word, model


def word(step, model):
    """What limits a training of which nothing else is known."""
    return limit_of(causes(Measured(Snapshot(), step, model))).limit.word


@pytest.mark.parametrize(("profiled", "least"), [(False, 33), (True, 37)])
def test_most_limits_are_right(profiled, least):
    limits = {name: modelled(name, profiled=profiled)[0] for name in NAMES}
    right = [
        name
        for name, limit in limits.items()
        if WORDS.get(limit, limit) in recorded(name)[0].limits
    ]
    assert len(right) >= least


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_step_of_the_model_takes_as_long_as_the_measured_one(name, profiled):
    assert modelled(name, profiled=profiled)[1].residual < 0.15


def on_a_cpu(**values):
    about = {"step_ms": 10.0, "data_ms": 0.0, "host_ms": 10.0, "device_ms": 10.0, "on_gpu": False}
    return RecentStep(**{**about, **values})


def test_on_a_cpu_code_that_sleeps_takes_its_time_by_the_clock_and_none_of_what_is_computed():
    step = on_a_cpu(phases_ms={"your_code": 6.0, "forward": 4.0}, busy_cores=0.5)
    model = model_of(step)
    assert word(step, model) == "own_code"
    assert model.without(CODE).low == pytest.approx(6.0)
    assert model.without(DEVICE).low == pytest.approx(4.0)
    assert model.residual == pytest.approx(0.0)


def full(**values):
    """A step whose device is at work all the time."""
    about = {"step_ms": 10.0, "data_ms": 0.0, "host_ms": 2.0, "device_ms": 10.0}
    return RecentStep(**{**about, "gpu_util_pct": 99.0, **values})


FULL = [
    ({}, "gpu"),
    ({"sm_active_pct": 90.0, "dram_active_pct": 30.0}, "compute"),
    ({"sm_active_pct": 90.0, "dram_active_pct": 60.0}, "memory"),
    ({"sm_active_pct": 90.0, "dram_active_pct": 60.0, "tensor_active_pct": 70.0}, "compute"),
    ({"sm_active_pct": 90.0, "dram_active_pct": 30.0, "others_pct": 40.0}, "shared_gpu"),
    ({"sm_active_pct": 90.0, "dram_active_pct": 30.0, "others_pct": 5.0}, "compute"),
    ({"others_pct": 40.0, "data_ms": 4.0, "device_ms": 6.0, "gpu_util_pct": 60.0}, "data"),
    ({"phases_ms": {"communication": 6.0}}, "communication"),
    ({"phases_ms": {"copy": 6.0}}, "copy"),
    ({"core_wait_pct": 20.0}, "gpu"),
    ({"core_wait_pct": 60.0, "host_ms": 9.0, "device_ms": 6.0, "gpu_util_pct": 55.0}, "cores"),
    ({"core_wait_pct": 20.0, "data_ms": 4.0, "device_ms": 6.0, "gpu_util_pct": 60.0}, "data"),
    ({"data_ms": 4.0, "device_ms": 6.0, "gpu_util_pct": 60.0}, "data"),
    ({"host_ms": 10.0, "gpu_util_pct": 40.0}, "launch"),
    ({"host_ms": 10.0, "gpu_util_pct": 60.0}, "host"),
    ({"host_ms": 5.0, "device_ms": 6.0, "gpu_util_pct": 60.0}, "none"),
    ({"owners_ms": {"blocked": 5.0}, "host_ms": 7.0}, "gpu"),  # the device hides it
    ({"step_ms": None}, "unknown"),
]
ON_A_CPU = [
    ({"phases_ms": {"your_code": 4.0, "forward": 6.0}}, "cpu"),
    ({"phases_ms": {"your_code": 6.0, "forward": 4.0}}, "own_code"),
    ({"data_ms": 4.5, "device_ms": 5.5}, "cpu"),
    ({"data_ms": 5.5, "device_ms": 4.5}, "data"),
    ({"data_ms": 3.0, "device_ms": 7.0, "phases_ms": {"your_code": 3.0}}, "cpu"),
    ({"owners_ms": {"no_core": 4.0}, "core_wait_pct": 40.0}, "cpu"),
    ({"owners_ms": {"no_core": 6.0}, "core_wait_pct": 60.0}, "cores"),
    ({"data_ms": 6.0, "device_ms": 4.0, "core_wait_pct": 40.0}, "data"),
]


@pytest.mark.parametrize(
    ("kind", "values", "limit"),
    [*((full, *one) for one in FULL), *((on_a_cpu, *one) for one in ON_A_CPU)],
)
def test_the_part_that_makes_a_step_longest_is_the_limit(kind, values, limit):
    step = kind(**values)
    assert word(step, model_of(step)) == limit


@pytest.mark.parametrize(
    ("owners_ms", "more", "limit"),
    [
        ({"blocked": 6.0}, {}, "blocked"),
        ({"gc": 6.0}, {}, "gc"),
        ({"compile": 6.0}, {}, "compiling"),
        ({"no_core": 6.0}, {"core_wait_pct": 60.0}, "cores"),
        ({"blocked": 2.0, "gc": 5.0}, {}, "gc"),
        ({"blocked": 6.0}, {"phases_ms": {"rollout": 7.0}}, "rollout"),
        ({"blocked": 0.5}, {"own_code_ms": 6.5}, "own_code"),
        ({}, {"own_code_ms": 0.5, "traced_code_ms": 6.5}, "own_code"),
        ({"gc": 5.5}, {"own_code_ms": 0.5, "traced_code_ms": 6.5}, "gc"),
    ],
)
@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_hosts_time_limits_by_its_owner(owners_ms, more, limit, on_gpu):
    about = {"step_ms": 10.0, "data_ms": 0.0, "host_ms": 10.0, "on_gpu": on_gpu}
    works = {"device_ms": 2.0, "gpu_util_pct": 20.0} if on_gpu else {"device_ms": 10.0}
    step = RecentStep(**about | works, owners_ms=owners_ms, **more)
    model = model_of(step)
    assert word(step, model) == limit
    assert model.residual == pytest.approx(0.0)


def test_a_profile_leaves_launches_what_is_not_the_scripts_own_code():
    step = full(host_ms=10.0, gpu_util_pct=20.0, own_code_ms=0.5, traced_code_ms=6.0)
    without = model_of(step).without(LAUNCH)
    assert (without.low, without.high) == (pytest.approx(2.0), pytest.approx(4.0))


EMPTIED = {"alloc_retries": 0.0, "device_allocs": 10.0, "device_frees": 10.0}
"""What a step that empties the cache asks of the driver."""
TRACED = Summary(steps=5, step_ms=10.0, on_device=True, busy_ms=6.0, host_ms=10.0)


@pytest.mark.parametrize(
    ("counts", "traced", "limit", "takes_ms"),
    [
        (EMPTIED, {}, "allocator", 2.0),
        (EMPTIED | {"device_frees": 0.0, "device_allocs": 9.0}, {}, "host", 0.9),
        ({}, {}, "host", 0.0),
        (EMPTIED, {"allocations": 10.0, "allocation_ms": 3.5}, "allocator", 3.5),
        (EMPTIED, {"allocations": 20.0, "allocation_ms": 3.5}, "allocator", 1.75),
        ({}, {"allocations": 10.0, "allocation_ms": 3.5}, "allocator", 3.5),
    ],
)
def test_calls_for_memory_limit_by_their_number_and_by_what_one_takes_in_a_profile(
    counts, traced, limit, takes_ms
):
    profile = replace(TRACED, **traced) if traced else None
    step = full(counts=counts, profile=profile, host_ms=10.0, gpu_util_pct=65.0)
    model = model_of(step)
    assert word(step, model) == limit
    assert model.without(ALLOCATING).low == pytest.approx(takes_ms)


def test_calls_for_memory_go_without_less_work_as_waits_do_so_they_come_before_launches():
    step = full(counts=EMPTIED, host_ms=10.0, gpu_util_pct=40.0)
    model = model_of(step)
    assert model.without(LAUNCH).low > model.without(ALLOCATING).low
    assert word(step, model) == "allocator"


def test_a_thread_that_waits_for_the_driver_is_not_blocked():
    about = {"owners_ms": {"blocked": 5.0}, "host_ms": 10.0, "gpu_util_pct": 20.0}
    blocked_ms = [
        model_of(full(**about, counts=counts)).scenarios[0].blocked for counts in ({}, EMPTIED)
    ]
    assert blocked_ms == pytest.approx([3.0, 1.0])


def test_a_host_that_launches_or_waits_for_batches_all_the_time_is_not_ahead_of_the_device():
    """So time between two events of the device is no proof of work."""
    step = full(data_ms=1.5, host_ms=8.4, gpu_util_pct=60.0)
    assert word(step, model_of(step)) == "none"
    ahead = full(data_ms=1.5, host_ms=4.0, gpu_util_pct=60.0)
    assert word(ahead, model_of(ahead)) == "gpu"
