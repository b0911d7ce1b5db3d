"""What still trains after gpudash was killed while it measured a command.

    python benchmarks/bench_orphans.py --kills 20
    python benchmarks/bench_orphans.py --kills 20 --group

Each verb that measures a command gets a script, a wrapper in bash that starts it and waits, and
torchrun with two ranks in DistributedDataParallel. gpudash is killed by SIGKILL at a moment drawn
for each kill: in turns from its start on, when nothing may train yet, and from the first step on,
while the command trains or is being ended after a verdict. With --group its process group is
killed, as `timeout -s KILL` and a shell's `kill -9 %1` do. Whatever of the run is alive after
`--after` seconds is counted, and ended here.

A process belongs to a run if its environment names the folder that the run was given.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from typing import NamedTuple

SCRIPT = """
import itertools, os, torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Linear(16, 4)
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = DataLoader(TensorDataset(torch.randn(512, 16), torch.randint(0, 4, (512,))), 32)
for _ in itertools.count():
    for images, answers in batches:
        optimizer.zero_grad()
        cross_entropy(model(images), answers).backward()
        optimizer.step()
"""
AB = ("ab", "--lever", "num_workers=0,1", "--pairs", "5")
VERBS: dict[str, Sequence[str]] = {
    "ab": AB,
    "ab --starts": (*AB, "--starts", "3"),
    "why": ("why", "--seconds", "5"),
    "tune": ("tune", "--fresh", "--budget", "20"),
    "profile": ("profile", "--force"),
}
TORCHRUN = "torch.distributed.run"
COMMANDS: dict[str, Sequence[str]] = {
    "script": (sys.executable, "train.py"),
    "wrapper": ("bash", "job.sh"),
    "torchrun": (sys.executable, "-m", TORCHRUN, "--standalone", "--nproc-per-node=2", "train.py"),
}


class Kill(NamedTuple):
    """What one kill has left."""

    trained: bool
    """Whether a process had begun to train by then."""
    was_over: bool
    """Whether gpudash had ended by itself."""
    gone_s: float | None
    """Seconds until nothing was left; None if something still was."""


def main() -> None:
    """Kill, and print a line for each verb and command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each verb and command")
    parser.add_argument(
        "--within", type=float, default=20.0, help="seconds; the kill falls in them"
    )
    parser.add_argument("--after", type=float, default=5.0, help="seconds until the count")
    parser.add_argument("--group", action="store_true", help="kill the process group")
    parser.add_argument("--verb", choices=VERBS, action="append")
    parser.add_argument("--command", choices=COMMANDS, action="append")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    moments, kill = random.Random(arguments.seed), os.killpg if arguments.group else os.kill
    total = left = 0
    for verb in arguments.verb or VERBS:
        for command in arguments.command or COMMANDS:
            kills = [
                one_kill(
                    [*VERBS[verb], "--", *COMMANDS[command]],
                    moments.uniform(0.0, arguments.within),
                    arguments.after,
                    kill,
                    once_trained=number % 2 > 0,
                )
                for number in range(arguments.kills)
            ]
            print(f"{verb} {command}: {line(kills)}", flush=True)
            total += len(kills)
            left += sum(one.gone_s is None for one in kills)
    print(f"{left} of {total} left something behind")
    sys.exit(left > 0)


def one_kill(
    words: Sequence[str],
    at_s: float,
    after_s: float,
    kill: Callable[[int, int], None],
    *,
    once_trained: bool,
) -> Kill:
    """Start gpudash, kill it so many seconds later, and look what is left."""
    with TemporaryDirectory(prefix="orphans-") as name:
        folder, runs = Path(name), Path(name, "runs")
        runs.mkdir(mode=0o700)
        (folder / "train.py").write_text(SCRIPT)
        (folder / "job.sh").write_text(f"{sys.executable} train.py\necho went on\n")
        ours = subprocess.Popen(
            [sys.executable, "-m", "gpudash", *words],
            cwd=folder,
            env=os.environ | {"GPUDASH_RUN_DIR": str(runs)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        while once_trained and ours.poll() is None and not _trains(runs):
            time.sleep(0.05)
        with suppress(subprocess.TimeoutExpired):
            ours.wait(at_s)
        trained = once_trained or _trains(runs)
        was_over = ours.poll() is not None
        with suppress(ProcessLookupError):
            kill(ours.pid, SIGKILL)
        ours.wait()
        return Kill(trained, was_over, _gone_s(folder, after_s))


def _trains(runs: Path) -> bool:
    return any(runs.glob("*/[1-9]*.sock"))  # 0.sock is how gpudash tries the folder


def _gone_s(folder: Path, most_s: float) -> float | None:
    began_s = time.monotonic()
    while (left := of_run(folder)) and time.monotonic() - began_s < most_s:
        time.sleep(0.05)
    for pid in left:
        with suppress(OSError):
            os.kill(pid, SIGKILL)
    return None if left else time.monotonic() - began_s


def of_run(folder: Path) -> list[int]:
    """Return the living processes whose environment names this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.fsencode(folder) in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def line(kills: Sequence[Kill]) -> str:
    """Return what the kills of a verb and a command have left."""
    times = [one.gone_s for one in kills if one.gone_s is not None]
    return (
        f"{len(kills)} kills, {sum(one.trained for one in kills)} while it trained, "
        f"{sum(one.was_over for one in kills)} after its own end; "
        f"{len(kills) - len(times)} left something; gone within {max(times, default=0.0):.1f} s"
    )


if __name__ == "__main__":
    main()
