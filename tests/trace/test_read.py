import gzip
import json
import os
from contextlib import suppress

import pytest

from gpudash.errors import UsageError
from gpudash.protocol.inspections import Profiled
from gpudash.trace import read as reading
from gpudash.trace.model import KINDS
from gpudash.trace.read import read
from tests.trace.made import (
    H200,
    as_json,
    call,
    document,
    event,
    launched,
    operator,
    step,
    trace_of,
)
from tests.warm import python

EVENTS = [
    step(3, 10.0, 90.0),
    operator("aten::mm", 20.0, 30.0),
    *launched(60.0, 20.5, call_ts=25.0, name="gemm"),
    *launched(90.0, 5.0, call_ts=40.0, cat="gpu_memcpy", name="Memcpy HtoD", bytes=4096),
    operator('a "}, {" in a name', 55.0, 1.0),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.json"


def seen(trace):
    """A trace's contents, in a form that can be compared."""
    events = trace.events
    return [
        (
            begin,
            length,
            KINDS[kind],
            trace.names[name],
            trace.lanes[lane].label,
            launch,
            size,
        )
        for begin, length, kind, name, lane, launch, size in zip(
            *(
                column.tolist()
                for column in (
                    events.begin_us,
                    events.duration_us,
                    events.kind,
                    events.name,
                    events.lane,
                    events.launch,
                    events.bytes,
                )
            ),
            strict=True,
        )
    ]


EXPECTED = [
    (0.0, 90.0, "annotation", "ProfilerStep#3", "thread 100 (python)", -1, 0),
    (10.0, 30.0, "operator", "aten::mm", "thread 100 (python)", -1, 0),
    (15.0, 1.0, "runtime", "cudaLaunchKernel", "thread 100 (python)", -1, 0),
    (30.0, 1.0, "runtime", "cudaMemcpyAsync", "thread 100 (python)", -1, 0),
    (45.0, 1.0, "operator", 'a "}, {" in a name', "thread 100 (python)", -1, 0),
    (50.0, 20.5, "kernel", "gemm", "stream 7", 2, 0),
    (80.0, 5.0, "copy", "Memcpy HtoD", "stream 7", 3, 4096),
]
LAYOUTS = {
    "one line": json.dumps,
    "compact": lambda data: json.dumps(data, separators=(",", ":")),
    "indented": lambda data: json.dumps(data, indent=4),
    "keys in another order": lambda data: json.dumps(data, sort_keys=True),
}


@pytest.mark.parametrize("piece_bytes", [64, 700, 1 << 20])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_and_any_size_of_pieces_give_the_same_events(
    layout, piece_bytes, monkeypatch, path
):
    monkeypatch.setattr(reading, "PIECE_BYTES", piece_bytes)
    path.write_text(LAYOUTS[layout](document(EVENTS)), encoding="utf-8")
    trace = read(path)
    assert seen(trace) == EXPECTED
    assert not trace.is_cut


def test_a_packed_trace_is_read_whatever_its_name_is(path):
    path.write_bytes(gzip.compress(json.dumps(document(EVENTS)).encode()))
    assert seen(read(path)) == EXPECTED


def test_nested_events_in_arguments_are_no_events(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PIECE_BYTES", 64)
    nested = event("cpu_op", "a", 1.0, 1.0, inputs=[{"name": "x"}, {"name": "y"}])
    assert len(trace_of(tmp_path, nested, *EVENTS).events) == 1 + len(EXPECTED)


def test_steps_come_from_annotations_and_the_last_ends_with_the_device(tmp_path):
    after = launched(250.0, 50.0, call_ts=150.0)
    trace = trace_of(tmp_path, *EVENTS, step(4, 100.0, 80.0), after)
    assert [(one.number, one.begin_us, one.end_us) for one in trace.steps] == [
        (3, 0.0, 90.0),
        (4, 90.0, 290.0),
    ]


def test_of_the_host_alone_and_without_annotations_there_are_no_steps_and_no_device(tmp_path):
    trace = trace_of(tmp_path, operator("a", 0, 1))
    assert (trace.steps, trace.device, [one.kind for one in trace.lanes]) == ((), "", ["host"])


def test_its_first_event_is_dated(tmp_path):
    trace = trace_of(tmp_path, operator("a", 5.25, 1), baseTimeNanoseconds=1_000)
    assert trace.began_ns == 1_000 + 5_250
    assert trace_of(tmp_path, operator("a", 5, 1), baseTimeNanoseconds=None).began_ns is None


@pytest.mark.parametrize("ts", [1e306, -1e306])
def test_a_moment_beyond_all_time_is_refused_in_a_line(tmp_path, ts):
    with pytest.raises(UsageError, match="is no trace"):
        trace_of(tmp_path, operator("a", ts, 1), operator("b", 5, 1))


def test_gpudashs_notes_are_read_back(tmp_path):
    noted = Profiled(at_s=1.0, path="t.json", first_step=7, steps=3, steps_ms=12.0, took_ms=30.0)
    assert trace_of(tmp_path, *EVENTS, gpudash=as_json(noted)).profiled == noted
    assert trace_of(tmp_path, *EVENTS, gpudash={"of": "another version"}).profiled is None


def test_gpudashs_notes_may_be_invalid_text(path):
    whole = json.dumps(document([EVENTS[0]])).encode()
    path.write_bytes(b'{"gpudash": {"type": "Profiled", "path": "\xff"}, ' + whole[1:])
    assert read(path).profiled is None


def test_the_main_thread_is_the_first_lane_and_streams_follow_by_number(tmp_path):
    trace = trace_of(
        tmp_path,
        operator("backward", 0, 1, at=(100, 104)),
        operator("forward", 5, 1),
        launched(20, 1, call_ts=6, stream=20),
        launched(30, 1, call_ts=8, stream=7),
        launched(40, 1, call_ts=10, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"),
        launched(50, 1, call_ts=12, cat="gpu_memcpy", name="Memcpy HtoD (Pinned -> Device)"),
    )
    assert [(one.kind, one.label, one.id) for one in trace.lanes] == [
        ("host", "thread 100 (python)", 100),
        ("host", "thread 104 (python)", 104),
        ("stream", "stream 7", 7),
        ("stream", "stream 20", 20),
        ("copies", "copies", 0),
        ("communication", "communication", 0),
    ]
    assert trace.events.are("collective").sum() == 1


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaStreamSynchronize", True),
        ("cudaDeviceSynchronize", True),
        ("cudaEventSynchronize", True),
        ("cudaMemcpy", True),
        ("cudaFree", True),
        ("cuCtxSynchronize", True),
        ("cudaMemcpyAsync", False),
        ("cudaFreeAsync", False),
        ("cudaStreamWaitEvent", False),
        ("cudaLaunchKernel", False),
    ],
)
def test_calls_that_wait_are_distinguished_from_others(name, waits, tmp_path):
    assert trace_of(tmp_path, call(name, 0, 1)).events.are("sync").tolist() == [waits]


def test_control_characters_of_a_name_do_not_reach_the_terminal(tmp_path):
    trace = trace_of(tmp_path, operator("\x1b[31mred", 0, 1), launched(5, 1, call_ts=1, stream=3))
    assert "␛[31mred" in trace.names


def test_a_real_trace_is_read_completely():
    trace = read(H200)
    assert (trace.device, len(trace.steps), trace.dropped) == ("NVIDIA H200", 1, 0)
    kernels = trace.events.are("kernel")
    assert kernels.sum() == 181
    assert (trace.events.launch[kernels] >= 0).all()
    assert [lane.label for lane in trace.lanes] == [
        "thread 438 (python3)",
        "stream 14",
        "stream 17",
    ]


PROFILED = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile, schedule
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
    on_trace_ready=lambda profiler: profiler.export_chrome_trace(sys.argv[1]),
) as profiler:
    for _ in range(3):
        torch.ones(4, 4) @ torch.ones(4, 4)
        profiler.step()
