"""A command as a session's source, over a double of a training process."""

import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from gpudash.errors import UsageError
from gpudash.protocol.commands import Block, Blocks, Change, Plan, Resume, Stop
from gpudash.protocol.session import Notice
from gpudash.protocol.training import (
    BlocksEnded,
    Hello,
    Offered,
    Progress,
    Refused,
    Status,
    TooLate,
)
from gpudash.run import job_commands, keeper
from gpudash.run.command_process import CommandProcess, Foreground, keep
from gpudash.run.job import PUT_BACK, TrainingJob
from gpudash.run.session import Session
from gpudash.run.training_processes import TrainingProcesses
from gpudash.run.user_command import UserCommand, understand
from tests.lives import told
from tests.run.screens import Screen
from tests.watched import Watched

TRAINING = str(Path(__file__).with_name("scripted_training.py"))
WAIT_S = 30.0


class Command(Watched):
    """A command that trains, and all its messages."""

    def __init__(self, place, *words, kept=True):
        command = UserCommand("train.py", (sys.executable, *words))
        self.held = keep(command, place) if kept else Foreground(command, place)
        super().__init__(TrainingJob("train.py", self.held, place))
        self.place = place

    def end(self):
        super().end()
        self.source.close()
        return self.source.ended()

    def sentences(self):
        return [one.text for one in self.of(Notice)]

    def facts(self):
        """Return the facts in its directory."""
        return json.loads((self.place.path / keeper.FACTS).read_text())


@pytest.fixture
def run(place):
    started = []

    def start(*words, **options):
        started.append(Command(place, *words, **options))
        return started[-1]

    yield start
    for watched in started:
        watched.source._processes.kill()
        watched.held.signal(signal.SIGKILL)
        watched.source.close()


class Ended(CommandProcess):
    """A command that has printed this, and ended so; `exit_code` None: it still runs."""

    can = ("levers",)

    def __init__(self, printed="", exit_code=0):
        self.printed, self.exit_code = printed.encode(), exit_code
        self.over = exit_code is not None

    def read(self):
        printed, self.printed = self.printed, b""
        return printed

    def signal(self, number): ...
    def close(self): ...


def told_of(place, held):
    """Return the source of this command, and all that it says at once."""
    source = TrainingJob("train.py", held, place)
    return source, [one.body for one in source.read()]


# ── messages ───────────────────────────────────────────────────────────────────────


def test_the_command_is_there_before_it_trains(place):
    hello, starting, status = told_of(place, Ended(exit_code=None))[1]
    assert hello.can == ("levers",)
    assert starting.text == "starting train.py"
    assert status.text == "train.py runs; torch is not imported so far"


def test_a_training_is_relayed_in_order_and_under_the_commands_name(run):
    watched = run(TRAINING, "--steps", "100")
    assert watched.first("started").workload == "train.py"
    assert watched.first(Offered).complete
    assert watched.end() == "train.py has ended"
    assert watched.of("finished")[-1].after_step == watched.of(Progress)[-1].total_steps > 0
    assert len(watched.of(Hello)) == 1  # said again, it would void the log
    for name in ("training", "output"):
        seqs = [one.seq for one in watched.envelopes if one.source == name]
        assert seqs == sorted(set(seqs))
    assert [line.split()[0] for line in watched.lines()] == ["training", "done"]


def test_a_training_that_answers_within_the_first_look_is_not_taken_for_late(run, monkeypatch):
    look = TrainingProcesses._look

    def look_slowly(processes):  # as on a busy machine
        while not processes._members:
            processes._look_s = 0.0
            look(processes)
        select.select([one._connection for one in processes._members], [], [], WAIT_S)

    monkeypatch.setattr(TrainingProcesses, "_look", look_slowly)
    watched = run(TRAINING, kept=False)
    watched.first("started")
    seqs = [one.seq for one in watched.envelopes if one.source == "training"]
    assert seqs == sorted(seqs)
    assert [type(one.body) for one in watched.envelopes[:2]] == [Hello, Status]


