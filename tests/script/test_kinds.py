"""Steps with frozen models, rollouts, environments, batches used twice: phases, samples, steps."""

import pytest

from tests.script import kinds, shapes
from tests.script.kinds import ROLLOUTS, UPDATES
from tests.script.shape import ACTS_S, LONG_S

KINDS = [name for name, (run, _) in shapes.SHAPES.items() if run.__module__ == kinds.__name__]
LONG_MS = LONG_S * 1e3
LATE = {
    "frozen_encoder_by_its_method": "frozen",
    "library_with_optimizer_and_loader_of_its_own": "optimizer",
}
"""Phases that are known after some steps: of a model that is never called, of a library's own."""


@pytest.fixture(scope="module")
def every(results_of):
    return results_of("every_shape")


@pytest.fixture(scope="module")
def results(every):
    return every["found"]


def sampled(one):
    """The phases of the steps in which all of them were measured."""
    return [step["phases_ms"] for step in one["records"] if "optimizer" in step["phases_ms"]]


def longest(phases_ms):
    return max(phases_ms, key=phases_ms.get)


@pytest.mark.parametrize("how", ["found", "found, together"])
@pytest.mark.parametrize("name", KINDS)
def test_the_number_of_steps_is_exact(every, name, how):
    one = every[how][name]
    assert (one["steps"], one["failures"]) == (one["expected"], [])


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("frozen_encoder", "frozen"),
        ("frozen_encoder_with_gradients_on", "frozen"),
        ("distillation", "frozen"),
        ("loss_by_a_frozen_model", "forward"),
        ("slow_loss", "forward"),
        ("environment_between", "your_code"),
        ("slow_augmentation", "your_code"),
        ("batch_of_another_device", "copy"),
        ("own_code_before_and_behind_copies", "your_code"),
        ("target_in_each_step", "frozen"),
        ("answers_prompts", "rollout"),
        ("target_computed_by_hand", "your_code"),
        *LATE.items(),
    ],
)
def test_what_takes_its_time_is_the_longest_phase(results, name, phase):
    found = sampled(results[name])[-1 if name in LATE else 0 :]
    assert {longest(phases_ms) for phases_ms in found} == {phase}


def test_only_the_last_of_several_environments_steps_counts_as_the_loss(results):
    for phases_ms in sampled(results["environment_between"]):
        assert phases_ms["your_code"] >= 3 * LONG_MS


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("frozen_encoder", "root Net, frozen Slow, 1 backward"),
        ("frozen_encoder_by_its_method", "root Net, frozen Autoencoder.encoder, 1 backward"),
        ("distillation", "root Net, frozen Slow, 1 backward"),
        ("library_with_optimizer_and_loader_of_its_own", "an optimizer of fastai, root Net, "),
        (
            "library_with_optimizer_and_loader_of_its_own",
            "1 backward pass a step, a loader of fast",
        ),
        (
            "library_with_two_optimizers",
            "an optimizer of fastai, roots 2 × Net, 2 backward passes a step, a loader of fastai",
        ),
        ("library_between_two_trainings", "AdamW, root Net, 1 backward pass a step, no DataLoader"),
        ("answers_prompts", "root Net, frozen Net, 1 backward"),
        ("answers_prompts", "calls without gradients before a step taken for a rollout"),
        ("made_unseen", "root unknown (gpudash stopped looking for models: it took too long), "),
        ("rollouts", "calls without gradients before a step taken for a rollout"),
        ("forward_of_no_part", "root Net (no call seen: its forward pass is in your code)"),
    ],
)
def test_the_line_names_frozen_models_and_what_was_guessed(results, name, line):
    assert line in results[name]["found"][-1]


@pytest.mark.parametrize(
    "name", ["frozen_encoder", "frozen_encoder_by_its_method", "loss_by_a_frozen_model"]
)
def test_findings_are_incomplete_until_frozen_models_are_among_them(results, name):
    is_there = ["frozen" in line for line in results[name]["found"]]
    assert results[name]["complete"] == is_there == [False, *is_there[1:]]


@pytest.mark.parametrize(
    ("name", "updates"),
    [
        ("rollouts", UPDATES),
        ("rollouts_in_evaluation_mode", UPDATES),
        ("rollouts_into_a_loader", 6),
    ],
)
def test_a_rollout_is_a_part_of_the_step_after_it_and_no_evaluation(results, name, updates):
    one = results[name]
    assert one["asides"] == []
    first = {number * updates + 1 for number in range(1, ROLLOUTS)}
    for step in one["records"]:
        acted_ms = step["rollout_ms"] if step["step"] > updates + 1 else 0
        if step["step"] in first - {updates + 1}:
            assert 4 * LONG_MS <= acted_ms <= step["step_ms"]
        else:
            assert acted_ms == 0


def test_previews_between_epochs_are_asides_and_no_part_of_a_step(results):
    one = results["draws_previews"]
    assert one["asides"] == [
        ["evaluation", 6],
        [None, 6],
        ["evaluation", 12],
        [None, 12],
        ["evaluation", 18],
    ]
    assert max(step["step_ms"] for step in one["records"]) < LONG_MS


def test_acting_before_each_step_is_a_rollout_from_the_first_on(results):
    one = results["acts_before_it_learns"]
    assert one["asides"] == []
    assert min(step["rollout_ms"] for step in one["records"][1:]) >= ACTS_S * 1e3


@pytest.mark.parametrize("name", ["evaluation_without_a_loader", "evaluates_in_training_mode"])
def test_calls_on_as_many_samples_as_a_step_has_are_an_evaluation(results, name):
    assert {why for why, _ in results[name]["asides"]} == {"evaluation", None}


@pytest.mark.parametrize("how", ["found", "found, together"])
@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("replay_buffer", 16),
        ("accumulates_without_a_loader", 32),
        ("batch_first", 7),
        ("sequence_first", None),
        ("environment_between", None),
        ("one_model_called_thrice", None),
        ("generator_steps_twice", 8),
    ],
)
def test_samples_are_those_that_the_backward_pass_is_about_or_unknown(every, name, samples, how):
    records = every[how][name]["records"]
    assert {one["samples"] and one["samples"] / one["count"] for one in records} == {samples}


def test_each_model_of_a_process_is_found_as_the_first(results):
    one = results["many_models"]
    assert all("root Net, " in line for line in one["found"])
    assert one["records"][-1]["samples"] == 16


def test_a_frozen_models_calls_do_not_keep_steps_from_being_timed_together(every):
    counts = {one["count"] for one in every["found, together"]["frozen_encoder"]["records"]}
    assert max(counts) > 1
