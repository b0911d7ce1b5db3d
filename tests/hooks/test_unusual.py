"""What few scripts do: it works as without gpudash, and the steps are told all the same."""

import pytest

OTHERS = "another thread trains too: its steps are not counted"


@pytest.fixture(scope="module")
def told(told_by):
    return told_by("unusual")


def test_no_hook_fails(told):
    assert {name: one["failures"] for name, one in told.items() if one["failures"]} == {}


def test_a_model_can_be_turned_into_torchscript_while_it_trains(told):
    assert told["scripted"]["shape"] == [8, 2]
    assert not told["scripted"]["holds_ours"]
    assert told["scripted"]["steps"] == 6


def test_patched_functions_can_be_pickled(told):
    assert told["pickled"]["same"] == [True, True, True]


def test_each_model_of_a_cross_validation_is_found(told):
    assert told["folds"]["roots"] == [["Net"]] * 5
    assert told["folds"]["steps"] == 15


def test_an_overridden_parameters_method_is_not_called(told):
    assert told["own_parameters"]["steps"] == 3
    assert "root Named" in told["own_parameters"]["found"][-1]


def test_an_optimizer_that_wraps_others_needs_no_groups(told):
    assert told["optimizer_without_groups"]["steps"] == 3
    assert told["optimizer_without_groups"]["found"][-1].startswith("2 × SGD, root Net")


def test_steps_are_counted_after_an_exception_in_one(told):
    assert told["closure_raises"]["steps"] == 9
    assert told["step_raises"]["steps"] == 9


def test_an_optimizer_step_that_calls_its_base_class_counts_once(told):
    assert told["step_of_the_base"]["steps"] == 12


def test_a_loader_at_the_address_of_a_freed_one_is_a_new_loader(told):
    assert told["loaders_of_an_epoch"]["evaluated_after"] == [3, 6, 9, 12]


def test_a_loader_that_another_thread_has_exhausted_is_freed(told):
    assert not told["loader_of_another_thread"]["is_kept"]


def test_a_model_with_a_lever_around_its_calls_is_freed_at_once(told):
    assert not told["freed_with_a_lever"]["is_kept"]


def test_a_copy_of_a_models_dictionary_computes_when_the_model_is_gone(told):
    assert told["outlived"]["shape"] == [8, 2]


def test_only_a_real_number_is_a_loss(told):
    assert told["without_numbers"]["steps"] == 9


def test_a_scaled_loss_that_was_divided_is_not_shown_as_the_loss(told):
    assert told["scaled"]["steps"] == 6
    assert [loss is None for loss in told["scaled"]["losses"]] == [True, False, True, False, True]


def test_threads_that_train_one_after_the_other_are_all_followed(told):
    assert told["thread_after_thread"]["steps"] == 9


def test_of_two_threads_that_train_the_first_is_measured_and_a_line_says_so(told):
    assert told["two_threads"]["steps"] == 9
    line = "SGD, root Net, 1 backward pass a step, DataLoader with 0 workers, "
    assert told["two_threads"]["found"][-1] == line + OTHERS


def test_a_second_thread_is_measured_once_the_first_stops_training(told):
    steps = told["another_thread_goes_on"]["steps"]
    assert 3 + 20 / 2 < steps < 3 + 20
    assert told["another_thread_goes_on"]["found"][-1].endswith(OTHERS)


def test_a_model_that_the_collector_no_longer_lists_is_found_and_not_kept_alive(told):
    assert told["frozen"]["is_root"] == [True]
    assert not told["frozen"]["is_kept"]


def test_making_a_loaders_iterator_adds_no_frame_of_ours(told):
    assert told["iterator_made"]["ours"] == []


def test_a_forked_child_that_goes_on_training_follows_the_models_calls(told):
    assert told["begun_anew"]["found"][-1].startswith("SGD, root Net, ")
    assert told["begun_anew"]["called"] == [True]


def test_iterators_with_their_own_constructor_work(told):
    assert told["iterators_of_the_scripts_own"]["steps"] == 9
    assert "DataLoader" in told["iterators_of_the_scripts_own"]["found"][0]
