"""The parent's side: every line arrives, the reader never blocks, nothing is left behind."""

import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gpudash.errors import WorkerError
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import Printed
from gpudash.recording.log import LONGEST_LINE, line_of
from gpudash.run import worker_process
from gpudash.run.lines import READ_BYTES, TURN_BYTES
from gpudash.run.worker_process import WorkerProcess, _PipeLines

PLAN = Plan(workload="encdec", settings={})

PIPE_BYTES = 1 << 16
TEXT = "".join(f"line {number}\n" for number in range(300_000))
READS: dict[str, Callable[[_PipeLines], list[str]]] = {
    "events": lambda lines: [line.decode() for line in lines.read()],
    "printed": _PipeLines.read_text,
}


@pytest.mark.parametrize("kind", READS)
def test_a_flood_is_read_in_turns_and_no_line_is_lost(kind, tmp_path):
    path = tmp_path / "flood"
    path.write_text(TEXT)
    lines = _PipeLines(os.open(path, os.O_RDONLY))
    turns = []
    while not lines.ended:
        turns.append(READS[kind](lines))
    lines.close()
    assert [line for turn in turns for line in turn] == TEXT.splitlines()
    assert len(turns) > 3
    longest = max(sum(len(line) + 1 for line in turn) for turn in turns)
    assert longest <= TURN_BYTES + READ_BYTES


@pytest.mark.parametrize("kind", READS)
def test_one_turn_reads_all_that_a_dead_worker_left(kind):
    reading, writing = os.pipe()
    lines = _PipeLines(reading)
    left = TEXT.encode()[: PIPE_BYTES - 1].rpartition(b"\n")[0] + b"\n"
    assert os.write(writing, left) == len(left)
    os.close(writing)
    assert READS[kind](lines) == left.decode().splitlines()
    assert lines.ended
    lines.close()


def test_a_worker_that_no_signal_ends_is_waited_for_no_longer_than_said(monkeypatch):
    """Like a worker in an uninterruptible call of the GPU's driver."""
    monkeypatch.setattr(worker_process, "REAP_S", 0.2)
    monkeypatch.setattr(WorkerProcess, "kill", lambda self: None)
    worker = WorkerProcess(PLAN)
    try:
        began_s = time.monotonic()
        worker.close()
        assert 0.2 <= time.monotonic() - began_s < 5
        assert worker.exit_code() is None
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


def test_a_directory_that_cannot_be_created_is_an_error_with_its_reason(temporary, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "full"))
    with pytest.raises(WorkerError, match="could not start: .*No such file"):
        WorkerProcess(PLAN)


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("fails", range(5))
def test_where_a_pipe_is_refused_nothing_is_left_behind(fails, monkeypatch):
    """Events, output, errors, commands, and what Popen itself needs."""
    make, made = os.pipe, []

    def pipe():
        if len(made) == fails:
            raise OSError(24, "Too many open files")
        made.append(make())
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", pipe)
        with pytest.raises(WorkerError, match="could not start: .*Too many open files"):
            WorkerProcess(PLAN)


@pytest.mark.usefixtures("leaves_nothing")
def test_where_no_python_can_be_started_nothing_is_left_behind(temporary, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(temporary / "python"))
    with pytest.raises(WorkerError, match="could not start: .*No such file"):
        WorkerProcess(PLAN)


TWO_CHILDREN = """
import subprocess, sys
children = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
print("up", flush=True)
sys.stdin.read()
"""


NOISE = "print(('\\x01' * 4095 + '\\n') * 300, flush=True)"


def test_any_output_fits_into_lines_that_a_logs_reader_accepts():
    worker = WorkerProcess(PLAN, ("-c", NOISE))
    printed = []
    while not worker.ended():
        select.select(worker.filenos, [], [], 1)
        printed += worker.read()
    printed += worker.read()
    worker.close()
    assert sum(len(one.body.lines) for one in printed) >= 300
    assert max(len(line_of(one)) for one in printed) < LONGEST_LINE
    assert [one.seq for one in printed] == list(range(len(printed)))


def test_a_signal_without_a_name_is_shown_by_its_number():
    worker = WorkerProcess(PLAN, ("-c", "import os; os.kill(os.getpid(), 36)"))
    while (ended := worker.ended()) is None:
        select.select([], [], [], 0.01)
    worker.close()
    assert ended == "the training process was killed by signal 36"


def test_close_ends_the_whole_process_group():
    worker = WorkerProcess(PLAN, ("-c", TWO_CHILDREN))
    while not any(isinstance(one.body, Printed) for one in worker.read()):
        select.select(worker.filenos, [], [])
    family = psutil.Process(worker.pid).children(recursive=True)
    assert len(family) == 2
    worker.close()
    assert psutil.wait_procs(family, timeout=60)[1] == []


@pytest.mark.usefixtures("leaves_nothing")
def test_a_closed_link_leaves_nothing_behind():
    WorkerProcess(PLAN).close()
