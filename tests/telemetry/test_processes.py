"""CPU and memory of a real process tree whose members come and go."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from gpudash.telemetry import processes, procfs
from gpudash.telemetry.processes import HostReader
from gpudash.telemetry.procfs import Process, Usage, text

CHILD = "import time; print(flush=True); time.sleep(60)"
BURNT_S = 0.1
BURN = f"import time\nwhile time.process_time() < {BURNT_S}: pass\n{CHILD}"
PARENT = f"""
import os, subprocess, sys, threading
children = []
started, over = threading.Event(), threading.Event()

def spawn(what={CHILD!r}):
    command = [sys.executable, "-c", what]
    children.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    children[-1].stdout.readline()  # it is up

def spawn_and_wait():
    spawn()
    started.set()
    over.wait()  # a thread's children are handed to another one when it ends

for line in sys.stdin:
    if line == "spawn\\n":
        spawn()
    elif line == "spawn from a thread\\n":
        threading.Thread(target=spawn_and_wait, daemon=True).start()
        started.wait()
    elif line == "burn\\n":
        spawn({BURN!r})
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
    """A clock that a test moves, so that it sets how much time a reading covers."""

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


@pytest.fixture
def reader(worker: Worker, clock: Clock) -> HostReader:
    return HostReader(worker.process.pid, clock)


def rss_mib(reader: HostReader) -> float:
    return reader.read().number("worker_rss_mib")


def test_memory_is_that_of_the_operating_system_in_mib(worker: Worker):
    expected = psutil.Process(worker.process.pid).memory_info().rss / 1024**2
    assert rss_mib(HostReader(worker.process.pid)) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("lists_children", {procfs.LISTS_CHILDREN, False})
def test_children_count_as_soon_as_they_are_there(
    worker: Worker,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    lists_children: bool,
    reader: HostReader,
):
    monkeypatch.setattr(procfs, "LISTS_CHILDREN", lists_children)
    alone = rss_mib(reader)
    worker.does("spawn", "spawn")
    assert rss_mib(reader) > 1.5 * alone


