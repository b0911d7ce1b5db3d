"""Compare the steps/s that gpudash states with a wall_clock outside of it.

    python benchmarks/bench_wall_clock.py --seconds 10

The real worker trains while pipelining is switched every second. The wall_clock is this
process's wall clock at the arrival of reports and the worker's running total of steps; against
it stand the steps' own durations, as every figure of gpudash is made of them.
"""

import argparse
import json
import time

from gpudash.protocol.commands import Change, Plan
from gpudash.protocol.training import Progress, Refused, State, Step
from gpudash.run.workload_process import start

WARMUP_STEPS = 20


def main() -> None:
    """Train for a while and print both rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batch-size", default="8")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    settings = {"data": "cached", "batch_size": arguments.batch_size}
    link = start(Plan(workload="encdec", settings=settings, device=arguments.device))
    arrivals: list[tuple[float, int]] = []  # when a report came, and the steps finished by then
    steps: list[Step] = []
    switched_s, values = time.monotonic(), ["on", "off"]
    while not arrivals or arrivals[-1][0] - arrivals[0][0] < arguments.seconds:
        time.sleep(0.001)
        for envelope in link.read():
            match event := envelope.body:
                case Progress(total_steps=total) if event.steps and total > WARMUP_STEPS:
                    arrivals.append((time.monotonic(), total))
                    steps += event.steps
                case State(phase="failed") | Refused():
                    raise SystemExit(str(event))
        if arrivals and time.monotonic() - switched_s > 1:
            switched_s = time.monotonic()
            link.send(Change(id=1, settings={"pipelined": values[0]}))
            values.reverse()
    link.close()
    (began_s, first), (ended_s, last) = arrivals[0], arrivals[-1]
    outside = (last - first) / (ended_s - began_s)
    between = [step for step in steps if first < step.step <= last]
    stated = len(between) / (sum(step.step_ms for step in between) / 1e3)
    off_pct = 100 * (stated / outside - 1)
    print(f"wall_clock {outside:.2f} steps/s, stated {stated:.2f}: {off_pct:+.2f} %")
    print(json.dumps({"outside": outside, "stated": stated, "steps": len(between)}))


if __name__ == "__main__":
    main()
