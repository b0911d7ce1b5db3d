"""A command that is only measured: whatever it has started ends with it, and with gpudash."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpudash.errors import WorkerError
from gpudash.run import keeper
from gpudash.run.command_process import Foreground, keep
from gpudash.run.guarded import Guarded
from gpudash.run.guardian import Escalation
from gpudash.run.user_command import UserCommand
from tests.waiting import until

TRAINS = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1], f"{os.getpid()}.trains").touch()
while not Path(sys.argv[1], "enough").exists():
    time.sleep(0.01)
"""
DAEMON = "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
RANKS = """
import signal, subprocess, sys
ranks = [subprocess.Popen(sys.argv[1:], start_new_session=True) for _ in range(2)]
for rank in ranks:
    rank.wait()
"""
DEAF = "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"


@pytest.fixture
def hold(place):
    """Start commands that a guardian holds."""
    held = []

    def start(*words):
        held.append(Guarded(UserCommand("train.py", words), place))
        return held[-1]

    yield start
    for one in held:
        one.close()
        one.wait()


@pytest.fixture
def training(tmp_path):
    """Return a command line in shell's words that trains, and notes that in the folder."""
    (tmp_path / "train.py").write_text(TRAINS)
    yield shlex.join([sys.executable, str(tmp_path / "train.py"), str(tmp_path)])
    (tmp_path / "enough").touch()


def shell(program):
    return ("bash", "-c", program)


SHAPES = {
    "a script": lambda training: tuple(shlex.split(training)),
    "a wrapper": lambda training: shell(f"{training}; echo done"),
    "a job in the background": lambda training: shell(f"{training} & wait"),
    "a job left behind": lambda training: shell(f"{training} &"),
    "a session of its own": lambda training: shell(f"setsid {training}; echo done"),
    "ranks": lambda training: (sys.executable, "-c", RANKS, *shlex.split(training)),
    "a daemon": lambda training: (sys.executable, "-c", DAEMON + TRAINS, shlex.split(training)[-1]),
    "one that hears nothing": lambda training: (
        *(sys.executable, "-c", DEAF + TRAINS),
        shlex.split(training)[-1],
    ),
}


@pytest.fixture(params=SHAPES)
def command(request, training):
    """Return a command of each shape that trains."""
    return SHAPES[request.param](training)


def trains(folder):
    """Return the process ids of what has begun to train, and of what still does."""
    begun = [int(path.stem) for path in Path(folder).glob("*.trains")]
    return begun, [pid for pid in begun if keeper.began_ticks(pid) >= 0]


def await_training(folder):
    until(lambda: trains(folder)[1])


# ── the end ─────────────────────────────────────────────────────────────────────────────


def test_nothing_outlives_the_measurement(hold, command, tmp_path):
    held = hold(*command)
    await_training(tmp_path)
    held.close()
    held.wait()
    assert trains(tmp_path)[1] == []


MEASURER = """
import sys, time
from pathlib import Path
from gpudash.rendezvous import Rendezvous
from gpudash.run.guarded import Guarded
from gpudash.run.user_command import UserCommand
held = Guarded(UserCommand("train.py", sys.argv[2:]), Rendezvous(Path(sys.argv[1])))
time.sleep(600)
"""


@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["alone", "with its process group"])
def test_nothing_outlives_a_killed_gpudash(training, place, tmp_path, kill):
    all_at_once = " ".join(f"{shlex.join(of(training))} &" for of in SHAPES.values())
    words = [sys.executable, "-c", MEASURER, str(place.path), *shell(f"{all_at_once} wait")]
    with subprocess.Popen(words, process_group=0, stdin=subprocess.DEVNULL) as measurer:
        until(lambda: len(trains(tmp_path)[1]) > len(SHAPES))  # of one there are two ranks
        kill(measurer.pid, signal.SIGKILL)
    until(lambda: not trains(tmp_path)[1])


def test_it_is_over_when_the_last_one_has_ended(hold, training, tmp_path):
    held = hold(*shell(f"{training} & exit 7"))
    await_training(tmp_path)
    held.read()
    assert not held.over
    (tmp_path / "enough").touch()
    until(lambda: held.read() == b"" and held.over)
    assert held.exit_code == 7
    assert trains(tmp_path)[1] == []


# ── its signals ─────────────────────────────────────────────────────────────────────────


def test_a_wrapper_is_interrupted_as_by_ctrl_c(hold, training, tmp_path):
    held = hold(*shell(f"{training}; touch {tmp_path}/went-on"))
    await_training(tmp_path)
    held.signal(signal.SIGINT)
    assert held.wait() == -signal.SIGINT
    assert not (tmp_path / "went-on").exists()


HEARS = """
import os, signal, sys, time
from pathlib import Path
folder, name = Path(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGINT, lambda *_: (folder / f"{name}-heard").touch())
(folder / f"{os.getpid()}.trains").touch()
while not (folder / "enough").exists():
    time.sleep(0.01)
"""


