"""Whether the slow rank is named, and what many ranks cost the dashboard's process.

Simulated ranks train in step, with jitter, outliers and drift. First slowdowns of 3 to 20 % are put
on one of a few ranks, in each part of a step, and runs without any are watched. Then 512 ranks on
64 nodes are told to a real session, in real time, as lines that another process has written: they
are decoded, folded and recorded. The targets are one core and 500 MB.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import HostReading, Reading
from gpudash.protocol.session import Straggler
from gpudash.protocol.training import Failed, Hello, Progress
from gpudash.ranks.slow_rank import Stragglers
from gpudash.run.session import Session
from gpudash.run.source import Decoder, Source
from gpudash.snapshot import Snapshot
from tests.simulated_ranks import STEP_MS, Ranks, enveloped, start

PARTS = ("data", "copy", "forward", "backward", "optimizer", "host")
SLOWER_PCT = (3, 5, 10, 20)
WITHIN_S = 30.0
QUIET_S = 120.0
TARGET_CORES, TARGET_MB = 1.0, 500


def judged(ranks: Ranks, seconds: float) -> list[Straggler]:
    """Return what was found, each time it changed."""
    stragglers = Stragglers()
    found: list[Straggler] = []
    for rank in range(ranks.ranks):
        stragglers.take(rank, start(rank))
    for rank, progress in ranks.train(seconds):
        stragglers.take(rank, progress)
        named = stragglers.found()
        if named is not None and (not found or found[-1] != named):
            found.append(named)
    return found


def slowed(case: int) -> bool:
    """Put one slowdown on one rank; return whether it is named in time, and nothing else is."""
    part, slower_pct = PARTS[case % 6], SLOWER_PCT[case // 6 % 4]
    ranks = (2, 4, 8)[case % 3]
    slow = case % ranks
    delay_ms = slower_pct / 100 * STEP_MS
    told = Ranks(
        ranks,
        seed=case,
        hides=bool(case // 24 % 2),
        delay=lambda _step, rank: {part: delay_ms} if rank == slow else {},
    )
    named = {(one.rank, one.phase) for one in judged(told, WITHIN_S)}
    right = named == {(slow, part)}
    if not right:
        print(f"case {case}: {slower_pct} % in {part} of rank {slow} of {ranks}: {named or 'none'}")
    return right


def write(path: Path, options: argparse.Namespace) -> None:
    """Write what the ranks tell, a line of JSON each message."""
    slow, delay_ms = options.ranks // 2 + 1, 0.05 * STEP_MS
    ranks = Ranks(
        options.ranks, delay=lambda _step, rank: {"backward": delay_ms} if rank == slow else {}
    )
    nodes = max(options.ranks // options.nodes, 1)
    starts = ((rank, start(rank, node=f"node{rank // nodes}")) for rank in range(options.ranks))
    hello = [(0, Hello(can=("record",)))]
    with path.open("wb") as lines:
        told = with_readings(ranks.train(options.seconds), options.ranks)
        for envelope in enveloped(chain(hello, starts, told)):
            lines.write(msgspec.json.encode(envelope) + b"\n")


def with_readings(
    told: Iterable[tuple[int, Progress]], ranks: int
) -> Iterator[tuple[int, Event | Reading]]:
    """Add a reading of each rank's processes once a second."""
    due_s = 1.0
    for rank, progress in told:
        yield rank, progress
        if progress.until_s >= due_s:
            due_s += 1.0
            values: dict[str, float | str] = {
                "cpu_pct": 101.0,
                "worker_rss_mib": 3140.0,
                "core_wait_pct": 1.5,
            }
            reading = HostReading(at_s=progress.until_s, values=values)
            yield from ((one, reading) for one in range(ranks))


class Told(Source):
    """Hands the lines over when they are due."""

    def __init__(self, path: Path) -> None:
        self._lines = path.open("rb")
        self._decoder = Decoder("it")
        self._began_s = time.monotonic()
        self._next: Envelope | None = None
        self.messages = 0
        self.at_end = False

    def now_s(self) -> float:
        """Return the moment, on the ranks' clock."""
        return time.monotonic() - self._began_s

    def read(self) -> list[Envelope]:
        """Return what is due."""
        return list(self._due(self.now_s()))

    def _due(self, until_s: float) -> Iterator[Envelope]:
        while True:
            if self._next is None:
                line = self._lines.readline()
                if not line:
                    self.at_end = True
                    return
                self._next = self._decoder.decode(line)
            if self._next.sent_s > until_s:
                return
            self.messages += 1
            yield self._next
            self._next = None

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


class Screen:
    """A listener that keeps the newest snapshot."""

    def __init__(self) -> None:
        self.newest = Snapshot()

    def on_snapshot(self, snapshot: Snapshot, /) -> None:
        """Keep it."""
        self.newest = snapshot

    def on_log(self, lines: Sequence[str], /) -> None:
        """Print it: nothing is expected."""
        print(*lines, sep="\n")

    def on_output(self, lines: Sequence[str], replaces: int, /) -> None:
        """Pass it over."""

    def on_rewind(self) -> None:
        """Pass it over."""

    def on_failure(self, failure: Failed, /) -> None:
        """Fail."""
        raise SystemExit(failure.sentence + failure.traceback)


def session_costs(options: argparse.Namespace) -> dict[str, float | int | str]:
    """Return what a session takes that is told of so many ranks, with the rank that it names."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "ranks.jsonl"
        told = [f"--{name}={getattr(options, name)}" for name in ("ranks", "nodes", "seconds")]
        subprocess.run([sys.executable, __file__, *told, f"--write={path}"], check=True)
        source, screen = Told(path), Screen()
        session = Session(
            Plan(workload="", settings={}),
            start_source=lambda _plan: source,
            beside=(),
            clock=source.now_s,
        )
        session.begin_sink("recording", Path(place) / "run.csv")
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        session.start(screen)
        while not source.at_end:
            time.sleep(1.0)
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        named = screen.newest.straggler
        session.close()
    return {
        "ranks": len(screen.newest.ranks),
        "messages_per_s": round(source.messages / took_s),
        "cores": round(cpu_s / took_s, 2),
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "late_s": round(took_s - options.seconds, 1),
        "named": "nobody" if named is None else f"rank {named.rank}, {named.phase}",
    }


def main() -> None:
    """Measure; print one line for people and one of JSON for each claim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--quiet", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write(options.write, options)
        return
    costs = session_costs(options)
    print(
        f"{costs['ranks']} ranks, {costs['messages_per_s']:,} messages/s: {costs['cores']} cores "
        f"and {costs['mb']} MB (targets {TARGET_CORES:g} and {TARGET_MB}); "
        f"{costs['late_s']} s late; named: {costs['named']}"
    )
    print(json.dumps({"benchmark": "ranks", **costs}))
    right = sum(slowed(case) for case in range(options.cases))
    alarms = sum(
        bool(judged(Ranks((2, 4, 8)[case % 3], seed=1000 + case), QUIET_S))
        for case in range(options.quiet)
    )
    print(f"{right} of {options.cases} slowdowns named within {WITHIN_S:g} s, rank and phase")
    print(f"{alarms} alarms in {options.quiet} quiet runs of {QUIET_S:g} s")
    result = {"cases": options.cases, "right": right, "quiet": options.quiet, "alarms": alarms}
    print(json.dumps({"benchmark": "stragglers", **result}))


if __name__ == "__main__":
    main()
