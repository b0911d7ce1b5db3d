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
from contextlib import suppress
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
        with Path(os.devnull).open() as nothing:
            socket.send_fds(server, [asked], [nothing.fileno(), out.fileno(), err.fileno()])
        code = server.recv(16).decode()
        printed = [file.seek(0) or file.read().decode() for file in (out, err)]
    assert code == "0", f"exit code {code or 'unknown: the server ended'}\n" + "".join(printed)
    return subprocess.CompletedProcess(words, 0, *printed)


PROGRAM = """#!/bin/sh
'''exec' "{python}" -IS "$0" "$@"  # as pip: a path may have blanks
'''
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
for name in ("HUP", "INT", "USR1", "USR2", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), lambda number, _: server.send(b"%d" % number))
asked = json.dumps((sys.argv[1:], os.getcwd(), dict(os.environ))).encode()
socket.send_fds(server, [asked], [0, 1, 2])
code = int(server.recv(16))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def program(path):
    """Write a program that does for a script what Python does, and has torch from its start.

    Streams, environment, signals and exit code are as Python's. `sitecustomize` is imported when
    torch is there already: what is tested must not be which of them comes first.
    """
    python("-c", "")  # the server listens
    path.write_text(PROGRAM.format(python=sys.executable, address=ADDRESS))
    path.chmod(0o755)
    return path


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
        own = ("PYTHONPATH", "TMPDIR")  # of the test
        clean = {name: value for name, value in os.environ.items() if name not in own}
        _started.append(subprocess.Popen(server, stdin=listening, cwd=root, env=clean))


def _serve(listening, run):
    """Start what is asked for until the run ends. Returns in each process that was asked for."""
    __import__(IMPORTED)
    gc.freeze()  # what is shared with the processes stays so …
    atexit.register(gc.unfreeze)  # … until one ends: libraries complain of leaks
    ended, server = os.pidfd_open(run), os.getpid()
    while ended not in select.select([listening, ended], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            os.waitpid(-1, os.WNOHANG)  # an earlier one
            continue
        die_with(server)
        waits = os.getpid()
        asked, files, *_ = socket.recv_fds(connection, LONGEST, 3)
        if process := os.fork():
            _tend(process, connection)
        die_with(waits)
        listening.detach()  # or its end would close the new standard input
        connection.close()
        for standard, file in enumerate(files):
            os.dup2(file, standard)
            os.close(file)
        return json.loads(asked)
    return None


def _tend(process, connection):
    """Pass signals on to it, tell how it ended, and end; end it if nobody waits any more."""
    ended = os.pidfd_open(process)
    while ended not in select.select([connection, ended], [], [])[0]:
        os.kill(process, int(connection.recv(16) or signal.SIGKILL))
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with suppress(OSError):
        connection.send(str(code).encode())
    os._exit(0)


def _run(words, cwd, environment):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    how, *sys.argv[1:] = words
    if how == "-m":
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    elif how == "-c":
        exec(sys.argv.pop(1), {"__name__": "__main__"})
    else:
        _run_script(Path(how).absolute())


def _run_script(path):
    sys.argv[0] = str(path)
    sys.path[:1] = [str(path.parent), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    sys.modules.pop("sitecustomize", None)
    with suppress(ImportError):
        import sitecustomize  # noqa: F401  # as Python does at its start
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as error:
        end(error.code or 0)
    except BaseException as error:  # noqa: BLE001  # Python would free torch's modules afterwards
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        end(1)


if __name__ == "__main__":
    if asked := _serve(socket.socket(fileno=0), int(sys.argv[1])):
        _run(*asked)
    end(0)
