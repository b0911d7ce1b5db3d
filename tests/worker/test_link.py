"""The parent's side: every line arrives, nothing holds up the reader, nothing is left behind."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from gpudash.records import Plan
from gpudash.worker import link
from gpudash.worker.link import READ_BYTES, TURN_BYTES, WorkerLink, _Lines

PLAN = Plan(workload="encdec", settings={})

PIPE_BYTES = 1 << 16
TEXT = "".join(f"line {number}\n" for number in range(300_000))
READS: dict[str, Callable[[_Lines], list[str]]] = {
    "events": lambda lines: [line.decode() for line in lines.read()],
    "printed": _Lines.read_text,
}


@pytest.mark.parametrize("kind", READS)
def test_a_flood_is_read_in_turns_and_no_line_is_lost(kind, tmp_path):
    path = tmp_path / "flood"
    path.write_text(TEXT)
    lines = _Lines(os.open(path, os.O_RDONLY))
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
    lines = _Lines(reading)
    left = TEXT.encode()[: PIPE_BYTES - 1].rpartition(b"\n")[0] + b"\n"
    assert os.write(writing, left) == len(left)
    os.close(writing)
    assert READS[kind](lines) == left.decode().splitlines()
    assert lines.ended
    lines.close()


def test_a_worker_that_no_signal_ends_is_waited_for_no_longer_than_said(monkeypatch):
    """As one in an uninterruptible call of the GPU's driver."""
    monkeypatch.setattr(link, "REAP_S", 0.2)
    monkeypatch.setattr(WorkerLink, "kill", lambda self: None)
    worker = WorkerLink(PLAN)
    try:
        began_s = time.monotonic()
        worker.close()
        assert 0.2 <= time.monotonic() - began_s < 5
        assert worker.exit_code() is None
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker._process.wait()
