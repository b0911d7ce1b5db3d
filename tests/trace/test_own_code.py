import pytest

from gpudash.trace.accounting import summarise
from tests.trace.made import AUTOGRAD, annotation, call, launched, operator, step, trace_of

BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def own_code_ms(folder, *events):
    return summarise(trace_of(folder, *events)).own_code_ms


LONG, SHORT = operator("aten::copy_", 0, 900), operator("aten::mm", 900, 100)
LAUNCHES = launched(950, 10, call_ts=950)
OWN_CODE = {
    "what takes long between two operators, in a model's pass too": (
        [
            step(1, 0, 2000),
            annotation("nn.Module: layer", 50, 1500),
            operator("aten::mm", 100, 100),
            operator("aten::mm", 1200, 800),
        ],
        1.0,
    ),
    "what takes microseconds is Python's part of launching": (
        [step(1, 0, 2000), *(operator("aten::mm", ts, 20) for ts in range(0, 2000, 100))],
        0,
    ),
    "it is the mean of the steps and lies within them": (
        [
            *(step(1, 0, 1000), step(2, 3000, 1000)),
            *(operator("aten::mm", 0, 500), operator("aten::mm", 3000, 1000)),
        ],
        0.25,
    ),
    "autograd's own thread works for the one that waits for it": (
        [
            step(1, 0, 2000),
            operator("aten::mm", 0, 500),
            operator(BACKWARD, 500, 1000, AUTOGRAD),
            operator("aten::mm", 0, 2000, (100, 102)),
        ],
        0.5,
    ),
    "an operator that takes long and launches nothing computes": (
        [step(1, 0, 1000), LONG, SHORT],
        0,
    ),
    "but where others launch": ([step(1, 0, 1000), LONG, SHORT, LAUNCHES], 0.9),
    "or it waits for the device": (
        [step(1, 0, 1000), LONG, SHORT, call("cudaStreamSynchronize", 10, 800), LAUNCHES],
        0,
    ),
}


@pytest.mark.parametrize(("events", "ms"), OWN_CODE.values(), ids=OWN_CODE)
def test_what_is_other_code_than_torchs(tmp_path, events, ms):
    assert own_code_ms(tmp_path, *events) == pytest.approx(ms)


@pytest.mark.parametrize("name", [LOADS, "Optimizer.step#Adam.step", "Torch-Compiled Region: 0/0"])
def test_a_wait_for_a_batch_an_optimizer_and_compiled_code_are_torchs(name, tmp_path):
    copied = launched(900, 10, call_ts=900)
    computes = operator("aten::stack", 200, 500)
    whole = annotation(name, 0, 1000)
    assert own_code_ms(tmp_path, step(1, 0, 1000), whole, computes, copied) == 0


def test_without_steps_the_thread_that_trains_is_not_known(tmp_path):
    assert own_code_ms(tmp_path, operator("aten::mm", 0, 10)) is None
