"""Whose time it is: the training's own, its loader workers', another rank's, or somebody else's."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpudash.protocol.readings import HostReading
from gpudash.telemetry import procfs
from gpudash.telemetry.processes import HostReader
from tests.telemetry.test_processes import Clock

TRAINING, WORKER, OTHER_WORKER, LOGGER, RANK = 10, 21, 22, 30, 40
TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """The kernel's files of some processes, and a reader of a training among them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parents: dict[int, int] = {}
        self._clock = Clock()
        self.reader = HostReader(TRAINING, self._clock, reads_own=False)
        self.ranks: Iterable[int] = [TRAINING]
        self.runs(TRAINING, parent=1)

    def runs(
        self, pid: int, *, parent: int = TRAINING, number: int | None = None, began: int = 0
    ) -> None:
        """`number`: its process id within its container."""
        self._parents[pid] = parent
        (self._folder / f"{pid}/task/{pid}").mkdir(parents=True)
        inside = f"\t{number}" if number is not None else ""
        self._write(pid, "status", f"Name:\tpython\nNSpid:\t{pid}{inside}\nThreads:\t1")
        self.has_used(pid, 0.0, began=began)
        self._list_children()

    def has_used(
        self, pid: int, s: float, *, reaped_s: float = 0.0, waited_s: float = 0.0, began: int = 0
    ) -> None:
        times = f"{round(TICKS * s)} 0 {round(TICKS * reaped_s)} 0"
        state = f"S {self._parents[pid]} {'0 ' * 9}{times} 0 0 0 0 {began} 0"
        self._write(pid, "stat", f"{pid} (a (b) c) {state} 0 0 0")
        self._write(pid, "statm", "512 256 0 0 0 0 0")
        self._write(pid, f"task/{pid}/schedstat", f"{round(1e9 * s)} {round(1e9 * waited_s)} 1")

    def ends(self, pid: int) -> None:
        shutil.rmtree(self._folder / str(pid))
        self._parents.pop(pid)
        self._list_children()

    def reads(self) -> HostReading:
        """Read one second after the reading before."""
        self._clock.now_s += 1.0
        return self.reader.read(ranks=self.ranks)

    def shares(self) -> list[float | None]:
        """Return the percentages of all, of the loader and of others, one second later."""
        reading = self.reads()
        names = ("cpu_pct", "loader_cpu_pct", "other_cpu_pct")
        return [None if (pct := reading.number(one)) is None else round(pct) for one in names]

    def _list_children(self) -> None:
        for pid in self._parents:
            children = (str(one) for one, parent in self._parents.items() if parent == pid)
            self._write(pid, f"task/{pid}/children", " ".join(children))

    def _write(self, pid: int, name: str, text: str) -> None:
        (self._folder / str(pid) / name).write_text(f"{text}\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(procfs, "PROC", str(tmp_path))
    monkeypatch.setattr(procfs, "LISTS_CHILDREN", True)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    return Machine(tmp_path)


@pytest.fixture
def told(machine: Machine) -> Machine:
    """A training with a loader worker that it has named, and a logger; both were read once."""
    machine.runs(WORKER)
    machine.runs(LOGGER)
    machine.reader.roles.tell([WORKER])
    machine.reads()
    return machine


def test_a_training_without_workers_has_none_whatever_else_it_has_started(told: Machine):
    told.reader.roles.tell([])
    told.ends(WORKER)
    told.runs(RANK)  # a renderer
    told.shares()
    told.has_used(RANK, 0.7)
    assert told.shares() == [70, 0, 70]


def test_a_training_that_does_not_name_its_workers_has_its_time_in_one(machine: Machine):
    machine.runs(WORKER)
    machine.reads()
    machine.has_used(WORKER, 0.3)
    assert machine.shares() == [30, None, None]


def test_what_a_worker_starts_is_of_the_loader_even_once_the_worker_has_ended(told: Machine):
    told.runs(50, parent=WORKER)
    told.runs(51, parent=50)
    told.has_used(51, 0.2)
    assert told.shares() == [20, 20, 0]
    told.ends(WORKER)
    told.has_used(50, 0.1)
    assert told.shares() == [10, 10, 0]


def test_a_program_that_a_worker_runs_for_each_sample_is_of_the_loader(told: Machine):
    told.has_used(WORKER, 0.1, reaped_s=0.4)
    told.has_used(LOGGER, 0.1, reaped_s=0.2)
    assert told.shares() == [80, 50, 30]


def test_workers_that_are_started_anew_for_each_epoch_are_charged_for_all_they_used(told: Machine):
    reaped_s = 0.0
    for epoch in range(1, 4):
        told.has_used(WORKER, 0.25, began=epoch - 1)
        told.shares()
        told.ends(WORKER)
        reaped_s += 0.5
        told.has_used(TRAINING, 0.0, reaped_s=reaped_s)
        told.runs(WORKER, began=epoch)
        told.reader.roles.tell([WORKER])
        assert told.shares() == [25, 25, 0]


def test_programs_of_the_training_that_begin_and_end_are_others(told: Machine):
    told.has_used(TRAINING, 0.0, reaped_s=0.4)
    assert told.shares() == [40, 0, 40]


def test_a_worker_of_a_server_that_forks_it_is_one_and_the_server_is_not(machine: Machine):
    machine.runs(LOGGER)  # the server
    machine.runs(WORKER, parent=LOGGER)
    machine.reader.roles.tell([WORKER])
    machine.reads()
    machine.has_used(LOGGER, 0.1)
    machine.has_used(WORKER, 0.3)
    assert machine.shares() == [40, 30, 10]


def test_a_worker_that_is_named_late_is_one_from_then_on(told: Machine):
    told.runs(OTHER_WORKER)
    told.has_used(OTHER_WORKER, 0.2)
    assert told.shares() == [20, 0, 20]
    told.reader.roles.tell([WORKER, OTHER_WORKER])
    told.has_used(OTHER_WORKER, 0.4)
    assert told.shares() == [20, 20, 0]


def test_a_worker_that_rests_unnamed_stays_one(told: Machine):
    told.reader.roles.tell([])
    told.has_used(WORKER, 0.2)
    assert told.shares() == [20, 20, 0]


def test_a_process_with_the_number_of_a_worker_that_has_ended_is_none(told: Machine):
    told.ends(WORKER)
    told.runs(WORKER, began=7)
    told.reads()
    told.has_used(WORKER, 0.2, began=7)
    assert told.shares() == [20, 0, 20]


def test_a_container_names_workers_by_its_own_numbers(machine: Machine):
    machine.runs(WORKER, number=5)
    machine.runs(LOGGER, number=6)
    machine.runs(5, parent=1)  # of the machine's own
    machine.reader.roles.tell([5])
    machine.reads()
    machine.has_used(WORKER, 0.3)
    machine.has_used(LOGGER, 0.1)
    assert machine.shares() == [40, 30, 10]


def test_what_never_was_there_is_no_worker(machine: Machine):
    machine.reader.roles.tell([4711])
    machine.reads()
    machine.has_used(TRAINING, 0.5)
    assert machine.shares() == [50, 0, 0]


def test_a_rank_that_another_one_has_started_counts_apart_with_all_that_is_below_it(told: Machine):
    alone_mib = told.reads().number("worker_rss_mib")
    ranks = range(RANK, RANK + 7)
    for rank in ranks:
        told.runs(rank)
        told.runs(10 * rank, parent=rank)  # a worker of its own
    told.ranks = [TRAINING, *ranks]
    assert told.reads().number("worker_rss_mib") == alone_mib
    for rank in ranks:
        told.has_used(rank, 0.9, reaped_s=0.5)
        told.has_used(10 * rank, 0.9)
    told.has_used(WORKER, 0.3)
    assert told.shares() == [30, 30, 0]


def test_a_rank_is_apart_from_when_it_is_known_to_be_one_to_its_end(told: Machine):
    told.runs(RANK)
    told.has_used(RANK, 0.5)
    assert told.shares() == [50, 0, 50]
    told.ranks = [TRAINING, RANK]
    told.has_used(RANK, 9.0)
    assert told.shares() == [0, 0, 0]
    told.ends(RANK)
    told.has_used(TRAINING, 0.0, reaped_s=9.0)
    assert told.shares() == [0, 0, 0]


def waits_pct(machine: Machine, **waited_s: float) -> float | None:
    """Return the core wait if each runs for 0.5 s of a second and waits for so long."""
    pids = {"training": TRAINING, "worker": WORKER, "logger": LOGGER}
    for who, s in waited_s.items():
        machine.has_used(pids[who], 0.5, waited_s=s)
    return machine.reads().number("core_wait_pct")


def test_the_core_wait_is_of_the_training_and_its_workers_alone(told: Machine):
    assert waits_pct(told, training=0.0, worker=0.5, logger=9.0) == pytest.approx(100 / 3)


def test_the_core_wait_is_of_all_where_the_workers_are_not_named(told: Machine):
    told.reader.roles.tell(None)
    assert waits_pct(told, training=0.0, worker=0.0, logger=0.5) == pytest.approx(25)
