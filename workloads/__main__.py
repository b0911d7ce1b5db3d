"""The bare run of one workload: the loop and nothing else, timed from outside.

    python -m workloads encdec --set pipelined=on --set batch_size=8 --steps 100

No instruments, no commands, no messages: this is the yardstick for what gpudash itself
costs. Wall clock between two borders at which the device has finished; one JSON line.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import torch

from workloads import CATALOGUE, DEFAULT, find_workload
from workloads.cache import keep_compiled_code
from workloads.levers import LeverError
from workloads.memory import is_out_of_memory
from workloads.training import Training, pick_device

WARMUP_STEPS = 10
"""As in the sources: run before the clock starts."""


def main() -> int:
    """Run one workload. Returns the exit code.

    0: it ran. 1: its result cannot be written. 2: an argument is not valid or the memory does
    not suffice, with one line why.
    """
    parser = _Parser(prog="python -m workloads", description=__doc__)
    parser.add_argument("workload", nargs="?", default=DEFAULT, help=", ".join(CATALOGUE))
    parser.add_argument("--set", action="append", default=[], metavar="LEVER=VALUE")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--steps", default="100", help="steps timed (100)")
    arguments = parser.parse_args()
    keep_compiled_code()
    try:
        result = run(arguments.workload, arguments.set, arguments.device, arguments.steps)
    except LeverError as error:
        print(f"python -m workloads: {error}", file=sys.stderr)
        return 2
    except (MemoryError, OSError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        asked = ", ".join(arguments.set) or "the default settings"
        print(f"python -m workloads: out of memory with {asked}", file=sys.stderr)
        return 2
    return report(json.dumps(result))


def run(workload: str, pairs: Sequence[str], device: str, steps: str) -> dict[str, object]:
    """Return what a run of this workload came to. Raises LeverError for what cannot be."""
    count = _whole(steps)
    entry = find_workload(workload)
    training = Training(entry, dict(_pair(text) for text in pairs), pick_device(device))
    try:
        seconds, loss = timed(training, count)
    finally:
        training.close()
    steps_per_s = count / seconds
    return {
        "workload": entry.name,
        "settings": training.settings,
        "device": str(training.device),
        "device_name": device_name(training.device),
        "torch": torch.__version__,
        "steps": count,
        "seconds": seconds,
        "steps_per_s": steps_per_s,
        "samples_per_s": steps_per_s * int(training.settings["batch_size"]),
        "loss": loss,
    }


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def report(line: str) -> int:
    """Print the result. Returns the exit code: 1 where it cannot be written."""
    try:
        print(line, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or it is tried again
        if isinstance(error, BrokenPipeError):  # nobody reads any more
            return 0
        print(f"python -m workloads: cannot write the result: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def timed(training: Training, steps: int) -> tuple[float, float]:
    """Return the wall seconds of `steps` steps, 1 or more, after the warm-up; the last loss."""
    while training.trained_steps < WARMUP_STEPS:
        training.step()
    training.synchronize()  # sync: the clock starts when the device has finished
    began = time.perf_counter()
    for _ in range(steps):
        trained = training.step()
    training.synchronize()  # sync: … and stops when it has finished
    seconds = time.perf_counter() - began
    training.drain()
    assert trained is not None  # since the warm-up every batch taken lets one be trained on
    return seconds, trained.loss.item()  # sync: after the clock has stopped


def device_name(device: torch.device) -> str:
    """Return what the device calls itself; `cpu` has no name in torch."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise LeverError(f"--steps {text} is not valid; valid: 1 or more")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise LeverError(f"--set {text!r} is not valid; valid: LEVER=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
