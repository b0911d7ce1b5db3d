"""Batch jobs and containers: no terminal, a /tmp of the job's own, limits, stubs of Slurm."""

import os
import re
import shlex
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from gpudash.cli.main import main
from gpudash.run import keeper, runs
from tests import worker_double
from tests.cli.conftest import GPUDASH, ROOT, TRAINING, ended, shows
from tests.waiting import PATIENCE_S, done, until

JOB = {"SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "gpu3"}
SRUN = """#!/bin/sh
# as Slurm's: a step of the job, in the environment of whoever calls it, with the job's variables
while [ $# -gt 0 ]; do
  case "$1" in
    --overlap | --pty) shift ;;
    --jobid) export SLURM_JOB_ID="$2"; shift 2 ;;
    -N | -n | -w) shift 2 ;;
    *) break ;;
  esac
done
export SLURM_STEP_ID=1
exec "$@"
"""


@pytest.fixture(autouse=True)
def _outside_of_slurm(private, monkeypatch):
    for name in (one for one in os.environ if "SLURM" in one):
        monkeypatch.delenv(name)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder on the PATH with gpudash and a stub of srun."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "srun").write_text(SRUN)
    (folder / "gpudash").write_text(f'#!/bin/sh\nexec {shlex.join(GPUDASH)} "$@"\n')
    for file in folder.iterdir():
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def started(*words, **options):
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*GPUDASH, "run", *words], **pipes | options)


@contextmanager
def lasting(*words, until_there, **options):
    """A training that lasts until this file is there: behind the block at the latest."""
    with started(*words, **options) as job:
        try:
            yield job
        finally:
            until_there.touch()


def dashboard(*words, showing="num_workers"):
    """A command in a terminal, once its dashboard shows this text, as it does the levers."""
    terminal = pexpect.spawn(
        words[0],
        list(words[1:]),
        env=worker_double.environment(TERM="xterm-256color"),
        dimensions=(40, 120),
        timeout=PATIENCE_S,
    )
    terminal.expect_exact(showing)
    return terminal


# ── without a terminal ──────────────────────────────────────────────────────────────────


def test_without_a_terminal_nothing_has_to_be_asked_for():
    Path("train.py").write_text("import sys; print(sys.argv, sys.stdin.read())")
    ours = done(*GPUDASH, "run", "train.py", "--lr", "1", input="typed")
    assert (ours.returncode, ours.stdout) == (0, "['train.py', '--lr', '1'] typed\n")
    first, last = ours.stderr.splitlines()
    assert re.fullmatch(
        r"gpudash: no terminal here; .*gpudash attach opens the dashboard over train\.py", first
    )
    assert last.startswith("gpudash: no training step was seen")


@pytest.mark.parametrize(
    ("surroundings", "command"),
    [
        (JOB, "srun --overlap --jobid 77 -N 1 -n 1 --pty gpudash attach"),
        (
            JOB | {"SLURM_JOB_NUM_NODES": "2"},
            "srun --overlap --jobid 77 -w gpu3 -N 1 -n 1 --pty gpudash attach",
        ),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubectl exec -it HOST -- gpudash attach"),
    ],
)
def test_it_says_how_to_look_in_from_elsewhere(monkeypatch, capfd, surroundings, command):
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    Path("train.py").touch()
    assert main(["run", "train.py"]) == 0
    said = capfd.readouterr().err
    assert f"no terminal here; {command.replace('HOST', os.uname().nodename)} opens" in said


# ── looking in ──────────────────────────────────────────────────────────────────────────


def test_the_line_of_a_job_opens_the_dashboard_and_the_job_ends_as_without(programs, monkeypatch):
    """The job has a TMPDIR of its own, and a step that looks in has not."""
    printed, over = programs.parent / "slurm-77.out", programs.parent / "over"
    with lasting(
        TRAINING,
        *("--until", str(over), "--step-s", "0.004", "--exit", "3", "--tells"),
        until_there=over,
        env=os.environ | JOB | {"TMPDIR": str(programs.parent)},
        stdout=printed.open("wb"),
    ) as job:
        line = job.stderr.readline().decode()
        command = shlex.split(re.search(r"here; (srun .* attach) opens", line)[1])
        monkeypatch.delenv("TMPDIR", raising=False)
        until(runs.living)
        step = dashboard(*command, showing=f"{printed}")
        step.expect_exact("num_workers")  # before, leaving asks nothing
        times = printed.read_text().count("watched\n")
        (run,) = runs.living()
        with pytest.raises(Exception, match="watched by another gpudash"):
            run.open()  # one dashboard at a time
        step.send("q")
        shows(step, "leave").send("l")
        again = f"again    {shlex.join(command)}, as scripted_training.py runs on, and "
        ended(shows(step, re.escape(again), f"prints to {printed}"))
        until(  # by the job again, for as long as a rate takes
            lambda: (
                (text := printed.read_text()).count("watched\n") > times
                and text.endswith("many steps\n")
            )
        )
        over.touch()
        _, errors = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 3
    assert printed.read_text().startswith("training ")
    done_line, summary = errors.decode().splitlines()
    assert done_line == "done"
    assert re.search(r"exited with 3; [\d,]+ steps, [\d.]+ steps/s", summary)
    assert runs.living() == []


