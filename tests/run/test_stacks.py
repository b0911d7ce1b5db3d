"""Requesting a process's stack never harms it, whatever it does or has become."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpudash.rendezvous import ENVIRONMENT, Rendezvous
from gpudash.run import stacks
from tests.waiting import until

BEGIN = """
import os, signal, socket, sys, threading, time
from gpudash import rendezvous
from gpudash.instrument import stack_signal

def ready(text="ready"):
    print(text, flush=True)

def answer():
    stack_signal.answer(rendezvous.of_environment())

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
    """Return its answer; None if it was not signalled."""
    question = stacks.ask(place, pid)
    if question is None:
        return None
    until(
        lambda: (
            stacks.answered(question).endswith("<module>\n") or stacks.why_not(pid) == "has ended"
        )
    )
    return stacks.answered(question)


WAITS = {
    "in a sleep": "began_s = time.time(); time.sleep(1); assert time.time() - began_s > 0.99",
    "for a socket": "later(lambda: b.send(b'x')); assert a.recv(1) == b'x'",
    "for a socket with a timeout": (
        "a.settimeout(60); later(lambda: b.send(b'x')); assert a.recv(1) == b'x'"
    ),
    "for a lock": "lock.acquire(); later(lock.release); lock.acquire()",
    "for its input": "sys.stdin.readline()",
}
LATER = """
a, b = socket.socketpair()
lock = threading.Lock()

def later(action):
    threading.Thread(target=lambda: (sys.stdin.readline(), action())).start()

"""


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_waiting_process_writes_its_stack_and_waits_on(place, start, wait):
    child = start(f"{LATER}answer()\ndef load():\n    ready(); {wait}\nload()\n")
    # it is not asked while it blocks all signals, to start a thread
    texts = [until(lambda: asked(place, child.pid)) for _ in range(5)]
    assert all(" in load\n" in text for text in texts)
    child.communicate("\n")
    assert child.returncode == 0


def test_a_process_that_has_announced_nothing_is_not_signalled(place, start):
    child = start("ready(); sys.stdin.read()")
    assert asked(place, child.pid) is None
    place.stack(child.pid).write_text("nonsense")
    assert asked(place, child.pid) is None
    place.stack(child.pid).write_text("63 7\n")  # a former process of this number did
    assert asked(place, child.pid) is None
    place.stack(child.pid).write_text("9 0\n")
    assert asked(place, child.pid) is None
    child.communicate()
    assert child.returncode == 0
    assert asked(place, child.pid) is None


@pytest.mark.parametrize(
    "becomes",
    [
        "os.execvp('sh', ['sh', '-c', 'echo; exec cat'])",
        "os.closerange(3, 100)",
        "signal.signal(stack_signal._answering[1], signal.SIG_DFL)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, {stack_signal._answering[1]})",
    ],
    ids=[
        "another program",
        "one that closed all files",
        "one without a handler",
        "one that blocks",
    ],
)
def test_another_program_in_the_process_is_not_signalled(place, start, becomes):
    child = start(f"answer(); ready(); {becomes}; ready(); sys.stdin.read()")
    child.stdout.readline()
    assert stacks.ask(place, child.pid) is None
    child.communicate()
    assert child.returncode == 0


def test_a_program_that_it_starts_finds_the_signal_as_without_us(place, start):
    grep = ["grep", r"Sig[IC]g", "/proc/self/status"]
    child = start(f"import subprocess; answer(); ready(); subprocess.run({grep})")
    output = child.stdout.read()
    assert output == subprocess.check_output(
        [sys.executable, "-c", f"import subprocess; subprocess.run({grep})"], text=True
    )


def test_a_forked_child_counts_as_its_parents_until_it_answers_itself(place, start):
    child = start(
        "answer()\npid = os.fork()\n"
        "def load():\n    ready(); sys.stdin.readline()\n"
        "if not pid:\n    answer(); load(); os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    (forked,) = {int(path.stem) for path in place.path.iterdir()} - {child.pid}
    assert " in load\n" in asked(place, forked)
    assert " in load\n" not in asked(place, child.pid)
    child.communicate("\n")
    assert child.returncode == 0  # its own, too, has a handler: nothing was killed


def test_a_handler_of_the_scripts_is_never_replaced(place, start):
    """The one signal without a handler is used; if all have handlers, none is."""
    child = start(
        "called = []\n"
        "mine = [n for n in range(signal.SIGRTMIN, signal.SIGRTMAX + 1) if n != 50]\n"
        "for n in mine: signal.signal(n, lambda n, f: called.append(n))\n"
        "answer(); ready(); sys.stdin.readline()\n"
        "for n in mine: os.kill(os.getpid(), n)\n"
        "assert called == mine, called\n"
    )
    assert place.stack(child.pid).read_text().startswith("50 ")
    assert asked(place, child.pid)
    child.communicate("\n")
    assert child.returncode == 0
    none_left = start(
        "for n in range(signal.SIGRTMIN, signal.SIGRTMAX + 1): signal.signal(n, print)\n"
        "answer(); ready(); sys.stdin.read()"
    )
    assert asked(place, none_left.pid) is None


def test_it_gives_way_to_a_handler_that_the_script_sets_later(place, start):
    child = start(
        "answer(); stack_signal.give_way()\n"
        "assert rendezvous.of_environment().stack(os.getpid()).exists()\n"
        "signal.signal(stack_signal._answering[1], lambda *_: os._exit(3))\n"
        "stack_signal.give_way(); ready(); sys.stdin.read()"
    )
    assert asked(place, child.pid) is None
    child.communicate()
    assert child.returncode == 0


def test_nothing_is_written_into_a_file_that_the_script_has_opened_in_place_of_ours(
    place, start, tmp_path
):
    file = tmp_path / "file"
    child = start(
        "answer()\n"
        "word = rendezvous.of_environment().stack(os.getpid()).read_text()\n"
        "number, fd = map(int, word.split())\n"
        f"own = open({str(file)!r}, 'wb')\n"
        "os.dup2(own.fileno(), fd)\n"
        "stack_signal.give_way(); ready(); sys.stdin.readline()\n"
        "os.kill(os.getpid(), number)"
    )
    assert asked(place, child.pid) is None
    child.communicate("\n")
    assert child.returncode == 0
    assert file.read_bytes() == b""


def test_a_signal_that_comes_when_the_interpreter_ends_kills_nothing(place, start):
    child = start("answer(); ready(); sys.stdin.readline()")
    number = int(place.stack(child.pid).read_text().split()[0])
    child.stdin.write("\n")
    child.stdin.flush()
    while child.poll() is None:
        os.kill(child.pid, number)
        time.sleep(0.0005)
    assert child.returncode == 0


def test_outside_of_the_main_thread_nothing_is_set_up(place, start):
    child = start("t = threading.Thread(target=answer); t.start(); t.join(); ready(); input()")
    assert not place.stack(child.pid).exists()


def test_the_kernels_state_says_why_there_is_no_answer(place, start):
    child = start("ready(); sys.stdin.read()")
    assert stacks.why_not(child.pid) == "does not tell where it is"
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert stacks.why_not(child.pid) == "is stopped by a signal"
    child.kill()
    child.wait()
    assert stacks.why_not(child.pid) == "has ended"