def test_a_rank_that_is_killed_is_named_and_the_others_go_on(run):
    watched = run(TRAINING, "--fork")
    of_rank = {rank: watched.first("started", rank).process.pid for rank in (0, 1)}
    command = watched.facts()["pid"]
    rank, pid = next((rank, pid) for rank, pid in of_rank.items() if pid != command)
    os.kill(pid, signal.SIGKILL)
    watched.until(watched.sentences)
    which = f"training process {pid} (rank {rank}) has ended"
    assert watched.sentences() == [f"{which}; the others go on"]
    seqs = [one.seq for one in watched.envelopes if (one.source, one.rank) == ("training", 0)]
    assert seqs == sorted(set(seqs))  # a lower one counts as a repeat, and is dropped
    steps = len(watched.of(Progress, 1 - rank))
    watched.until(lambda: len(watched.of(Progress, 1 - rank)) > steps)


TWO_RANKS = (
    "import subprocess, sys\n"
    f"words = [sys.executable, {TRAINING!r}, '--world-size', '2', '--rank']\n"
    "for one in [subprocess.Popen([*words, rank]) for rank in '01']: one.wait()"
)


TWO_JOBS = (
    "import subprocess, sys\n"
    f"words = [sys.executable, {TRAINING!r}, '--world-size', '2']\n"
    "ranks = [(job, rank) for job in 'AB' for rank in '01']\n"
    "started = [subprocess.Popen([*words, '--job', job, '--rank', rank]) for job, rank in ranks]\n"
    "for one in started: one.wait()"
)


def test_the_second_job_of_a_command_is_left_out_with_one_line(run):
    watched = run("-c", TWO_JOBS)
    watched.until(lambda: len(watched.lines()) == 4)  # all train
    for rank in (0, 1):
        watched.first(Progress, rank)
    (said,) = watched.until(watched.sentences)
    assert said.startswith("another job trains beside this one and is left out: training process ")
    watched.source.send(Change(id=1, settings={"num_workers": "4"}))
    for rank in (0, 1):
        watched.first("changed", rank)
    assert {one.rank for one in watched.envelopes} == {0, 1}
    assert len({one.process.pid for one in watched.of("started")}) == 2
    assert watched.sentences() == [said]


def test_a_job_that_follows_another_is_watched(run):
    words = f"[sys.executable, {TRAINING!r}, '--world-size', '2', '--steps', '100', '--job', job]"
    watched = run("-c", f"import subprocess, sys\nfor job in 'AB': subprocess.run({words})")
    watched.until(lambda: len({one.process.pid for one in watched.of("started", 0)}) == 2)


def test_a_change_that_not_every_rank_could_receive_is_refused(run, monkeypatch):
    monkeypatch.setattr(job_commands, "GATHER_S", 0.2)
    watched = run(TRAINING, "--fork", "--world-size", "3")
    for rank in (0, 1):
        watched.first(Progress, rank)
    watched.source.send(Change(id=1, settings={"num_workers": "4"}))
    said = "2 of 3 ranks are connected, and a lever moves on all at once"
    assert watched.first(Refused).reason == said


def test_if_rank_0_is_lost_another_ranks_answer_is_passed_on_once(run):
    watched = run("-c", TWO_RANKS)
    of_rank = {rank: watched.first("started", rank).process.pid for rank in (0, 1)}
    os.kill(of_rank[0], signal.SIGSTOP)
    watched.source.send(Change(id=1, settings={"num_workers": "4"}))
    watched.first("changed", 1)
    assert not watched.of(TooLate, 0)
    os.kill(of_rank[0], signal.SIGKILL)
    assert watched.first(TooLate, 0).answers == (1,)
    watched.source._processes.kill()
    watched.end()
    assert len(watched.of(TooLate, 0)) == 1
    assert not watched.of(Refused)


