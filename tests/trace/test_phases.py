import pytest

from gpudash.trace.accounting import summarise
from gpudash.trace.phases import phases
from gpudash.trace.read import read
from tests.trace.made import H200, event, launched, operator, step, trace_of

AUTOGRAD = (100, 200)


def annotated(name, ts, dur):
    return event("user_annotation", name, ts, dur)


def module(name, ts, dur):
    return event("cpu_op", f"nn.Module: {name}", ts, dur)


def backward(ts, dur, at=AUTOGRAD):
    return operator("autograd::engine::evaluate_function: MmBackward0", ts, dur, at)


def link(number, ts, back_ts, back_at=AUTOGRAD):
    """The arrow from an operator to its operator in the backward pass."""
    ends = ("s", ts, (100, 100)), ("f", back_ts, back_at)
    return [
        {
            "ph": ph,
            "cat": "fwdbwd",
            "id": number,
            "ts": at,
            "pid": pid,
            "tid": tid,
            "name": "fwdbwd",
        }
        for ph, at, (pid, tid) in ends
    ]


def found(folder, *events):
    """The spans of each phase, in µs."""
    return {
        phase: list(zip(spans.begin_us.tolist(), spans.end_us.tolist(), strict=True))
        for phase, spans in phases(trace_of(folder, step(1, 0, 1000), *events)).items()
    }


def test_work_of_the_device_belongs_to_the_phase_in_which_it_was_launched(tmp_path):
    events = [
        launched(20, 50, call_ts=10, name="Memcpy HtoD", cat="gpu_memcpy"),
        module("Net", 100, 50),
        launched(200, 100, call_ts=110),
        backward(160, 30),
        launched(300, 150, call_ts=170, at=AUTOGRAD),
        annotated("Optimizer.step#SGD.step", 200, 30),
        launched(500, 50, call_ts=210),
        launched(600, 20, call_ts=550),
        launched(700, 30, call_ts=690, name="ncclDevKernel_AllReduce", stream=8),
    ]
    assert found(tmp_path, *events) == {
        "copy": [(20, 70)],
        "forward": [(200, 300)],
        "backward": [(300, 450)],
        "communication": [(700, 730)],
        "optimizer": [(500, 550)],
        "other": [(600, 620)],
    }


def test_the_device_waits_for_data_only_where_it_has_nothing_to_do(tmp_path):
    events = [
        module("Net", 0, 50),
        launched(40, 160, call_ts=10),
        annotated("enumerate(DataLoader)#_Iter.__next__", 60, 400),
    ]
    assert found(tmp_path, *events) == {"data": [(200, 460)], "forward": [(40, 200)]}


def test_of_two_streams_at_once_the_one_with_most_kernel_time_counts(tmp_path):
    events = [
        module("Net", 0, 50),
        launched(100, 300, call_ts=10),
        launched(350, 100, call_ts=60, stream=8),
        launched(90, 20, call_ts=70, name="Memcpy HtoD", cat="gpu_memcpy", stream=9),
    ]
    assert found(tmp_path, *events) == {
        "copy": [(90, 100)],
        "forward": [(100, 400)],
        "other": [(400, 450)],
    }


def test_modules_without_a_backward_pass_are_frozen_and_a_loss_outside_of_modules_is_forward(
    tmp_path,
):
    events = [
        module("Encoder", 0, 50),
        operator("aten::mm", 10, 30),
        launched(100, 10, call_ts=20),
        module("Head", 60, 40),
        operator("aten::mm", 70, 20),
        launched(200, 10, call_ts=80),
        operator("aten::cross_entropy", 110, 20),
        launched(300, 10, call_ts=120),
        backward(140, 20),
        launched(400, 10, call_ts=150, at=AUTOGRAD),
        *link(1, 70, 140),
        *link(2, 110, 140),
    ]
    assert found(tmp_path, *events) == {
        "frozen": [(100, 110)],
        "forward": [(200, 210), (300, 310)],
        "backward": [(400, 410)],
    }


def test_a_replayed_graph_is_a_phase(tmp_path):
    graph = launched(100, 50, call_ts=10)
    graph[0]["name"] = "cudaGraphLaunch"
    assert found(tmp_path, graph) == {"graph": [(100, 150)]}


def test_without_a_device_the_phases_are_the_hosts(tmp_path):
    events = [
        annotated("enumerate(DataLoader)#_Iter.__next__", 0, 300),
        operator("aten::stack", 10, 100),
        module("Net", 300, 100),
        backward(400, 200, (100, 100)),
        module("Net", 420, 50),  # computed again, by checkpointing
        annotated("Optimizer.step#SGD.step", 600, 50),
    ]
    assert found(tmp_path, *events) == {
        "data": [(0, 300)],
        "forward": [(300, 400)],
        "backward": [(400, 600)],
        "optimizer": [(600, 650)],
    }


@pytest.mark.parametrize("events", [[], [operator("aten::mm", 10, 20)]])
def test_a_trace_without_any_phase_has_none(tmp_path, events):
    assert found(tmp_path, *events) == {}


def test_the_phases_of_a_real_trace_add_up_to_the_time_in_which_the_device_is_busy():
    real = summarise(read(H200))
    assert sum(real.phases_ms.values()) == pytest.approx(real.busy_ms)
    assert {"backward", "optimizer"} <= real.phases_ms.keys()
