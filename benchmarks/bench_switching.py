"""How soon a lever takes effect in a worker that trains, and what the change costs.

    python benchmarks/bench_switching.py

Against the real worker over its pipes, in milliseconds: from sending a command to the new state
(`answer_ms`) and to the end of the first step under the new setting (`prepare_ms`), what the
change took the host (`took_ms`), and from the last step before to the first after (`gap_ms`),
beside the step itself.
"""

import json
import random
import statistics
import time

from gpudash.protocol.commands import Change, Plan
from gpudash.protocol.training import Progress, Refused, State, Step
from gpudash.run.workload_process import start

TIMEOUT_S = 120
LOOK_S = 0.025
"""How often the worker looks for commands where it never waits."""
PLANS = {
    "from the loader": {"batch_size": "8"},
    "resident, batch 8": {"batch_size": "8", "data": "resident"},
    "resident, batch 64": {"batch_size": "64", "data": "resident"},
    "resident, batch 128": {"batch_size": "128", "data": "resident"},
}
"""What each worker starts with; the batch size only counts for the pipelining switch."""


class Worker:
    """A worker, and what it has said."""

    def __init__(self, plan: Plan) -> None:
        self.link = start(plan)
        self.steps: list[Step] = []
        self.changes: list[State] = []

    def read(self) -> None:
        """Take what has arrived."""
        time.sleep(0.001)
        for envelope in self.link.read():
            match event := envelope.body:
                case Progress():
                    self.steps += event.steps
                case State(failure=None, segment=segment):
                    if segment > len(self.changes):
                        self.changes.append(event)
                case State() | Refused():
                    raise SystemExit(str(event))

    def train(self, steps: int) -> None:
        """Wait until so many further steps are finished."""
        goal, deadline = len(self.steps) + steps, time.monotonic() + TIMEOUT_S
        while len(self.steps) < goal:
            if time.monotonic() > deadline:
                raise SystemExit(f"no {steps} steps within {TIMEOUT_S} s")
            self.read()

    def change(self, **settings: str) -> dict[str, float]:
        """Change levers; return what that cost."""
        self.changes.clear()
        time.sleep(random.uniform(0, LOOK_S))  # a key is not pressed right after a report
        sent_s = time.monotonic()
        self.link.send(Change(id=1, settings=settings))
        while not self.changes:
            self.read()
        answered_s, changed = time.monotonic(), self.changes[0]
        self.train(30)
        before = [s for s in self.steps if s.segment < changed.segment]
        after = [s for s in self.steps if s.segment == changed.segment]
        return {
            "answer_ms": (answered_s - sent_s) * 1e3,
            "took_ms": changed.took_ms,
            "prepare_ms": (after[0].finished_s - sent_s) * 1e3,
            "gap_ms": (after[0].finished_s - before[-1].finished_s) * 1e3,
            "step_ms": statistics.median(s.step_ms for s in after[5:]),
        }


def main() -> None:
    """Switch back and forth and print medians and maxima."""
    for name, settings in PLANS.items():
        measure(name, Worker(Plan(workload="encdec", settings=settings)))


def measure(name: str, worker: Worker) -> None:
    """Switch one worker's levers back and forth."""
    worker.train(50)
    cases = {
        f"pipelined, {name}": [{"pipelined": value} for value in ("on", "off") * 8],
        f"batch_size, {name}": [{"batch_size": value} for value in ("16", "64", "32", "8") * 2],
    }
    for what, changes in cases.items():
        costs = [worker.change(**change) for change in changes]
        for key in ("answer_ms", "prepare_ms", "took_ms", "gap_ms", "step_ms"):
            values = [cost[key] for cost in costs]
            print(f"{what}: {key} median {statistics.median(values):.1f}, most {max(values):.1f}")
        print(json.dumps({"what": what, "costs": costs}), flush=True)
    worker.link.close()


if __name__ == "__main__":
    main()
