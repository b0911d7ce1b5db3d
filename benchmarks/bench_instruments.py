"""What the worker's loop costs a step, in one process: bare steps against the full loop.

    python benchmarks/bench_instruments.py --batch-size 2 --pairs 12 --steps 300

The same training, stepped in alternating blocks by a plain `for` and by the worker's loop
with its clock, its reports into a pipe and its commands. Both processes of bench_overhead.py
differ by more than this from run to run where the host is the bound; blocks do not.
"""

import argparse
import contextlib
import os
import time

from ratios import show

from gpudash.records import Event, Plan
from gpudash.worker.loop import Loop
from gpudash.worker.pipes import CommandPipe, EventPipe
from workloads import CATALOGUE
from workloads.training import Training, pick_device

DROPPED_STEPS = 10


class Instrumented:
    """The worker's loop, run for so many steps at a time, and a reader of its events."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self._read_fd, events_fd = os.pipe()
        commands_fd, self._commands_write_fd = os.pipe()  # held open: end of file is the end
        os.set_blocking(self._read_fd, False)
        self._events = EventPipe(events_fd)
        self._commands = CommandPipe(commands_fd)

    def run(self, steps: int) -> None:
        """Train as the worker does, until so many further steps are finished."""
        plan = Plan(workload="encdec", settings={}, steps=self.training.trained_steps + steps)
        Loop(self.training, plan, self._commands, self._send).run()

    def _send(self, event: Event) -> None:
        self._events.send(event)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 1 << 20)


def bare(training: Training, steps: int) -> None:
    """Train with nothing around it."""
    for _ in range(steps):
        training.step()
    training.synchronize()


def main() -> None:
    """Alternate blocks of both and print the ratio of their step times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", default="8")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    settings = {"data": "resident", "batch_size": arguments.batch_size}
    training = Training(CATALOGUE["encdec"], settings, pick_device("auto"))
    instrumented = Instrumented(training)
    ways = {"bare": lambda steps: bare(training, steps), "loop": instrumented.run}
    times: dict[str, list[float]] = {"bare": [], "loop": []}
    for way in ways.values():
        way(100)  # warm up
    for pair in range(arguments.pairs):
        for name in ("bare", "loop") if pair % 2 == 0 else ("loop", "bare"):
            bare(training, DROPPED_STEPS)
            began = time.perf_counter()
            ways[name](arguments.steps)
            times[name].append((time.perf_counter() - began) / arguments.steps * 1e3)
    what = f"step time, instrumented over bare, batch {arguments.batch_size}"
    show(what, times["loop"], times["bare"], bare_ms=times["bare"], loop_ms=times["loop"])
    training.close()


if __name__ == "__main__":
    main()
