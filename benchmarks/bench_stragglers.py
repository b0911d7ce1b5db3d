"""Whether the slow rank of a real training is named: a DDP training under torchrun, on GPUs or CPU.

One training goes through all cases: in each, one rank is slower in one part of its step; every
fourth case is quiet. `gpudash run` records it, and each case is judged on its own, beside a clock
outside of gpudash. On a CPU a slow copy is a delay between two phases. `batches` are four at a
time, as of four loader workers. `before` and `code` compute around the copy, `host` sleeps behind
the optimizer, `clock` computes for longer wherever anything is computed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from gpudash.protocol.envelope import Envelope
from gpudash.protocol.session import Straggler
from gpudash.protocol.training import Progress, State, Step
from gpudash.ranks.same_steps import WAIT_MS
from gpudash.ranks.slow_rank import LEAST_PCT, Stragglers

PARTS = (
    *("data", "batches", "before", "copy", "code"),
    *("forward", "backward", "optimizer", "host", "clock"),
)
NAMED_AS = {
    "batches": ("data",),
    "before": ("your_code",),
    "code": ("your_code",),
    "copy": ("copy", "your_code"),
    "host": ("your_code",),
    "clock": ("compute",),
}
"""A delay between two phases is the script's own code."""
SLOWER_PCT = (5, 10, 20, 30)
LEARNING = 200
"""Steps whose time the delays are a part of; on a CPU a tenth."""


def case_of(number: int, ranks: int) -> tuple[int, str, int] | None:
    """Return the slow rank, the part and by how many percent; None for a quiet case."""
    if number % 4 == 3:
        return None
    slowed = number - number // 4
    turn, part = divmod(slowed, len(PARTS))
    return (slowed + turn) % ranks, PARTS[part], SLOWER_PCT[(turn + part) % 4]


def said(told: Sequence[Envelope], first: int, last: int) -> Iterator[Straggler | None]:
    """Yield what is said of these steps alone, after each message of that time."""
    stragglers, newest = Stragglers(), dict[int, Step]()
    within = [_within(envelope, first, last) for envelope in told]
    holds = [isinstance(one.body, Progress) and bool(one.body.steps) for one in within]
    begin, end = holds.index(True), len(holds) - holds[::-1].index(True)
    for at, one in enumerate(within[:end]):
        if isinstance(one.body, Progress):
            for step in one.body.steps:
                if WAIT_MS in step.values:
                    newest[one.rank] = step
        if at >= begin or isinstance(one.body, State):
            stragglers.take(one.rank, one.body)
            yield stragglers.found()
    for rank, step in newest.items():  # no more steps of these come
        far = msgspec.structs.replace(step, step=step.step + 10**6)
        stragglers.take(rank, Progress(until_s=0.0, steps=(far,), total_steps=0, total_samples=0))
    yield stragglers.found()


def _within(envelope: Envelope, first: int, last: int) -> Envelope:
    if not isinstance(envelope.body, Progress):
        return envelope
    steps = tuple(one for one in envelope.body.steps if first < one.step <= last)
    return msgspec.structs.replace(
        envelope, body=msgspec.structs.replace(envelope.body, steps=steps)
    )


def judge(folder: Path, options: argparse.Namespace) -> dict[str, int]:
    """Print each case and what was named in it; return the counts."""
    read = (
        json.loads((folder / f"schedule-{rank}.json").read_text()) for rank in range(options.ranks)
    )
    clocks = list(read)
    decoder = msgspec.json.Decoder(Envelope)
    told = []
    for line in (folder / "run.jsonl").read_bytes().splitlines()[1:]:
        try:
            envelope = decoder.decode(line)
        except msgspec.MsgspecError:  # an interval
            continue
        if envelope.source != "session":
            told.append(envelope)
    counts = dict.fromkeys(("cases", "right", "hidden", "quiet", "alarms"), 0)
    learning, steps, step_ms = (clocks[0][name] for name in ("learning", "steps", "step_ms"))
    for at in range(options.cases):
        first, expected = learning + at * steps, case_of(options.first + at, options.ranks)
        found = [one for one in said(told, first, first + steps) if one is not None]
        named = {(one.rank, one.phase, one.kind): one for one in found}
        own_ms = [clock["own_ms"][str(at)] for clock in clocks]
        slowest = own_ms.index(max(own_ms))
        others_ms = [ms for rank, ms in enumerate(own_ms) if rank != slowest]
        is_slow = max(own_ms) - fmean(others_ms) >= LEAST_PCT / 100 * step_ms
        if expected is None:
            verdict = "alarm" if named and not is_slow else "quiet"
            counts["quiet"] += 1
            counts["alarms"] += verdict == "alarm"
        else:
            rank, part, _ = expected
            wanted = {(rank, name, "persistent") for name in NAMED_AS.get(part, (part,))}
            is_right = bool(named) and named.keys() <= wanted
            is_hidden = not named and not (is_slow and slowest == rank)
            verdict = "right" if is_right else "hidden" if is_hidden else "wrong"
            counts["cases"] += 1
            counts["right"] += is_right
            counts["hidden"] += is_hidden
        of = "quiet" if expected is None else "rank {}: {}, {} %".format(*expected)
        alone = " ".join(f"{ms:.1f}" for ms in own_ms)
        answers = "; ".join(map(_in_words, named.values())) or "nobody"
        print(f"{verdict:6} {of} of {step_ms:.1f} ms (alone {alone}): {answers}", flush=True)
    return counts


def _in_words(one: Straggler) -> str:
    waits = "" if one.others_wait_ms is None else f", others wait {one.others_wait_ms:.1f}"
    why = one.why and f", {one.why}"
    return f"{one.kind} rank {one.rank} {one.phase or '?'} {one.excess_ms:.1f} ms{waits}{why}"


def main() -> None:
    """Train and judge; print one line for each case, and one of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mlp", help="mlp, resnet or transformer")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the first case: 80 hold 60 and 20")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=25.0, help="of a case")
    parser.add_argument("--after", type=Path, help="file that says that training may begin")
    parser.add_argument("--keep", type=Path, help="folder for the recording")
    parser.add_argument("--judge", action="store_true", help="judge only what was kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        if not options.judge:
            train(place, options)
        counts = judge(place, options)
    print(json.dumps({"benchmark": "stragglers of a training", "model": options.model, **counts}))


def train(place: Path, options: argparse.Namespace) -> None:
    """Record the training in the folder."""
    names = ("model", "first", "cases", "seconds", "after")
    told = [f"--{name}={value}" for name in names if (value := getattr(options, name)) is not None]
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}"]
    watched = [sys.executable, "-m", "gpudash", "run", "-q", "--every-step"]
    recorded = [f"--record={place / 'run.csv'}", "--", sys.executable, "-m"]
    own = [str(Path(__file__).with_name("straggling.py")), str(place), *told]
    subprocess.run([*watched, *recorded, *torchrun, *own], check=True)


if __name__ == "__main__":
    main()
