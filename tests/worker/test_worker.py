"""The real worker process: training, commands, slow readers, and its end."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from array import array
from collections.abc import Callable, Iterator
from itertools import count
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import psutil
import pytest
from torch import cuda

from gpudash.instrument.pipes import EventPipe
from gpudash.metrics import phases_ms
from gpudash.protocol.commands import Change, Pause, Plan, Resume, Stop
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.inspections import MemoryOwners
from gpudash.protocol.training import Failed, Hello, Progress, Refused, State, Status
from gpudash.run.workload_process import WorkloadProcess, job_of
from gpudash.worker.__main__ import build, build_rank, work
from tests.watched import Watched
from tests.worker.in_process import Run
from tests.workloads.trainings import needs_cuda
from workloads import CATALOGUE
from workloads.levers import LeverError

PATIENCE_S = 90
SMALL = {"batch_size": "2", "num_workers": "1", "model_scale": "small"}


class Worker(Watched):
    """A worker and its messages so far."""

    def __init__(self, plan: Plan) -> None:
        self.held = WorkloadProcess(plan)
        self.ids = count(100)
        super().__init__(job_of(plan, self.held))

    def trains_as(self, changed: State) -> None:
        """Read until a step after a change has come."""
        self.until(lambda: self.steps()[-1].segment == changed.segment)

    def numbered(self) -> None:
        """Check that no step was lost or counted twice."""
        numbers = [step.step for step in self.steps()]
        assert numbers == list(range(1, len(numbers) + 1))

    def change(self, **settings: str) -> State:
        """Change levers; return the answer."""
        (answer,) = self.ask(Change(id=next(self.ids), settings=settings))
        assert isinstance(answer, State), answer
        return answer


@pytest.fixture
def start(shared_memory: None) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def begin(**plan: object) -> Worker:
        settings = SMALL | plan.pop("settings", {})
        workers.append(Worker(Plan(workload="encdec", settings=settings, device="cpu", **plan)))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.source.close()


def test_a_plan_of_steps_is_exact_on_two_streams_too() -> None:
    plan = Plan(workload="encdec", settings={}, steps=7)
    settings = SMALL | {"pipelined": "on", "num_workers": "0"}
    run = Run(CATALOGUE["encdec"], settings=settings, plan=plan).until_stopped()
    assert [s.step for s in run.steps] == [1, 2, 3, 4, 5, 6, 7]
    last = run.of(Progress)[-1]
    assert (last.total_steps, last.total_samples) == (7, 14)
    assert last.loss is not None


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (
            Plan(workload="encdec", settings={"batch_size": "900000", "model_scale": "full"}),
            "GiB are available",
        ),
        (Plan(workload="encdec", settings={}, device="cuda:99"), "device 'cuda:99' is not valid"),
    ],
)
def test_a_plan_that_cannot_start_fails_with_one_sentence(plan: Plan, why: str) -> None:
    failed = failure_of(plan, build)
    assert failed.kind == "bad_setting"
    assert why in failed.sentence


def failure_of(plan: Plan, build: Callable[..., Any]) -> Failed:
    """Return the failure of a worker that fails before it trains."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert work(plan, EventPipe(theirs.fileno()), build, lambda *_: None) == 1
        *_, last = ours.recv(1 << 16).splitlines()
    return msgspec.json.decode(last, type=Envelope).body.failure


@pytest.mark.parametrize("code", [0, "no data"])
def test_a_workload_that_ends_its_process_has_failed(code: object) -> None:
    plan = Plan(workload="mine.py", settings={})
    failed = failure_of(plan, Mock(side_effect=SystemExit(code)))
    assert failed.sentence == f"mine.py failed: SystemExit: {code}"


def test_a_segfault_leaves_the_stack_on_the_log(start: Callable[..., Worker]) -> None:
    worker = start()
    worker.until(lambda: len(worker.of(Status)) > 1)  # its first one leaves before torch is loaded
    os.kill(worker.held.pid, signal.SIGSEGV)
    assert str(worker.end()).endswith("was killed by SIGSEGV")
    worker.until(lambda: any("Segmentation fault" in line for line in worker.lines()))


PARENT = """
import sys, time
from gpudash.protocol.commands import Plan
from gpudash.run.workload_process import WorkloadProcess, job_of
small = {"batch_size": "2", "num_workers": "2", "model_scale": "small"}
plan = Plan(workload="encdec", settings=small, device="cpu")
held = WorkloadProcess(plan)
link = job_of(plan, held)
while not any(getattr(e.body, "steps", ()) for e in link.read()):
    time.sleep(0.01)
print(held.pid, flush=True)
time.sleep(600)
"""


def test_no_process_outlives_a_killed_parent_and_its_directory_goes_at_the_next_start(
    start: Callable[..., Worker], short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(short_path)},
    )
    assert parent.stdout
    worker = psutil.Process(int(parent.stdout.readline()))
    family = [worker, *worker.children(recursive=True)]
    assert len(family) >= 3  # the loader workers too
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    (left,) = short_path.glob("gpudash-*")
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    start()
    assert not left.exists()


def test_more_processes_than_gpus_are_refused() -> None:
    plan = Plan(workload="encdec", settings=SMALL, device="cuda", nproc=1 + cuda.device_count())
    with pytest.raises(LeverError, match=f"--nproc {plan.nproc} is not valid: torch sees "):
        build_rank(plan, Mock())


