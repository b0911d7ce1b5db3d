"""Short steps that are timed together, as on a GPU; here all steps are."""

import pytest

from tests.script import shapes
from tests.script.shape import ACTS_S, CALLS_A_BATCH, TICK_MS


@pytest.fixture(scope="module")
def alone(results_of):
    return results_of("every_shape")["found"]


UNCOMPILED = [shape for shape in shapes.SHAPES if "compiled" not in shape]


@pytest.fixture(scope="module")
def results(results_of):
    return results_of("every_shape")["found, together"]


@pytest.mark.parametrize("shape", UNCOMPILED)
def test_each_step_is_counted_once(results, shape):
    one = results[shape]
    assert (one["failures"], one["steps"]) == ([], one["expected"])
    for record, before in zip(one["records"][1:], one["records"], strict=False):
        assert record["step"] - record["count"] >= before["step"]


@pytest.mark.parametrize("shape", ["loader", "no_loader", "accumulation"])
def test_similar_steps_are_timed_together_except_the_first(results, shape):
    one = results[shape]
    counts = [record["count"] for record in one["records"]]
    assert max(counts) > 1
    assert sum(counts) == one["records"][-1]["step"] - 1


def test_a_requested_step_has_its_own_border(results):
    one = results["borders_asked_for"]
    assert len(one["borders"]) < one["steps"]
    assert set(one["asked"]) <= set(one["borders"])


def test_steps_timed_together_report_the_samples_of_all(results):
    for shape, batch in (("loader", 8), ("no_loader", 16), ("compares_in_some_steps", 16)):
        for record in results[shape]["records"]:
            assert record["samples"] == batch * record["count"]


TOLD = [
    ("leaves_a_step", {"samples": 11 * 8}),
    ("stopped_by_signals", {"stopped": 4, "ours": []}),  # their exceptions have no frame of ours
    ("hooks_in_and_out", {"in_children": [True]}),  # a child may be forked in such a step
    ("backward_of_another_tool", {"calls": 40, "kept": True}),
    ("lever_on_calls", {"calls": 30}),
]
SAME = [
    ("batches_of_many_kinds", {"samples": 192}),
    ("loader_within_a_loader", {"samples": 96}),
    ("nested_tensors", {"samples": 128}),
    ("another_optimizer_within_an_epoch", {"samples": 320}),
    ("second_optimizer_now_and_then", {"samples": 480}),
    ("all_in_fast_code", {"ours": []}),  # nothing of ours is compiled
    *((shape, {}) for shape in ("backward_in_fast_code", "evaluation_and_checkpoint")),
    ("evaluation_without_a_loader", {}),
    *((shape, {}) for shape in ("compares_in_some_steps", "acts_before_it_learns")),
]
"""What is told is also the same as where each step is measured in full, as are all asides."""


@pytest.mark.parametrize(("shape", "told"), TOLD + SAME, ids=[one for one, _ in TOLD + SAME])
def test_what_became_of_a_training(results, alone, shape, told):
    assert {name: results[shape][name] for name in told} == told
    if (shape, told) in SAME:
        for name in {"asides", "graphs", *told} & results[shape].keys():
            assert results[shape][name] == alone[shape][name]


@pytest.mark.parametrize(
    ("how", "borders"), [("on", [10, 11, 20, 21]), ("looked_at_closely", [*range(10, 31)])]
)
def test_without_a_dashboard_steps_are_counted_alone_but_for_those_looked_at(results, how, borders):
    found = results[f"switched_off_and_{how}"]["borders"]
    assert [step for step in found if 10 <= step <= borders[-1]] == borders


def test_samples_are_counted_after_the_script_has_left_its_loader(results):
    samples = [one["samples"] for one in results["loader_left_within_an_epoch"]["records"]]
    assert None not in samples


def test_the_wait_for_a_batch_is_measured_whatever_the_batch_is(results):
    for record in results["slow_dicts"]["records"]:
        assert record["data_ms"] >= CALLS_A_BATCH * TICK_MS


def test_the_wait_for_the_end_of_an_epoch_is_in_the_steps_before_whose_time_has_it(results):
    waited = CALLS_A_BATCH * TICK_MS
    waits = {one["step"]: one["data_ms"] * one["count"] for one in results["slow_ends"]["records"]}
    assert [step for step, ms in waits.items() if ms >= waited] == [12, 24, 36]


def test_the_hosts_time_is_all_but_the_waits_wherever_an_epoch_ends(results):
    records = results["slow_ends_after_any_step"]["records"]
    waited = CALLS_A_BATCH * TICK_MS
    assert any(one["count"] == 1 and one["data_ms"] >= waited for one in records)
    for record in records[1:]:  # the first one's time is of two clocks
        assert TICK_MS <= record["host_ms"] < waited


def test_steps_timed_together_have_no_loss_where_batches_show_their_begins(results):
    one = results["loader"]
    for record, loss in zip(one["records"], one["reported_losses"], strict=True):
        computed = one["losses"][record["step"] - 1]
        assert loss == (computed if record["count"] == 1 else None)


def test_other_steps_timed_together_have_the_loss_of_the_last_one(results):
    one = results["no_loader"]
    computed = [one["losses"][record["step"] - 1] for record in one["records"]]
    assert one["reported_losses"] == computed


def test_models_and_backward_passes_are_hooked_at_borders_and_at_the_end(results, alone):
    for one in (results["hooks_in_and_out"], alone["hooks_in_and_out"]):
        assert [*one["at_borders"][1:], one["at_the_end"]] == [[True, True]] * len(
            one["at_borders"]
        )


def test_steps_whose_begin_a_batch_shows_run_without_those_hooks(results, alone):
    assert [False, False] in results["hooks_in_and_out"]["in_steps"]
    assert [False, False] not in alone["hooks_in_and_out"]["in_steps"][1:]


def test_steps_that_each_have_a_call_without_gradients_are_measured_in_full(results):
    one = results["compares_in_each_step"]
    assert [record["step"] for record in one["records"]] == list(range(2, 13))
    assert one["samples"] == 12 * 8


def test_the_time_of_a_step_has_the_call_without_gradients_at_its_begin(results):
    for record in results["acts_before_it_learns"]["records"][1:]:  # the first is an evaluation
        assert record["step_ms"] >= 1000 * ACTS_S


@pytest.mark.parametrize("shape", ["gan", "one_optimizer_in_backward"])
def test_several_optimizers_or_those_in_backward_are_always_measured_in_full(results, shape):
    assert {record["count"] for record in results[shape]["records"]} == {1}
