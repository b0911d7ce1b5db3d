"""Traces made by hand, for tests of the timeline."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gpudash.protocol.inspections import Profiled
from gpudash.trace.model import KINDS, EventKind, Trace, TraceEvents, TraceLane, TraceStep
from gpudash.trace.summary import (
    CopyUse,
    KernelUse,
    OperatorUse,
    StreamUse,
    Summary,
    SyncUse,
)
from gpudash.tui.keys import PROFILED_STEPS
from gpudash.tui.profiles import ShownProfile
from gpudash.views.timeline import timeline_of

MAIN, TRAIN, ENCODE, COPIES, COLLECTIVES = range(5)
LANES = (
    TraceLane("host", "main"),
    TraceLane("stream", "stream 7"),
    TraceLane("stream", "stream 13"),
    TraceLane("copies", "copies"),
    TraceLane("communication", "nccl"),
)
Made = tuple[float, float, EventKind, str, int] | tuple[float, float, EventKind, str, int, int, int]
"""Begin, duration, kind, name, lane; perhaps the call that launched it, as an index, and bytes."""

STEP: tuple[Made, ...] = (
    (0.0, 3000.0, "operator", "aten::conv2d", MAIN),
    (100.0, 2000.0, "operator", "aten::cudnn_convolution", MAIN),
    (500.0, 100.0, "runtime", "cudaLaunchKernel", MAIN),
    (1000.0, 3000.0, "kernel", "void cudnn::conv<float, 4>(int)", TRAIN, 2, 0),
    (3200.0, 1500.0, "operator", "aten::item", MAIN),
    (3300.0, 1300.0, "sync", "cudaStreamSynchronize", MAIN),
    (3500.0, 2000.0, "kernel", "encode_kernel", ENCODE),
    (4000.0, 2000.0, "kernel", "wgrad[bold]", TRAIN),
    (6000.0, 500.0, "copy", "Memcpy HtoD", TRAIN, -1, 2**22),
    (7000.0, 900.0, "collective", "ncclAllReduce", ENCODE),
)
"""Of 10 ms."""

WAITING: tuple[Made, ...] = (
    (0.0, 7000.0, "annotation", "enumerate(DataLoader)#_Iter.__next__", MAIN),
    (7050.0, 60.0, "operator", "aten::copy_", MAIN),
    (7060.0, 20.0, "runtime", "cudaMemcpyAsync", MAIN),
    (7100.0, 400.0, "copy", "Memcpy HtoD (Pageable -> Device)", TRAIN, 2, 2**22),
    (7500.0, 300.0, "annotation", "nn.Module: Net", MAIN),
    (7510.0, 10.0, "runtime", "cudaLaunchKernel", MAIN),
    (7600.0, 700.0, "kernel", "void cudnn::conv<float, 4>(int)", TRAIN, 5, 0),
    (7900.0, 300.0, "operator", "autograd::engine::evaluate_function: Conv", MAIN),
    (7950.0, 10.0, "runtime", "cudaLaunchKernel", MAIN),
    (8300.0, 200.0, "annotation", "Optimizer.step#AdamW.step", MAIN),
    (8300.0, 1000.0, "kernel", "wgrad", TRAIN, 8, 0),
    (8350.0, 10.0, "runtime", "cudaLaunchKernel", MAIN),
    (8600.0, 1200.0, "sync", "cudaStreamSynchronize", MAIN),
    (9300.0, 500.0, "kernel", "adamw", TRAIN, 11, 0),
)
"""The same, of which the device waits 7 ms for data."""


def trace_of(
    made: Sequence[Made], lanes: Sequence[TraceLane] = LANES, steps: int = 0, device: str = ""
) -> Trace:
    """A trace with these events."""
    full = [(*one, -1, 0)[:7] if len(one) == 5 else one for one in made]
    names = tuple(dict.fromkeys(one[3] for one in full))

    def column(index: int, dtype: type) -> np.ndarray:
        return np.array([one[index] for one in full], dtype=dtype)

    return Trace(
        name="trace.json",
        names=names,
        lanes=tuple(lanes),
        events=TraceEvents(
            begin_us=column(0, np.float64),
            duration_us=column(1, np.float64),
            kind=np.array([KINDS.index(one[2]) for one in full], dtype=np.uint8),
            name=np.array([names.index(one[3]) for one in full], dtype=np.int32),
            lane=column(4, np.int16),
            launch=column(5, np.int32),
            bytes=column(6, np.int64),
        ),
        steps=tuple(TraceStep(10_340 + n, 10_000.0 * n, 10_000.0 * (n + 1)) for n in range(steps)),
        device=device,
    )


def training_trace(steps: int = 3, of: Sequence[Made] = STEP) -> Trace:
    """Some steps that are all alike."""
    made = []
    for step in range(steps):
        for begin, duration, kind, name, lane, *more in of:
            launch, copied = more or (-1, 0)
            launch += len(of) * step * (launch >= 0)
            made.append((begin + 10_000 * step, duration, kind, name, lane, launch, copied))
    return trace_of(made, steps=steps, device="NVIDIA H200")


SUMMARY = Summary(
    steps=3,
    step_ms=10.0,
    on_device=True,
    phases_ms={"copy": 0.5, "forward": 3.0, "backward": 2.0, "communication": 0.9},
    busy_ms=6.4,
    idle_ms={"host": 2.1, "stream": 0.5, "communication": 0.9, "other": 0.1},
    streams=(StreamUse("stream 7", 5.5, 3.0), StreamUse("stream 13", 2.9, 2.0)),
    overlap_ms=2.0,
    kernels=(
        KernelUse("void cudnn::conv<float, 4>(int)", "aten::conv2d", "Conv2d_0", 1.0, 3.0, True),
        KernelUse("wgrad[bold]", "", "", 1.0, 2.0, False),
    ),
    operators=(OperatorUse("aten::item", 1.0, 0.2),),
    launches=212.0,
    launch_ms=1.1,
    copies=(CopyUse("to device", False, 1.0, 4.0, 0.5, 8.39),),
    gaps=((0.0, 12.0, 0.1), (10.0, 0.0, 0.0), (100.0, 3.0, 0.9), (1e3, 1.0, 2.6), (1e4, 0.0, 0.0)),
    tensor_core_pct=60.0,
    syncs=(SyncUse("train.py", 41, "step", "aten::item", 1.0, 1.3),),
    blocked_ms=1.3,
    communication_ms=0.9,
    exposed_ms=0.9,
    mfu_pct=31.0,
)


def shown(
    trace: Trace, before: Summary | None = None, summary: Summary | None = SUMMARY
) -> ShownProfile:
    """A trace as the screen shows it."""
    return ShownProfile(Path("/traces/trace.json"), timeline_of(trace), summary, before)


def profiled(
    number: int = 1, path: str = "/traces/trace.json", steps: int = PROFILED_STEPS
) -> Profiled:
    """What a training answers."""
    return Profiled(
        at_s=float(number), path=path, first_step=10_340, steps=steps, steps_ms=30.0, took_ms=40.0
    )
