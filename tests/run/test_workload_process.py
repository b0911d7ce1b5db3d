"""The parent's side: every line arrives, the reader never blocks, nothing is left behind."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from gpudash.errors import WorkerError
from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Printed
from gpudash.recording.log import LONGEST_LINE, line_of
from gpudash.run import keeper, workload_process
from gpudash.run.job import TrainingJob
from gpudash.run.lines import READ_BYTES, TURN_BYTES
from gpudash.run.workload_process import WorkloadProcess, job_of
from tests.lives import told_by
from tests.waiting import PATIENCE_S, until
from tests.watched import Watched
from tests.worker_double import start_double

PLAN = Plan(workload="encdec", settings={})

TEXT = "".join(f"line {number}\n" for number in range(100_000))


@pytest.fixture
def begin():
    """Start the Python code as a workload."""
    begun = []

    def start(code):
        begun.append(WorkloadProcess(PLAN, ("-c", code)))
        return begun[-1]

    yield start
    for one in begun:
        one.close()


def read(held: WorkloadProcess) -> list[bytes]:
    """Return what is read in each turn until the process has ended."""
    turns = []
    while not held.over:
        time.sleep(0.001)
        turns.append(held.read())
    return turns


def test_a_flood_is_read_in_turns_of_whole_lines_and_none_is_lost(begin):
    write = "import sys; [print('line', number) for number in range(100_000)]; print('end', end='')"
    *turns, last = read(begin(write))
    assert b"".join((*turns, last)).decode() == TEXT + "end"
    assert all(turn[-1:] in (b"", b"\n") for turn in turns)
    assert max(map(len, turns)) <= TURN_BYTES + READ_BYTES


def test_a_bar_that_is_drawn_again_is_a_line_each_time(begin):
    assert b"".join(read(begin("print('1 %\\r2 %\\r\\n3')"))) == b"1 %\n2 %\n3\n"


def test_a_worker_that_no_signal_ends_is_waited_for_no_longer_than_said(monkeypatch):
    """Like a worker in an uninterruptible call of the GPU's driver."""
    monkeypatch.setattr(workload_process, "REAP_S", 0.2)
    monkeypatch.setattr(WorkloadProcess, "signal", lambda *_: None)
    worker = WorkloadProcess(PLAN)
    try:
        worker.close()
        assert psutil.pid_exists(worker.pid)
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker._process.wait()


def open_files() -> set[str]:
    return {fd.name for fd in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def leaves_nothing(temporary):
    """Check that no file and no directory is left behind."""
    before = open_files()
    yield
    assert open_files() <= before  # what others left may have gone meanwhile
    assert not list(temporary.iterdir())


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("fails", range(2))
def test_where_a_pipe_is_refused_nothing_is_left_behind(fails, monkeypatch):
    """Its output, and what Popen itself needs."""
    refused = OSError(24, "Too many open files")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", Mock(side_effect=[*(os.pipe() for _ in range(fails)), refused]))
        with pytest.raises(WorkerError, match="could not start: .*Too many open files"):
            WorkloadProcess(PLAN)


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("needs", [(tempfile, "tempdir"), (sys, "executable")])
def test_without_a_directory_or_a_python_it_says_so_and_leaves_nothing(
    needs, temporary, monkeypatch
):
    monkeypatch.setattr(*needs, str(temporary / "none"))
    with pytest.raises(WorkerError, match="could not start: .*No such file"):
        WorkloadProcess(PLAN)


TWO_CHILDREN = """
import subprocess
children = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
print("up", flush=True)
children[0].wait()
"""
NOISE = "print(('\\x01' * 4095 + '\\n') * 100, flush=True)"


def until_its_end(job: TrainingJob) -> list[Envelope]:
    (watched := Watched(job)).end()
    return watched.envelopes


def test_the_end_of_a_training_that_is_read_late_is_as_it_says(monkeypatch):
    monkeypatch.setattr("gpudash.run.training_processes.PATIENCE_S", 0.0)
    job = start_double(Plan(workload="encdec", settings={}, steps=20))
    until(lambda: told_by(job.read(), "finished"))
    until(lambda: keeper.began_ticks(job.held.pid) < 0)
    assert not told_by(until_its_end(job), "parted")
    job.close()


def test_any_output_fits_into_lines_that_a_logs_reader_accepts(begin):
    said = until_its_end(job_of(PLAN, begin(NOISE)))
    printed = [one for one in said if isinstance(one.body, Printed)]
    assert sum(len(one.body.lines) for one in printed) >= 80
    assert max(len(line_of(one)) for one in printed) < LONGEST_LINE
    assert [one.seq for one in printed] == list(range(1, len(printed) + 1))


def test_what_has_killed_a_rank_is_told_before_what_others_say_came_of_it(begin):
    held = begin("raise SystemExit('Connection closed by peer')")
    held.place.mark("failed", "rank 1 was killed by SIGKILL")
    link = job_of(PLAN, held)
    until_its_end(link)
    assert link.ended() == "rank 1 was killed by SIGKILL"


@pytest.mark.usefixtures("leaves_nothing")
def test_close_ends_the_whole_process_group_and_leaves_nothing_behind():
    worker = WorkloadProcess(PLAN, ("-c", TWO_CHILDREN))
    until(worker.read)
    family = psutil.Process(worker.pid).children(recursive=True)
    assert len(family) == 2
    worker.close()
    assert psutil.wait_procs(family, timeout=60)[1] == []


PARENT = """
import time
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import Status
from gpudash.run.workload_process import start
job, said = start(Plan(workload="encdec", settings={}, device="cpu")), []
while Status(text="loading torch", awaits="torch") not in said:
    said += [one.body for one in job.read()]
    time.sleep(0.01)
print(flush=True)
time.sleep(600)
"""


def test_a_training_does_not_outlive_a_killed_gpudash(start_child, short_path):
    parent = start_child(PARENT, env=os.environ | {"TMPDIR": str(short_path)})
    (training,) = psutil.Process(parent.pid).children()
    parent.kill()
    assert psutil.wait_procs([training], timeout=PATIENCE_S)[1] == []
