from gpudash.trace.accounting import summarise
from tests.trace.made import AUTOGRAD, MAIN, arrow, event, launched, operator, trace_of


def module_of(trace):
    return {one.name: one.module for one in summarise(trace).kernels}


def test_a_kernel_of_either_pass_names_its_module(tmp_path):
    evaluate = "autograd::engine::evaluate_function: MmBackward0"
    found = trace_of(
        tmp_path,
        event("cpu_op", "nn.Module: Net", 0, 100),
        event("cpu_op", "nn.Module: encoder", 10, 40),
        operator("aten::mm", 20, 20),
        launched(60, 5, call_ts=30, name="forward"),
        operator(evaluate, 200, 50, AUTOGRAD),
        operator("MmBackward0", 202, 40, AUTOGRAD),
        launched(260, 5, call_ts=210, at=AUTOGRAD, name="backward"),
        launched(270, 5, call_ts=240, at=AUTOGRAD, name="accumulate"),
        operator(f"{evaluate} 2", 260, 30, AUTOGRAD),
        launched(300, 5, call_ts=270, at=AUTOGRAD, name="of no forward operator"),
        launched(310, 5, call_ts=300, name="optimizer"),
        arrow(7, (20, MAIN), (202, AUTOGRAD)),
    )
    assert module_of(found) == {
        "forward": "encoder",
        "backward": "encoder",
        "accumulate": "encoder",
        "of no forward operator": "",
        "optimizer": "",
    }


def test_a_module_is_no_operator(tmp_path):
    found = trace_of(
        tmp_path, event("cpu_op", "nn.Module: Net", 0, 100), operator("aten::mm", 20, 20)
    )
    assert [one.name for one in summarise(found).operators] == ["aten::mm"]


def test_an_arrow_that_leads_nowhere_is_none(tmp_path):
    found = trace_of(
        tmp_path,
        operator("aten::mm", 20, 20),
        arrow(1, (20, MAIN), (30, (5, 5))),
        arrow(2, (20, MAIN), (30, MAIN))[:1],
    )
    assert found.links is None
