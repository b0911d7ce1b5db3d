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
def test_similar_steps_are_timed_together_except_the_first(told, shape):
    one = told[shape]
    counts = [record["count"] for record in one["records"]]
    assert max(counts) > 1
    assert sum(counts) == one["records"][-1]["step"] - 1


def test_a_requested_step_has_its_own_border(told):
    one = told["borders_asked_for"]
    assert len(one["borders"]) < one["steps"]
    assert set(one["asked"]) <= set(one["borders"])


def test_steps_timed_together_report_the_samples_of_all(told):
    for shape, batch in (("loader", 8), ("no_loader", 16)):
        for record in told[shape]["records"]:
            assert record["samples"] == batch * record["count"]


def test_an_aside_ends_steps_timed_together_and_is_not_in_them(told, alone):
    for shape in ("evaluation_and_checkpoint", "evaluation_without_a_loader"):
        assert told[shape]["asides"] == alone[shape]["asides"]


@pytest.mark.parametrize("shape", ["gan", "one_optimizer_in_backward"])
def test_several_optimizers_or_those_in_backward_are_always_measured_in_full(told, shape):
    assert {record["count"] for record in told[shape]["records"]} == {1}
