"""Slow one rank down in one part of its step, and see whether both are named.

    python benchmarks/bench_stragglers.py --ranks 2
    python benchmarks/bench_stragglers.py --ranks 4 --width 256 --rows 256 --times 1

Ranks train under torchrun and gpudash. One of them is slowed down in one part of its step, by so
many percent of the step, again and again; between two slowdowns it is left alone. A case is right
if rank and part are named within --limit seconds. Quiet times without a slowdown must name nobody.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

from delays import DELAY, PARTS

from gpudash.commands.headless import News
from gpudash.commands.run import begin, plan_of
from gpudash.protocol import Plan
from gpudash.run.held import Child
from gpudash.run.script import ScriptSource
from gpudash.run.session import Session
from gpudash.run.user_command import understand
from gpudash.snapshot import Straggler

SCRIPT = Path(__file__).parent / "slowed_training.py"
SLOW_RANK = 1
SLOWER_PCT = (3.0, 5.0, 10.0, 20.0)
NAMES = {
    "input": ("data",),
    "copy": ("copy",),
    "forward": ("forward",),
    "backward": ("backward",),
    "optimizer": ("optimizer",),
    "host": ("host", "your_code"),
}
"""What a part may be called."""
LOOK_S, START_S, SETTLE_S = 0.25, 90.0, 3.0


class Case(NamedTuple):
    """A slowdown, and what was said of it."""

    part: str
    slower_pct: float
    said: Straggler | None
    after_s: float

    @property
    def is_right(self) -> bool:
        """Whether rank and part are named."""
        return (
            self.said is not None
            and self.said.rank == SLOW_RANK
            and self.said.phase in NAMES[self.part]
        )


def main() -> None:
    """Slow a rank down in each way; print what was said, and how often that was right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--times", type=int, default=2, help="each slowdown so often")
    parser.add_argument("--quiet", type=int, default=20, help="times without a slowdown")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds until it must be named")
    parser.add_argument("--quiet-seconds", type=float, default=10.0)
    parser.add_argument("--only", nargs="+", choices=PARTS[1:], default=PARTS[1:])
    arguments, sizes = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        delay = Path(folder) / "delay"
        delay.write_bytes(DELAY.pack(0, 0.0))
        with watching(arguments.ranks, delay, sizes) as (session, news):
            look = Look(session, news)
            look.until(lambda: news.snapshot.total_steps > 200, START_S)
            step_ms = statistics.median(look.step_ms() for _ in range(20))
            print(f"{len(news.snapshot.ranks)} ranks, {step_ms:.2f} ms a step", flush=True)
            alarms = 0
            for _ in range(arguments.quiet):
                said = look.until(lambda: news.snapshot.straggler, arguments.quiet_seconds)
                alarms += said is not None
                if said is not None:
                    print(f"false alarm: {said}", flush=True)
                    look.until(lambda: news.snapshot.straggler is None, arguments.limit)
            cases = []
            for pct, part, _ in product(SLOWER_PCT, arguments.only, range(arguments.times)):
                delay.write_bytes(DELAY.pack(PARTS.index(part), step_ms * pct / 100))
                cases.append(look.at(part, pct, arguments.limit))
                delay.write_bytes(DELAY.pack(0, 0.0))
                print(line(cases[-1]), flush=True)
                look.until(lambda: news.snapshot.straggler is None, arguments.limit)
                time.sleep(SETTLE_S)
    print(f"\n{table(cases, arguments.only)}\n")
    right = sum(one.is_right for one in cases)
    print(f"{right} of {len(cases)} named; {alarms} false alarms in {arguments.quiet} quiet times")


class Look:
    """What the session says, looked at now and then."""

    def __init__(self, session: Session, news: News) -> None:
        self._session, self._news = session, news

    def until(self, found: Callable[[], object], limit_s: float) -> Straggler | None:
        """Wait until there is something, or the time is over; return who is named then."""
        until_s = time.monotonic() + limit_s
        while not found() and time.monotonic() < until_s and not self._session.wait(0):
            time.sleep(LOOK_S)
        return self._news.snapshot.straggler

    def at(self, part: str, slower_pct: float, limit_s: float) -> Case:
        """Wait until the right rank and part are named; return what was said last."""
        began_s = time.monotonic()
        case = Case(part, slower_pct, None, 0.0)

        def is_right() -> bool:
            nonlocal case
            after_s = time.monotonic() - began_s
            case = case._replace(said=self._news.snapshot.straggler, after_s=after_s)
            return case.is_right

        self.until(is_right, limit_s)
        return case

    def step_ms(self) -> float:
        """Return the median step time of now."""
        time.sleep(LOOK_S)
        return self._news.snapshot.step_ms_p50 or 0.0


@contextmanager
def watching(ranks: int, delay: Path, sizes: list[str]) -> Iterator[tuple[Session, News]]:
    """Start the ranks under gpudash; end them."""
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    slowed = ("--delay", str(delay), "--slow-rank", str(SLOW_RANK), *sizes)
    words = ("--", *torchrun, "--nproc-per-node", str(ranks), str(SCRIPT), *slowed)
    command, place, news = understand(words, sys.executable), begin(), News(quiet=True)
    children: list[Child] = []

    def start(_plan: Plan) -> ScriptSource:
        children.append(Child(command, place, output_to_stderr=True))
        return ScriptSource(command.name, children[0], place)

    session = Session(plan_of(command), start_source=start)
    session.start(news)
    try:
        yield session, news
    finally:
        for _ in range(2):  # interrupted, then terminated
            session.stop()
            session.wait(5.0)
        session.close()
        children[0].wait()
        children[0].close()


def line(case: Case) -> str:
    """Return what was said of a slowdown."""
    mark, said = "✓" if case.is_right else "✗", case.said
    told = "nobody" if said is None else f"rank {said.rank}, {said.phase or 'nowhere'}"
    more = "" if said is None else f", {said.excess_ms:.2f} ms, others wait {said.others_wait_ms}"
    return f"{mark} {case.part} +{case.slower_pct:.0f} %: {told}{more}, after {case.after_s:.1f} s"


def table(cases: list[Case], parts: list[str]) -> str:
    """Return how many were right, by part and slowdown, in Markdown."""
    rows = [("part", *(f"{pct:.0f} %" for pct in SLOWER_PCT))]
    rows.append(("---",) * len(rows[0]))
    for part in parts:
        of = [[one for one in cases if (one.part, one.slower_pct) == (part, p)] for p in SLOWER_PCT]
        rows.append((part, *(f"{sum(one.is_right for one in each)} of {len(each)}" for each in of)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
