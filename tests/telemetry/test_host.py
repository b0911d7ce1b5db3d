"""CPU and memory of a real process tree whose members come and go."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from gpudash.telemetry.host import RELIST_S, HostReader

CHILD = "import time; print(flush=True); time.sleep(60)"
PARENT = f"""
import os, subprocess, sys
children = []
for line in sys.stdin:
    if line == "spawn\\n":
        command = [sys.executable, "-c", {CHILD!r}]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        children[-1].stdout.readline()  # it is up
    elif line == "kill\\n":
        child = children.pop()
        child.kill()
        child.wait()
    elif line == "leave a zombie\\n":
        children[-1].kill()
        os.waitid(os.P_PID, children[-1].pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped
    elif line == "work\\n":
        sum(range(5_000_000))
    print("done", flush=True)
"""


class Clock:
    """Moves only when told, so that a test decides when the tree is listed again."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Worker:
    """A process that spawns and kills children on command."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", PARENT]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def does(self, *commands: str) -> None:
        assert self.process.stdin
        assert self.process.stdout
        for command in commands:
            self.process.stdin.write(f"{command}\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "done\n"

    def end(self) -> None:
        for child in psutil.Process(self.process.pid).children(recursive=True):
            child.kill()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def worker() -> Iterator[Worker]:
    running = Worker()
    running.does("nothing")  # the interpreter is up
    yield running
    if running.process.poll() is None:
        running.end()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rss_mib(reader: HostReader) -> float:
    reading = reader.read().worker_rss_mib
    assert reading is not None
    return reading


def test_the_first_reading_has_memory_but_no_cpu(worker: Worker):
    sample = HostReader(worker.process.pid).read()
    assert sample.cpu_pct is None
    assert sample.worker_rss_mib


def test_memory_is_that_of_the_operating_system_in_mib(worker: Worker):
    expected = psutil.Process(worker.process.pid).memory_info().rss / 1024**2
    assert rss_mib(HostReader(worker.process.pid)) == pytest.approx(expected, rel=0.05)


def test_cpu_is_percent_of_one_core_over_the_time_between(worker: Worker, clock: Clock):
    reader, process = HostReader(worker.process.pid, clock), psutil.Process(worker.process.pid)
    reader.read()
    before = process.cpu_times()
    worker.does("work")
    clock.now_s += 0.5
    cpu_pct = reader.read().cpu_pct
    after = process.cpu_times()
    used_s = after.user + after.system - before.user - before.system
    assert cpu_pct
    assert cpu_pct == pytest.approx(100 * used_s / 0.5, rel=0.1)


def test_children_count_once_the_tree_is_listed_again(worker: Worker, clock: Clock):
    reader = HostReader(worker.process.pid, clock)
    alone = rss_mib(reader)
    worker.does("spawn", "spawn")
    assert rss_mib(reader) == pytest.approx(alone, rel=0.2)
    clock.now_s += RELIST_S
    assert rss_mib(reader) > 1.5 * alone


def test_a_child_seen_for_the_first_time_adds_none_of_its_past_time(worker: Worker, clock: Clock):
    reader = HostReader(worker.process.pid, clock)
    reader.read()
    worker.does("spawn")  # starting an interpreter takes at least a clock tick
    clock.now_s += RELIST_S
    reader.read()
    clock.now_s += 0.001
    cpu_pct = reader.read().cpu_pct
    assert cpu_pct is not None
    assert cpu_pct >= 0


@pytest.mark.parametrize("end", ["kill", "leave a zombie"])
def test_a_child_that_ends_stops_counting_and_takes_nothing_back(
    worker: Worker, clock: Clock, end: str
):
    worker.does("spawn", "work")
    reader = HostReader(worker.process.pid, clock)
    both = rss_mib(reader)
    worker.does(end)
    clock.now_s += RELIST_S / 2  # the list still names it
    sample = reader.read()
    assert sample.worker_rss_mib is not None
    assert sample.worker_rss_mib < both
    assert sample.cpu_pct is not None
    assert sample.cpu_pct >= 0


@pytest.mark.parametrize("later_s", [0.1, RELIST_S])
def test_a_worker_that_is_gone_reads_as_not_measured(worker: Worker, clock: Clock, later_s: float):
    reader = HostReader(worker.process.pid, clock)
    reader.read()
    worker.end()
    clock.now_s += later_s
    sample = reader.read()
    assert (sample.cpu_pct, sample.worker_rss_mib) == (None, None)


def test_a_worker_that_never_was_reads_as_not_measured(worker: Worker):
    worker.end()
    assert HostReader(worker.process.pid).read().worker_rss_mib is None


def test_listing_the_tree_is_not_paid_at_every_reading(
    worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    listings = 0
    children: Callable[..., list[psutil.Process]] = psutil.Process.children

    def counted(process: psutil.Process, **options: bool) -> list[psutil.Process]:
        nonlocal listings
        listings += 1
        return children(process, **options)

    monkeypatch.setattr(psutil.Process, "children", counted)
    reader = HostReader(worker.process.pid, clock)
    for _ in range(10):
        reader.read()
        clock.now_s += RELIST_S / 5
    assert listings == 2


def test_our_own_time_is_averaged_over_some_seconds(
    worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    cpu_s = 3.0
    monkeypatch.setattr("time.process_time", lambda: cpu_s)
    reader = HostReader(worker.process.pid, clock)
    assert reader.read().own_cpu_pct is None
    shares = []
    for burst in range(60):
        clock.now_s += 0.2
        cpu_s += 0.07 if burst % 3 == 0 and burst < 30 else 0.0
        shares.append(reader.read().own_cpu_pct)
    assert shares[0] == pytest.approx(35)
    assert shares[20:29] == pytest.approx([100 * 0.07 / 0.6] * 9, rel=0.15)
    assert shares[-1] == 0
