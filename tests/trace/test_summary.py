import pytest
from msgspec.structs import replace

from gpudash.protocol.inspections import Flops, Peak, Profiled
from gpudash.trace.accounting import summarise
from gpudash.trace.mfu import mfu_by_phase, mfu_pct, mfu_text
from gpudash.trace.read import read
from gpudash.trace.summary import CopyUse
from tests.having import having
from tests.trace.made import (
    H200,
    MAIN,
    call,
    event,
    launched,
    operator,
    step,
    trace_of,
)


def summary_of(folder, *events, **also):
    return summarise(trace_of(folder, *events, **also))


def idle(summary):
    return {cause: ms for cause, ms in summary.idle_ms.items() if ms}


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
COPY = {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "bytes": 1 << 20}
BF16 = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_warpgroupsize1x1x1"
SUMMARIES = {
    "means for one step": (
        [
            *(step(1, 0, 1000), step(2, 1000, 1000)),
            *(launched(ts, 100, call_ts=ts - 50) for ts in (100, 300, 1100)),
        ],
        having(
            steps=2,
            step_ms=1.0,
            busy_ms=pytest.approx(0.15),
            launches=1.5,
            kernels=(having(count=1.5),),
        ),
    ),
    "nothing of a device without its events": (
        [step(1, 0, 100), operator("aten::mm", 10, 50)],
        having(
            on_device=False,
            busy_ms=None,
            launches=None,
            blocked_ms=None,
            idle_ms={},
            operators=(having(name="aten::mm"),),
        ),
    ),
    "events outside of the steps are not counted": (
        [
            operator("before", 0, 50),
            launched(60, 10, call_ts=10),
            step(1, 100, 100),
            launched(150, 10, call_ts=110),
        ],
        having(step_ms=pytest.approx(0.1), busy_ms=pytest.approx(0.01), launches=1, operators=()),
    ),
    "without steps the whole trace is one": (
        [operator("a", 0, 10), launched(50, 50, call_ts=5)],
        having(steps=1, step_ms=0.1, host_ms=None),
    ),
    "a step has its wait for the loader": (
        [
            *(step(1, 0, 1000), step(2, 1000, 1000)),
            *(event("user_annotation", LOADER, ts, 600) for ts in (0, 1000)),
        ],
        having(loader_ms=pytest.approx(0.6)),
    ),
    "no wait for a loader": ([step(1, 0, 1000)], having(loader_ms=None)),
    "the host's time ends before the device's work": (
        [step(1, 0, 100), step(2, 100, 60), launched(150, 90, call_ts=120)],
        having(step_ms=pytest.approx(0.12), host_ms=pytest.approx(0.08)),
    ),
    "tensor cores take a share of kernel time": (
        [
            launched(100, 30, call_ts=10, name=BF16),
            launched(200, 10, call_ts=20, name="void at::native::elementwise_kernel<4>(int)"),
        ],
        having(tensor_core_pct=pytest.approx(75)),
    ),
    "launches are counted without copies": (
        [
            step(1, 0, 1000),
            launched(100, 100, call_ts=10, call_dur=5),
            launched(300, 100, call_ts=20, call_dur=250, **COPY),
        ],
        having(
            launches=1,
            launch_ms=pytest.approx(0.005),
            copy_call_ms=pytest.approx(0.25),
            copies=(
                CopyUse(
                    direction="to device",
                    is_pinned=False,
                    count=1,
                    mib=1.0,
                    ms=pytest.approx(0.1),
                    gb_s=pytest.approx(10.48576),
                ),
            ),
        ),
    ),
    "the host is blocked while calls wait": (
        [
            step(1, 0, 500),
            launched(100, 100, call_ts=10),
            call("cudaStreamSynchronize", 20, 180),
            launched(300, 100, call_ts=250),
        ],
        having(blocked_ms=pytest.approx(0.18)),
    ),
    "a wait after the last launch and one of another thread hold nothing up": (
        [
            step(1, 0, 500),
            call("cudaEventSynchronize", 5, 200, at=(100, 107)),  # it pins memory
            launched(100, 100, call_ts=10, at=MAIN),
            call("cudaDeviceSynchronize", 20, 180),
        ],
        having(blocked_ms=0),
    ),
    "communication is exposed where nothing else runs": (
        [
            launched(100, 100, call_ts=10),
            launched(150, 80, call_ts=20, stream=20, name="ncclDevKernel_AllReduce_Sum_f32"),
        ],
        having(
            communication_ms=pytest.approx(0.08),
            exposed_ms=pytest.approx(0.03),
            counts={"launches": 2, "waits": 0, "collectives": 1},
        ),
    ),
    "streams overlap while two are busy": (
        [
            step(1, 0, 300),
            launched(100, 100, call_ts=10),
            launched(150, 100, call_ts=20, stream=20),
        ],
        having(
            overlap_ms=pytest.approx(0.05),
            busy_ms=pytest.approx(0.15),
            streams=(
                having(label="stream 7", busy_ms=pytest.approx(0.1)),
                having(label="stream 20", busy_ms=pytest.approx(0.1)),
            ),
        ),
    ),
    "a kernel belongs to the innermost operator and module that launched most of it": (
        [
            event("python_function", "nn.Module: Encoder_0", 0, 500),
            event("python_function", "nn.Module: Conv2d_1", 5, 200),
            operator("aten::conv2d", 10, 100),
            operator("aten::cudnn_convolution", 20, 50),
            launched(600, 10, call_ts=30),
            launched(650, 10, call_ts=40),
            operator("aten::other", 300, 50),
            launched(700, 10, call_ts=310),
        ],
        having(
            kernels=(
                having(
                    operator="aten::cudnn_convolution",
                    module="Conv2d_1",
                    count=3,
                    ms=pytest.approx(0.03),
                ),
            )
        ),
    ),
    "an operator of another thread has launched nothing": (
        [operator("aten::mm", 0, 100), launched(50, 5, call_ts=20, at=(100, 104))],
        having(kernels=(having(operator=""),)),
    ),
    "an operator's own time is without what it calls": (
        [
            operator("outer", 0, 100),
            operator("inner", 10, 50),
            call("cudaLaunchKernel", 20, 30),
            operator("outer", 200, 10),
        ],
        having(
            operators=(
                having(name="outer", count=2, self_ms=pytest.approx(0.06)),
                having(name="inner", count=1, self_ms=pytest.approx(0.02)),
            )
        ),
    ),
    "calls for device memory are counted and are no waits for the device": (
        [
            step(1, 0, 500),
            call("cudaMalloc", 5, 20),
            call("cuMemCreate", 30, 10),
            call("cuMemMap", 40, 5),
            call("cudaFree", 50, 40),
            call("cudaMallocHost", 95, 3),
            launched(460, 10, call_ts=450),
        ],
        having(allocations=2, allocation_ms=pytest.approx(0.075), blocked_ms=0),
    ),
    "operators that made the host wait": (
        [
            step(1, 0, 500),
            launched(100, 100, call_ts=10, at=MAIN),
            call("cudaStreamSynchronize", 20, 180),
        ],
        having(syncs=(having(what="cudaStreamSynchronize", blocked_ms=0.18),)),
    ),
}


