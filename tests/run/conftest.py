"""Fixtures for tests of processes."""

import subprocess
import sys

import pytest


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
