"""Core wait, from the run and wait times that the kernel counts for each thread."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gpudash.telemetry import procfs
from gpudash.telemetry.core_wait import CoreWait, Counts, core_wait_pct
from gpudash.telemetry.processes import HostReader

COUNTED = Path("/proc/self/schedstat").exists()


def counts(**threads: tuple[float, float]) -> dict[str, Counts]:
    """Return the counts of threads from the seconds that each ran and waited."""
    return {
        name: Counts(round(ran_s * 1e9), round(waited_s * 1e9))
        for name, (ran_s, waited_s) in threads.items()
    }


def alike(count: int, ran_s: float, waited_s: float) -> dict[str, Counts]:
    return counts(**{f"thread_{number}": (ran_s, waited_s) for number in range(count)})


# ── the percentage ──────────────────────────────────────────────────────────────────────


ASLEEP = alike(300, 9.0, 9.0)
ENDED = counts(main=(1.0, 1.0), ended=(50.0, 60.0))
REUSED = counts(main=(1.0, 1.0), other=(50.0, 60.0))


@pytest.mark.parametrize(
    ("what", "before", "now", "seconds", "cores", "percent"),
    [
        *[("a thread that always wants to run waits its waited share", counts(main=(5.0, 7.0)),
           counts(main=(5.0 + ran_s, 7.0 + waited_s)), 2.0, 16, percent)
          for ran_s, waited_s, percent in [(2.0, 0.0, 0.0), (0.8, 1.2, 60.0), (0.0, 2.0, 100.0)]],
        ("threads that sleep change nothing", counts(main=(0.0, 0.0)) | ASLEEP,
         counts(main=(0.6, 0.4)) | ASLEEP, 1.0, 2, 40.0),
        ("a training that seldom needs a core hardly waits, whatever the share",
         {}, counts(main=(0.01, 0.02)), 1.0, 2, 2.0),
        ("or not at all", alike(1, 3.0, 3.0), alike(1, 3.0, 3.0), 1.0, 2, 0.0),
        ("more threads than cores do not count their waiting for each other",
         {}, alike(8, 0.25, 0.75), 1.0, 2, 0.0),
        ("though moments differ a little", {}, alike(8, 0.26, 0.75), 1.0, 2, 0.0),
        ("four threads of others beside eight of ours get a third of two cores",
         {}, alike(8, 1 / 6, 5 / 6), 1.0, 2, 100 / 3),
        ("a wait reported at its end is at most 100 percent",
         {}, counts(main=(0.05, 9.0)), 0.2, 1, 75.0),
        ("a new thread counts from its start, and an ended one subtracts nothing",
         ENDED, counts(main=(1.5, 1.5), born=(0.5, 0.5)), 1.0, 16, 50.0),
        ("a reused thread id subtracts nothing",
         REUSED, counts(main=(2.2, 1.8), other=(0.1, 0.1)), 1.0, 16, 40.0),
        ("a kernel that does not count has no value rather than 0", {}, {}, 1.0, 2, None),
        ("also if it has threads", alike(3, 0.0, 0.0), alike(3, 0.0, 0.0), 1.0, 2, None),
    ],
)  # fmt: skip
def test_the_core_wait(what, before, now, seconds, cores, percent):
    assert core_wait_pct(before, now, seconds, cores) == pytest.approx(percent), what


# ── the reading ─────────────────────────────────────────────────────────────────────────


class Tree:
    """Some processes' files."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc

    def has(self, pid: int, thread: int, schedstat: str | None) -> None:
        folder = self._proc / str(pid) / "task" / str(thread)
        folder.mkdir(parents=True, exist_ok=True)
        if schedstat is not None:
            (folder / "schedstat").write_text(f"{schedstat}\n")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    return Tree(tmp_path)


@pytest.fixture
def wait(tree: Tree) -> CoreWait:
    return CoreWait()


