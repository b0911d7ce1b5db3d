"""Whether the time of fully_shard's collectives that gpudash measures is that of their kernels.

    torchrun --nproc-per-node 2 benchmarks/bench_collectives.py

An MLP in fully_shard trains, once with small batches, whose computation hides little, and once with
large ones. torch.profiler traces its steps. Of each step the time in which at least one of NCCL's
kernels runs is compared with the time by gpudash's events, and the part in which no kernel runs on
the stream that computes with the part that gpudash calls exposed. That part by the trace is longer:
the host may be late, and the copies of shards beside a collective are on other streams.

gpudash's events enclose each kernel, so its time is the longer one, by the launches. The exit code
is 1 if it is shorter, or longer by more than 10 % and 20 µs a collective, in half of the steps.

With --device cpu, which tries this script out, gloo's spans are in the kernels' place. They lack a
part of each call, so the times do not agree.
"""

import argparse
import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench_hooks import WARMUP_STEPS, Script, Watcher, everywhere, is_first, the_device
from torch import distributed
from torch.profiler import ProfilerActivity, profile, record_function

from gpudash.instrument.collectives import Span
from gpudash.script.patches import patch

STEP = "traced step"
SHORTER, LONGER = 0.98, 1.10
LAUNCH_MS = 0.02
"""A collective's events are farther apart than its kernel lasts, by less than this."""


class Times(NamedTuple):
    """Times of a step, in ms; by the trace the last is None where it has no streams."""

    step: float
    collectives: float
    exposed: float | None


def covered(spans: Iterable[Span]) -> float:
    """Return the time that at least one span covers: counted at its edges, not as gpudash does."""
    edges = sorted(
        [(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans],
        key=lambda edge: edge[0],
    )
    total, depth, since = 0.0, 0, 0.0
    for at, change in edges:
        total += (at - since) if depth else 0.0
        depth, since = depth + change, at
    return total


def by_the_trace(traced: profile) -> tuple[list[Times], float]:
    """Return the times of each traced step, and the collectives in a step."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        traced.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    spans = [one for one in events if one.get("ph") == "X" and "dur" in one]
    steps = sorted(
        _span(one) for one in spans if one["name"] == STEP and one.get("cat") == "user_annotation"
    )
    collectives = [_span(one) for one in spans if _is_collective(one)]
    streams: dict[Any, list[Span]] = defaultdict(list)
    for one in spans:
        if one.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"} and not _is_collective(one):
            streams[one["args"].get("stream")].append(_span(one))
    computing = max(streams.values(), key=covered, default=None)
    return [_times(step, collectives, computing) for step in steps], len(collectives) / len(steps)


def _is_collective(event: dict[str, Any]) -> bool:
    is_kernel = event.get("cat") == "kernel" and "nccl" in event["name"].lower()
    return is_kernel or event["name"].startswith("gloo:")


def _span(event: dict[str, Any]) -> Span:
    return event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3


def _times(step: Span, collectives: list[Span], computing: list[Span] | None) -> Times:
    def within(spans: Iterable[Span]) -> list[Span]:
        return [span for span in spans if step[0] <= span[0] < step[1]]

    ours = within(collectives)
    if computing is None:
        return Times(step[1] - step[0], covered(ours), None)
    others = within(computing)
    return Times(step[1] - step[0], covered(ours), covered([*ours, *others]) - covered(others))


def measure(script: Script, watcher: Watcher, steps: int) -> bool:
    """Trace these steps; print what differs. Return whether both agree."""
    tracker = watcher.tracker
    script.train(WARMUP_STEPS)
    clock = tracker.meter.clock
    if clock is None:
        raise SystemExit("gpudash has found no training")
    clock.sample.every_s = clock._collectives_every_s = 0.0  # noqa: SLF001  # each step, here alone
    tracker.meter.closely_until = math.inf
    script.train(3)
    measured = []
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as traced:
        for _ in range(steps):
            with record_function(STEP):
                script.train(1)
                script.synchronize()
            clock.finished()
            measured.append(tracker.collectives())
    traced_steps, count = by_the_trace(traced)
    if not count:
        raise SystemExit("the trace has no collective")
    agree = []
    for own, trace in zip(measured, traced_steps, strict=True):
        if own.ms is None or own.exposed_ms is None:
            raise SystemExit("gpudash has not timed the collectives of a step")
        most_ms = LONGER * trace.collectives + LAUNCH_MS * count
        agree.append(SHORTER * trace.collectives <= own.ms <= most_ms)
    if is_first():
        own_ms = median(one.ms or 0.0 for one in measured)
        own_exposed_ms = median(one.exposed_ms or 0.0 for one in measured)
        bus_mib = measured[-1].bus_mib or 0.0
        step_ms = median(one.step for one in traced_steps)
        ms = median(one.collectives for one in traced_steps)
        exposed = [one.exposed for one in traced_steps if one.exposed is not None]
        exposed_by = f"{median(exposed):.3f} ms by the trace" if exposed else "not in the trace"
        print(
            f"{count:.0f} collectives and {bus_mib:.0f} MiB on the bus a step of {step_ms:.2f} ms"
        )
        print(f"  collectives: {own_ms:.3f} ms by gpudash, {ms:.3f} ms by the trace's kernels")
        print(f"  exposed: {own_exposed_ms:.3f} ms by gpudash, {exposed_by}")
        print(f"  bus: {bus_mib * 2**20 / own_ms / 1e6:.1f} GB/s by gpudash's time")
        print(f"  they agree in {sum(agree)} of {steps} steps")
    return everywhere(holds=sum(agree) * 2 > steps)


def main() -> None:
    """Print five lines for each batch size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch-sizes", default="64,2048")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    arguments = parser.parse_args()
    device = the_device(arguments.device)
    watcher = Watcher()
    patch(watcher.tracker)
    agree = []
    for batch_size in map(int, arguments.batch_sizes.split(",")):
        model = argparse.Namespace(
            width=arguments.width, batch_size=batch_size, sharded=True, lean=True
        )
        script = Script(arguments.layers, model, device)
        agree.append(measure(script, watcher, arguments.steps))
    distributed.destroy_process_group()
    if not all(agree):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