def test_if_rank_0_is_lost_and_no_rank_answers_a_change_is_refused(run):
    watched = run("-c", TWO_RANKS)
    of_rank = {rank: watched.first("started", rank).process.pid for rank in (0, 1)}
    for pid in of_rank.values():
        os.kill(pid, signal.SIGSTOP)
    watched.source.send(Change(id=1, settings={"num_workers": "4"}))
    for pid in of_rank.values():
        os.kill(pid, signal.SIGKILL)
    refused = watched.first(Refused)
    assert (refused.answers, refused.reason) == ((1,), "the training has ended, or was lost")
    watched.end()
    assert len(watched.of(Refused)) == 1


@pytest.mark.parametrize("rank", [-1, 1 << 40])
def test_an_impossible_rank_is_reported_and_left_out(run, rank):
    watched = run(TRAINING, "--rank", str(rank))
    watched.until(watched.sentences)
    (sentence,) = watched.sentences()
    assert sentence.startswith("training process ")
    assert sentence.endswith(f" is left out: it says that its rank is {rank}")
    assert watched.of("started") == []


def test_a_training_that_hung_up_is_reached_again(run):
    watched = run(TRAINING)
    pid = watched.first("started").process.pid
    (member,) = watched.source._processes._members
    member._connection._connection.shutdown(socket.SHUT_RDWR)
    watched.until(lambda: len(watched.of("started", 0)) == 2)
    assert {one.process.pid for one in watched.of("started")} == {pid}
    time.sleep(1.1)
    watched.until(lambda: watched.of(Progress)[-1].total_steps > 150)
    assert watched.sentences() == []


def test_a_restart_that_undoes_lever_changes_is_reported(run):
    program = (
        f"import subprocess, sys; words = [sys.executable, {TRAINING!r}, '--steps']\n"
        "for steps in '200', '20': subprocess.run([*words, steps])"
    )
    watched = run("-c", program)
    watched.first("started")
    watched.source.send(Change(id=1, settings={"num_workers": "4"}))
    watched.first("changed")
    watched.end()
    assert watched.sentences().count(PUT_BACK) == 1
    assert len({one.process.pid for one in watched.of("started", 0)}) == 2  # starts


def test_the_end_has_the_time_of_the_trainings_end(run):
    program = (
        f"import subprocess, sys; subprocess.run([sys.executable, {TRAINING!r}, '--steps', "
        "'100']); input()"
    )
    watched = run("-c", program)
    watched.first("parted")
    ends_s = time.monotonic()
    watched.source.type("\n")
    watched.end()
    (finished,) = watched.of("finished")
    assert finished.trained_until_s < ends_s < finished.at_s


# ── commands ────────────────────────────────────────────────────────────────────


def test_commands_without_a_receiver_are_answered_too(run):
    watched = run("-c", "import time; time.sleep(60)")
    block = Block(number=0, changes={}, min_steps=1, min_s=0.0)
    watched.source.send(Change(id=1, settings={"num_workers": "4"}))
    watched.source.send(Blocks(id=2, run=1, blocks=(block,)))
    watched.source.send(Resume(id=3))
    assert watched.first(BlocksEnded).answers == (2,)
    watched.until(lambda: len(watched.of(Refused)) == 2)
    changed, resumed = watched.of(Refused)
    assert (changed.answers, changed.reason) == ((1,), "nothing is training")
    assert (resumed.answers, resumed.reason) == ((3,), "resume: nothing is training")


DEAF = (
    "import signal, time\n"
    "for n in (signal.SIGINT, signal.SIGTERM): signal.signal(n, lambda n, _: print(int(n)))\n"
    "print('ready')\nwhile True: time.sleep(0.1)"
)


def test_it_ends_as_by_ctrl_c_and_harder_only_when_asked_again(run):
    watched = run("-c", DEAF)
    watched.until(lambda: watched.lines() == ["ready"])
    assert not watched.place.is_ending
    for said in (["ready", "2"], ["ready", "2", "15"]):
        watched.source.send(Stop(id=len(said)))
        watched.until(lambda said=said: watched.lines() == said)
        assert watched.place.is_ending  # so that it leaves no traceback of the interrupt
    assert watched.source.ended() is None
    watched.source.send(Stop(id=9))
    assert watched.end() == "train.py was killed by SIGKILL"
    assert not watched.of("failed")  # it was asked to