@needs_cuda
def test_a_batch_that_does_not_fit_the_gpu_is_refused_and_the_training_goes_on() -> None:
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    hog = torch.empty(free_bytes - 4 * 2**30, dtype=torch.uint8, device="cuda")  # leave 4 GiB
    worker = Worker(Plan(workload="encdec", settings={"batch_size": "8", "data": "resident"}))
    try:
        worker.until(worker.steps)
        worker.source.send(Change(id=1, settings={"batch_size": "512"}))
        worker.until(lambda: worker.of(Refused))
        assert "out of memory with batch_size=512" in worker.of(Refused)[0].reason
        (report,) = worker.of(MemoryOwners)
        assert any("workloads" in owner.file for owner in report.owners)
        settled = worker.of("changed")[-1]
        assert settled.settings["batch_size"] == "8"
        worker.trains_as(settled)
        worker.source.send(Stop(id=4))
        worker.end()
        assert worker.source.held.exit_code == 0
        worker.numbered()
    finally:
        worker.source.close()
        del hog
        torch.cuda.empty_cache()


# ── one training for the tests that follow, in any order ────────────────────────────────


@pytest.fixture(scope="module")
def running(shared_memory: None) -> Iterator[Callable[[], Worker]]:
    """Return the training of several tests, as loading torch is slow; after its crash, another.

    It loads batches and loses no step. A socket's path has at most 107 bytes, and clusters give
    jobs directories with long names.
    """
    workers: list[Worker] = []
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        long = Path(folder, "job-" + "x" * 90)
        long.mkdir()

        def newest() -> Worker:
            if not workers or workers[-1].source.held.exit_code is not None:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(tempfile, "tempdir", str(long))
                    plan = Plan(workload="encdec", settings=SMALL, device="cpu")
                    workers.append(Worker(plan))
                workers[-1].until(lambda: len(workers[-1].steps()) >= 5)
            return workers[-1]

        try:
            yield newest
            for worker in workers:
                worker.numbered()
        finally:
            for worker in workers:
                worker.source.close()


@pytest.fixture
def training(running: Callable[[], Worker]) -> Worker:
    return running()


def test_the_worker_reports_its_training_and_then_every_step(training: Worker) -> None:
    assert [type(one.body) for one in training.envelopes[:2]] == [Hello, Status]
    (started,) = training.of("started")
    assert (started.settings["batch_size"], started.process.pid) == ("2", training.held.pid)
    assert started.process.threads > 0
    labels = {phase.name: phase.label for phase in started.process.phases}
    assert [*labels] == ["copy", "prepare", "forward", "backward", "optimizer", "graph"]
    assert labels["prepare"] == "encode"  # the workload's own word
    as_started = [step for step in training.steps() if step.segment == 0]
    measured = {name for step in as_started for name in phases_ms(step.values)}
    assert measured == {*labels} - {"graph"}


def test_a_change_holds_from_its_segment_on(training: Worker) -> None:
    before = (training.of("changed") or training.of("started"))[-1].settings
    changed = training.change(pipelined="on", batch_size="4")
    assert changed.settings == before | {"pipelined": "on", "batch_size": "4"}
    training.trains_as(changed)
    earlier = [s.step for s in training.steps() if s.segment == changed.segment - 1]
    assert earlier[-1] == changed.after_step
    assert {s.samples for s in training.steps() if s.segment == changed.segment} == {4}
    training.until(lambda: any("no streams" in line for line in training.lines()))


def test_a_pause_keeps_its_moment_and_is_in_no_step(training: Worker) -> None:
    training.source.send(Pause(id=2))
    training.source.send(Pause(id=2))
    training.until(lambda: training.of("paused"))
    paused_s = training.of("paused")[0].at_s
    training.until(lambda: training.of(Progress)[-1].until_s > paused_s + 0.3)
    assert max(s.finished_s for s in training.steps()) <= paused_s
    assert training.of("paused")[0].after_step == training.steps()[-1].step
    training.source.send(Resume(id=3))
    training.until(lambda: training.of("resumed") and training.steps()[-1].finished_s > paused_s)
    after = next(s for s in training.steps() if s.finished_s > paused_s)
    resumed_s = training.of("resumed")[0].at_s
    assert after.step_ms <= (after.finished_s - resumed_s) * 1e3 + 1e-6  # without the pause
    assert len({event.at_s for event in training.of("paused")}) == 1


def unread_bytes(fd: int) -> int:
    """Return the number of unread bytes of a connection."""
    answer = array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, answer)
    return answer[0]


def test_a_reader_that_stalls_delays_no_step_and_misses_none(training: Worker) -> None:
    training.trains_as(training.change(data="cached", batch_size="1"))
    (events,) = training.source.filenos
    process = psutil.Process(training.held.pid)
    unread, used_s, full_s = -1, inf, inf
    while process.cpu_times().user < used_s + 0.2:  # it trains on while the connection is full
        if unread_bytes(events) != unread:
            unread, used_s = unread_bytes(events), process.cpu_times().user
            full_s = time.monotonic()
        time.sleep(0.005)
    read_s = time.monotonic()
    training.until(lambda: training.steps()[-1].finished_s > read_s)
    assert len([s for s in training.steps() if full_s < s.finished_s < read_s]) > 3
    training.numbered()


def test_a_crash_arrives_with_its_traceback(training: Worker) -> None:
    changed = training.change(data="loader", batch_size="3")  # no other test has 3
    training.trains_as(changed)
    assert list(training.held.place.path.rglob("listener-*"))  # goes with the worker
    for child in psutil.Process(training.held.pid).children():
        child.kill()  # a loader worker dies: torch raises in the training process
    assert "exited with 1" in str(training.end())
    (end,) = training.of("failed")
    assert end.failure.kind == "error"
    assert "DataLoader worker" in end.failure.sentence
    assert "Traceback" in end.failure.traceback
