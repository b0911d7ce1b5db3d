"""Unusual scripts, and trainings over the cells of a notebook, work as without gpudash.

Their steps are found, also where a training goes on in another cell, or another one begins.
"""

import pytest

from tests.script import cells, unusual

MODULES = {"cells": cells.CASES, "unusual": unusual.CASES}
CASES = [(module, name) for module, cases in MODULES.items() for name in cases]


@pytest.mark.parametrize(("module", "name"), CASES)
def test_it_works_as_without_gpudash_and_its_steps_are_found(results_of, module, name):
    one = results_of(module)[name]
    expected = {"failures": []} | MODULES[module][name][1]
    assert expected.pop("line", "") in one["found"][-1]
    assert {key: one[key] for key in expected} == expected


def test_a_second_thread_is_measured_once_the_first_stops_training(results_of):
    assert 3 + 20 / 2 < results_of("unusual")["another_thread_goes_on"]["steps"] < 3 + 20
