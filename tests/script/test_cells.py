"""A training over the cells of a notebook: where it goes on, and where another begins."""

import pytest

from tests.script.cells import CASES


@pytest.mark.parametrize("name", CASES)
def test_a_training_over_several_cells(results_of, name):
    one, expected = results_of("cells")[name], {"failures": []} | CASES[name][1]
    assert {key: one[key] for key in expected} == expected