def test_all_threads_of_all_processes_are_read(tree: Tree, wait: CoreWait):
    """In 1 s on two cores, three threads asked for 1.5 s of core time and got 0.75 s."""
    for pid, thread in ((7, 7), (7, 8), (9, 9)):
        tree.has(pid, thread, "1000000000 3000000000 12")
    assert wait.read([7, 9], 100.0) is None  # no reading before it
    for pid, thread in ((7, 7), (7, 8), (9, 9)):
        tree.has(pid, thread, "1250000000 3250000000 15")
    assert wait.read([7, 9], 101.0) == pytest.approx(50.0)
    assert wait.read([7, 9], 102.0) == 0.0


def test_a_training_that_is_bound_to_one_core_does_not_count_its_threads_wait_for_each_other(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, wait: CoreWait
):
    """Three threads of a script that `taskset` keeps on a core; gpudash may use 16."""
    bound = {7: {5}, 8: {5}, 9: {5}}
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: bound.get(pid, set(range(16))))
    for thread in bound:
        tree.has(7, thread, "1000000000 1000000000 1")
    wait.read([7], 100.0)
    for thread in bound:
        tree.has(7, thread, "1340000000 1660000000 2")
    assert (wait.read([7], 101.0), wait.cores) == (0.0, 1)


def test_threads_that_are_each_bound_to_a_core_of_their_own_may_use_all_of_these(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, wait: CoreWait
):
    monkeypatch.setattr("os.sched_getaffinity", lambda thread: {thread})
    for pid, thread in ((7, 7), (7, 8), (9, 9)):
        tree.has(pid, thread, "1000000000 0 1")
    wait.read([7, 9], 100.0)
    assert wait.cores == 3
    wait.read([3], 101.0)  # it has ended
    assert wait.cores is None


@pytest.mark.parametrize("schedstat", [None, "0 0 0"])
def test_a_kernel_without_counts_gives_no_value(tree: Tree, schedstat: str | None, wait: CoreWait):
    tree.has(7, 7, schedstat)
    assert [wait.read([7], at_s) for at_s in (100.0, 101.0)] == [None, None]


def test_ended_processes_and_threads_are_skipped(tree: Tree, wait: CoreWait):
    for thread in (6, 8):
        tree.has(7, thread, None)  # it ended after it was listed
    tree.has(7, 7, "1000000000 0 1")
    wait.read([5, 7], 100.0)
    tree.has(7, 7, "1500000000 500000000 2")
    assert wait.read([5, 7], 101.0) == pytest.approx(50.0)
    assert wait.read([5], 102.0) is None


def test_two_readings_at_the_same_moment_give_no_value(tree: Tree, wait: CoreWait):
    tree.has(7, 7, "1000000000 0 1")
    assert [wait.read([7], 100.0) for _ in range(2)] == [None, None]


# ── of real processes ───────────────────────────────────────────────────────────────────

PINNED = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(flush=True)
while True: pass
"""


def pinned() -> subprocess.Popen[bytes]:
    running = subprocess.Popen([sys.executable, "-c", PINNED], stdout=subprocess.PIPE)
    running.stdout.readline()
    return running


@pytest.mark.skipif(not COUNTED, reason="this kernel does not count")
def test_two_processes_on_one_core_wait_for_each_other():
    both = [pinned(), pinned()]
    try:
        reader, process = HostReader(both[0].pid), psutil.Process(both[0].pid)
        assert reader.read().number("core_wait_pct") is None
        until_s = process.cpu_times().user + 0.3
        while process.cpu_times().user < until_s:
            pass
        percent = reader.read().number("core_wait_pct")
    finally:
        for one in both:
            one.kill()
            one.communicate()
    assert 25 < percent < 100  # about half, or more on a busy machine


@pytest.mark.skipif(COUNTED, reason="this kernel counts")
def test_a_real_kernel_that_does_not_count_gives_no_value():
    reader = HostReader(psutil.Process().pid)
    reader.read()
    assert reader.read().number("core_wait_pct") is None
