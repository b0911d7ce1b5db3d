"""Trainings of many shapes: their steps, what was measured, and what was left as it was."""

import pytest

from tests.hooks import shapes
from tests.warm import python


@pytest.fixture(scope="module")
def told(told_by):
    return told_by("every_shape")["found"]


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_the_number_of_steps_is_exact_and_all_but_the_first_are_measured(told, shape):
    one = told[shape]
    assert one["failures"] == []
    assert one["steps"] == one["expected"]
    assert one["closed"] == [record["step"] for record in one["records"]]
    assert one["closed"] == sorted(set(one["closed"]))
    assert one["closed"][-1] == one["steps"]


@pytest.mark.parametrize("shape", ["loader", "gan", "accumulation", "lbfgs", "scaler"])
def test_an_ordinary_loop_has_a_border_after_each_step_and_is_timed_from_the_second_on(told, shape):
    steps = list(range(1, told[shape]["steps"] + 1))
    assert told[shape]["borders"] == steps
    assert told[shape]["closed"] == steps[1:]


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        ("no_loader", "AdamW, root Net, 1 backward pass a step, no DataLoader"),
        ("accumulation", "AdamW, root Net, 4 backward passes a step, DataLoader with 0 workers"),
        (
            "gan",
            "2 × Adam, roots 2 × Net, 2 backward passes a step, DataLoader with 0 workers",
        ),
        ("scaler", "AdamW, GradScaler, root Net, 1 backward pass a step, DataLoader with 0 work"),
        ("no_optimizer", "no optimizer: each backward pass ends a step, root Net, 1 backward"),
        (
            "children_called",
            "SGD, roots Pair.inner.encoder and Pair.inner.decoder, 1 backward pass a step",
        ),
        ("nobody_called", "SGD, root Pair, 1 backward pass a step"),
        ("compiled_child", "SGD, root Pair.inner.encoder, 1 backward pass a step"),
        ("compiled", "AdamW, root OptimizedModule, 1 backward pass a step, DataLoader with 0"),
    ],
)
def test_the_findings_line_describes_the_training(told, shape, line):
    assert told[shape]["found"][-1].startswith(line)


@pytest.mark.parametrize(
    ("shape", "samples"),
    [("loader", 8), ("no_loader", 16), ("accumulation", 32), ("lbfgs", 32), ("gan", 8)],
)
def test_samples_come_from_the_batches_or_else_from_the_calls(told, shape, samples):
    assert {record["samples"] for record in told[shape]["records"]} == {samples}


@pytest.mark.parametrize(
    ("shape", "total"),
    [("loader", 96), ("accumulation", 192), ("no_optimizer", 160), ("no_loader", None)],
)
def test_all_samples_are_counted_unless_those_of_the_first_steps_are_unknown(told, shape, total):
    assert told[shape]["samples"] == total


@pytest.mark.parametrize("shape", ["children_called", "compiled_child"])
def test_calls_of_submodules_instead_of_the_root_are_the_forward_pass(told, shape):
    phases = [one["phases_ms"] for one in told[shape]["records"][2:] if one["phases_ms"]]
    assert phases
    assert all("forward" in one for one in phases)


def test_submodules_that_are_not_called_are_hooked_for_one_step_only(told):
    assert told["children_called"]["hooked"] == ["inner.encoder", "inner.decoder"]
    assert told["nobody_called"]["hooked"] == [""]


@pytest.mark.parametrize("shape", ["loader", "scaler"])
def test_the_loss_is_what_the_script_computed(told, shape):
    computed = told[shape]["losses"][1:]
    for number, pair in enumerate(zip(told[shape]["told_losses"], computed, strict=True)):
        if shape == "loader" or number not in (0, 2):  # which the script made infinite
            assert pair[0] == pair[1]


def test_evaluation_and_checkpoints_are_no_part_of_a_step(told):
    one = told["evaluation_and_checkpoint"]
    there = [[why, after] for after in (6, 12) for why in ("evaluation", "checkpoint", None)]
    assert one["asides"][:6] == there
    assert [why for why, _ in one["asides"][6:]] == ["evaluation", "checkpoint", None]
    assert max(record["step_ms"] for record in one["records"][5:]) < 2 * 20  # asleep in between


def test_a_checkpoint_ends_when_its_file_is_saved(told):
    one = told["works_after_a_checkpoint"]
    assert one["asides"] == [["checkpoint", 5], [None, 5]]
    (after,) = (record for record in one["records"] if record["step"] == 6)
    assert after["step_ms"] >= 20  # asleep before it


