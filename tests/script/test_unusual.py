"""Unusual scripts work as without gpudash, and their steps are found."""

import pytest

OTHERS = "another thread trains too: its steps are not counted"


@pytest.fixture(scope="module")
def results(results_of):
    return results_of("unusual")


def test_no_hook_fails(results):
    assert {name: one["failures"] for name, one in results.items() if one["failures"]} == {}


def test_a_model_can_be_turned_into_torchscript_while_it_trains(results):
    assert results["scripted"]["shape"] == [8, 2]
    assert not results["scripted"]["holds_ours"]
    assert results["scripted"]["steps"] == 6


def test_patched_functions_can_be_pickled(results):
    assert results["pickled"]["same"] == [True, True, True]


def test_each_model_of_a_cross_validation_is_found(results):
    assert results["folds"]["roots"] == [["Net"]] * 5
    assert results["folds"]["steps"] == 15


def test_an_overridden_parameters_method_is_not_called(results):
    assert results["own_parameters"]["steps"] == 3
    assert "root Named" in results["own_parameters"]["found"][-1]


def test_an_optimizer_that_wraps_others_needs_no_groups(results):
    assert results["optimizer_without_groups"]["steps"] == 3
    assert results["optimizer_without_groups"]["found"][-1].startswith("2 × SGD, root Net")


def test_steps_are_counted_after_an_exception_in_one(results):
    assert results["closure_raises"]["steps"] == 9
    assert results["step_raises"]["steps"] == 9


def test_an_optimizer_step_that_calls_its_base_class_counts_once(results):
    assert results["step_of_the_base"]["steps"] == 12


def test_a_loader_at_the_address_of_a_freed_one_is_a_new_loader(results):
    assert results["loaders_of_an_epoch"]["evaluated_after"] == [3, 6, 9, 12]


def test_a_loader_that_another_thread_has_exhausted_is_freed(results):
    assert not results["loader_of_another_thread"]["is_kept"]


def test_a_model_with_a_lever_around_its_calls_is_freed_at_once(results):
    assert not results["freed_with_a_lever"]["is_kept"]


def test_a_copy_of_a_models_dictionary_computes_when_the_model_is_gone(results):
    assert results["outlived"]["shape"] == [8, 2]


def test_only_a_real_number_is_a_loss(results):
    assert results["without_numbers"]["steps"] == 9


def test_a_scaled_loss_that_was_divided_is_not_shown_as_the_loss(results):
    assert results["scaled"]["steps"] == 6
    assert [loss is None for loss in results["scaled"]["losses"]] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_threads_that_train_one_after_the_other_are_all_followed(results):
    assert results["thread_after_thread"]["steps"] == 9


def test_of_two_threads_that_train_the_first_is_measured_and_a_line_says_so(results):
    assert results["two_threads"]["steps"] == 9
    line = "SGD, root Net, 1 backward pass a step, DataLoader with 0 workers, "
    assert results["two_threads"]["found"][-1] == line + OTHERS


def test_a_second_thread_is_measured_once_the_first_stops_training(results):
    steps = results["another_thread_goes_on"]["steps"]
    assert 3 + 20 / 2 < steps < 3 + 20
    assert results["another_thread_goes_on"]["found"][-1].endswith(OTHERS)


def test_a_model_that_the_collector_no_longer_lists_is_found_and_not_kept_alive(results):
    assert results["frozen"]["is_root"] == [True]
    assert not results["frozen"]["is_kept"]


def test_making_a_loaders_iterator_adds_no_frame_of_ours(results):
    assert results["iterator_made"]["ours"] == []


def test_a_forked_child_that_goes_on_training_follows_the_models_calls(results):
    assert results["begun_anew"]["found"][-1].startswith("SGD, root Net, ")
    assert results["begun_anew"]["called"] == [True]


def test_iterators_with_their_own_constructor_work(results):
    assert results["iterators_of_the_scripts_own"]["steps"] == 9
    assert "DataLoader" in results["iterators_of_the_scripts_own"]["found"][0]


def test_an_autocast_that_begins_later_is_news(results):
    assert results["autocast_later"]["news"] == 1
    assert results["autocast_later"]["autocasts"] == ["torch.bfloat16"]
