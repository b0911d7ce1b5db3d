"""What the owners of the host's time cost a step, summed from timed calls.

    python benchmarks/bench_owners.py

Too little for an A/B to see. So the calls are counted while the training of bench_hooks.py trains
under all that a dashboard asks for, and each is timed alone, in a loop.
"""

import argparse
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from statistics import median
from typing import Any

import torch
from bench_hooks import Hooks, Script, Watcher, layers_that_last, turn

from gpudash.instrument.host_time import Counters, HostTime, counters
from gpudash.script.meter import Meter

STEPS, REPEATS = 1000, 5
COUNTED = {
    HostTime: ("iterated", "split", "elsewhere", "fetched", "leave_out", "values"),
    Meter: ("ask", "_leave"),
}


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count calls by name."""
    calls: Counter[str] = Counter()
    before = [(owner, name, getattr(owner, name)) for owner in COUNTED for name in COUNTED[owner]]
    for owner, name, call in before:
        setattr(owner, name, counting(calls, name, call))
    yield calls
    for owner, name, call in before:
        setattr(owner, name, call)


def counting(calls: Counter[str], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that is counted."""

    def called(*words: Any, **named: Any) -> Any:
        calls[name] += 1
        return call(*words, **named)

    return called


def took_us(call: Callable[[], object], times: int = 10_000) -> float:
    """Return what a call takes."""
    took = []
    for _ in range(REPEATS):
        began_s = time.perf_counter()
        for _ in range(times):
            call()
        took.append((time.perf_counter() - began_s) / times * 1e6)
    return median(took)


def collect() -> None:
    """Tell as a collection does."""
    for moment in ("start", "stop"):
        for told in gc.callbacks:
            told(moment, {})


def share(host: HostTime) -> object:
    """Have all that shares are made of."""
    host.iterated(0.5, 0.1, 100, is_seen=True)
    host.fetched(1e-4, 1e-5)
    return host.values()


def calls_us() -> dict[str, float]:
    """Time each call that is counted."""
    seconds = count()
    host = HostTime(lambda: Counters(at_s=float(next(seconds)), cpu_s=0.0))
    return {
        "iterated": took_us(lambda: host.iterated(0.003, 0.0001, 1, is_seen=True)),
        "elsewhere": took_us(lambda: host.elsewhere(1e-4)),
        "fetched": took_us(lambda: host.fetched(1e-4, 1e-5)),
        "leave_out": took_us(lambda: host.leave_out(1e-5)),
        "values": took_us(lambda: share(host), 1000) + 2 * took_us(lambda: counters({}), 1000),
        "ask": 2 * took_us(time.thread_time),  # before a batch and after it
        "_leave": took_us(time.monotonic),
        "collections": took_us(collect),
    }


def main() -> None:
    """Print the sum, and what it is made of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target-ms", type=float, default=3.0)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(namespace=argparse.Namespace(lean=False, sharded=False))
    options.batch_size = 64
    device = torch.device(options.device)
    depth = layers_that_last(options.target_ms * 1e3, options, device)
    watcher = Watcher()
    Hooks(watcher)
    script = Script(depth, options, device)
    turn(script, watcher, is_on=True)
    with counted() as calls:
        collected = sum(one["collections"] for one in gc.get_stats())
        step_us = script.cost(STEPS).wall_us
        calls["collections"] = sum(one["collections"] for one in gc.get_stats()) - collected
    each_us = calls_us()
    total_us = sum(each_us[name] * calls[name] / STEPS for name in each_us)
    for name, one_us in each_us.items():
        print(f"{name}: {calls[name] / STEPS:.3f} a step, {one_us:.2f} µs each")
    print(f"{total_us:.3f} µs of {step_us / 1e3:.2f} ms a step, {100 * total_us / step_us:.4f} %")


if __name__ == "__main__":
    main()
