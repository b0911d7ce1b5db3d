"""Fixtures for tests of processes."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpudash import rendezvous


@pytest.fixture
def place(monkeypatch, short_path):
    """The directory of a run. Programs that are started there find this gpudash."""
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return rendezvous.begin()


@pytest.fixture
def temporary(short_path, monkeypatch):
    """The folder in which processes create their directories."""
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    return short_path


@pytest.fixture
def start_child():
    """Start Python with a program, and wait for its first line; all end with the test."""
    started = []

    def begin(program, *words, **how):
        command = [sys.executable, "-c", program, *words]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, **how)
        started.append(child)
        child.stdout.readline()
        return child

    yield begin
    for child in started:
        child.kill()
        child.communicate()