# ── how it ends ─────────────────────────────────────────────────────────────────────────


RANK = """\
  rank      : {} (local_rank: 1)
  exitcode  : {} (pid: 5720)
  traceback : To enable
=====
"""


@pytest.mark.parametrize(
    ("printed", "code", "sentence"),
    [
        ("", 7, "train.py exited with 7"),
        ("rank 1 died\n====\n", 1, "train.py exited with 1: rank 1 died"),
        (RANK.format(3, -9), 1, "train.py exited with 1: rank 3 was killed by SIGKILL"),
        (RANK.format(1, 3) + RANK.format(2, 7), 1, "train.py exited with 1: rank 2 exited with 7"),
        ("done\n", -9, "train.py was killed by SIGKILL"),
        ("", -11, "train.py was killed by SIGSEGV"),
        ("", -36, "train.py was killed by signal 36"),
    ],
)
def test_it_says_how_it_ended(place, printed, code, sentence):
    source, bodies = told_of(place, Ended(printed, code))
    assert source.ended() == sentence
    assert [one.failure.sentence for one in told(bodies, "failed")] == [sentence]


@pytest.mark.parametrize(
    "program",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
        "import os, signal; signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGINT)",
        "raise SystemExit(130)",  # as a shell says it
    ],
)
def test_an_interrupt_is_no_failure(run, program):
    watched = run("-c", program)
    assert watched.end() == "train.py was interrupted"
    assert not watched.of("failed")
    assert "train.py was interrupted" in watched.sentences()


def test_an_interrupted_training_has_stopped(run):
    watched = run(TRAINING)
    os.kill(watched.first("started").process.pid, signal.SIGINT)
    assert watched.end() == "train.py was interrupted"
    assert watched.of("stopped")


@pytest.mark.parametrize(("code", "is_failure"), [("exit(5)", False), ("os.abort()", True)])
def test_who_catches_an_interrupt_has_not_failed_unless_it_was_killed(run, code, is_failure):
    watched = run("-c", f"import os; {code}", kept=False)
    watched.source.was_interrupted = True  # by the terminal, as gpudash was
    assert watched.end() in ("train.py exited with 5", "train.py was killed by SIGABRT")
    assert bool(watched.of("failed")) == is_failure


@pytest.mark.parametrize(
    ("marks", "why"),
    [
        (
            (),
            "gpudash was not loaded; is this python -I, -E or -S, a frozen program, or no Python?",
        ),
        (("python", "torch", "oldtorch"), "its torch is older than 2.5"),
        (("python", "oldpython"), "its Python is older than 3.10"),
        (("python", "newpython"), "its Python is newer than 3.14"),
        (("python", "torch", "failed"), "gpudash failed in the process that imported torch"),
        (("python",), "torch was never imported"),
        (("python", "torch"), "no training step was seen, though torch was imported"),
        (("python", "torch", "trained"), "the training ended with its first steps"),
    ],
)
def test_without_a_step_it_says_why(place, marks, why):
    for mark in marks:
        place.mark(mark)
    assert why in told(told_of(place, Ended())[1], Notice)[-1].text


@pytest.mark.parametrize(
    ("marks", "status"),
    [
        ((), "python runs; torch is not imported so far"),
        (
            ("oldpython",),
            "python runs; its Python is older than 3.10: gpudash measures nothing there",
        ),
        (("oldpython", "torch"), "torch is imported; no training step so far"),
        (
            ("torch", "oldtorch"),
            "python runs; its torch is older than 2.5: gpudash measures nothing there",
        ),
    ],
)
def test_before_a_first_step_it_says_what_is_missing(place, marks, status):
    for mark in marks:
        place.mark(mark)
    said = told(told_of(place, Ended(exit_code=None))[1], Status)[-1].text
    assert said.endswith(status.removeprefix("python"))


