"""Small traces, event by event, as torch.profiler writes them."""

import itertools
import json
from pathlib import Path

import msgspec

from gpudash.trace.read import read

MAIN, AUTOGRAD = (100, 100), (100, 101)
H200 = Path(__file__).parent / "h200_pipelined.json.gz"
"""One step of encdec on an H200, torch 2.11; `benchmarks/trim_trace.py` made it."""
_numbers = itertools.count(1)


def event(cat, name, ts, dur, at=MAIN, **args):
    pid, tid = at
    found = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return {**found, "args": args}


def operator(name, ts, dur, at=MAIN):
    return event("cpu_op", name, ts, dur, at)


def call(name, ts, dur, at=MAIN, correlation=0):
    return event("cuda_runtime", name, ts, dur, at, correlation=correlation)


def annotation(name, ts, dur):
    return event("user_annotation", name, ts, dur)


def step(number, ts, dur):
    return annotation(f"ProfilerStep#{number}", ts, dur)


def arrow(number, begin, end):
    """An arrow from an operator to its operator in the backward pass."""
    one = {"cat": "fwdbwd", "name": "fwdbwd", "id": number}
    return [
        {**one, "ph": ph, "ts": ts, "pid": pid, "tid": tid}
        for ph, (ts, (pid, tid)) in (("s", begin), ("f", end))
    ]


def launched(ts, dur, *, call_ts, call_dur=1, stream=7, name="k", cat="kernel", at=MAIN, **args):
    """A launch and the launched event."""
    number = next(_numbers)
    how = "cudaMemcpyAsync" if cat == "gpu_memcpy" else "cudaLaunchKernel"
    return [
        call(how, call_ts, call_dur, at, number),
        event(cat, name, ts, dur, (0, stream), correlation=number, **args),
    ]


def document(events, **also):
    """A whole file, with the metadata that torch adds."""
    threads = {(one["pid"], one["tid"]) for one in events if one["ph"] == "X"}
    named = [
        {
            "ph": "M",
            "name": "thread_name",
            "ts": 0,
            "pid": pid,
            "tid": tid,
            "args": {"name": f"stream {tid} " if pid == 0 else f"thread {tid} (python)"},
        }
        for pid, tid in sorted(threads)
    ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
        "baseTimeNanoseconds": 1_790_857_026_000_000_000,
        "traceEvents": [*events, *named],
        **also,
    }


def trace_of(folder, *events, **also):
    path = folder / "trace.json"
    flat = [one for part in events for one in (part if isinstance(part, list) else [part])]
    path.write_text(json.dumps(document(flat, **also)), encoding="utf-8")
    return read(path)


def as_json(record):
    return json.loads(msgspec.json.encode(record))
