"""The bare run of one workload: the loop and nothing else, timed from outside.

    python -m workloads encdec --set pipelined=on --set batch_size=8 --steps 100

No instruments, no commands, no messages: this is the baseline for measuring gpudash's own cost.
The wall clock is read twice, after the device has finished. The result is one JSON line.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from workloads import CATALOGUE, DEFAULT
from workloads.cache import keep_compiled_code
from workloads.levers import LeverError, resolve
from workloads.lifetime import end
from workloads.needs import check
from workloads.own.loading import find


def main() -> int:
    """Run one workload. Returns the exit code.

    0: it ran. 1: its result cannot be written. 2: an argument is not valid, or memory ran out; one
    line says why.
    """
    parser = _Parser(prog="python -m workloads", description=__doc__)
    parser.add_argument("workload", nargs="?", default=DEFAULT, help=", ".join(CATALOGUE))
    parser.add_argument("--set", action="append", default=[], metavar="LEVER=VALUE")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--steps", default="100", help="steps timed (100)")
    arguments = parser.parse_args()
    try:
        result = run(arguments.workload, arguments.set, arguments.device, arguments.steps)
    except LeverError as error:
        print(f"python -m workloads: {error}", file=sys.stderr)
        return 2
    except (MemoryError, OSError, RuntimeError) as error:
        from workloads.memory import is_out_of_memory  # noqa: PLC0415  # imports torch

        if not is_out_of_memory(error):
            raise
        asked = ", ".join(arguments.set) or "the default settings"
        print(f"python -m workloads: out of memory with {asked}", file=sys.stderr)
        return 2
    return report(json.dumps(result))


def run(workload: str, pairs: Sequence[str], device: str, steps: str) -> dict[str, object]:
    """Run a workload, and return the result. Raises LeverError for invalid arguments."""
    count = _whole(steps)
    entry = find(workload)
    settings = dict(_pair(text) for text in pairs)
    resolve(entry.levers, settings)
    check(entry.name, entry.needs)
    keep_compiled_code()
    from workloads import bare_run  # noqa: PLC0415  # imports torch, after the arguments' checks

    return bare_run.run(entry, settings, device, count)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def report(line: str) -> int:
    """Print the result. Returns the exit code: 1 if it cannot be written."""
    try:
        print(line, flush=True)
    except OSError as error:
        # else Python tries to write it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader has closed the pipe
            return 0
        print(f"python -m workloads: cannot write the result: {error.strerror}", file=sys.stderr)
        return 1
    return 0


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
    end(main())
