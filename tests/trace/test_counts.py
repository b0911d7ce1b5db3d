"""What a trace has in each of its steps, by name."""

from gpudash.trace.counts import count
from tests.trace.made import call, launched, operator, step, trace_of

AHEAD = (100, 101)
"""A thread that loads batches."""
STEPS = [step(0, 0, 100), step(1, 100, 100)]


def test_operators_count_without_what_they_call_and_without_the_loaders_thread(tmp_path):
    events = [
        operator("aten::linear", 10, 20), operator("aten::addmm", 12, 5),
        operator("aten::linear", 110, 20), operator("aten::item", 140, 5),
        operator("aten::stack", 50, 5, AHEAD),
    ]  # fmt: skip
    counted = count(trace_of(tmp_path, *STEPS, *events))
    assert counted["operators"] == {"linear": (1, 1), "item": (0, 1)}
    assert "launches" not in counted


def test_collectives_and_the_parts_of_a_compiled_model_have_counters_of_their_own(tmp_path):
    region = operator("Torch-Compiled Region: 0/0", 30, 5)
    events = [operator("c10d::allreduce_", 10, 20), region]
    counted = count(trace_of(tmp_path, *STEPS, *events))
    assert counted["collectives"] == {"allreduce_": (1, 0)}
    assert counted["compiled regions"] == {"Torch-Compiled Region: 0/0": (1, 0)}
    assert counted["operators"] == {}


def test_what_runs_late_belongs_to_the_step_that_launched_it(tmp_path):
    late = launched(150, 5, call_ts=50, name="relu")
    copy = launched(160, 5, call_ts=120, cat="gpu_memcpy", name="Memcpy HtoD (Pageable -> Device)")
    counted = count(trace_of(tmp_path, *STEPS, late, copy, call("cudaMalloc", 130, 5)))
    assert counted["launches"] == {"relu": (1, 0)}
    assert counted["copies"] == {"to device, not pinned": (0, 1)}
    assert counted["calls for device memory"] == {"cudaMalloc": (0, 1)}


def test_the_launch_of_a_graph_is_one(tmp_path):
    first, *_ = kernels = launched(50, 5, call_ts=10, name="relu")
    more = {**kernels[1], "ts": 60}
    assert count(trace_of(tmp_path, *STEPS, first, kernels[1], more))["launches"] == {
        "relu": (1, 0)
    }


def test_a_trace_without_steps_has_no_counts(tmp_path):
    assert count(trace_of(tmp_path, operator("aten::relu", 10, 20))) == {}
