"""Trainings of many shapes: their steps, what was measured, and what was left unchanged."""

import pytest

from tests.script import shapes
from tests.warm import python


@pytest.fixture(scope="module")
def results(results_of):
    return results_of("every_shape")["found"]


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_the_number_of_steps_is_exact_and_all_but_the_first_are_measured(results, shape):
    one = results[shape]
    assert (one["failures"], one["steps"]) == ([], one["expected"])
    assert one["closed"] == sorted(set(one["closed"]))
    assert one["closed"][-1] == one["steps"]
    assert one["complete"][-1]  # the findings are, at last


UNWATCHED = ("switched_off_and_on", "switched_off_and_looked_at_closely", "all_in_fast_code")
"""Shapes without a dashboard for a while."""


@pytest.mark.parametrize("how", ["found", "found, together"])
def test_each_step_and_its_samples_are_told_once(results_of, how):
    for name, one in results_of("every_shape")[how].items():
        told = [*one["records"], *one["untimed"]]
        if name not in UNWATCHED:
            assert sum(record["count"] for record in told) == one["steps"], name
        if name not in UNWATCHED and one["samples"] is not None:
            assert sum(record["samples"] for record in told) == one["samples"], name


def test_the_first_step_is_told_without_a_time(results):
    (first,) = results["loader"]["untimed"]
    assert (first["step"], first["count"], first["samples"]) == (1, 1, 8)


@pytest.mark.parametrize("shape", ["loader", "gan", "accumulation", "lbfgs", "scaler"])
def test_an_ordinary_loop_has_a_border_after_each_step_and_is_timed_from_the_second_on(
    results, shape
):
    steps = list(range(1, results[shape]["steps"] + 1))
    assert (results[shape]["borders"], results[shape]["closed"]) == (steps, steps[1:])


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
        ("nobody_called", "SGD, root Pair (no call seen: its forward pass is in your code), 1 "),
        ("compiled_child", "SGD, root Pair.inner.encoder, 1 backward pass a step"),
        ("compiled", "AdamW, root OptimizedModule, 1 backward pass a step, DataLoader with 0"),
    ],
)
def test_the_findings_line_describes_the_training(results, shape, line):
    assert results[shape]["found"][-1].startswith(line)


def test_the_end_of_an_epoch_changes_no_findings(results):
    assert len(set(results["loader"]["found"])) == 1


def test_a_compiled_optimizer_is_one_graph_and_counts(results):
    assert results["compiled_optimizer"]["recompiles"][0] == 1


ONE_GRAPH = {"recompiles": [1, 0]}
"""And no break."""
FAILED = {"results": ["forward: ZeroDivisionError('ours')"]}
TOLD = [
    ("loader", {"samples": 96, "feeds": [True, True], "complete": [False, True]}),
    ("accumulation", {"samples": 192}),
    ("no_optimizer", {"samples": 160}),
    ("no_loader", {"samples": None}),  # those of the first steps are unknown
    ("labels_its_own_batches_beside_an_optimizer_that_rests", {"samples": 320}),
    ("saves_once_a_batch_is_there_beside_an_optimizer_that_rests", {"samples": 320}),
    ("evaluation_and_checkpoint", {"samples": 144}),
    ("validates_before_its_first_step", {"samples": 96}),
    ("flushes_a_checkpoint", {"asides": [["checkpoint", 5], [None, 5]]}),
    # of submodules that are not called for one step only
    ("children_called", {"hooked": ["inner.encoder", "inner.decoder"]}),
    ("nobody_called", {"hooked": [""]}),
    ("compiled", ONE_GRAPH),
    ("compiled_in_place", ONE_GRAPH),
    ("compiled_function", ONE_GRAPH),
    ("compiled_child", ONE_GRAPH),
    # the border after the failure is the last step's again
    ("a_hook_fails", FAILED | {"borders": [*range(1, 7), 6]}),
    ("a_hook_fails_bare", FAILED | {"borders": [*range(8, 13), 12]}),
    ("saved_whole", {"holds_ours": [False, False], "copy": None}),
    ("copied_for_another_device", {"own": True}),
    ("forgotten", {"kept": [False, False]}),
    ("switched_off_and_on", {"closed": [*range(2, 11), *range(21, 41)]}),
]


@pytest.mark.parametrize(("shape", "told"), TOLD, ids=[shape for shape, _ in TOLD])
def test_what_became_of_a_training(results, shape, told):
    assert {name: results[shape][name] for name in told} == told


