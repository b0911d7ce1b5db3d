"""Requesting a process's stack never harms it, whatever it does or has become."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpudash.rendezvous import ENVIRONMENT, Rendezvous
from gpudash.run import stacks
from gpudash.run.lines import ask
from tests.waiting import until

BEGIN = """
import os, signal, socket, sys, threading, time
from gpudash import rendezvous
from gpudash.instrument import stack_server

def ready(text="ready"):
    print(text, flush=True)

def answer():
    stack_server.answer(rendezvous.of_environment())

"""


@pytest.fixture
def place(short_path):
    return Rendezvous(short_path)


@pytest.fixture
def start(place, start_child):
    environment = os.environ | {ENVIRONMENT: str(place.path), "PYTHONPATH": str(Path.cwd())}
    return lambda program: start_child(
        BEGIN + program, env=environment, stdin=subprocess.PIPE, text=True
    )


def asked(place, pid):
    """Return its answer; None if it does not listen."""
    reply = ask(place, pid)
    return reply and whole(reply)


def whole(reply):
    until(lambda: (reply.read(), reply.is_whole)[1])
    return reply.read()


def ends(child, text="\n"):
    """Have the program go on to its end."""
    child.communicate(text)
    assert child.returncode == 0


WAITS = {
    "in a sleep": "began_s = time.time(); time.sleep(1); assert time.time() - began_s > 0.99",
    "for a socket": "later(lambda: b.send(b'x')); assert a.recv(1) == b'x'",
    "for a socket with a timeout": (
        "a.settimeout(60); later(lambda: b.send(b'x')); assert a.recv(1) == b'x'"
    ),
    "for a lock": "lock.acquire(); later(lock.release); lock.acquire()",
    "for its input": "sys.stdin.readline()",
}
LOOKS = 12
LATER = """
a, b = socket.socketpair()
lock = threading.Lock()

def later(action):
    threading.Thread(target=lambda: (sys.stdin.readline(), action())).start()

"""


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_waiting_process_tells_its_stack_and_waits_on(place, start, wait):
    child = start(f"{LATER}answer()\ndef load():\n    ready(); {wait}\nload()\n")
    assert all(" in load\n" in text for text in [asked(place, child.pid) for _ in range(5)])
    ends(child)


def test_looks_meet_what_a_busy_process_does_and_it_computes_on(place, start):
    """Not only what gives the interpreter away, as each launch does: of a search in Python between
    launches no line was ever met. A signal handler that walked its frames crashed such a process.
    """
    child = start(
        "def deep(n):\n    return sum(deep(n - 1) for _ in range(2)) if n else 1\n"
        "def launches():\n    os.stat(sys.executable)\n"
        "ended = []\n"
        "threading.Thread(target=lambda: ended.append(sys.stdin.readline())).start()\n"
        "stack_server.WITHIN_S = (0.0, 0.005)\n"
        "answer(); ready()\n"
        "while not ended: assert deep(12) == 4096; launches()\n"
    )
    texts = [asked(place, child.pid) for _ in range(LOOKS)]
    assert sum(" in deep\n" in text for text in texts) > LOOKS / 2
    ends(child)


def test_a_process_that_has_announced_nothing_is_not_asked(place, start):
    child = start("ready(); sys.stdin.read()")
    assert asked(place, child.pid) is None
    with socket.socket(socket.AF_UNIX) as before:  # a former process of this number
        before.bind(str(place.stack(child.pid)))
    assert asked(place, child.pid) is None
    ends(child)


def test_another_program_in_the_process_is_not_asked(place, start):
    child = start("answer(); ready(); os.execvp('sh', ['sh', '-c', 'echo; exec cat'])")
    child.stdout.readline()
    assert ask(place, child.pid) is None
    ends(child)


def test_a_script_that_closes_all_files_trains_on_and_answers_again(place, start, tmp_path):
    own = tmp_path / "own"
    child = start(
        f"answer(); os.closerange(3, 100); own = open({str(own)!r}, 'wb')\n"
        "def load():\n    ready(); sys.stdin.readline()\nload()\n"
    )
    asked(place, child.pid)  # wakes the thread, which finds its socket gone
    until(lambda: " in load\n" in (asked(place, child.pid) or ""))
    ends(child)
    assert own.read_bytes() == b""


def test_a_folder_that_is_gone_ends_the_answers_alone(place, start):
    child = start(
        "answer(); ready(); sys.stdin.readline(); os.closerange(3, 100); ready(); input()"
    )
    reply = ask(place, child.pid)
    shutil.rmtree(place.path)
    child.stdin.write("\n")
    child.stdin.flush()
    child.stdout.readline()
    whole(reply)
    ends(child)


def test_it_takes_no_signal_thread_or_handler_of_the_script(place, start):
    child = start(
        "handlers = [signal.getsignal(n) for n in signal.valid_signals()]\n"
        "answer()\n"
        "assert handlers == [signal.getsignal(n) for n in signal.valid_signals()]\n"
        "assert threading.active_count() == 1\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "assert signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1\n"
        "ready(); sys.stdin.readline()\n"
    )
    assert asked(place, child.pid)
    ends(child)


def test_a_program_that_it_starts_is_as_without_us(place, start):
    grep = ["grep", r"Sig[BCI]", "/proc/self/status"]
    child = start(f"import subprocess; answer(); ready(); subprocess.run({grep})")
    output = child.stdout.read()
    assert output == subprocess.check_output(
        [sys.executable, "-c", f"import subprocess; subprocess.run({grep})"], text=True
    )


def test_a_forked_child_answers_for_itself_alone(place, start):
    child = start(
        "answer()\npid = os.fork()\n"
        "def load():\n    ready(); sys.stdin.readline()\n"
        "if not pid:\n    answer(); load(); os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    (forked,) = {int(path.stem) for path in place.path.iterdir()} - {child.pid}
    assert " in load\n" in asked(place, forked)
    assert " in load\n" not in asked(place, child.pid)
    ends(child)


def test_the_kernels_state_says_why_there_is_no_answer(place, start):
    child = start("ready(); sys.stdin.read()")
    assert stacks.why_not(child.pid) == "does not tell where it is"
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert stacks.why_not(child.pid) == "is stopped by a signal"
    child.kill()
    child.wait()
    assert stacks.why_not(child.pid) == "has ended"