def test_one_pass_over_all_processes_serves_all_readers(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    worker.does("spawn")
    listed = []
    monkeypatch.setattr(procfs, "LISTS_CHILDREN", False)
    monkeypatch.setattr(psutil, "pids", lambda pids=psutil.pids: listed.append(1) or pids())
    children = procfs.children_lookup()
    first, second = (HostReader(worker.process.pid).read(children) for _ in range(2))
    assert first.number("worker_rss_mib") == second.number("worker_rss_mib")
    assert listed == [1]


def test_a_child_of_any_thread_counts(worker: Worker, clock: Clock, reader: HostReader):
    alone = rss_mib(reader)
    worker.does("spawn from a thread")
    assert rss_mib(reader) > 1.5 * alone


def cpu_s(reader: HostReader, clock: Clock) -> float:
    """Return the CPU seconds in the next reading, taken 1 s after the previous one."""
    clock.now_s += 1.0
    return reader.read().number("cpu_pct") / 100


def test_processes_that_replace_each_other_are_charged_for_all_they_used(
    worker: Worker, clock: Clock, reader: HostReader
):
    reader.read()
    worker.does("burn")
    for _ in range(3):
        assert BURNT_S - 0.02 < cpu_s(reader, clock) < 2 * BURNT_S
        worker.does("kill", "burn")
    worker.does("kill", "burn", "kill")  # born and reaped between two readings
    assert 2 * BURNT_S - 0.04 < cpu_s(reader, clock) < 4 * BURNT_S


@pytest.mark.parametrize("reaped_s", [5.2, 0.0])
def test_time_reaped_a_moment_late_is_not_counted_twice(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, reaped_s: float
):
    """A child with 5 s of CPU time uses 0.2 s more and is reaped after its parent was read."""
    used: dict[int, tuple[float, float]] = {1: (1.0, 0.0), 2: (5.0, 0.0)}
    monkeypatch.setattr(processes, "tree", lambda *_: list(used))
    monkeypatch.setattr(
        processes,
        "usage_of",
        lambda pid: {Process(pid, 0): Usage(*used[pid], 1.0, parent=1)} if pid in used else {},
    )
    reader = HostReader(1, clock)
    reader.read()
    del used[2]
    assert cpu_s(reader, clock) == 0.0
    used[1] = (1.0, reaped_s)
    assert cpu_s(reader, clock) == pytest.approx(max(reaped_s - 5.0, 0.0))
    used[1] = (1.0, reaped_s + 3.0)  # 3 s of another child that began and ended
    assert cpu_s(reader, clock) == pytest.approx(3.0)


def test_a_failed_reading_does_not_make_a_process_new(
    worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch, reader: HostReader
):
    worker.does("burn")
    reader.read()
    with monkeypatch.context() as patched:
        patched.setattr(procfs, "text", broken)
        with pytest.raises(OSError, match="too many"):
            reader.read()
    assert cpu_s(reader, clock) < BURNT_S / 2


def test_a_hidden_child_does_not_hide_the_others(worker: Worker, monkeypatch: pytest.MonkeyPatch):
    worker.does("spawn")
    (child,) = psutil.Process(worker.process.pid).children()

    def hidden(path: str) -> bytes:
        if path.startswith(f"{child.pid}/"):
            raise PermissionError("of another user")
        return text(path)

    monkeypatch.setattr(procfs, "text", hidden)
    seen_mib = psutil.Process(worker.process.pid).memory_info().rss / procfs.MIB
    assert rss_mib(HostReader(worker.process.pid)) == pytest.approx(seen_mib, rel=0.1)


def broken(_: str) -> bytes:
    raise OSError("too many open files")


def test_a_reaped_child_is_not_counted_again(worker: Worker, clock: Clock, reader: HostReader):
    worker.does("spawn")
    reader.read()
    worker.does("leave a zombie")
    as_zombie_s = cpu_s(reader, clock)
    worker.does("kill")
    assert as_zombie_s < 0.05
    assert cpu_s(reader, clock) < 0.05  # an interpreter's start takes some 20 ms, and ticks are 10


@pytest.mark.parametrize("end", ["kill", "leave a zombie"])
def test_an_ended_child_stops_counting_and_subtracts_nothing(
    worker: Worker, clock: Clock, end: str, reader: HostReader
):
    worker.does("spawn", "work")
    both = rss_mib(reader)
    worker.does(end)
    clock.now_s += 0.5
    sample = reader.read()
    assert sample.number("worker_rss_mib") < both
    assert sample.number("cpu_pct") >= 0


def test_an_ended_worker_reads_as_not_measured(worker: Worker, clock: Clock, reader: HostReader):
    reader.read()
    worker.end()
    clock.now_s += 0.1
    sample = reader.read()
    assert (sample.number("cpu_pct"), sample.number("worker_rss_mib")) == (None, None)


def test_a_worker_that_never_existed_reads_as_not_measured(worker: Worker):
    worker.end()
    assert HostReader(worker.process.pid).read().number("worker_rss_mib") is None


def test_gpudashs_own_cpu_time_is_averaged_over_5_s(
    worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch, reader: HostReader
):
    cpu_s = 3.0
    monkeypatch.setattr("time.process_time", lambda: cpu_s)
    assert reader.read().number("own_cpu_pct") is None
    shares = []
    for burst in range(60):
        clock.now_s += 0.2
        cpu_s += 0.07 if burst % 3 == 0 and burst < 30 else 0.0
        shares.append(reader.read().number("own_cpu_pct"))
    assert shares[0] == pytest.approx(35)
    assert shares[20:29] == pytest.approx([100 * 0.07 / 0.6] * 9, rel=0.15)
    assert shares[-1] == 0