@pytest.mark.parametrize(
    ("shape", "samples"),
    [("loader", 8), ("no_loader", 16), ("accumulation", 32), ("lbfgs", 32), ("gan", 8)],
)
def test_samples_come_from_the_batches_or_else_from_the_calls(results, shape, samples):
    assert {record["samples"] for record in results[shape]["records"]} == {samples}


@pytest.mark.parametrize("shape", ["children_called", "compiled_child"])
def test_calls_of_submodules_instead_of_the_root_are_the_forward_pass(results, shape):
    phases = [one["phases_ms"] for one in results[shape]["records"][2:] if one["phases_ms"]]
    assert phases
    assert all("forward" in one for one in phases)


@pytest.mark.parametrize("shape", ["loader", "scaler"])
def test_the_loss_is_what_the_script_computed(results, shape):
    first, *computed = results[shape]["losses"]
    assert results[shape]["first_loss"] == [[1, first]]
    for number, pair in enumerate(zip(results[shape]["reported_losses"], computed, strict=True)):
        if shape == "loader" or number not in (0, 2):  # the script made these infinite
            assert pair[0] == pair[1]


def test_evaluation_and_checkpoints_are_no_part_of_a_step(results):
    one = results["evaluation_and_checkpoint"]
    there = [[why, after] for after in (6, 12) for why in ("evaluation", "checkpoint", None)]
    assert one["asides"][:6] == there
    assert [why for why, _ in one["asides"][6:]] == ["evaluation", "checkpoint", None]
    after = [record["step_ms"] for record in one["records"] if record["step"] in (7, 13)]
    assert min(after) < 2 * 50  # the script sleeps longer in each evaluation


def test_what_follows_a_saved_file_is_part_of_the_checkpoint(results):
    records = results["flushes_a_checkpoint"]["records"]
    (after,) = (record for record in records if record["step"] == 6)
    assert after["step_ms"] < 1e3 * shapes.FLUSHES_S  # the script sleeps before the step


def test_an_evaluation_between_epochs_does_not_change_the_training_loader(results):
    lines = results["evaluation_and_checkpoint"]["found"]
    assert {line.rpartition(", ")[2] for line in lines} == {"DataLoader with 0 workers"}


def test_phases_and_waits_add_up_to_the_step(results):
    shares = [
        1 - (sum(record["phases_ms"].values()) + record["data_ms"]) / record["step_ms"]
        for record in results["attributed"]["records"]
        if record["phases_ms"]
    ]
    assert len(shares) >= 2
    assert min(shares) <= 0.02  # a busy machine affects only some steps


def test_inside_a_closure_forward_and_backward_count_as_themselves(results):
    measured = [one["phases_ms"] for one in results["lbfgs"]["records"] if one["phases_ms"]]
    assert measured
    for phases_ms in measured:
        assert phases_ms.keys() == {"your_code", "forward", "backward", "optimizer"}


def test_a_number_passed_to_an_optimizers_step_is_no_closure(results):
    measured = [one["phases_ms"] for one in results["step_takes_a_number"]["records"]]
    assert any("optimizer" in phases_ms for phases_ms in measured)


def test_a_traceback_shows_no_frame_of_ours(results):
    frames = results["exceptions"]["frames"]
    assert ["tests", "script"] in frames
    assert not [frame for frame in frames if "gpudash" in frame]


def test_a_replayed_graph_with_an_optimizer_step_is_a_step_with_its_own_phase(results):
    replayed = results["a_graph_replayed"]["records"][3:]
    measured = [one["phases_ms"] for one in replayed if one["phases_ms"]]
    assert all(phases_ms.keys() == {"your_code", "graph"} for phases_ms in measured)


@pytest.mark.usefixtures("shared_memory")
def test_a_watched_training_prints_and_computes_what_a_plain_one_does(tmp_path):
    watched = python("-m", "tests.script.identical", "watched", str(tmp_path / "model.watched"))
    plain = python("-m", "tests.script.identical", "plain", str(tmp_path / "model"))
    assert watched.stderr.splitlines()[0] == "24 []"
    own = plain.stdout.splitlines()
    assert watched.stdout.splitlines()[: len(own)] == own
    assert plain.stderr.split() == ["Net", "False"]  # the saved model, loaded without gpudash
    assert (tmp_path / "model.watched.0").read_text() == "24 []"  # in a spawned process