def test_what_ctrl_c_would_not_reach_is_not_interrupted(hold, tmp_path):
    helper = f"{shlex.quote(sys.executable)} -c '{HEARS}' {tmp_path}"
    held = hold(*shell(f"trap '' INT; {helper} near & setsid {helper} far & wait"))
    until(lambda: len(trains(tmp_path)[1]) == 2)
    held.signal(signal.SIGINT)
    until((tmp_path / "near-heard").exists)
    (tmp_path / "enough").touch()
    held.wait()
    assert not (tmp_path / "far-heard").exists()


def test_a_request_for_a_checkpoint_is_for_the_command_alone(hold, training, tmp_path):
    saves = f"trap 'touch {tmp_path}/saved' USR1; {training} & while true; do wait; done"
    held = hold(*shell(saves))
    await_training(tmp_path)
    held.signal(signal.SIGUSR1)
    until((tmp_path / "saved").exists)
    assert trains(tmp_path)[1]


def test_who_stays_gets_harder_signals_and_the_last_one_again_and_again():
    escalation = Escalation()
    assert (escalation.wait_s(0.0), list(escalation.take(0.0))) == (None, [])
    escalation.begin(100.0, ((10.0, signal.SIGTERM), (30.0, signal.SIGKILL)))
    assert escalation.wait_s(104.0) == 6.0
    assert list(escalation.take(109.0)) == []
    assert list(escalation.take(110.0)) == [signal.SIGTERM]
    assert list(escalation.take(129.0)) == []
    assert list(escalation.take(130.0)) == [signal.SIGKILL]
    assert list(escalation.take(130.0 + escalation.wait_s(130.0))) == [signal.SIGKILL]


# ── as if it had been started directly ──────────────────────────────────────────────────

FINDS = """
import os, signal, sys
ignored = [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN]
mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
is_in_group = os.getpgrp() == int(os.environ.pop("GROUP"))
print(sys.argv[1:], is_in_group, os.getsid(0), os.getcwd(), ignored, mask, file=sys.stderr)
print(sorted(os.listdir("/proc/self/fd")), sys.stdin.read(), file=sys.stderr)
print({name: text for name, text in os.environ.items() if name != "_GPUDASH_RUN"})
sys.stdout.flush(); os.write(2, b"printed")
"""
STARTS = """
import os, sys
from gpudash import rendezvous
from gpudash.run.guarded import Guarded
from gpudash.run.user_command import UserCommand
from gpudash.run.command_process import Foreground
os.environ["GROUP"] = str(os.getpgrp())
command = UserCommand("train.py", (sys.executable, "-c", *sys.argv[2:]))
held = globals()[sys.argv[1]](command, rendezvous.begin(), stdout=2)
held.wait()
"""


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("ignored", [(), (signal.SIGINT, signal.SIGHUP)], ids=["", "under nohup"])
def test_the_command_finds_what_it_would_find_without_a_guardian(ignored):
    def ignore():
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    def printed(how):
        words = [sys.executable, "-c", STARTS, how, FINDS, "ä", "", "--x", b"\xe4"]
        options = {"input": b"typed", "stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
        done = subprocess.run(words, check=True, preexec_fn=ignore, process_group=0, **options)
        assert done.stdout == b""  # as with --json
        return done.stderr

    ours = printed("Guarded")
    assert ours == printed("Foreground")
    assert b"] True " in ours
    assert b"typed" in ours


@pytest.mark.parametrize(
    ("program", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -15 $$", -15), ("kill -2 $$", -2)],
)
def test_its_exit_code_is_the_commands(hold, program, code):
    held = hold(*shell(program))
    assert held.wait() == code
    held.read()
    assert (held.over, held.exit_code) == (True, code)


@pytest.mark.parametrize("how", [Foreground, Guarded, keep])
def test_it_starts_in_its_folder_and_its_pythons_search_first_where_it_says(place, tmp_path, how):
    program = "import os; open('found', 'w').write(os.environ['PYTHONPATH'])"
    held = how(UserCommand("x", (sys.executable, "-c", program), tmp_path, ("first",)), place)
    until(lambda: held.read() is not None and held.over)
    held.close()
    _, *search = (tmp_path / "found").read_text().split(os.pathsep)
    assert search == ["first", os.environ["PYTHONPATH"]]


@pytest.mark.usefixtures("place")
def test_it_leaves_no_zombie():
    program = "import os\nos.waitpid(-1, os.WNOHANG)"
    words = [sys.executable, "-c", STARTS + program, "Guarded", "import os\nos.fork()"]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "ChildProcessError: [Errno 10] No child processes"


@pytest.mark.parametrize("how", [Foreground, Guarded])
def test_what_cannot_be_started_is_refused_alike(place, tmp_path, how):
    (tmp_path / "no-program").write_bytes(b"\x7fELF")
    (tmp_path / "no-program").chmod(0o755)
    command = UserCommand("no-program", (str(tmp_path / "no-program"),))
    with pytest.raises(WorkerError, match=r"no-program could not start: \[Errno 8\] Exec format"):
        how(command, place)
    assert not place.path.exists()
