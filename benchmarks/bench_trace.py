"""What reading a trace costs: seconds and memory until there is a picture, and a summary.

The traces are made up, in torch.profiler's own layout: a training thread and a backward thread,
two streams, copies. Each is read in a process of its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = {33: (0.5, 500), 1000: (5.0, 500)}
"""By the trace's MB: seconds until the first picture, MB of memory."""
HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150000000000, "numSms": 132
    }
  ],
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""
OPERATOR = """  {
    "ph": "X", "cat": "cpu_op", "name": "aten::op%d", "pid": 100, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d,"Record function id": 0, "Sequence number": 17, "Ev Idx": %d
    }
  }"""
ANNOTATION = """  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#%d", "pid": 100, "tid": 100,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": 1,"Record function id": 0, "Ev Idx": 0
    }
  }"""
LAUNCH = """  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d, "cbid": 211, "correlation": %d
    }
  }"""
FLOW = """  {
    "ph": "%s", "id": %d, "pid": %d, "tid": %d, "ts": %.3f,
    "cat": "ac2g", "name": "ac2g"
  }"""
KERNEL = """  {
    "ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, \
at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, \
std::array<char*, %dul>)", "pid": 0, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d,
      "queued": 0, "device": 0, "context": 1,
      "stream": %d, "correlation": %d,
      "registers per thread": 16,
      "shared memory": 0,
      "blocks per SM": 0.007576,
      "warps per SM": 0.030303,
      "grid": [1, 1, 1],
      "block": [128, 1, 1],
      "est. achieved occupancy %%": 0
    }
  }"""
TAIL = """
  ],
  "traceName": "made_up.json"
}
"""
LAUNCHES_A_STEP = 500
FIRST_US = 4517461551897.802


def events() -> Iterator[str]:
    """Yield events for ever: steps of operators that launch kernels one after another."""
    number = 0
    free_us = {7: FIRST_US, 20: FIRST_US}
    now_us = FIRST_US
    while True:
        step, begin_us = number // LAUNCHES_A_STEP, now_us
        for _ in range(LAUNCHES_A_STEP):
            number += 1
            thread, stream = (100, 7) if number % 4 else (101, 20)
            yield OPERATOR % (number % 90, thread, now_us, 9.5, number, number)
            yield OPERATOR % (number % 90 + 100, thread, now_us + 1, 8.0, number, number)
            yield LAUNCH % (thread, now_us + 2, 5.25, number, number)
            yield FLOW % ("s", number, 100, thread, now_us + 2)
            kernel_us = max(free_us[stream], now_us + 9)
            length_us = 3.0 + number % 11
            free_us[stream] = kernel_us + length_us + 0.7
            named = (number % 60, stream, kernel_us, length_us, number, stream, number)
            yield KERNEL % named
            yield FLOW % ("f", number, 0, stream, kernel_us)
            now_us += 10
        yield ANNOTATION % (step, begin_us, now_us - begin_us)


def make(path: Path, megabytes: int) -> None:
    """Write a trace of this size."""
    with path.open("w", encoding="utf-8") as file:
        written = file.write(HEAD)
        between = ""
        for event in events():
            written += file.write(between + event)
            between = ",\n"
            if written > megabytes * 1_000_000:
                break
        file.write(TAIL)


def measure(path: Path) -> dict[str, float]:
    """Read a trace, lay it out and sum it up here; return what that took."""
    from gpudash.trace.accounting import summarise
    from gpudash.trace.read import read
    from gpudash.views.timeline import timeline_of

    begin, cpu = time.perf_counter(), time.process_time()
    trace = read(path)
    read_s, read_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    timeline_of(trace)
    picture_s, picture_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    begin = time.perf_counter()
    summary = summarise(trace)
    return {
        "events": len(trace.events),
        "dropped": summary.dropped,
        "read_s": round(read_s, 3),
        "read_cpu_s": round(read_cpu_s, 3),
        "picture_s": round(picture_s, 3),
        "picture_cpu_s": round(picture_cpu_s, 3),
        "summary_s": round(time.perf_counter() - begin, 3),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
    }


def main() -> None:
    """Measure; print one line for people and one of JSON for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[33, 1000], metavar="MB")
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)  # in the child
    options = parser.parse_args()
    if options.of:
        print(json.dumps(measure(options.of)))
        return
    for megabytes in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            make(path, megabytes)
            command = [sys.executable, __file__, "--of", str(path)]
            ran = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        found = json.loads(ran.stdout)
        within_s, within_mb = TARGETS.get(megabytes, (5.0 * megabytes / 1000, 500))
        print(
            f"{megabytes} MB, {found['events']:,} events: picture after "
            f"{found['picture_s']} s (target {within_s:g}), summed up in {found['summary_s']} s, "
            f"memory {found['peak_mb']} MB (target {within_mb})"
        )
        print(json.dumps({"benchmark": "trace", "megabytes": megabytes, **found}), flush=True)


if __name__ == "__main__":
    main()
