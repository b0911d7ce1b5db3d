import pytest

from gpudash.trace.accounting import summarise
from gpudash.trace.phases import phases
from gpudash.trace.read import read
from tests.trace.made import (
    AUTOGRAD,
    H200,
    MAIN,
    annotation,
    arrow,
    event,
    launched,
    operator,
    step,
    trace_of,
)


def module(name, ts, dur):
    return event("cpu_op", f"nn.Module: {name}", ts, dur)


def backward(ts, dur, at=AUTOGRAD):
    return operator("autograd::engine::evaluate_function: MmBackward0", ts, dur, at)


def found(folder, *events):
    """The spans of each phase, in µs."""
    return {
        phase: list(zip(spans.begin_us.tolist(), spans.end_us.tolist(), strict=True))
        for phase, spans in phases(trace_of(folder, step(1, 0, 1000), *events)).items()
    }


GRAPH = launched(100, 50, call_ts=10)
GRAPH[0]["name"] = "cudaGraphLaunch"
SPANS = {
    "work of the device belongs to the phase in which it was launched": (
        [
            launched(20, 50, call_ts=10, name="Memcpy HtoD", cat="gpu_memcpy"),
            module("Net", 100, 50),
            launched(200, 100, call_ts=110),
            backward(160, 30),
            launched(300, 150, call_ts=170, at=AUTOGRAD),
            annotation("Optimizer.step#SGD.step", 200, 30),
            launched(500, 50, call_ts=210),
            launched(600, 20, call_ts=550),
            launched(700, 30, call_ts=690, name="ncclDevKernel_AllReduce", stream=8),
        ],
        {
            "copy": [(20, 70)],
            "forward": [(200, 300)],
            "backward": [(300, 450)],
            "communication": [(700, 730)],
            "optimizer": [(500, 550)],
            "other": [(600, 620)],
        },
    ),
    "the device waits for data only where it has nothing to do": (
        [
            module("Net", 0, 50),
            launched(40, 160, call_ts=10),
            annotation("enumerate(DataLoader)#_Iter.__next__", 60, 400),
        ],
        {"data": [(200, 460)], "forward": [(40, 200)]},
    ),
    "of two streams at once the one with most kernel time counts": (
        [
            module("Net", 0, 50),
            launched(100, 300, call_ts=10),
            launched(350, 100, call_ts=60, stream=8),
            launched(90, 20, call_ts=70, name="Memcpy HtoD", cat="gpu_memcpy", stream=9),
        ],
        {"copy": [(90, 100)], "forward": [(100, 400)], "other": [(400, 450)]},
    ),
    "modules without a backward pass are frozen, and a loss outside of modules is forward": (
        [
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
            *arrow(1, (70, MAIN), (140, AUTOGRAD)),
            *arrow(2, (110, MAIN), (140, AUTOGRAD)),
        ],
        {
            "frozen": [(100, 110)],
            "forward": [(200, 210), (300, 310)],
            "backward": [(400, 410)],
        },
    ),
    "a replayed graph is a phase": ([GRAPH], {"graph": [(100, 150)]}),
    "without a device the phases are the host's": (
        [
            annotation("enumerate(DataLoader)#_Iter.__next__", 0, 300),
            operator("aten::stack", 10, 100),
            module("Net", 300, 100),
            backward(400, 200, (100, 100)),
            module("Net", 420, 50),  # computed again, by checkpointing
            annotation("Optimizer.step#SGD.step", 600, 50),
        ],
        {
            "data": [(0, 300)],
            "forward": [(300, 400)],
            "backward": [(400, 600)],
            "optimizer": [(600, 650)],
        },
    ),
    "a trace without any phase has none": ([], {}),
    "nor has one of operators alone": ([operator("aten::mm", 10, 20)], {}),
}


@pytest.mark.parametrize(("events", "spans"), SPANS.values(), ids=SPANS)
def test_when_which_phase_is(tmp_path, events, spans):
    assert found(tmp_path, *events) == spans


def test_the_phases_of_a_real_trace_add_up_to_the_time_in_which_the_device_is_busy():
    real = summarise(read(H200))
    assert sum(real.phases_ms.values()) == pytest.approx(real.busy_ms)
    assert {"backward", "optimizer"} <= real.phases_ms.keys()
