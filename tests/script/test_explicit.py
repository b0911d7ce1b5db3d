"""Declared steps are the only steps, whatever the optimizers do."""

import pytest

EXPECTED = {
    "each_batch": 12,
    "two_rounds_a_step": 6,
    "a_round_every_other_step": 12,
    "says_what_it_trains_on": 10,
    "nested": 6,
    "one_fails": 11,
    "sleeps_between": 10,
    "waits_between": 6,
    "evaluates_between": 12,
    "evaluates_inside": 12,
    "after_steps_that_were_found": 15,
    "beside_another_thread": 10,
    "no_optimizer_at_all": 10,
    "off_and_on": 40,
    "tokens_of_the_batches": 8,
    "tokens_with_a_mask": 8,
}
FOUND_FIRST = ("after_steps_that_were_found", "tokens_of_the_batches", "tokens_with_a_mask")
"""The begin of their first step is not known."""
PAUSE_MS = 50.0


@pytest.fixture(scope="module")
def trained(results_of):
    return results_of("every_shape")


@pytest.fixture(scope="module")
def results(trained):
    return trained["declared"]


def each(one, name):
    return [record[name] for record in one["records"]]


@pytest.mark.parametrize("shape", EXPECTED)
def test_declared_steps_are_counted_and_timed(results, shape):
    one = results[shape]
    assert one["failures"] == []
    assert one["steps"] == one["expected"] == EXPECTED[shape]
    assert one["borders"] == [*range(1, one["steps"] + 1)]
    unmeasured = range(11, 21) if shape == "off_and_on" else ()
    found_first = shape in FOUND_FIRST
    timed = [step for step in one["borders"][found_first:] if step not in unmeasured]
    assert each(one, "step") == timed
    assert len(one["untimed"]) == found_first


def test_phases_within_a_declared_step_are_measured(results):
    measured = [phases_ms for phases_ms in each(results["each_batch"], "phases_ms") if phases_ms]
    assert measured
    for phases_ms in measured:
        assert phases_ms.keys() == {"your_code", "forward", "backward", "optimizer"}


@pytest.mark.parametrize(
    ("shape", "samples", "tokens"),
    [
        ("says_what_it_trains_on", {3}, {*range(100, 110)}),
        ("each_batch", {8}, {None}),  # counted from the batches
        ("two_rounds_a_step", {16}, {None}),
        ("tokens_of_the_batches", {8}, {64}),
        ("waits_between", {8}, {None}),
        ("tokens_with_a_mask", {8}, {24}),
        ("nested", {5}, {None}),  # the outermost step counts
    ],
)
def test_samples_and_tokens_are_declared_or_counted(results, shape, samples, tokens):
    one = results[shape]
    assert ({*each(one, "samples")}, {*each(one, "tokens")}) == (samples, tokens)


def test_tokens_are_the_input_ids_of_the_batches(results):
    one = results["tokens_of_the_batches"]
    assert one["found"][-1].endswith(", tokens with padding")
    assert not any("padding_tokens" in record for record in one["records"])


def test_tokens_are_those_that_the_attention_mask_leaves_and_padding_the_others(results):
    one = results["tokens_with_a_mask"]
    assert set(each(one, "padding_tokens")) == {40}
    assert [step["tokens"] for step in one["untimed"]] == [24]
    assert "padding" not in one["found"][-1]


def test_the_time_between_declared_steps_is_own_code_of_the_next_one(results):
    first, *later = results["sleeps_between"]["records"]
    assert first["step_ms"] < PAUSE_MS <= min(record["step_ms"] for record in later)
    own_code = [one["phases_ms"]["your_code"] for one in later if one["phases_ms"]]
    assert min(own_code) >= PAUSE_MS


def test_the_wait_for_a_steps_batch_is_part_of_the_step_of_the_first_too(results):
    for record in results["waits_between"]["records"]:
        assert PAUSE_MS <= record["data_ms"] <= record["step_ms"]


TOLD = {
    "an exception passes through": ("one_fails", {"came": [4]}),
    "the batches are counted": ("each_batch", {"samples": 96}),
    "nothing inside a step is an evaluation": ("evaluates_inside", {"asides": []}),
    "one between steps is": (
        "evaluates_between",
        {
            "asides": [
                [why, after]
                for after in (3, 6, 9, 12)
                for why in ("evaluation", None)
                if (why, after) != (None, 12)
            ]
        },
    ),
}


@pytest.mark.parametrize(("shape", "told"), TOLD.values(), ids=TOLD)
def test_what_became_of_a_training(results, shape, told):
    assert {name: results[shape][name] for name in told} == told


def test_an_evaluation_between_declared_steps_is_in_no_step(results):
    assert min(each(results["evaluates_between"], "step_ms")[3::3]) < PAUSE_MS  # behind one


def test_the_first_declared_step_ends_steps_that_are_timed_together(trained):
    one = trained["declared, together"]["after_steps_that_were_found"]
    assert (one["failures"], one["steps"]) == ([], one["expected"])
    steps_alone = [record["step"] for record in one["records"] if record["count"] == 1]
    assert steps_alone[-9:] == [*range(7, 16)]


def test_an_invalid_number_of_tokens_ends_measuring_and_not_the_training(results):
    (failure,) = results["no_number"]["failures"]
    assert failure.startswith("gpudash.step: TypeError(\"'str' object cannot be interpreted as")
    assert each(results["no_number"], "tokens") == [4, 4, 4, 4]


def test_the_findings_line_says_that_the_script_declares_its_steps(results):
    assert results["after_steps_that_were_found"]["found"][0].endswith("workers")
    assert results["each_batch"]["found"][-1].endswith(", steps as the script declares them")
    assert results["no_optimizer_at_all"]["found"][-1].startswith("optimizer unknown, ")
