"""Processes that have torch from their start, for importing it takes longer than what they do.

They are forked from a server that has imported it and done nothing with it: not from pytest's
process, in which autograd may have begun threads for a GPU. The first that needs the server starts
it (`python -m tests.warm`), all of pytest's workers share it, and it ends with their run.
"""

import atexit
import errno
import gc
import json
import multiprocessing
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile

from workloads.lifetime import die_with, end

IMPORTED = "torch._dynamo"  # torch, and what the first optimizer imports
START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload([IMPORTED])
"""For a test that calls a function in a process of its own, with arguments that are pickled."""

RUN = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
"""The process that all of the run's have in common."""
ADDRESS = f"\0gpudash-tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID', '')}-{RUN}"
LONGEST = 1 << 20
"""Bytes of what is asked: words, folder and environment."""
_started = []


def python(*words, cwd=None):
    """Return what came of Python with these words: `-m MODULE …` or `-c CODE`. All went well."""
    asked = json.dumps((words, str(cwd or Path.cwd()), dict(os.environ))).encode()
    with TemporaryFile() as out, TemporaryFile() as err, _connection() as server:
        socket.send_fds(server, [asked], [out.fileno(), err.fileno()])
        code = server.recv(16).decode()
        printed = [file.seek(0) or file.read().decode() for file in (out, err)]
    assert code == "0", f"exit code {code or 'unknown: the server ended'}\n" + "".join(printed)
    return subprocess.CompletedProcess(words, 0, *printed)


def _connection():
    """Connect to the server, which is begun if there is none."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while True:
        try:
            server.connect(ADDRESS)
        except ConnectionRefusedError:
            _begin()
        else:
            return server


def _begin():
    """Start the server, unless another has its address: it listens in a moment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        try:
            listening.bind(ADDRESS)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return
        listening.listen(64)
        server = [sys.executable, "-m", "tests.warm", str(RUN)]
        root = Path(__file__).parents[1]
        _started.append(subprocess.Popen(server, stdin=listening, cwd=root))


def _serve(listening, run):
    """Start what is asked for until the run ends. Returns in each process that was asked for."""
    __import__(IMPORTED)
    gc.freeze()  # what is shared with the processes stays so …
    atexit.register(gc.unfreeze)  # … until one ends: libraries complain of leaks
    ended, server = os.pidfd_open(run), os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever waits for a process is its own parent
    while ended not in select.select([listening, ended], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            continue
        die_with(server)
        waits = os.getpid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        asked, files, *_ = socket.recv_fds(connection, LONGEST, 2)
        if process := os.fork():
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            connection.send(str(code).encode())
            os._exit(0)
        die_with(waits)
        listening.detach()  # or its end would close the new standard input
        with Path(os.devnull).open() as nothing:
            for standard, file in enumerate((nothing.fileno(), *files)):
                os.dup2(file, standard)
        return json.loads(asked)
    return None


def _run(words, cwd, environment):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    how, what, *sys.argv[1:] = words
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})


if __name__ == "__main__":
    if asked := _serve(socket.socket(fileno=0), int(sys.argv[1])):
        _run(*asked)
    end(0)
