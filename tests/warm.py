"""Processes that have torch from their start, for importing it takes longer than what they do.

They are forked from a server of multiprocessing's that has imported it and done nothing with it:
not from pytest's process, in which autograd may have begun threads for a GPU.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(["torch._dynamo"])  # which the first optimizer imports


def python(*words, cwd=None):
    """Return what came of Python with these words: `-m MODULE …` or `-c CODE`. All went well."""
    with TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = START.Process(target=_run, args=(words, cwd, out, err))
        process.start()
        process.join()
        done = subprocess.CompletedProcess(
            words, process.exitcode, out.read_text(), err.read_text()
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def _run(words, cwd, *files):
    for standard, file in zip((sys.stdout, sys.stderr), files, strict=True):
        with file.open("w") as opened:
            os.dup2(opened.fileno(), standard.fileno())
    os.chdir(cwd or os.curdir)
    how, what, *sys.argv[1:] = words
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})