@pytest.mark.parametrize(("events", "expected"), SUMMARIES.values(), ids=SUMMARIES)
def test_a_summary_has(events, expected, tmp_path):
    assert summary_of(tmp_path, *events) == expected


# ── idle ────────────────────────────────────────────────────────────────────────────────


BEFORE = launched(100, 100, call_ts=10)
IDLE = {
    "a gap before a late launch": (300, [BEFORE, launched(300, 100, call_ts=250)], "host", 0.1),
    "a gap to another stream": (
        200,
        [BEFORE, launched(220, 80, call_ts=20, stream=20)],
        "stream",
        0.02,
    ),
    "a gap within a stream that was launched before": (
        200,
        [BEFORE, launched(220, 80, call_ts=20)],
        "other",
        0.02,
    ),
    "a gap behind a collective": (
        200,
        [
            launched(100, 100, call_ts=10, name="ncclDevKernel_AllReduce"),
            launched(220, 80, call_ts=20, stream=20),
        ],
        "communication",
        0.02,
    ),
    "a gap before a collective": (
        200,
        [BEFORE, launched(220, 80, call_ts=20, stream=20, name="ncclKernel_x")],
        "communication",
        0.02,
    ),
    "a gap within a replayed graph": (
        100,
        [
            call("cudaGraphLaunch", 50, 500, correlation=5_000),
            event("kernel", "a", 100, 50, (0, 7), correlation=5_000),
            event("kernel", "b", 170, 30, (0, 7), correlation=5_000),
        ],
        "other",
        0.02,
    ),
}


