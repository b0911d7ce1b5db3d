"""Short steps on a GPU are timed together; here all are, and what is told of them stays true."""

import pytest

from tests.hooks import shapes


@pytest.fixture(scope="module")
def alone(told_by):
    return told_by("every_shape")["found"]


UNCOMPILED = [shape for shape in shapes.SHAPES if "compiled" not in shape]


@pytest.fixture(scope="module")
def told(told_by):
    return told_by("every_shape")["found, together"]


@pytest.mark.parametrize("shape", UNCOMPILED)
def test_each_step_is_counted_once(told, shape):
    one = told[shape]
    assert one["failures"] == []
    assert one["steps"] == one["expected"]
    for record, before in zip(one["records"][1:], one["records"], strict=False):
        assert record["step"] - record["count"] >= before["step"]


@pytest.mark.parametrize("shape", ["loader", "no_loader", "accumulation"])
def test_alike_steps_are_timed_together_and_all_but_the_first_are(told, shape):
    one = told[shape]
    counts = [record["count"] for record in one["records"]]
    assert max(counts) > 1
    assert sum(counts) == one["records"][-1]["step"] - 1


def test_a_step_that_is_asked_for_has_a_border_of_its_own(told):
    one = told["borders_asked_for"]
    assert len(one["borders"]) < one["steps"]
    assert set(one["asked"]) <= set(one["borders"])


def test_their_samples_are_those_of_all_of_them(told):
    for shape, batch in (("loader", 8), ("no_loader", 16), ("looks_again_within_a_step", 16)):
        for record in told[shape]["records"]:
            assert record["samples"] == batch * record["count"]


def test_what_is_aside_ends_them_and_is_no_part_of_them(told, alone):
    for shape in ("evaluation_and_checkpoint", "evaluation_without_a_loader"):
        assert told[shape]["asides"] == alone[shape]["asides"]


@pytest.mark.parametrize("shape", ["looks_again_within_a_step", "acts_before_it_learns"])
def test_a_call_without_gradients_that_belongs_to_a_step_is_no_evaluation(told, alone, shape):
    assert told[shape]["asides"] == alone[shape]["asides"]


def test_where_each_step_has_one_none_is_timed_with_others_and_all_samples_are_known(told):
    one = told["looks_again_within_each_step"]
    assert [record["step"] for record in one["records"]] == list(range(2, 13))
    assert one["samples"] == 12 * 8


def test_a_step_that_begins_with_such_a_call_lasts_from_there(told):
    for record in told["acts_before_it_learns"]["records"][1:]:  # the first one is an evaluation
        assert record["step_ms"] >= 1000 * shapes.ACTS_S


@pytest.mark.parametrize("shape", ["gan", "one_optimizer_in_backward"])
def test_optimizers_that_autograds_thread_may_call_and_several_are_always_looked_at(told, shape):
    assert {record["count"] for record in told[shape]["records"]} == {1}
