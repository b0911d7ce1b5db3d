"""Grids are recorded block by block, and replayed as trainings with their own noise."""

import math
from random import Random

import pytest

from benchmarks.record_grid import Walk
from tests.compare.recorded_grids import Recording, recorded
from tests.compare.tunes import Simulation
from tests.scripted_worker import Conducted, Worker

VALUES = {"pipelined": ("off", "on"), "num_workers": ("2", "0", "4")}


def step_ms(settings):
    faster = 0.8 if settings["pipelined"] == "on" else 1.0
    return faster * (100.0 - 10.0 * int(settings["num_workers"]))


def walk(path, rounds=2, **how):
    recording = Recording.read(path) if path.exists() else empty()
    return Conducted(Walk(path, recording, rounds).sweep, Worker(step_ms, **how))


def empty():
    return Recording(training="encdec", values=VALUES, load=0.0)


def finish(conducted):
    while not conducted.experiment.done:
        conducted.turn()
    return conducted.experiment


def test_each_setting_is_measured_in_each_round(tmp_path):
    path = tmp_path / "grid.json"
    finish(walk(path))
    found = Recording.read(path)
    assert found.settings[0] == ("off", "2")
    assert found.rounds == ((80.0, 100.0, 60.0, 64.0, 80.0, 48.0),) * 2


def test_a_second_walk_goes_on_with_the_whole_rounds(tmp_path):
    path = tmp_path / "grid.json"
    finish(walk(path, rounds=1))
    begun = walk(path, rounds=3)
    assert begun.experiment.blocks_done == 6
    begun.turn(60)  # interrupted within a round
    assert finish(walk(path, rounds=3)).blocks_done == 18
    assert len(Recording.read(path).rounds) == 3


def test_a_setting_that_cannot_be_run_is_none_of_a_replayed_tune(tmp_path):
    path = tmp_path / "grid.json"
    refuses = lambda one: "too many" if one["num_workers"] == "4" else None  # noqa: E731
    finish(walk(path, refuses=refuses))
    found = Recording.read(path)
    assert set(found.failures.values()) == {"too many"}
    grid = found.grid("grid")
    assert grid.step_ms({"pipelined": "on", "num_workers": "4"}) == math.inf
    tuned = Simulation(grid, 0, found.noise(0)).run()
    assert tuned.result == {"pipelined": "on"}
    assert "it cannot be run" in {one.why_not for one in tuned.search.tried}


def test_the_noise_is_that_of_the_recording():
    rounds = tuple((10.0 * pace, 20.0 * pace * odd) for pace, odd in ((1.0, 1), (1.2, 1), (1.0, 2)))
    found = Recording(training="", values={"pipelined": ("off", "on")}, load=0.0, rounds=rounds)
    noise, random = found.noise(0), Random(0)
    assert max(noise.paces) - min(noise.paces) > 0.1
    assert max(noise.factor(random, at_s) for at_s in range(100)) > 1.4


def test_a_replayed_tune_of_steady_steps_comes_within_2_percent_of_its_best():
    found = recorded()["script, storage, CPU"]  # its blocks differ by 1 %
    tunes = [Simulation(found.grid("storage"), one, found.noise(one)).run() for one in range(20)]
    assert sum(one.behind_best <= 0.02 for one in tunes) >= 19


@pytest.mark.parametrize("name", recorded())
def test_no_replayed_tune_ends_slower_than_it_began(name):
    found = recorded()[name]
    tunes = [Simulation(found.grid(name), one, found.noise(one)).run() for one in range(5)]
    assert max(one.behind_start for one in tunes) <= 0.01
