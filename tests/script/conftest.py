"""Fixtures for tests of the hooks: results of scripts that are each run once, and a training."""

import fcntl
import json

import pytest
from torch import distributed

from tests.script.toy_script import connected, script
from tests.warm import python


@pytest.fixture(scope="session")
def results_of(tmp_path_factory, worker_id):
    """Return the results that a script of this folder prints. pytest's workers share one run."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder if worker_id == "master" else folder.parent

    def read(script):
        path = shared / f"{script}.json"
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not path.stat().st_size:
                file.write(python("-m", f"tests.script.{script}").stdout)
        return json.loads(path.read_text())

    return read


@pytest.fixture
def group():
    """This process is one of a group of one."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def training(tmp_path):
    with script(tmp_path) as made:
        yield made


@pytest.fixture
def dashboard(training, tmp_path):
    return connected(training, tmp_path)
