"""The time of the thread that trains, divided among its owners."""

import gc
import subprocess
import sys
import time

import pytest
import torch

from gpudash.instrument.host_time import Counters, HostTime, counters, since

BEGIN = Counters(100.0, 7.0, 3.0, 1.0, 0.5, 0.5)


def shares(spent, *, host_s=1.0, waited_s=0.0, steps=1, is_seen=True, meanwhile=lambda _: None):
    """What a second is divided into, in which the thread had so much of each counter."""
    after = Counters(
        *(None if None in one else sum(one) for one in zip(BEGIN, spent, strict=False))
    )
    readings = iter((BEGIN, after))
    host = HostTime(lambda: next(readings))
    meanwhile(host)
    host.iterated(host_s, waited_s, steps, is_seen=is_seen)
    return host.values()


def had(*, cpu_s, delay_s=0.0, collected_s=0.0, compiled_s=0.0, compiled_cpu_s=None, wall_s=1.0):
    compiled_cpu_s = compiled_s if compiled_cpu_s is None else compiled_cpu_s
    return wall_s, cpu_s, delay_s, collected_s, compiled_s, compiled_cpu_s


ALL = [
    (had(cpu_s=1.0), {"code_pct": 100}),
    (had(cpu_s=0.4), {"code_pct": 40, "blocked_pct": 60}),
    (had(cpu_s=0.4, delay_s=0.5), {"code_pct": 40, "no_core_pct": 50, "blocked_pct": 10}),
    (had(cpu_s=0.4, delay_s=0.9), {"code_pct": 40, "no_core_pct": 60}),
    (had(cpu_s=1.0, collected_s=0.3), {"gc_pct": 30, "code_pct": 70}),
    (had(cpu_s=1.0, compiled_s=0.8), {"compile_pct": 80, "code_pct": 20}),
    (
        had(cpu_s=0.5, collected_s=0.1, compiled_s=0.4),
        {"gc_pct": 10, "compile_pct": 40, "blocked_pct": 50},
    ),
    (  # processes compile, and the thread waits for them
        had(cpu_s=0.3, compiled_s=0.8, compiled_cpu_s=0.1),
        {"compile_pct": 80, "code_pct": 20},
    ),
]
"""Of these times each moment has an owner."""


def learns_elsewhere(host):
    """In a thread of autograd's; only some steps show it."""
    host.elsewhere(0.1)
    host.iterated(0.0, 0.0, 3, is_seen=False)


BESIDE = {
    "a wait for a batch is neither blocked nor code": (
        had(cpu_s=0.4),
        {"waited_s": 0.6},
        {"code_pct": 40},
    ),
    "what such a wait takes on the CPU is no code": (
        had(cpu_s=0.7),
        {"waited_s": 0.4, "meanwhile": lambda host: host.fetched(0.1)},
        {"code_pct": 60, "unpack_pct": 10},
    ),
    "the start of a loader is a part of the wait": (
        had(cpu_s=0.7),
        {"waited_s": 0.4, "meanwhile": lambda host: host.fetched(0.1, 0.3)},
        {"code_pct": 60, "unpack_pct": 10, "loader_start_pct": 30},
    ),
    "a backward pass in another thread is not blocked": (
        had(cpu_s=0.5),
        {"meanwhile": learns_elsewhere},
        {"code_pct": 90, "blocked_pct": 10},
    ),
    "gpudash itself is left out": (
        had(cpu_s=0.6),
        {"host_s": 0.7, "meanwhile": lambda host: host.leave_out(0.1)},
        {"code_pct": 50, "blocked_pct": 20},
    ),
    "where the kernel counts no waits for a core nothing is called blocked": (
        (1.0, 0.4, None, 0.0, 0.0, 0.0),
        {},
        {"code_pct": 40},
    ),
}


SHARES = {str(owners): (spent, {}, owners) for spent, owners in ALL} | BESIDE


@pytest.mark.parametrize(("spent", "how", "owners"), SHARES.values(), ids=SHARES)
def test_each_moment_has_one_owner_or_none_where_it_is_beside_the_scripts_own_time(
    spent, how, owners
):
    found = shares(spent, **how)
    assert {name: pct for name, pct in found.items() if pct > 1e-6} == pytest.approx(owners)


@pytest.mark.parametrize("host_s", [0.1, 1.0])  # the second is read at once
def test_the_usual_wait_for_a_steps_batches_is_that_without_starts(host_s):
    host = HostTime()
    assert host.usual_wait_s == 0
    host.fetched(0.0, 0.3 * host_s)
    host.iterated(host_s, 0.5 * host_s, 4, is_seen=True)
    assert host.usual_wait_s == pytest.approx(0.05 * host_s)


