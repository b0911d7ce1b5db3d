from gpudash.trace.accounting import summarise
from tests.trace.made import event, launched, operator, trace_of

BACKWARD = (100, 101)
"""Autograd's own thread."""


def arrow(number, begin, end):
    """An arrow from an operator to its operator in the backward pass."""
    (ts, (pid, tid)), (back_ts, (back_pid, back_tid)) = begin, end
    one = {"cat": "fwdbwd", "name": "fwdbwd", "id": number}
    return [
        {**one, "ph": "s", "ts": ts, "pid": pid, "tid": tid},
        {**one, "ph": "f", "ts": back_ts, "pid": back_pid, "tid": back_tid, "bp": "e"},
    ]


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
        operator(evaluate, 200, 50, BACKWARD),
        operator("MmBackward0", 202, 40, BACKWARD),
        launched(260, 5, call_ts=210, at=BACKWARD, name="backward"),
        launched(270, 5, call_ts=240, at=BACKWARD, name="accumulate"),
        operator(f"{evaluate} 2", 260, 30, BACKWARD),
        launched(300, 5, call_ts=270, at=BACKWARD, name="of no forward operator"),
        launched(310, 5, call_ts=300, name="optimizer"),
        arrow(7, (20, (100, 100)), (202, BACKWARD)),
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
        arrow(1, (20, (100, 100)), (30, (5, 5))),
        arrow(2, (20, (100, 100)), (30, (100, 100)))[:1],
    )
    assert found.links is None
