"""How often gpudash's verdicts are right, against how often they claim to be.

    python benchmarks/bench_calibration.py --comparisons 200 --tries 50

The worker's own loop runs comparisons whose answer is known: A/A, where a difference shown
is a false alarm (nominally 5 of 100), and a workload that is made 2 % slower, which has to be
found. Blocks are shorter than gpudash's own, so that many comparisons fit into minutes.
"""

import argparse
import contextlib
import functools
import json
import os
import time
from collections.abc import Callable, Mapping

import msgspec
import torch
from torch import Tensor

from gpudash.compare.ab import Comparison, Question
from gpudash.compare.paired_t import Estimate
from gpudash.instrument.pipes import CommandPipe, Sent
from gpudash.instrument.state_sender import StateSender
from gpudash.instrument.wire import StepReport, encoded
from gpudash.protocol.commands import Block, Blocks, Command, Plan, Stop
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Device, State, TrainingProcess
from gpudash.ranks.normalise import Normaliser
from gpudash.worker.__main__ import ready
from gpudash.worker.loop import Loop
from workloads import CATALOGUE, Entry
from workloads.encdec import EncoderDecoder
from workloads.levers import Switch, Value
from workloads.training import Training, pick_device
from workloads.workload import Mark, Prepared

SLOWDOWN = 0.02
MIN_STEPS = 5


class SlowedEncoderDecoder(EncoderDecoder):
    """encdec, and on demand a pause after the optimizer: part of the step, as a user's would be."""

    pause_ms = 0.0

    def __init__(self, values: Mapping[str, Value], device: torch.device) -> None:
        super().__init__(values, device)
        self._slowed = False

    def configure(self, values: Mapping[str, Value]) -> None:
        """Apply the lever."""
        super().configure(values)
        self._slowed = bool(values["slowed"])

    def train(self, prepared: Prepared, mark: Mark) -> Tensor:
        """Train, and spend what the slowdown takes on the device."""
        loss = super().train(prepared, mark)
        if self._slowed:
            if self._device.type == "cuda":
                cycles = int(self.pause_ms * 1e3 * cycles_per_us(self._device))
                torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # noqa: SLF001  # torch has no public kernel that only waits
            else:
                over_s = time.perf_counter() + self.pause_ms / 1e3
                while time.perf_counter() < over_s:  # a sleep takes longer than asked for
                    pass
        return loss


WORKLOAD = SlowedEncoderDecoder
SLOWED = Switch(
    name="slowed", default=False, effect="next step", summary="2 % slower.", source="this file"
)
ENTRY = Entry(
    name="slowed",
    summary="encdec with a known slowdown.",
    source="this file",
    module="bench_calibration",
    levers=(*CATALOGUE["encdec"].levers, SLOWED),
    on_cpu=CATALOGUE["encdec"].on_cpu,
)


@functools.cache
def cycles_per_us(device: torch.device) -> float:
    """Return the clock that torch.cuda._sleep counts in."""
    return torch.cuda.get_device_properties(device).clock_rate / 1e3


class ShortComparison(Comparison):
    """The same procedure in blocks as short as it allows."""

    def begin(self, state: State, run: int, /) -> tuple[Block, ...]:
        """Return the same blocks, shorter."""
        return tuple(shortened(block) for block in super().begin(state, run))


def shortened(block: Block) -> Block:
    """Return the block without its minimum time."""
    return msgspec.structs.replace(block, min_steps=MIN_STEPS, min_s=0.0)


def _as_read(sent: Sent) -> Event | Reading:
    """Return what was sent as a session reads it."""
    if isinstance(sent, StepReport):
        return msgspec.json.decode(encoded(sent, 0, 0, 0.0), type=Envelope).body
    return sent


