"""gpudash's step against the loop of a tutorial, each in a process of its own.

    python benchmarks/bench_plain_loop.py --starts 10 --rounds 9
    python benchmarks/bench_plain_loop.py --sides plain:2,bare:2,bare@../before:2

A side is a loop and its number of streams: `plain` is `plain_loop.py`, `caller` the same with the
backward pass on the loop's own thread, `bare` the loop of `python -m workloads`, and `worker` the
loop of gpudash's worker with its instruments. `side@checkout` is that of another checkout.

All sides are started anew for each start. When all are warm, they take turns, in an order drawn for
each round. A turn is a block of steps from an idle device to an idle device; the other processes
wait without work. So what the host does to all of them cancels, and the unit of replication is the
start.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from math import inf
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING

from plain_loop import Plain

from gpudash.instrument.state_sender import StateSender
from gpudash.protocol.training import Device, TrainingProcess
from gpudash.worker.__main__ import ready

if TYPE_CHECKING:
    from workloads.training import Training

ROOT = Path(__file__).parents[1]
SIDES = "plain:1,bare:1,worker:1,plain:2,caller:2,bare:2,worker:2"
WARM_S, BLOCK_S = 0.04, 0.2
"""What a turn lasts until its clock starts, and from then on."""


class Child:
    """One side, as the parent sees it."""

    def __init__(self, side: str, batch_size: int) -> None:
        kind, streams = side.split(":")
        kind, _, checkout = kind.partition("@")
        path = f"{checkout or ROOT}:{os.environ.get('PYTHONPATH', '')}"
        command = [sys.executable, __file__, "--be", f"{kind}:{streams}"]
        self._process = subprocess.Popen(
            [*command, "--batch-size", str(batch_size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def answer(self) -> float:
        """Return the number that it prints next: 0 once it is warm, then steps/s."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} ended")
        return float(line)

    def turn(self) -> float:
        """Have it train a block; return its steps/s."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def be(side: str, batch_size: int) -> None:
    """Be one side: build, warm up, and train a block for each line of standard input."""
    kind, streams = side.split(":")
    pipelined = "on" if streams == "2" else "off"
    settings = {"data": "resident", "batch_size": str(batch_size), "pipelined": pipelined}
    if kind in ("plain", "caller"):
        import torch

        if kind == "caller":
            torch.autograd.set_multithreading_enabled(False)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        plain = Plain(batch_size, device, "full" if device.type == "cuda" else "small")
        steps = plain.serial() if streams == "1" else plain.two_streams()
        take_turns(lambda: next(steps), plain.synchronize)
        return
    from workloads import CATALOGUE
    from workloads.training import Training, pick_device

    training = Training(CATALOGUE["encdec"], settings, pick_device("auto"))
    if kind == "bare":
        take_turns(training.step, training.synchronize)
    else:
        work(training, settings)


def take_turns(step: Callable[[], object], synchronize: Callable[[], None]) -> None:
    """Train a block for each line of standard input, and print its steps/s."""
    print(0, flush=True)
    while sys.stdin.readline():
        began_s = time.perf_counter()
        while time.perf_counter() < began_s + WARM_S:
            step()
        synchronize()  # sync: the clock starts
        began_s, steps = time.perf_counter(), 0
        while time.perf_counter() < began_s + BLOCK_S:
            step()
            steps += 1
        synchronize()  # sync: the clock stops
        print(steps / (time.perf_counter() - began_s), flush=True)


def work(training: "Training", settings: dict[str, str]) -> None:
    """Do the same in the worker of gpudash, which looks for commands every 25 ms."""
    from gpudash.instrument.pipes import CommandPipe, EventPipe
    from gpudash.protocol.commands import CommandOrFigures, Plan
    from gpudash.worker.loop import Loop

    class Turns(CommandPipe):
        """Starts and stops the clock when the loop looks for commands."""

        due_s, is_timed = -inf, False
        began_s, first = 0.0, 0

        def read(self) -> list[CommandOrFigures]:
            if time.perf_counter() >= self.due_s:
                self.go_on()
            return super().read()

        def go_on(self) -> None:
            training.synchronize()  # sync: the clock starts or stops
            now_s, steps = time.perf_counter(), training.trained_steps
            if self.due_s > 0 and not self.is_timed:
                self.is_timed, self.due_s = True, now_s + BLOCK_S
                self.began_s, self.first = now_s, steps
                return
            print((steps - self.first) / (now_s - self.began_s), flush=True)
            if not sys.stdin.readline():
                sys.exit()
            self.is_timed, self.due_s = False, time.perf_counter() + WARM_S

    read_end, _ = os.pipe()
    events = EventPipe(os.open(os.devnull, os.O_WRONLY))
    plan = Plan(workload="encdec", settings=settings)
    process = TrainingProcess(
        pid=os.getpid(), ready_s=time.monotonic(), device=Device(kind="cuda", name=""), versions={}
    )
    life = StateSender(ready(training, plan, process), events.send)
    Loop(training, plan, Turns(read_end), life).run()


def start(sides: list[str], rounds: int, batch_size: int) -> dict[str, list[float]]:
    """Start all sides, and let them take turns; return the steps/s of each one's blocks."""
    children = {side: Child(side, batch_size) for side in sides}
    rates: dict[str, list[float]] = defaultdict(list)
    try:
        for child in children.values():
            child.answer()
        for number in range(-1, rounds):  # the first round warms up
            for side in random.sample(sides, len(sides)):
                rate = children[side].turn()
                if number >= 0:
                    rates[side].append(rate)
    finally:
        for child in children.values():
            child.end()
    return rates


def main() -> None:
    """Run the starts, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=9, help="blocks of each side in a start")
    parser.add_argument("--within-s", type=float, default=inf, help="no start that ends later")
    parser.add_argument("--sides", default=SIDES)
    parser.add_argument("--be", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.be:
        be(arguments.be, arguments.batch_size)
        return
    from ratios import show

    sides = arguments.sides.split(",")
    starts: list[dict[str, list[float]]] = []
    began_s = time.monotonic()
    while len(starts) < arguments.starts:
        taken_s = time.monotonic() - began_s
        if taken_s + taken_s / max(len(starts), 1) > arguments.within_s:
            break
        starts.append(start(sides, arguments.rounds, arguments.batch_size))
        rates = ", ".join(f"{side} {fmean(starts[-1][side]):.1f}" for side in sides)
        print(f"start {len(starts)}: {rates}", flush=True)
        print(json.dumps(starts[-1]), flush=True)
    if len(starts) < 2:
        return
    means = {side: [geometric_mean(one[side]) for one in starts] for side in sides}
    for streams in ("1", "2"):
        alike = [side for side in sides if side.endswith(f":{streams}")]
        for base, side in combinations(alike, 2):
            show(f"steps/s, {side} over {base}", means[side], means[base])


if __name__ == "__main__":
    main()
