"""Every lever of every workload, switched while it trains: the weights stay, nothing leaks."""

import gc
import os
import tempfile
from collections.abc import Callable
from multiprocessing.util import get_temp_dir
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.conftest import slow_examples
from tests.waiting import PATIENCE_S
from tests.workloads.trainings import COUNT, CPU
from workloads import CATALOGUE, jpeg_input
from workloads.jpeg_files import JpegFiles
from workloads.levers import Choice, Lever, LeverError, Switch
from workloads.training import Trained, Training

SMALL = {"batch_size": "2", "num_workers": "0", "model_scale": "small"}
COUNTS = {
    "batch_size": ["0", "1", "3", "4"],
    "num_workers": ["0", "1"],
    "prefetch_factor": ["1", "3"],
    "seed": ["0", "1"],
}
NEVER = {"compile", "model_scale"}
"""Seconds to switch: test_compute_options.py and test_training.py switch them once."""
# torchvision 0.29 says that torchcodec will take over; 0.26 works without a word
pytestmark = [
    pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning"),
    pytest.mark.parametrize("workload", CATALOGUE),
]
Places = tuple[Path, ...]


def values(lever: Lever) -> list[str]:
    """Return what the lever may be switched to here, and for a count what is not valid too."""
    if isinstance(lever, Choice):
        return list(lever.choices)
    return ["off", "on"] if isinstance(lever, Switch) else COUNTS[lever.name]


def switches(workload: str) -> list[tuple[str, str]]:
    """Return every lever with every value."""
    levers = (lever for lever in CATALOGUE[workload].levers if lever.name not in NEVER)
    return [(lever.name, value) for lever in levers for value in values(lever)]


@pytest.fixture(autouse=True)
def places(
    monkeypatch: pytest.MonkeyPatch, written: JpegFiles, tmp_path: Path, shared_memory: None
) -> Places:
    """Where a file could be left, and the cache, which may not change either."""
    get_temp_dir()  # one for as long as this process lives, made elsewhere
    monkeypatch.setenv("GPUDASH_DATA", str(written.directory.parent))
    monkeypatch.setattr(jpeg_input, "FILES", COUNT)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path, written.directory.parent


class Run:
    """A training whose levers are switched, checked at every switch."""

    def __init__(self, workload: str) -> None:
        self.training = Training(CATALOGUE[workload], SMALL, CPU)
        self._rebuilding = {
            lever.name for lever in CATALOGUE[workload].levers if lever.effect == "rebuilt model"
        }
        self.switched = 0

    def switch(self, changes: dict[str, str]) -> None:
        """Change levers as the loop does: check, drain, change."""
        training = self.training
        before, kept, pending = dict(training.settings), self._weights(), training.pending
        try:
            wanted = training.check(changes)
        except LeverError:
            assert (training.settings, training.pending) == (before, pending)
            self._assert_same(kept)
            return
        self._trained(training.drain())
        assert not training.pending
        kept = self._weights()
        training.change(changes)
        self.switched += 1
        assert training.settings == wanted
        changed = {name for name in wanted if wanted[name] != before[name]}
        if not changed & self._rebuilding:
            self._assert_same(kept)

    def train(self, steps: int) -> None:
        """Take so many batches."""
        before = self.training.trained_steps + self.training.pending
        for _ in range(steps):
            self._trained(self.training.step())
        assert self.training.trained_steps + self.training.pending == before + steps

    def _trained(self, trained: Trained | None) -> None:
        assert trained is None or trained.loss.isfinite()

    def _weights(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.training._workload.model.parameters()]

    def _assert_same(self, kept: list[Tensor]) -> None:
        for before, now in zip(kept, self._weights(), strict=True):
            assert torch.equal(before, now)


def left_behind(places: Places) -> tuple[list[Path], list[str], int]:
    """Return the files in these places and in shared memory, and how many are open."""
    files = [path for place in places for path in sorted(place.rglob("*"))]
    ours = f"torch_{os.getpid()}_"
    shared = [p.name for p in Path("/dev/shm").iterdir() if p.name.startswith(ours)]
    return files, shared, psutil.Process().num_fds()


def run_and_look(workload: str, places: Places, script: Callable[[Run], None]) -> None:
    """Run it, and see that it leaves no process and no file, open or not."""
    files, shared, fds = left_behind(places)
    children = set(psutil.Process().children(recursive=True))
    run = Run(workload)
    try:
        run.train(1)
        script(run)
        run.train(1)
    finally:
        run.training.close()
    del run
    gc.collect()
    _, alive = psutil.wait_procs(
        set(psutil.Process().children(recursive=True)) - children, timeout=PATIENCE_S
    )
    assert alive == []
    files_after, shared_after, fds_after = left_behind(places)
    assert (files_after, shared_after) == (files, shared)
    assert fds_after <= fds


def test_every_value_of_every_lever(workload: str, places: Places) -> None:
    def script(run: Run) -> None:
        for name, value in switches(workload):
            run.switch({name: value})
            run.train(1)
        assert run.switched > 10

    run_and_look(workload, places, script)


@settings(slow_examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_sequence_of_switches(workload: str, places: Places, data: st.DataObject) -> None:
    several = st.lists(st.sampled_from(switches(workload)), min_size=1, max_size=3).map(dict)
    steps = st.integers(0, 2)
    sequence = data.draw(st.lists(st.tuples(several, steps), max_size=6))

    def script(run: Run) -> None:
        for changes, count in sequence:
            run.switch(changes)
            run.train(count)

    run_and_look(workload, places, script)