class Driver:
    """Runs comparisons one after the other in a loop of this process."""

    def __init__(self, training: Training, questions: list[Question]) -> None:
        commands_fd, self._commands_fd = os.pipe()
        self._questions = list(reversed(questions))
        self._number = 0
        self._comparison: Comparison | None = None
        self.found: list[Estimate] = []
        plan = Plan(workload="slowed", settings={})
        self._normaliser = Normaliser()
        self._state: State
        life = StateSender(ready(training, plan, PROCESS), self._hear)
        self._loop = Loop(training, plan, CommandPipe(commands_fd), life)

    def run(self) -> list[Estimate]:
        """Return what each comparison found."""
        self._next()
        self._loop.run()
        return self.found

    def _hear(self, sent: Sent) -> None:
        stamped = self._normaliser.stamp(_as_read(sent))
        if isinstance(stamped, State):
            self._state = stamped
        if self._comparison is None:
            return
        blocks = self._comparison.fold(stamped)
        if blocks is not None:
            self._send(Blocks(id=0, run=self._number, blocks=blocks))
        if self._comparison.done:
            if self._comparison.found is None or self._comparison.verdict is None:
                raise SystemExit(f"no verdict: {self._comparison.failure}")
            self.found.append(self._comparison.found)
            self._next()

    def _next(self) -> None:
        if not self._questions:
            self._comparison = None
            self._send(Stop(id=0))
            return
        self._comparison = ShortComparison(self._questions.pop())
        self._number += 1
        blocks = self._comparison.begin(self._state, self._number)
        self._send(Blocks(id=0, run=self._number, blocks=blocks))

    def _send(self, command: Command) -> None:
        os.write(self._commands_fd, msgspec.json.encode(command) + b"\n")


PROCESS = TrainingProcess(pid=0, ready_s=0.0, device=Device(kind="cpu", name=""), versions={})


def step_ms(training: Training, steps: int = 30) -> float:
    """Return how long a step takes by the wall clock."""
    for _ in range(10):
        training.step()
    training.synchronize()
    began_s = time.perf_counter()
    for _ in range(steps):
        training.step()
    training.synchronize()
    return (time.perf_counter() - began_s) / steps * 1e3


def share(found: list[Estimate], is_hit: Callable[[Estimate], bool]) -> float:
    """Return the share of comparisons that are hits."""
    return sum(map(is_hit, found)) / len(found)


def shows_difference(one: Estimate) -> bool:
    """Tell whether the interval leaves out 0."""
    return one.low is not None and one.high is not None and not one.low <= 0 <= one.high


def shows_slowdown(one: Estimate) -> bool:
    """Tell whether B was found to be slower."""
    return one.high is not None and one.high < 0


def main() -> None:
    """Print false alarms and slowdowns found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--tries", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=16, help="of an A/A comparison")
    parser.add_argument("--batch-size", default="8")
    parser.add_argument("--model-scale", default="auto")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    settings = {
        "data": "resident",
        "batch_size": arguments.batch_size,
        "model_scale": arguments.model_scale,
    }
    training = Training(ENTRY, settings, pick_device(arguments.device))
    bare_ms = step_ms(training)
    same = [
        Question(lever="slowed", a="off", b="off", pairs=arguments.pairs, seed=seed)
        for seed in range(arguments.comparisons)
    ]
    with contextlib.closing(training):
        alarms = Driver(training, same).run() if same else []
        if alarms:
            print(f"A/A: {100 * share(alarms, shows_difference):.1f} % of {len(alarms)} alarmed")
        import bench_calibration

        bench_calibration.SlowedEncoderDecoder.pause_ms = SLOWDOWN * bare_ms
        slower = [
            Question(lever="slowed", a="off", b="on", pairs=40, seed=seed)
            for seed in range(arguments.tries)
        ]
        found = Driver(training, slower).run() if slower else []
    if found:
        changes = sorted(one.change for one in found)
        median = changes[len(changes) // 2]
        print(
            f"2 % slower: found in {100 * share(found, shows_slowdown):.0f} % of {len(found)}, "
            f"median change {100 * median:+.2f} %"
        )
    result = {
        "step_ms": bare_ms,
        "false_alarms": share(alarms, shows_difference) if alarms else None,
        "comparisons": len(alarms),
        "found": share(found, shows_slowdown) if found else None,
        "tries": len(found),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
