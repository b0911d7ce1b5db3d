"""A training over the cells of a notebook: where it goes on, and where another begins."""

import pytest


@pytest.fixture(scope="module")
def results(results_of):
    return results_of("cells")


def test_no_hook_fails(results):
    assert {name: one["failures"] for name, one in results.items() if one["failures"]} == {}


@pytest.mark.parametrize(
    ("where", "steps"),
    [
        ("at_a_batch", 7),
        ("in_forward", 7),
        ("in_backward", 7),
        ("in_the_optimizer", 7),
        ("while_it_waits_for_a_batch", 6),
    ],
)
def test_a_cell_that_was_interrupted_goes_on_in_the_next_and_the_partial_step_does_not_count(
    results, where, steps
):
    one = results[f"interrupted_{where}"]
    assert one["steps"] == steps
    assert one["anew"] == []
    assert set(one["samples"]) == {8}


def test_the_same_optimizer_in_another_cell_is_the_same_training(results):
    one = results["the_same_goes_on"]
    assert (one["steps"], one["anew"]) == (9, [])
    assert one["asides"] == [["idle", 3], [None, 3], ["idle", 6], [None, 6], ["idle", 9]]


def test_another_optimizer_in_another_cell_begins_anew(results):
    one = results["another_begins_anew"]
    assert (one["steps"], one["anew"]) == (2, [5])
    assert one["hooked"] == [[], ["_compiled_call_impl"]]
    assert one["feeds"]


def test_within_a_cell_nothing_begins_anew(results):
    assert results["a_second_one_in_the_same_cell_goes_on"]["anew"] == []
    assert results["a_second_one_in_the_same_cell_goes_on"]["steps"] == 6


def test_a_cell_that_evaluates_is_an_evaluation_and_nothing_between_cells(results):
    asides = results["a_cell_that_evaluates"]["asides"]
    assert [why for why, _ in asides] == ["idle", "evaluation", "idle", None]


def test_a_training_on_another_thread_goes_on_when_the_cell_ends(results):
    assert results["a_training_on_another_thread"]["asides"] == []


def test_an_interrupt_between_two_optimizers_ends_the_step(results):
    assert results["a_gan_that_is_interrupted_between_its_optimizers"]["steps"] == 7


def test_a_cell_that_tries_a_model_out_before_it_trains_harms_nothing(results):
    assert results["tried_out_before_it_trains"]["steps"] == 3


def test_reading_between_two_optimizers_ends_the_step_there(results):
    assert results["a_gan_that_is_read_between_its_optimizers"]["steps"] == 7