def test_a_training_that_ends_under_another_dashboard_is_not_summed_up_wrongly(programs):
    job = started(TRAINING, "--steps", "100000")
    with job:
        until(runs.living)
        step = dashboard("gpudash", "attach")
        (run,) = runs.living()
        os.kill(run.facts.pid, signal.SIGKILL)
        _, errors = job.communicate(timeout=PATIENCE_S)
        step.close(force=True)
    assert b"steps/s until gpudash attach took over" in errors.splitlines()[-1] or (
        b"no training step was seen" in errors.splitlines()[-1]  # it was attached to at once
    )


PRIVATE = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
TMP = """
mkdir "$1/old" && mount --rbind /tmp "$1/old" && mount -t tmpfs none /tmp
case "$2" in /tmp/*) mkdir -p "$2" && mount --bind "$1/old/${2#/tmp/}" "$2" ;; esac
shift 2 && exec "$@"
"""
"""A /tmp of its own, as some clusters give each job; the code under test is still seen."""


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_private_tmp_needs_a_folder_that_both_see(monkeypatch, is_shared):
    if done(*PRIVATE, "mount -t tmpfs none /tmp").returncode:
        pytest.skip("no mount namespace can be had")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as shared:
        if is_shared:
            monkeypatch.setenv("GPUDASH_RUN_DIR", shared)
        else:
            monkeypatch.delenv("GPUDASH_RUN_DIR")
        Path(shared, "train.py").write_text("input()")
        words = [*PRIVATE, TMP, "sh", shared, ROOT, *GPUDASH, "run", "train.py"]
        with subprocess.Popen(
            words, cwd=shared, stdin=subprocess.PIPE, stderr=subprocess.PIPE
        ) as job:
            assert b"no terminal here" in job.stderr.readline()
            if is_shared:
                assert [run.facts.name for run in until(runs.living)] == ["train.py"]
            else:
                children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
                until(lambda: children.read_text().strip())  # the command has been started
                assert shared not in [run.facts.cwd for run in runs.living()]
            job.communicate(b"\n", timeout=PATIENCE_S)
            assert job.returncode == 0


def test_a_step_that_ends_takes_keeper_and_training_with_it_and_leaves_nothing_to_find(programs):
    """Slurm kills what is left of a step. The next gpudash removes the directory."""
    step = dashboard(*GPUDASH, "run", TRAINING, "--steps", "100000")
    (run,) = runs.living()
    step.close(force=True)  # the step's task is gone, and its terminal
    (kept,) = runs.living()  # outside of Slurm it would train on
    assert kept.facts.is_kept
    for pid, _ in run.facts.processes:
        os.kill(pid, signal.SIGKILL)
    until(lambda: all(keeper.began_ticks(pid) != began for pid, began in run.facts.processes))
    assert runs.living() == []
    assert not run.place.path.exists()


# ── what is not needed ──────────────────────────────────────────────────────────────────


def test_attaching_traces_no_process(programs):
    """As in a container without SYS_PTRACE, over a process that lets nobody trace it."""
    over = programs.parent / "over"
    strict = "import ctypes, sys; ctypes.CDLL(None).prctl(4, 0)  # not dumpable\n"
    strict += f"sys.argv = ['x', '--until', {str(over)!r}]; exec(open({TRAINING!r}).read())"
    (programs.parent / "train.py").write_text(strict)
    alone = ["setpriv", "--bounding-set", "-sys_ptrace"] if os.geteuid() == 0 else []
    with lasting("train.py", until_there=over, cwd=programs.parent) as job:
        until(runs.living)
        dashboard(*alone, "gpudash", "attach").close(force=True)
        over.touch()
        job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 0