def test_why_gpudash_failed_is_said_in_a_line(place):
    place.mark("failed", "not with torch 2.99: it has no such thing\nand more")
    said = told(told_of(place, Ended())[1], Notice)[-1].text
    assert said.endswith("torch: not with torch 2.99: it has no such thing")


# ── a session over it ───────────────────────────────────────────────────────────────────


def session_over(watched):
    session = Session(
        Plan(workload="train.py", settings={}),
        start_source=lambda _plan: watched.source,
        beside=(),
    )
    session.start(Screen())
    return session


@pytest.mark.parametrize("how", ["leave", "close"])
def test_a_session_that_leaves_or_closes_lets_it_run_on(run, how):
    watched = run("-c", "import time; print('up'); time.sleep(60)")
    watched.until(lambda: watched.lines() == ["up"])
    session = session_over(watched)
    getattr(session, how)()
    assert session.wait(WAIT_S)
    session.close()
    assert session.failure is None
    pid = watched.facts()["pid"]
    assert keeper.began_ticks(pid) >= 0
    os.kill(pid, signal.SIGKILL)


def test_a_stop_that_is_not_obeyed_kills_nothing(run, monkeypatch):
    monkeypatch.setattr("gpudash.run.session_thread.STOP_TIMEOUT_S", 0.0)
    watched = run("-c", DEAF)
    watched.until(lambda: watched.lines() == ["ready"])
    session = session_over(watched)
    session.stop()
    assert not session.wait(0.5)
    session.stop()
    session.stop()
    assert session.wait(WAIT_S)
    session.close()
    assert session.failure is None


# ── which command ───────────────────────────────────────────────────────────────────────


def test_the_python_is_the_one_named_then_the_activated_one_then_ours(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.touch()
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    assert understand([str(script), "--lr", "1"]).argv == (sys.executable, str(script), "--lr", "1")
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    module = UserCommand("pkg.train", (str(python), "-m", "pkg.train", "-m"))
    assert understand(["-m", "pkg.train", "-m"]) == module
    assert understand(["--", "sh", "-c", "true", "--"]).argv == ("sh", "-c", "true", "--")
    assert understand(["--", str(script)], "/bin/sh").argv == ("/bin/sh", str(script))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("sh main.py", "main.py"),
        ("sh -u src/main.py --epochs 3", "main.py"),
        ("sh -m pkg.train --config x.py", "pkg.train"),
        ("sh -m torch.distributed.run --nproc-per-node=2 main.py -m", "main.py"),
        ("sh launch -m pkg.train", "pkg.train"),
        ("sh -c pass", "sh"),
        ("sh -m", "sh"),
    ],
)
def test_it_is_named_after_what_it_trains_not_after_what_starts_that(command, name):
    assert understand(["--", *command.split()]).name == name


def test_it_has_a_name_that_a_message_can_hold_and_a_line_of_a_csv():
    assert understand(["--", "sh", os.fsdecode(b"b\xe4r.py")]).name == "b\ufffdr.py"
    assert understand(["--", "sh", "a\nb.py"]).name == "a␊b.py"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "there is nothing to run; valid: SCRIPT.py, -m MODULE or -- COMMAND"),
        (["--"], "there is nothing to run"),
        (["-m"], "-m needs the name of a module"),
        (["nosuch.py"], "no such file: nosuch.py"),
        (["/dev"], "/dev is a folder without a __main__.py"),
        (["--", "nosuch"], "command not found: nosuch"),
        (["--", "/etc/passwd"], "command /etc/passwd is not executable"),
        (["--", "/dev"], "command /dev is a folder, not a program"),
        (["x\0.py"], "cannot read"),
    ],
)
def test_what_cannot_be_started_is_refused_in_a_line(words, why):
    with pytest.raises(UsageError, match=why):
        understand(words)
