import msgspec
import pytest

from gpudash.protocol.inspections import Flops, Peak, Profiled, Weights
from gpudash.trace.accounting import summarise
from gpudash.trace.mfu import CONVENTION
from gpudash.trace.read import read
from gpudash.trace.summary import CopyUse, KernelUse, OperatorUse, Summary, SyncUse, compare
from gpudash.trace.text import KERNELS, WIDTH, blocks, comparison_lines, summary_lines
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
        phases_ms={"data": 0.5, "forward": 4.0},
        loader_ms=0.6,
        busy_ms=4.0,
        idle_ms={"host": 0.75, "stream": 0.0, "communication": 0.0, "other": 0.25},
        launches=181.0,
        launch_ms=1.5,
        blocked_ms=0.5,
        allocations=2.0,
        allocation_ms=0.75,
        kernels=(
            KernelUse("void at::gemm<float>(int)", "aten::mm", "Linear_0", 2.0, 3.5, True),
            KernelUse("fill", "", "", 0.1, 0.5, False),
        ),
        copies=(CopyUse("to device", False, 1.0, 24.0, 0.25, 5.83),),
        syncs=(SyncUse("train.py", 31, "step", "item", 1.0, 0.5),),
        tensor_core_pct=87.5,
        gaps=((0.0, 0.0, 0.0), (10.0, 2.0, 0.1)),
        dropped=2,
    )
    assert summary_lines(summary) == [
        "10 steps traced on NVIDIA H200; all values are means",
        "",
        "one step, mean of 10",
        "  waits for data                       0.50 ms   10 %",
        "  forward                              4.00 ms   80 %",
        "  otherwise idle                       0.50 ms   10 %",
        "  step                                 5.00 ms  100 %",
        "",
        "kernels and copies (* tensor cores)",
        "  * mm in Linear_0                     3.50 ms         2 times, gemm<float>",
        "  fill                                 0.50 ms         0.1 times",
        "  copy to device, pageable             0.25 ms         1 time, 24.0 MiB, 5.83 G…",
        "",
        "the host waits",
        "  in next(DataLoader)                  0.60 ms   12 %",
        "  for the GPU                          0.50 ms   10 %",
        "  for device memory                    0.75 ms   15 %  asked 2 times",
        "  in calls that copy                         –",
        "    train.py:31  item                  0.50 ms         1 time",
        "",
        "the GPU",
        "  busy                                 4.00 ms   80 %",
        "  idle                                 1.00 ms   20 %",
        "    waits for data                     0.50 ms   10 %",
        "    nothing was launched               0.25 ms    5 %",
        "    between kernels                    0.25 ms    5 %",
        "  launch calls                         1.50 ms   30 %  181 times, 8.29 µs each",
        "  2 gaps of 10 to 100 µs               0.10 ms",
        "",
        "arithmetic and memory",
        "  88 % of kernel time in tensor cores",
        "",
        "not in the trace",
        "  how long a step takes untraced: tracing slows it",
        "  what loader workers do: they are processes of their own",
        "  2 events: they contradicted themselves",
    ]


def test_a_trace_of_the_host_alone_says_so_and_has_operators_and_no_gpu():
    operators = (OperatorUse("aten::mm", 2.0, 1.5),)
    found = Summary(steps=1, step_ms=5.0, on_device=False, operators=operators)
    lines = summary_lines(found)
    assert lines[0] == "1 step traced; all values are means"
    assert "  no device events: this is a trace of the host alone" in lines
    assert "  mm                                   1.50 ms         2 times" in lines
    assert "the GPU" not in lines


def test_whether_a_step_waits_for_data_is_not_known_without_a_loader():
    lines = summary_lines(Summary(steps=1, step_ms=5.0, on_device=False))
    assert "  waits for data: no DataLoader was called" in lines
    assert "the host waits" not in lines


def test_what_lies_in_no_phase_is_a_row_so_that_they_add_up_to_the_step():
    found = Summary(steps=1, step_ms=5.0, on_device=False, phases_ms={"backward": 4.0})
    (block, *_) = blocks(found)
    assert [(row.what, row.value) for row in block.rows] == [
        ("backward", "4.00 ms"),
        ("none of these", "1.00 ms"),
        ("step", "5.00 ms"),
    ]


