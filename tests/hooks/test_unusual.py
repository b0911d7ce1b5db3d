"""What few scripts do: it works as without gpudash, and the steps are told all the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.hooks.unusual"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(ran.stdout)


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
