"""Tunes of simulated trainings, round by round: a golden file each.

`GPUDASH_WRITE_SCREENS=1 pytest tests/compare/test_golden_tunes.py` writes them anew. Read what has
changed in them then: what raced against what, for how long, and what came of it.
"""

from itertools import groupby
from math import inf
from pathlib import Path

import pytest

from gpudash.compare.tune.search import Allowance
from tests.compare.test_tuning import Training, faster_in_nhwc, tuning
from tests.compare.tunes import FIVE, GRIDS, Noise, Simulation, made_up
from tests.golden import golden, lined
from tests.scripted_worker import Conducted
from workloads.levers import phrase

TUNES = Path(__file__).with_name("golden_tunes")
ENCDEC, LARGE, LOADER, LAUNCHES, MASKS = GRIDS


def cannot_run(grid, **value):
    """The grid with settings that cannot be run: those that have this value."""

    def step_ms(settings):
        return inf if value.items() <= settings.items() else grid.step_ms(settings)

    return grid._replace(step_ms=step_ms)


OF = {
    "encdec": (ENCDEC, 0, Noise(0.01)),
    "a_hurried_one": (LARGE, 1, Noise(0.05), Allowance(budget_s=15.0)),
    "workers": (LOADER, 2, Noise(0.01), Allowance(budget_s=180.0)),
    "workers_hurried": (LOADER, 3, Noise(0.03, bursts=0.05), Allowance(spent_s=20.0)),
    "compiling_costs": (LAUNCHES, 4, Noise(0.02), Allowance(budget_s=18.0)),
    "masks": (MASKS, 5, Noise(0.02)),
    "combinations": (made_up(3, FIVE, of_three=0.08), 6, Noise(0.01)),
    "a_lever_that_fails": (cannot_run(LARGE, precision="bf16"), 7, Noise(0.01)),
    "a_start_that_fails": (cannot_run(LARGE, compile="off"), 8),
    "few_pairs": (LAUNCHES, 9, Noise(0.1), Allowance(pairs=4)),
    "known": (LARGE, 10, Noise(0.3), Allowance(budget_s=10.0), {"precision": "bf16"}),
}


def told(simulation):
    search = simulation.run().search
    for (what, asked), same in groupby(simulation.rounds):
        how = "in short runs" * asked.short_runs, "fresh" * asked.fresh
        settings = " | ".join(map(phrase, asked.settings))
        yield " ".join(filter(None, (f"{what}, {len([*same])} times", *how))) + f": {settings}"
    for one in search.tried:
        figures = (one.low, one.change, one.high)
        shown = " ".join("–" if each is None else f"{each:.3%}" for each in figures)
        led = "leads" if one.taken else one.why_not or ""
        yield f"{phrase(one.before)} → {phrase(one.changes)}: {shown} in {one.rounds} {led}"
    found = "–" if search.found is None else f"{search.found.change:.3%}"
    yield f"{phrase(search.leader)} leads by {found} in {search.pairs} pairs"
    yield f"{search.verdict()}; {search.failure}; {search.settings_tried} settings"
    yield f"{search.passes} passes in {search.spent_s:.2f} s, compiling {search.compiled_s:.0f} s"
    yield f"the budget ended first: {search.ran_out}"


@pytest.mark.parametrize("name", OF)
def test_a_tune_goes_as_its_golden_file_tells(name):
    seen = lined(told(Simulation(*OF[name])))
    assert seen == golden(TUNES / f"{name}.txt", seen)


def test_a_tune_of_a_training_tells_what_its_golden_file_holds():
    tune = tuning("channels_last", "precision", "compile", allowance=Allowance(budget_s=300.0))
    conducted, said = Conducted(tune, Training(faster_in_nhwc)), []
    while not tune.is_over:
        conducted.turn()
        said += [tune.doing, *tune.news()]
    shown, compiled_s = tune.shown(), tune.search.compiled_s
    said.append(f"{phrase(shown.start)} → {phrase(shown.best)} in {shown.pairs} pairs")
    said.append(
        f"{shown.gpus} GPU, compiled for {compiled_s:.2f} s, known before: {tune.was_known}"
    )
    said.append(f"{tune.ended('')}; others load the machine too much: {tune.cannot_tell}")
    seen = lined(f"{len([*same])} × {line}" for line, same in groupby(said))
    assert seen == golden(TUNES / "of_a_training.txt", seen)