def test_the_end_of_an_epoch_changes_no_findings(told):
    assert told["loader"]["found"] == [
        "AdamW, root Net, 1 backward pass a step, DataLoader with 0 workers"
    ]
    assert told["loader"]["feeds"] == [True]


@pytest.mark.parametrize(("shape", "last"), [("a_hook_fails", 6), ("a_hook_fails_bare", 12)])
def test_after_a_failure_there_is_one_more_border(told, shape, last):
    assert told[shape]["told"] == ["forward: ZeroDivisionError('ours')"]
    assert told[shape]["borders"][-2:] == [last, last]


def test_an_evaluation_between_epochs_does_not_change_the_training_loader(told):
    lines = told["evaluation_and_checkpoint"]["found"]
    assert {line.rpartition(", ")[2] for line in lines} == {"DataLoader with 0 workers"}


def test_a_call_before_every_step_is_part_of_the_step(told):
    one = told["acts_before_it_learns"]
    assert one["asides"] == [["evaluation", 1], [None, 1]]  # once is no habit
    assert all(record["step_ms"] > 5 for record in one["records"][2:])


def test_phases_and_waits_add_up_to_the_step(told):
    shares = [
        1 - (sum(record["phases_ms"].values()) + record["data_ms"]) / record["step_ms"]
        for record in told["attributed"]["records"]
        if record["phases_ms"]
    ]
    assert len(shares) >= 2
    assert min(shares) <= 0.02  # what no phase covers is missing in each; another process is not


def test_inside_a_closure_forward_and_backward_count_as_themselves(told):
    measured = [one["phases_ms"] for one in told["lbfgs"]["records"] if one["phases_ms"]]
    assert measured
    for phases_ms in measured:
        assert phases_ms.keys() == {"your_code", "forward", "backward", "optimizer"}


def test_a_number_passed_to_an_optimizers_step_is_no_closure(told):
    measured = [one["phases_ms"] for one in told["step_takes_a_number"]["records"]]
    assert any("optimizer" in phases_ms for phases_ms in measured)


@pytest.mark.parametrize(
    "shape", ["compiled", "compiled_in_place", "compiled_function", "compiled_child"]
)
def test_compiled_code_has_one_graph_and_no_break(told, shape):
    assert told[shape]["recompiles"] == [1, 0]


def test_a_compiled_optimizer_is_one_graph_and_counts(told):
    assert told["compiled_optimizer"]["recompiles"][0] == 1


def test_saved_pickled_and_copied_models_hold_nothing_of_ours(told):
    assert told["saved_whole"]["holds_ours"] == [False, False]
    assert told["saved_whole"]["copy"] is None


def test_a_copy_of_a_models_dictionary_computes_with_its_own_parts(told):
    assert told["copied_for_another_device"]["own"]


def test_a_training_that_the_script_releases_is_freed(told):
    assert told["forgotten"]["kept"] == [False, False]


def test_a_traceback_shows_no_frame_of_ours(told):
    frames = told["exceptions"]["frames"]
    assert ["tests", "hooks"] in frames
    assert not [frame for frame in frames if "gpudash" in frame]


def test_a_replayed_graph_with_an_optimizer_step_is_a_step_with_its_own_phase(told):
    replayed = told["a_graph_replayed"]["records"][3:]
    measured = [one["phases_ms"] for one in replayed if one["phases_ms"]]
    assert all(phases_ms.keys() == {"your_code", "graph"} for phases_ms in measured)


def test_an_inactive_tracker_counts_steps_and_measures_none(told):
    closed = told["switched_off_and_on"]["closed"]
    assert closed == [*range(2, 11), *range(21, 41)]


def test_a_watched_training_prints_and_computes_what_a_plain_one_does(tmp_path):
    watched = python("-m", "tests.hooks.identical", "watched", str(tmp_path / "model.watched"))
    plain = python("-m", "tests.hooks.identical", "plain", str(tmp_path / "model"))
    assert watched.stderr.splitlines()[0] == "24 []"
    own = plain.stdout.splitlines()
    assert watched.stdout.splitlines()[: len(own)] == own
    assert plain.stderr.split() == ["Net", "False"]  # what the other saved, loaded without gpudash
    assert (tmp_path / "model.watched.0").read_text() == "24 []"  # in a spawned process
