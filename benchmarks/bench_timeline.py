"""What painting a profile's timeline costs: a trace of 4 million events to one of a hundredth.

Both fill a screen of 200×50 and alternate. Each is painted as a whole, as half of it in the middle,
and as a thousandth: what a hand sees as it zooms in. The target is 50 ms a repaint.
"""

import argparse
import json
import statistics
import time
from itertools import cycle

import numpy as np
from ratios import show

from gpudash.present.trace_view import TraceView, view_of
from gpudash.trace.model import KINDS, Trace, TraceEvents, TraceLane
from gpudash.tui.widgets.timeline import timeline_rows
from gpudash.views.timeline import timeline_of

SIZE = (200, 48)
"""Of the terminal, without header and footer."""
TARGET_MS = 50.0
STREAMS = 8
DEPTHS = 8
"""Of calls that enclose each other, on a host thread."""
PERIOD_US = 20.0
NAMES = 200


def trace_of(count: int) -> Trace:
    """Return a trace with so many events: half on a host thread, half on the streams."""
    rng = np.random.default_rng(14)
    calls = count // 2 // DEPTHS
    depth = np.repeat(np.arange(DEPTHS), calls)
    host_us = np.tile(np.arange(calls) * PERIOD_US, DEPTHS) + depth
    device = count - calls * DEPTHS
    device_us = np.sort(rng.uniform(0.0, calls * PERIOD_US, device))
    begin_us = np.concatenate([host_us, device_us])
    lengths_us = rng.exponential(STREAMS * calls * PERIOD_US / device / 2, device)
    order = np.argsort(begin_us, kind="stable")
    kinds = [KINDS.index("operator")] * len(host_us) + [KINDS.index("kernel")] * device
    lanes = np.concatenate([np.zeros(len(host_us)), rng.integers(1, STREAMS + 1, device)])
    return Trace(
        name="made",
        names=tuple(f"void at::native::kernel_{n}<float, 4>(int)" for n in range(NAMES)),
        lanes=(
            TraceLane("host", "main"),
            *(TraceLane("stream", f"stream {n}") for n in range(STREAMS)),
        ),
        events=TraceEvents(
            begin_us=begin_us[order],
            duration_us=np.concatenate([PERIOD_US - 1 - 2 * depth, lengths_us])[order],
            kind=np.array(kinds, dtype=np.uint8)[order],
            name=rng.integers(0, NAMES, count).astype(np.int32),
            lane=lanes[order].astype(np.int16),
            launch=np.full(count, -1, dtype=np.int32),
            bytes=np.zeros(count, dtype=np.int64),
        ),
    )


def looks(view: TraceView) -> list[TraceView]:
    """Return what is looked at: all, half of it, a thousandth."""
    whole_us = view.span.whole_us
    spans = [view.span.of((0.5 - part) * whole_us, 0.5 * whole_us) for part in (1.0, 0.5, 0.001)]
    return [TraceView(timeline=view.timeline, span=span, at_us=span.begin_us) for span in spans]


def paint_ms(view: TraceView) -> float:
    """Return the CPU time of painting: the machine may have other work."""
    begin = time.thread_time()
    rows = sum(1 for _ in timeline_rows(view, *SIZE))
    took_ms = 1e3 * (time.thread_time() - begin)
    if rows < STREAMS + DEPTHS:
        raise SystemExit(f"only {rows} rows were painted")
    return took_ms


def main() -> None:
    """Measure; print one line for people and one of JSON for each claim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--pairs", type=int, default=60)
    options = parser.parse_args()
    begin = time.thread_time()
    large = timeline_of(trace_of(options.events))
    made_s = time.thread_time() - begin
    small = timeline_of(trace_of(options.events // 100))
    views = zip(cycle(looks(view_of(large))), looks(view_of(small)) * options.pairs, strict=False)
    larges, smalls = [], []
    for (one, other), _ in zip(views, range(options.pairs), strict=False):
        larges.append(paint_ms(one))
        smalls.append(paint_ms(other))
    show("a repaint, to one of a hundredth of the events", larges, smalls)
    result = {
        "benchmark": "timeline",
        "events": options.events,
        "repaint_ms": round(statistics.median(larges), 1),
        "repaint_ms_max": round(max(larges), 1),
        "made_s": round(made_s, 1),
    }
    print(
        f"{options.events:,} events: a repaint takes {result['repaint_ms']} ms, "
        f"{result['repaint_ms_max']} at most (target {TARGET_MS:g}); "
        f"made and arranged in {result['made_s']} s"
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
