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


def test_a_parameters_of_the_scripts_own_is_not_called(told):
    assert told["own_parameters"]["steps"] == 3
    assert "root Named" in told["own_parameters"]["found"][-1]


def test_an_optimizer_around_others_needs_no_groups(told):
    assert told["optimizer_without_groups"]["steps"] == 3
    assert told["optimizer_without_groups"]["found"][-1].startswith("2 × SGD, root Net")


def test_steps_are_counted_on_after_one_that_an_exception_has_left(told):
    assert told["closure_raises"]["steps"] == 9
    assert told["step_raises"]["steps"] == 9


def test_a_step_that_calls_the_step_of_its_base_class_is_one(told):
    assert told["step_of_the_base"]["steps"] == 12


def test_a_loader_at_the_address_of_one_that_is_gone_is_another_one(told):
    assert told["loaders_of_an_epoch"]["evaluated_after"] == [3, 6, 9, 12]


def test_a_loader_that_another_thread_has_used_up_is_not_kept(told):
    assert not told["loader_of_another_thread"]["is_kept"]


def test_a_model_is_gone_at_once_though_a_lever_is_around_its_calls(told):
    assert not told["freed_with_a_lever"]["is_kept"]


def test_a_copy_of_a_models_dictionary_computes_when_the_model_is_gone(told):
    assert told["outlived"]["shape"] == [8, 2]


def test_what_is_no_real_number_is_no_loss(told):
    assert told["without_numbers"]["steps"] == 9


def test_a_scaled_loss_that_was_divided_is_not_shown_for_the_loss(told):
    assert told["scaled"]["steps"] == 6
    assert [loss is None for loss in told["scaled"]["losses"]] == [True, False, True, False, True]


def test_threads_that_train_one_after_the_other_are_all_heard(told):
    assert told["thread_after_thread"]["steps"] == 9


def test_of_two_threads_that_train_the_first_is_measured_and_a_line_says_so(told):
    assert told["two_threads"]["steps"] == 9
    line = "SGD, root Net, 1 backward pass a step, DataLoader with 0 workers, "
    assert told["two_threads"]["found"][-1] == line + OTHERS


def test_a_second_thread_is_measured_once_the_first_stands_still(told):
    steps = told["another_thread_goes_on"]["steps"]
    assert 3 + 20 / 2 < steps < 3 + 20
    assert told["another_thread_goes_on"]["found"][-1].endswith(OTHERS)


def test_a_model_that_the_collector_no_longer_lists_is_found_and_not_kept_alive(told):
    assert told["frozen"]["is_root"] == [True]
    assert not told["frozen"]["is_kept"]


def test_no_call_of_ours_stands_around_the_making_of_a_loaders_iterator(told):
    assert told["iterator_made"]["ours"] == []


def test_a_forked_child_that_trains_the_same_model_on_hears_its_calls(told):
    assert told["begun_anew"]["found"][-1].startswith("SGD, root Net, ")
    assert told["begun_anew"]["called"] == [True]


def test_iterators_that_take_a_loader_in_their_own_way_are_made_as_ever(told):
    assert told["iterators_of_the_scripts_own"]["steps"] == 9
    assert "DataLoader" in told["iterators_of_the_scripts_own"]["found"][0]