@pytest.mark.parametrize(("step_us", "events", "cause", "ms"), IDLE.values(), ids=IDLE)
def test_a_gap_has_its_cause(step_us, events, cause, ms, tmp_path):
    found = idle(summary_of(tmp_path, step(1, 100, step_us), *events))
    assert found == {cause: pytest.approx(ms)}


def test_gaps_are_counted_by_class(tmp_path):
    begins = [0, 15, 130, 230]
    events = [launched(10 + ts, 10, call_ts=1) for ts in begins]
    gaps = summary_of(tmp_path, step(1, 10, 240), *events).gaps
    assert gaps[:3] == (
        (0.0, 1.0, pytest.approx(0.005)),
        (10.0, 1.0, pytest.approx(0.09)),
        (100.0, 1.0, pytest.approx(0.105)),
    )


# ── model flops ─────────────────────────────────────────────────────────────────────────


def profiled(*, gflop=100.0, steps_ms=10.0, precision="bf16", untraced_step_ms=None):
    return Profiled(
        at_s=0.0,
        path="t.json",
        first_step=1,
        steps=2,
        steps_ms=steps_ms,
        took_ms=1.0,
        precision=precision,
        untraced_step_ms=untraced_step_ms,
        peak=Peak(matmul_tflops={"bf16": 80.0}, memory_gb_s=3000.0),
        flops=Flops(step_gflop=gflop, covered_pct=99.0),
    )


def test_mfu_is_model_flops_of_the_measured_peak_in_the_step_as_it_is_without_tracing():
    assert mfu_pct(profiled()) == pytest.approx(25)  # 2 · 100 GFLOP in 10 ms of 80 TFLOP/s
    assert mfu_pct(profiled(untraced_step_ms=2.5)) == pytest.approx(50)
    assert mfu_pct(None) is None


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (profiled(), "MFU at least 25 % of the 80.0 TFLOP/s that bf16 reached here"),
        (profiled(precision="tf32"), "MFU –: no peak was measured for tf32"),
        (profiled(precision=""), "MFU –: no peak was measured for a precision that is not known"),
        (profiled(steps_ms=0.0), "MFU –: the step's time is not known"),
        (
            profiled(gflop=1000.0),  # never clamped
            "MFU –: 250 % of the 80.0 TFLOP/s that bf16 reached here cannot be",
        ),
    ],
)
def test_mfu_names_its_peak_or_says_why_there_is_none(note, said):
    assert (mfu_text(note), mfu_pct(note) is None) == (said, "MFU –" in said)


def by_phase(gflop: dict[str, float], ms: dict[str, float], covered_pct=100.0) -> str:
    flops = Flops(step_gflop=100.0, covered_pct=covered_pct, phases_gflop=gflop)
    return mfu_by_phase(replace(profiled(), flops=flops, untraced_phases_ms=ms))


def test_mfu_of_a_phase_is_its_flops_in_its_time():
    gflop, ms = {"your_code": 8.0, "backward": 60.0}, {"backward": 1.5, "your_code": 1.0}
    assert by_phase(gflop, ms) == "MFU by phase: your code 10 %, backward 50 %"
    assert by_phase(gflop, ms, 90.0) == "MFU by phase, at least: your code 10 %, backward 50 %"


def test_a_phase_without_time_or_flops_has_no_mfu():
    assert by_phase({"forward": 8.0, "idle": 8.0}, {"forward": 1.0, "optimizer": 1.0}) == (
        "MFU by phase: forward 10 %"
    )
    assert by_phase({"forward": 8.0}, {}) == ""
    assert by_phase({}, {"forward": 1.0}) == ""
    assert mfu_by_phase(profiled(precision="tf32")) == ""


def test_a_phase_above_the_peak_says_so():
    assert by_phase({"forward": 8.0, "backward": 160.0}, {"forward": 1.0, "backward": 1.0}) == (
        "MFU by phase: forward 10 %, backward – (200 % cannot be)"
    )


def test_a_real_step_adds_up():
    summary = summarise(read(H200))
    assert summary.busy_ms + sum(summary.idle_ms.values()) == pytest.approx(summary.step_ms)
    assert summary.kernels[0].operator == "aten::convolution_backward"
    assert sum(one.count for one in summary.kernels) == 181
    assert 20 < summary.tensor_core_pct < 30
