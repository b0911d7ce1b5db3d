"""Whether the slow rank of a real training is named: a DDP training under torchrun, on GPUs or CPU.

One training goes through all cases: in each, one rank is slower in one part of its step, by 5 to
30 %; every fourth case is quiet. `gpudash run` records it, and each case is judged on its own. On a
CPU a slow copy is a delay between two phases. `batches` are four at a time, as of four loader
workers. `code` computes between the copy and the forward pass, `host` sleeps behind the optimizer.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Progress, State
from gpudash.ranks.slow_rank import Stragglers

PARTS = ("data", "batches", "copy", "code", "forward", "backward", "optimizer", "host")
NAMED_AS = {
    "batches": ("data",),
    "code": ("your_code",),
    "copy": ("copy", "your_code"),
    "host": ("your_code",),
}
"""A delay between two phases is the script's own code."""
SLOWER_PCT = (5, 10, 20, 30)
LEARNING = 200
"""Steps whose time the delays are a part of."""


def case_of(number: int, ranks: int) -> tuple[int, str, int] | None:
    """Return the slow rank, the part and by how many percent; None for a quiet case."""
    if number % 4 == 3:
        return None
    slowed = number - number // 4
    turn, part = divmod(slowed, len(PARTS))
    return (slowed + turn) % ranks, PARTS[part], SLOWER_PCT[turn % 4]


def judge(log: Path, schedule: Path, options: argparse.Namespace) -> tuple[int, int]:
    """Print each case and what was named in it; return how many were right, and false alarms."""
    steps_a_case, step_ms = json.loads(schedule.read_text())
    decoder = msgspec.json.Decoder(Envelope)
    told = []
    for line in log.read_bytes().splitlines()[1:]:
        try:
            told.append(decoder.decode(line))
        except msgspec.MsgspecError:  # an interval
            continue
    right = alarms = 0
    for at in range(options.cases):
        first = LEARNING + at * steps_a_case
        stragglers, expected = Stragglers(), case_of(options.first + at, options.ranks)
        named = {}
        for envelope in told:
            body = envelope.body
            if isinstance(body, Progress):
                within = [one for one in body.steps if first < one.step <= first + steps_a_case]
                body = msgspec.structs.replace(body, steps=tuple(within))
            elif not isinstance(body, State):
                continue
            stragglers.take(envelope.rank, body)
            found = stragglers.found()
            if found is not None:
                named[found.rank, found.phase, found.kind] = found
        if expected is None:
            alarms += bool(named)
        else:
            rank, part, _ = expected
            wanted = {(rank, name, "persistent") for name in NAMED_AS.get(part, (part,))}
            right += bool(named) and named.keys() <= wanted
        of = "quiet" if expected is None else "rank {}: {}, {} %".format(*expected)
        print(f"{of} of {step_ms:.1f} ms: {list(named.values()) or 'nobody'}", flush=True)
    return right, alarms


def main() -> None:
    """Train and judge; print one line for each case, and one of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the first case: 80 hold 60 and 20")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=25.0, help="of a case")
    parser.add_argument("--keep", type=Path, help="folder for the recording")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        log, schedule = place / "run.jsonl", place / "schedule.json"
        told = [f"--{name}={getattr(options, name)}" for name in ("first", "cases", "seconds")]
        torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}"]
        watched = [sys.executable, "-m", "gpudash", "run", "-q", "--every-step"]
        recorded = [f"--record={log.with_suffix('.csv')}", "--", sys.executable, "-m"]
        own = [str(Path(__file__).with_name("straggling.py")), str(schedule), *told]
        subprocess.run([*watched, *recorded, *torchrun, *own], check=True)
        right, alarms = judge(log, schedule, options)
    quiet = sum(case_of(options.first + at, options.ranks) is None for at in range(options.cases))
    result = {"cases": options.cases - quiet, "right": right, "quiet": quiet, "alarms": alarms}
    print(json.dumps({"benchmark": "stragglers of a training", **result}))


if __name__ == "__main__":
    main()
