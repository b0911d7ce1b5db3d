"""What other jobs use of the cores: never the training, never gpudash, and read rarely."""

import subprocess
import sys

import pytest

from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.telemetry import other_jobs
from gpudash.telemetry.other_jobs import LINGERS_S, PERIOD_S, OtherJobsReader, Used, program
from gpudash.telemetry.procfs import Process
from tests.telemetry.test_processes import Clock

GPUDASH, TRAINING, LOADER, COMPILER, SHELL, BORN = 10, 20, 21, 30, 40, 50
PARENTS = {GPUDASH: 1, TRAINING: GPUDASH, LOADER: TRAINING, COMPILER: SHELL, SHELL: 1}


class Machine:
    """Processes with the CPU seconds that they have used; a reading takes no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.cpu_s = dict.fromkeys(PARENTS, 50.0)
        self.passes = 0
        self.reader = OtherJobsReader(self.clock)
        monkeypatch.setattr(other_jobs, "_read_all", self.read_all)
        monkeypatch.setattr(other_jobs, "name_of", lambda pid: f"job {pid}")
        monkeypatch.setattr("os.getpid", lambda: GPUDASH)

    def read_all(self) -> dict[Process, Used]:
        self.passes += 1
        return {
            Process(pid, 0): Used(PARENTS.get(pid, 1), cpu_s) for pid, cpu_s in self.cpu_s.items()
        }

    def read(self, core_wait_pct: float = CORE_WAIT_WARNS_PCT) -> list[tuple[str, float]] | None:
        found = self.reader.read((TRAINING,), core_wait_pct)
        return None if found is None else [(one.name, one.cores) for one in found.busiest]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_the_busiest_of_others_are_named_and_neither_the_training_nor_gpudash(machine: Machine):
    assert machine.read() is None
    machine.clock.now_s += PERIOD_S
    used = {GPUDASH: 0.5, TRAINING: 1.8, LOADER: 1.6, COMPILER: 1.5, SHELL: 0.5, BORN: 0.125}
    machine.cpu_s = {pid: machine.cpu_s.get(pid, 0.0) + s for pid, s in used.items()}
    found = machine.reader.read((TRAINING,), CORE_WAIT_WARNS_PCT)
    assert [(one.pid, one.cores) for one in found.busiest] == [(COMPILER, 0.75), (SHELL, 0.25)]
    assert found.used_cores == pytest.approx(1.0625)


def test_they_are_read_rarely_and_only_while_the_training_lacks_cores(machine: Machine):
    assert machine.read(0.0) is None
    assert machine.passes == 0
    for _ in range(20):
        machine.read()
        machine.clock.now_s += PERIOD_S / 10
    assert machine.passes == 2
    machine.clock.now_s += LINGERS_S
    machine.read(0.0)
    assert machine.passes == 2
    assert machine.read() is None  # what was used in between is not of now
    assert machine.passes == 3


def test_a_machine_with_many_processes_is_read_more_rarely(machine: Machine):
    def takes_200_ms() -> dict[Process, Used]:
        machine.clock.now_s += 0.2
        return machine.read_all()

    other_jobs._read_all = takes_200_ms  # type: ignore[assignment]  # the fixture puts it back
    for _ in range(12):
        machine.read()
        machine.clock.now_s += PERIOD_S
    assert machine.passes == 2


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("/usr/bin/stress", "--cpu", "2"), "stress"),
        (("/opt/venv/bin/python3", "-u", "/home/me/train.py", "--key", "secret"), "train.py"),
        (("python", "-m", "pytest", "tests"), "pytest"),
        (("python", "-c", "secret"), "python"),
        (("bash",), "bash"),
    ],
)
def test_a_job_is_named_by_its_program_or_script_and_never_by_its_arguments(command, name):
    assert program(command) == name


def test_a_real_process_is_found_with_the_cpu_time_it_used():
    burns = "import time\nwhile time.process_time() < 0.1: pass\nprint(flush=True)\ninput()"
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", burns]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        before = other_jobs._read_all()
        process.stdout.readline()
        now = other_jobs._read_all()
        (one,) = (found for found in now if found.pid == process.pid)
        assert other_jobs.name_of(process.pid).startswith("python")
        process.communicate()
    assert other_jobs.used_cores(before, now, (), 1.0)[one] == pytest.approx(0.1, abs=0.05)
    assert one not in other_jobs.used_cores(before, now, {process.pid}, 1.0)