"""


def test_a_trace_of_the_installed_torch_is_read(path):
    python("-c", PROFILED, str(path))
    trace = read(path)
    assert len(trace.steps) == 2
    assert "aten::mm" in trace.names


# ── errors ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_cut_anywhere_is_read_until_there_or_refused_in_one_line(packed, monkeypatch, path):
    monkeypatch.setattr(reading, "PIECE_BYTES", 256)
    text = json.dumps(document(EVENTS)).encode()
    whole = gzip.compress(text) if packed else text
    found = []
    for size in range(0, len(whole), 3):
        path.write_bytes(whole[:size])
        with suppress(UsageError):  # before the first event
            found.append(read(path))
    counts = [len(trace.events) for trace in found]
    assert counts == sorted(counts)
    assert counts[-1] == len(EXPECTED)
    assert all(trace.is_cut for trace in found if len(trace.events) < len(EXPECTED))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"step,loss\n1,2", "cannot be read as JSON: JSON is malformed"),
        (b"\x00\xff" * 100, "cannot be read as JSON"),
        (b'{"traceEvents": [', "cannot be read as JSON: input data was truncated"),
        (b"[1, 2]", "expected `object`, got `array`"),
        (b'{"epochs": 3}', "it has no traceEvents"),
        (  # another tool's
            b'{"traceEvents": [], "viztracer_metadata": {}}',
            "valid: what its export_chrome_trace wrote",
        ),
        (b'{"traceEvents": []}', "none of its events is an operator, a CUDA call or a kernel"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "blink", "name": "paint", "ts": 1, "dur": 2}]}',
            "none of its events is an operator, a CUDA call or a kernel",
        ),
        (b'{"traceEvents": [{"ph": "X", "ts": "now"}]}', "expected `float`, got `str`"),
        (b'{"traceEvents": [{"args": {"correlation": 1e30}}]}', "expected `int`, got `float`"),
        (b'{"a":' + b"[" * 99_999 + b"]" * 99_999 + b"}", "maximum recursion depth exceeded"),
        (b"\x1f\x8bno gzip at all", "cannot read"),
    ],
)
def test_other_files_are_refused_in_one_line(data, why, path):
    path.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        read(path)
    assert why in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot read .*: is a directory"):
        read(tmp_path)
    with pytest.raises(UsageError, match="cannot read .*: no such file or directory"):
        read(tmp_path / "missing.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(path):
    path.touch(mode=0o000)
    with pytest.raises(UsageError, match="cannot read .*: permission denied"):
        read(path)


def test_a_large_file_that_can_only_be_read_at_once_is_refused(monkeypatch, path):
    monkeypatch.setattr(reading, "PIECE_BYTES", 64)
    monkeypatch.setattr(reading, "LARGEST_BYTES", 200)
    path.write_text(json.dumps({"traceEvents": [], "notes": "x" * 500}), encoding="utf-8")
    with pytest.raises(UsageError, match="laid out as torch writes them"):
        read(path)