def test_the_line_that_waits_is_shown_however_long_its_path_is():
    file = f"/home/{'deeply/' * 12}losses/masked.py"
    sync = SyncUse(file, 1041, "step", "nonzero", 1.0, 0.5)
    lines = summary_lines(Summary(steps=1, step_ms=5.0, on_device=True, syncs=(sync,)))
    assert any(line.startswith("    losses/masked.py:1041  nonzero") for line in lines)


def test_a_cut_trace_says_so(real):
    lines = summary_lines(msgspec.structs.replace(real, is_cut=True))
    assert "  what followed: the file ends early" in lines


def test_no_line_is_wider_than_a_terminal(real):
    lines = [*summary_lines(real, most=500), *comparison_lines(compare(real, real))]
    assert max(map(len, lines)) <= WIDTH
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("untraced_ms", "rate", "tracing"),
    [
        (4.0, "1.00 TFLOP/s untraced", "untraced a step took 4.00 ms, traced 1.2 times that"),
        (None, "800 GFLOP/s while traced", "how long a step takes untraced: tracing slows it"),
    ],
)
def test_the_step_of_the_flops_is_named(untraced_ms, rate, tracing):
    noted = Profiled(
        at_s=0.0,
        path="",
        first_step=1,
        steps=1,
        steps_ms=5.0,
        took_ms=1.0,
        untraced_step_ms=untraced_ms,
        precision="tf32",
        untraced_phases_ms={"forward": 2.0},
        flops=Flops(step_gflop=4.0, covered_pct=97.0, phases_gflop={"forward": 1.0}),
        peak=Peak(matmul_tflops={"tf32": 2.5}, memory_gb_s=1.0),
        weights=Weights(mib=3.0, state_mib=6.0),
    )
    lines = summary_lines(
        Summary(steps=1, step_ms=5.0, on_device=True, mfu_pct=40.0, profiled=noted)
    )
    assert f"  4.00 GFLOP a step: {rate}" in lines
    assert "  counted in 97 % of the products" in lines
    share = "32 %" if untraced_ms is None else "40 %"
    assert f"  MFU at least {share} of the 2.50 TFLOP/s that tf32 reached here" in lines
    assert "  MFU by phase, at least: forward 20 %" in lines
    at = next(n for n, line in enumerate(lines) if line.startswith("  MFU counts "))
    said = f"MFU counts {CONVENTION}"
    assert " ".join(" ".join(lines[at : at + 2]).split()) == said  # in whole, in 80 columns
    assert max(map(len, lines)) <= 80
    assert "  weights 3.00 MiB, optimizer state 6.00 MiB" in lines
    assert f"  {tracing}" in lines


def test_the_last_row_of_a_long_list_has_what_the_others_take_together(real):
    (kernels,) = (one for one in blocks(real) if one.title == KERNELS)
    there_are, took_ms = len(kernels.rows), sum(row.ms for row in kernels.rows[2:])
    *_, others = kernels.cut(3).rows
    assert others.what == f"{there_are - 2} others"
    assert others.value == f"{took_ms:.2f} ms"
    assert kernels.cut(there_are) == kernels


def test_a_sum_is_not_cut_however_many_parts_it_has(real):
    (step, *_) = blocks(real)
    assert step.cut(2) == step


def test_a_comparison_has_the_largest_changes_first_and_reads_as_follows():
    def summary(step_ms, *kernels, **also):
        return Summary(steps=1, step_ms=step_ms, on_device=True, kernels=kernels, **also)

    def kernel(name, ms):
        return KernelUse(name, "", "", 1.0, ms, uses_tensor_cores=False)

    before = summary(
        10.0, kernel("same", 5.0), kernel("fill", 0.5), kernel("gemm", 4.0), busy_ms=6.0
    )
    after = summary(8.0, kernel("new", 2.0), kernel("same", 5.0), kernel("gemm", 1.0), mfu_pct=40.0)
    assert comparison_lines(compare(before, after)) == [
        "                                      before     after    change",
        "step (ms)                               10.0      8.00     −2.00",
        "device busy (ms)                        6.00         –         –",
        "kernels                                 3.00      3.00      0.00",
        "copies (ms)                             0.00      0.00      0.00",
        "model flops of measured peak (%)           –      40.0         –",
        "",
        "before ms  after ms   change  kernel",
        "     4.00      1.00    −3.00  gemm",
        "        –      2.00    +2.00  new",
        "     0.50         –    −0.50  fill",
    ]
