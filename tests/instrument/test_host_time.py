"""The time of the thread that trains, divided among its owners."""

import gc
import time

import pytest

from gpudash.instrument.host_time import Counters, HostTime, counters

BEGIN = Counters(at_s=100.0, cpu_s=7.0, delay_s=3.0, collected_s=1.0, compiled_s=0.5)


def shares(spent, *, host_s=1.0, waited_s=0.0, meanwhile=lambda _: None):
    """What a second is divided into, in which the thread had so much of each counter."""
    after = Counters(*(None if None in one else sum(one) for one in zip(BEGIN, spent, strict=True)))
    readings = iter((BEGIN, after, after))
    host = HostTime(lambda: next(readings))
    host.iterated(host_s, waited_s)
    meanwhile(host)
    return host.shares_pct()


def had(*, cpu_s, delay_s=0.0, collected_s=0.0, compiled_s=0.0, wall_s=1.0):
    return wall_s, cpu_s, delay_s, collected_s, compiled_s


@pytest.mark.parametrize(
    ("spent", "owners"),
    [
        (had(cpu_s=1.0), {"code_pct": 100}),
        (had(cpu_s=0.4), {"code_pct": 40, "blocked_pct": 60}),
        (had(cpu_s=0.4, delay_s=0.5), {"code_pct": 40, "no_core_pct": 50, "blocked_pct": 10}),
        (had(cpu_s=0.4, delay_s=0.9), {"code_pct": 40, "no_core_pct": 60}),
        (had(cpu_s=1.0, collected_s=0.3), {"gc_pct": 30, "code_pct": 70}),
        (had(cpu_s=1.0, compiled_s=0.8), {"compile_pct": 80, "code_pct": 20}),
        (
            had(cpu_s=0.5, collected_s=0.4, compiled_s=0.4),
            {"gc_pct": 40, "compile_pct": 10, "blocked_pct": 50},
        ),
    ],
)
def test_each_moment_has_one_owner(spent, owners):
    found = shares(spent)
    assert {name: pct for name, pct in found.items() if pct > 1e-6} == pytest.approx(owners)
    assert sum(found.values()) == pytest.approx(100)


def test_a_wait_for_a_batch_is_neither_blocked_nor_code():
    assert shares(had(cpu_s=0.4), waited_s=0.6)["blocked_pct"] == pytest.approx(0)


def test_what_unpacks_a_batch_is_told_by_the_waits_of_which_it_is_known():
    found = shares(
        had(cpu_s=0.7), waited_s=0.4, meanwhile=lambda host: host.fetched(wall_s=0.2, cpu_s=0.05)
    )
    assert found["unpack_pct"] == pytest.approx(10)
    assert found["code_pct"] == pytest.approx(60)


def test_the_start_of_a_loader_is_a_part_of_the_wait_and_is_not_unpacked():
    def starts(host):
        host.started(0.3)
        host.fetched(wall_s=0.1, cpu_s=0.1)

    found = shares(had(cpu_s=0.7), waited_s=0.4, meanwhile=starts)
    assert (found["loader_start_pct"], found["unpack_pct"]) == pytest.approx((30, 10))


def test_gpudash_itself_is_left_out():
    found = shares(had(cpu_s=0.6), host_s=0.5, meanwhile=lambda host: host.leave_out(0.1))
    assert (found["code_pct"], found["blocked_pct"]) == pytest.approx((50, 0))


def test_where_the_kernel_counts_no_waits_for_a_core_nothing_is_called_blocked():
    found = shares((1.0, 0.4, None, 0.0, 0.0))
    assert not {"blocked_pct", "no_core_pct"} & found.keys()
    assert found["code_pct"] == pytest.approx(40)


def test_a_short_time_or_one_without_a_step_says_nothing_yet():
    assert shares(had(cpu_s=0.1, wall_s=0.1)) == {}
    assert shares(had(cpu_s=0.1), host_s=0.0) == {}


def test_the_next_share_is_of_the_time_since():
    third = BEGIN._replace(at_s=102.0, cpu_s=9.0)
    readings = iter((BEGIN, BEGIN._replace(at_s=101.0), *[third] * 3))
    host = HostTime(lambda: next(readings))
    host.iterated(1.0, 0.0)
    assert host.shares_pct()["blocked_pct"] == pytest.approx(100)
    host.restart()
    host.iterated(1.0, 0.0)
    assert host.shares_pct() == {}


def test_the_collector_and_this_thread_are_counted():
    before = counters()
    gc.collect()
    time.sleep(0.05)
    after = counters()
    assert after.collected_s > before.collected_s
    assert after.at_s - before.at_s > after.cpu_s - before.cpu_s > 0
