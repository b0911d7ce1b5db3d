import pytest

from gpudash.trace.accounting import summarise
from tests.trace.made import call, event, launched, operator, step, trace_of

AUTOGRAD = (100, 101)
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def own_code_ms(folder, *events):
    return summarise(trace_of(folder, *events)).own_code_ms


def annotation(name, ts, dur):
    return event("user_annotation", name, ts, dur)


def test_what_takes_long_between_two_operators_is_other_code_in_a_models_pass_too(tmp_path):
    module = annotation("nn.Module: layer", 50, 1500)
    operators = [operator("aten::mm", 100, 100), operator("aten::mm", 1200, 800)]
    assert own_code_ms(tmp_path, step(1, 0, 2000), module, *operators) == pytest.approx(1.0)


def test_what_takes_microseconds_is_pythons_part_of_launching(tmp_path):
    operators = [operator("aten::mm", ts, 20) for ts in range(0, 2000, 100)]
    assert own_code_ms(tmp_path, step(1, 0, 2000), *operators) == 0


def test_it_is_the_mean_of_the_steps_and_lies_within_them(tmp_path):
    steps = [step(1, 0, 1000), step(2, 3000, 1000)]
    operators = [operator("aten::mm", 0, 500), operator("aten::mm", 3000, 1000)]
    assert own_code_ms(tmp_path, *steps, *operators) == pytest.approx(0.25)


@pytest.mark.parametrize("name", [LOADS, "Optimizer.step#Adam.step", "Torch-Compiled Region: 0/0"])
def test_a_wait_for_a_batch_an_optimizer_and_compiled_code_are_torchs(name, tmp_path):
    copied = launched(900, 10, call_ts=900)
    computes = operator("aten::stack", 200, 500)
    whole = annotation(name, 0, 1000)
    assert own_code_ms(tmp_path, step(1, 0, 1000), whole, computes, copied) == 0


def test_autograds_own_thread_works_for_the_one_that_waits_for_it(tmp_path):
    learns = operator(BACKWARD, 500, 1000, AUTOGRAD)
    first, other = operator("aten::mm", 0, 500), operator("aten::mm", 0, 2000, (100, 102))
    assert own_code_ms(tmp_path, step(1, 0, 2000), first, learns, other) == pytest.approx(0.5)


def test_an_operator_that_takes_long_and_launches_nothing_computes_where_others_launch(tmp_path):
    long, short = operator("aten::copy_", 0, 900), operator("aten::mm", 900, 100)
    assert own_code_ms(tmp_path, step(1, 0, 1000), long, short) == 0
    launches = launched(950, 10, call_ts=950)
    assert own_code_ms(tmp_path, step(1, 0, 1000), long, short, launches) == pytest.approx(0.9)
    waits = call("cudaStreamSynchronize", 10, 800)
    assert own_code_ms(tmp_path, step(1, 0, 1000), long, short, waits, launches) == 0


def test_without_steps_the_thread_that_trains_is_not_known(tmp_path):
    assert own_code_ms(tmp_path, operator("aten::mm", 0, 10)) is None