def iterated_in_pieces(*pieces):
    """The shares after pieces of training: their wall and CPU time, the steps' own, and a break."""
    now = Counters(100.0, 7.0)
    host = HostTime(lambda: now)
    for wall_s, cpu_s, host_s, paused_s in pieces:
        now = now._replace(at_s=now.at_s + wall_s, cpu_s=now.cpu_s + cpu_s)
        host.iterated(host_s, 0.0, 1, is_seen=True)
        host.break_off()
        now = now._replace(at_s=now.at_s + paused_s, cpu_s=now.cpu_s + paused_s)
        host.break_off()  # its end is one more
        host.go_on()
    return host.values()


def test_frequent_evaluations_leave_the_owners_of_the_steps_between_them():
    found = iterated_in_pieces(*[(0.1, 0.02, 0.1, 0.15)] * 6)
    assert (found["code_pct"], found["blocked_pct"]) == pytest.approx((20, 80))


def test_a_break_that_is_noticed_late_has_no_part_in_the_owners():
    usual, late = (0.1, 0.02, 0.1, 0.15), (0.3, 0.22, 0.1, 0.0)
    assert iterated_in_pieces(*[usual] * 3, late) == {}
    assert iterated_in_pieces(late, *[usual] * 6)["code_pct"] == pytest.approx(20)


def test_a_short_time_or_one_without_a_step_says_nothing_yet():
    assert shares(had(cpu_s=0.1, wall_s=0.1), host_s=0.1) == {}
    assert shares(had(cpu_s=0.1), host_s=0.0) == {}


def test_the_next_share_is_of_the_time_since():
    second, third = BEGIN._replace(at_s=101.0), BEGIN._replace(at_s=102.0, cpu_s=8.0)
    readings = iter((BEGIN, second, third, third))
    host = HostTime(lambda: next(readings))
    found = []
    for _ in range(2):
        host.iterated(1.0, 0.0, 1, is_seen=True)
        found.append(host.values())
    assert [one["blocked_pct"] for one in found] == pytest.approx([100, 0])
    assert host.values() == {}


def test_what_comes_after_an_iteration_belongs_to_the_next_one_though_its_end_is_noticed_late():
    now = BEGIN
    host = HostTime(lambda: now)
    now = now._replace(at_s=now.at_s + 1.0, cpu_s=now.cpu_s + 1.0)
    host.split(1.0)
    now = now._replace(at_s=now.at_s + 3.0)  # it sleeps
    host.iterated(1.0, 0.0, 1, is_seen=True)
    assert host.values()["code_pct"] == pytest.approx(100)
    host.iterated(3.0, 0.0, 1, is_seen=True)
    assert host.values()["blocked_pct"] == pytest.approx(100)
    host.split(1.0)
    host.join()  # it had not ended there
    now = now._replace(at_s=now.at_s + 2.0, cpu_s=now.cpu_s + 2.0)
    host.iterated(2.0, 0.0, 1, is_seen=True)
    assert host.values()["code_pct"] == pytest.approx(100)


def test_what_is_counted_is_told_a_step_without_what_frequent_evaluations_have():
    now = BEGIN._replace(device_allocs=50)
    host = HostTime(lambda: now)
    for _ in range(6):
        now = now._replace(at_s=now.at_s + 0.1, compiles=now.compiles + 1, device_frees=None)
        host.iterated(0.1, 0.0, 2, is_seen=True)
        host.break_off()
        now = now._replace(at_s=now.at_s + 0.2, compiles=now.compiles + 8, device_allocs=90)
        host.go_on()
    found = host.values()
    assert (found["compiles"], found["device_allocs"]) == (0.5, 0.0)
    assert "device_frees" not in found


def test_compilations_are_counted():
    torch.compile(torch.sin, backend="eager")(torch.ones(2))  # a script has imported Dynamo
    HostTime().values()
    before = counters({})
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert since(before, counters({})).compiles == 1


def test_the_collector_and_this_thread_are_counted():
    HostTime()
    before = counters({})
    gc.collect()
    time.sleep(0.05)
    after = counters({})
    assert after.collected_s > before.collected_s
    assert after.at_s - before.at_s > after.cpu_s - before.cpu_s > 0


def test_a_ctrl_c_while_garbage_is_collected_is_not_lost():
    """What Python calls then has no bytecode in which it could be raised, and be ignored."""
    script = """
import gc, os, signal, threading
from gpudash.instrument.host_time import HostTime
HostTime()
objects = [[number, [number]] for number in range(300_000)]
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    for _ in range(300):
        gc.collect()
except KeyboardInterrupt:
    print("heard")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("heard\n", "")
