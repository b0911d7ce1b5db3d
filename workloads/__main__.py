"""The bare run of one workload: the loop and nothing else, timed from outside.

    python -m workloads encdec --set pipelined=on --set batch_size=8 --steps 100

No instruments, no commands, no messages: this is the yardstick for what gpudash itself
costs. Wall clock between two borders at which the device has finished; one JSON line.
"""

import argparse
import json
import sys
import time

import torch

from workloads import CATALOGUE, DEFAULT, find_workload
from workloads.levers import LeverError
from workloads.memory import is_out_of_memory
from workloads.training import Training, pick_device

WARMUP_STEPS = 10
"""As in the sources: run before the clock starts."""


def main() -> int:
    """Run one workload. Returns the exit code: 2 for a bad argument, with one line why."""
    parser = argparse.ArgumentParser(prog="python -m workloads", description=__doc__)
    parser.add_argument("workload", nargs="?", default=DEFAULT, help=", ".join(CATALOGUE))
    parser.add_argument("--set", action="append", default=[], metavar="LEVER=VALUE")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--steps", default="100", help="steps timed (100)")
    arguments = parser.parse_args()
    try:
        steps = _whole(arguments.steps)
        changes = dict(_pair(text) for text in arguments.set)
        entry = find_workload(arguments.workload)
        training = Training(entry, changes, pick_device(arguments.device))
    except LeverError as error:
        print(f"python -m workloads: {error}", file=sys.stderr)
        return 2
    try:
        seconds, loss = timed(training, steps)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        print(f"python -m workloads: out of memory with {training.settings}", file=sys.stderr)
        return 2
    finally:
        training.close()
    steps_per_s = steps / seconds
    result = {
        "workload": entry.name,
        "settings": training.settings,
        "device": str(training.device),
        "device_name": device_name(training.device),
        "torch": torch.__version__,
        "steps": steps,
        "seconds": seconds,
        "steps_per_s": steps_per_s,
        "samples_per_s": steps_per_s * int(training.settings["batch_size"]),
        "loss": loss,
    }
    print(json.dumps(result))
    return 0


def timed(training: Training, steps: int) -> tuple[float, float]:
    """Return the wall seconds of `steps` steps after the warm-up, and the last loss."""
    loss = float("nan")
    while training.trained_steps < WARMUP_STEPS:
        training.step()
    training.synchronize()  # sync: the clock starts when the device has finished
    began = time.perf_counter()
    trained = None
    for _ in range(steps):
        trained = training.step()
    training.synchronize()  # sync: … and stops when it has finished
    seconds = time.perf_counter() - began
    training.drain()
    if trained is not None:
        loss = trained.loss.item()  # sync: after the clock has stopped
    return seconds, loss


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
