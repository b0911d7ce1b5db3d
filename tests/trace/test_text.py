import msgspec
import pytest

from gpudash.protocol.inspections import Profiled
from gpudash.trace.accounting import summarise
from gpudash.trace.compare import compare
from gpudash.trace.read import read
from gpudash.trace.summary import CopyUse, KernelUse, Summary, SyncUse
from gpudash.trace.text import WIDTH, comparison_lines, summary_lines
from tests.trace.made import H200


@pytest.fixture(scope="module")
def real():
    return summarise(read(H200))


def test_a_summary_reads_as_follows():
    summary = Summary(
        steps=10,
        step_ms=5.0,
        on_device=True,
        device="NVIDIA H200",
        busy_ms=4.0,
        idle_ms={"host": 0.75, "stream": 0.0, "communication": 0.0, "other": 0.25},
        launches=181.0,
        launch_ms=1.5,
        blocked_ms=0.5,
        kernels=(
            KernelUse("void at::gemm<float>(int)", "aten::mm", "Linear_0", 2.0, 3.5, True),
            KernelUse("fill", "", "", 0.1, 0.5, False),
        ),
        copies=(CopyUse("to device", False, 1.0, 24.0, 0.25, 5.83),),
        syncs=(SyncUse("train.py", 31, "step", "item", 1.0, 0.5),),
        tensor_core_pct=87.5,
        dropped=2,
    )
    assert summary_lines(summary) == [
        "10 steps traced on NVIDIA H200; all values are means for one step",
        "step                                 5.00 ms",
        "device busy                          4.00 ms    80 %",
        "device idle                          1.00 ms    20 %",
        "  the host had launched nothing      0.75 ms    15 %",
        "  waited for another stream          0.00 ms     0 %",
        "  waited for communication           0.00 ms     0 %",
        "  between kernels, and unknown       0.25 ms     5 %",
        "two streams at once                     –",
        "launch calls on the host             1.50 ms    30 %  181 times",
        "copy calls on the host                  –",
        "host waits for the device            0.50 ms    10 %",
        "kernel time in tensor cores                     88 %",
        "model flops of measured peak                       –",
        "",
        "       ms    count  syncs",
        "     0.50        1  train.py:31  item",
        "",
        "       ms    count  kernels (* in tensor cores)",
        "     3.50        2  * mm in Linear_0          gemm<float>",
        "     0.50      0.1    –                       fill",
        "",
        "       ms    count  copies",
        "     0.25        1  to device, pageable  24 MiB  5.83 GB/s",
        "",
        "2 events contradicted themselves and were left out",
    ]


def test_a_trace_of_the_host_alone_says_so():
    lines = summary_lines(Summary(steps=1, step_ms=5.0, on_device=False))
    assert lines[0].startswith("1 step traced;")
    assert lines[-1] == "no device events: this is a trace of the host alone"


def test_a_wait_for_the_next_batch_stands_below_the_step():
    lines = summary_lines(Summary(steps=1, step_ms=5.0, on_device=False, loader_ms=4.0))
    assert lines[2].split() == ["waits", "for", "the", "next", "batch", "4.00", "ms", "80", "%"]


def test_the_line_that_waits_is_shown_however_long_its_path_is():
    file = f"/home/{'deeply/' * 12}losses/masked.py"
    sync = SyncUse(file, 1041, "step", "nonzero", 1.0, 0.5)
    lines = summary_lines(Summary(steps=1, step_ms=5.0, on_device=True, syncs=(sync,)))
    assert "     0.50        1  losses/masked.py:1041  nonzero" in lines


def test_a_cut_trace_says_so(real):
    lines = summary_lines(msgspec.structs.replace(real, is_cut=True))
    assert "the file ends early: this is what it holds until there" in lines


def test_no_line_is_wider_than_a_terminal(real):
    lines = [*summary_lines(real, most=500), *comparison_lines(compare(real, real))]
    assert max(map(len, lines)) <= WIDTH
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("untraced_ms", "which"), [(4.2, "untraced: 4.20 ms"), (None, "while traced")]
)
def test_the_step_of_the_flops_is_named(untraced_ms, which):
    noted = Profiled(
        at_s=0.0,
        path="",
        first_step=1,
        steps=1,
        steps_ms=5.0,
        took_ms=1.0,
        untraced_step_ms=untraced_ms,
    )
    summary = Summary(steps=1, step_ms=5.0, on_device=True, mfu_pct=40.0, profiled=noted)
    line = f"model flops of measured peak                    40 %  {which}"
    assert line in summary_lines(summary)


def test_the_rest_of_a_long_table_is_counted(real):
    lines = summary_lines(real, most=3)
    assert f"{'':20}and {len(real.kernels) - 3} more" in lines


def test_a_comparison_reads_as_follows():
    def summary(step_ms, *kernels):
        return Summary(steps=1, step_ms=step_ms, on_device=True, kernels=kernels)

    def kernel(name, ms):
        return KernelUse(name, "", "", 1.0, ms, uses_tensor_cores=False)

    before = summary(10.0, kernel("gemm", 4.0), kernel("fill", 1.0))
    after = summary(8.0, kernel("gemm", 2.5))
    lines = comparison_lines(compare(before, after))
    assert lines[:3] == [
        "                                      before     after    change",
        "step (ms)                               10.0      8.00     −2.00",
        "kernels                                 2.00      1.00     −1.00",
    ]
    assert lines[-3:] == [
        "before ms  after ms   change  kernel",
        "     4.00      2.50    −1.50  gemm",
        "     1.00         –    −1.00  fill",
    ]
