"""Unusual scripts work as without gpudash, and their steps are found."""

import pytest

from tests.script.unusual import CASES


@pytest.fixture(scope="module")
def results(results_of):
    return results_of("unusual")


@pytest.mark.parametrize("name", CASES)
def test_it_works_as_without_gpudash_and_its_steps_are_found(results, name):
    one, expected = results[name], {"failures": []} | CASES[name][1]
    assert expected.pop("line", "") in one["found"][-1]
    assert {key: one[key] for key in expected} == expected


def test_a_second_thread_is_measured_once_the_first_stops_training(results):
    assert 3 + 20 / 2 < results["another_thread_goes_on"]["steps"] < 3 + 20
