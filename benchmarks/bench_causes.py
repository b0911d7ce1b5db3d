"""Does the answer name the cause? Trainings whose cause is known: benchmarks/causes.

    python benchmarks/bench_causes.py --device cuda
    python benchmarks/bench_causes.py --device cpu --only input_slow_dataset paused_evaluation
    python benchmarks/bench_causes.py --only input_slow_dataset --prove

Each script of benchmarks/causes runs under gpudash as a user's own would. After the warm-up the
answer is taken again and again; the one given most often counts, before a profile and with one.
With --prove the first lever that has a range is compared by an A/B: does the gain lie in it? Where
no lever has one, what is told to be gained without the limit is: the cause goes and comes back
(`--mended-while` of a script; the neighbours stand still). Not of the unclear ones: they rest as
long as their step asks for, so what a lever gains, they wait.
The last lines are a table of verdict against cause in Markdown.
"""

import argparse
import time
from collections import Counter
from typing import NamedTuple

from ratios import ratio_with_interval
from truth import truths
from watched_cause import LOOK_S, WatchedCause, cause_of, watching

from gpudash import format as fmt
from gpudash.compare.ab import Question
from gpudash.compare.paired_t import block_order
from gpudash.diagnosis.headline import Headline, headline
from gpudash.diagnosis.model import model_of
from gpudash.diagnosis.parts import WAIT
from gpudash.diagnosis.recent_step import RecentStep, recent_step
from gpudash.protocol.answer import Gain, Try
from gpudash.trace.summary import Summary

VERDICTS = {
    "input": "input-bound",
    "copy": "copy-bound",
    "sync": "sync-bound",
    "launch": "launch-bound",
    "compute": "compute-bound",
    "memory": "memory-bandwidth-bound",
    "communication": "communication-bound",
    "others": "limited by other jobs",
    "paused": "paused",
    "unclear": "unclear",
    "cpu": "CPU-bound",
    "own_code": "bound by your own code",
}
"""The verdict for each limit of causes/truth.toml."""
PACED = ("unclear",)
"""Their scripts' rests follow the step (`causes/cause.py`, Pace)."""
LEAST_PAIRS = 2
START_S, ALL_ALIKE = 60.0, 4
"""For the first answer; a verdict counts once it was given so many times."""
PAIRS = 8
SETTLE_S = 0.5
WITHOUT: dict[str, tuple[float, int]] = {"sync": (4.0, 8), "others": (4.0, 8), "paused": (12.0, 4)}
"""Seconds of a block with a cause or without it, and pairs of blocks. The paused ones pause every
four seconds."""


class Found(NamedTuple):
    """What was said of one script."""

    script: str
    without: str
    """The verdict before a profile."""
    verdict: str
    evidence: tuple[str, ...]
    range: str = ""
    gain: str = ""
    within: bool | None = None

    @property
    def cause(self) -> str:
        """Return the cause by the script's name."""
        return cause_of(self.script)


def main() -> None:
    """Run the scripts; print what was said of each, and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    scripts = sorted(truths("cpu"))
    parser.add_argument("--only", nargs="+", choices=scripts, default=scripts, metavar="NAME")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--watch", type=float, default=8.0, help="seconds of answers for a verdict")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for a script, at most")
    parser.add_argument("--prove", action="store_true", help="compare the lever that is proposed")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of that comparison")
    arguments = parser.parse_args()
    found = []
    for script in arguments.only:
        found.append(diagnose(script, arguments))
        print(line(found[-1], arguments.device), flush=True)
    print(f"\n{table(found)}\n\n{score(found, arguments.device)}")


def diagnose(script: str, arguments: argparse.Namespace) -> Found:
    """Run a script and take the answers."""
    with watching(script, arguments.device, arguments.limit) as script_watched:
        watched = Watched(script_watched)
        without = watched.verdict(arguments.watch)
        is_profiled = watched.profile()
        verdict = watched.verdict(arguments.watch) if is_profiled else without
        last = watched.shown
        found = Found(script, without, verdict, last.evidence if last is not None else ())
        proposed = next((one for one in watched.tries if one.gain is not None), None)
        proves = arguments.prove and found.cause not in PACED
        if proposed is not None:
            found = found._replace(range=proposed.promise)
            return watched.proof(found, proposed, arguments.pairs) if proves else found
        gain = watched.without
        if gain is None:
            return found
        found = found._replace(range=f"without the cause: {gain.label}")
        return watched.proof_without(found, gain) if proves and found.cause in WITHOUT else found


class Watched:
    """What is said of a script under gpudash."""

    def __init__(self, watched: WatchedCause) -> None:
        self._watched = watched
        self._profile: Summary | None = None
        self.shown: Headline | None = None
        self.without: Gain | None = None
        """What is gained if the newest limit is gone."""
        self.tries: tuple[Try, ...] = ()
        """Of the newest answer that has any."""

    def verdict(self, seconds: float) -> str:
        """Return the verdict that is given most often; `none` where there is none in time."""
        said: Counter[str] = Counter()
        began_s = time.monotonic()
        patience_s = START_S
        while time.monotonic() - began_s < patience_s and self._watched.goes_on():
            shown = self._look()
            limit = shown.answer.limit if shown.answer is not None else ""
            if shown.kind in (limit, "paused"):
                if not said:
                    patience_s = time.monotonic() - began_s + seconds
                title = shown.kind if shown.kind == "paused" else shown.title
                said[title.partition(",")[0]] += 1
        return said.most_common(1)[0][0] if said.total() >= ALL_ALIKE else "none"

    def profile(self) -> bool:
        """Profile some steps; return whether that could be."""
        self._profile = self._watched.profiled()
        return self._profile is not None

    def proof(self, found: Found, proposed: Try, pairs: int) -> Found:
        """Compare what is proposed, and tell whether its gain lies in the range."""
        offer = next(one for one in self._watched.snapshot.levers if one.name == proposed.lever)
        rebuilds = offer.effect != "next step"
        question = Question(
            lever=proposed.lever,
            a=proposed.before,
            b=proposed.value,
            short_runs=rebuilds,
            pairs=pairs,
        )
        self._watched.session.compare(question)
        self._watched.wait(lambda now: now.comparison is not None and now.comparison.is_over)
        shown, gain = self._watched.snapshot.comparison, proposed.gain
        if shown is None or shown.change is None or gain is None:
            return found._replace(gain=(shown.failure if shown is not None else None) or "no A/B")
        measured = fmt.change(shown.change, shown.low, shown.high)
        return found._replace(gain=measured, within=_lies_in(gain, shown.change))

    def proof_without(self, found: Found, gain: Gain) -> Found:
        """Take the cause away and bring it back; tell whether what is gained lies in the range."""
        seconds, pairs = WITHOUT[found.cause]
        rates: dict[str, list[float]] = {"A": [], "B": []}  # with the cause, and without
        for order in block_order(pairs, seed=0):
            pair = {side: self._rate(seconds, side) for side in order}
            if not self._watched.goes_on():
                break
            for side, rate in pair.items():
                rates[side].append(rate)
        if len(rates["A"]) < LEAST_PAIRS:
            return found._replace(gain="too few blocks")
        change, low, high = (one - 1 for one in ratio_with_interval(rates["B"], rates["A"]))
        within = _lies_in(gain, change)
        return found._replace(gain=fmt.change(change, low, high), within=within)

    def _rate(self, seconds: float, side: str) -> float:
        self._watched.mend(side)
        time.sleep(SETTLE_S)
        begin = self._watched.snapshot
        self._watched.wait(lambda now: now.elapsed_s >= begin.elapsed_s + seconds)
        end = self._watched.snapshot
        return (end.total_steps - begin.total_steps) / max(end.elapsed_s - begin.elapsed_s, 1e-3)

    def _look(self) -> Headline:
        time.sleep(LOOK_S)
        snapshot = self._watched.snapshot
        self.shown = shown = headline(snapshot)
        self.tries = shown.tries or self.tries
        step, kind = recent_step(snapshot, snapshot.usable_cores, self._profile), shown.kind
        self.without = without(kind, step) or self.without
        return shown


def without(kind: str, step: RecentStep) -> Gain | None:
    """Return the gain without a limit that no lever moves; None if it is another or unknown."""
    step_ms, least_pct = step.step_ms, 1.0
    if kind == "sync" and step_ms and (model := model_of(step)) is not None:
        least_pct = 1 - model.without(WAIT).high / step_ms
    elif kind == "cores" and step.core_wait_pct is not None:
        least_pct = 1 - step.core_wait_pct * max(step.asked_cores or 1.0, 1.0) / 100
    else:
        return None
    return Gain(None, 100 * (1 / max(least_pct, 0.01) - 1))


def _lies_in(gain: Gain, change: float) -> bool:
    return (gain.low_pct or 0.0) <= 100 * change <= gain.high_pct


def line(found: Found, device: str) -> str:
    """Return what was said of a script, in a line."""
    mark = "✓" if is_right(found, device) else "✗"
    first = "; ".join(found.evidence[:2])
    changed = f" (before a profile: {found.without})" if found.without != found.verdict else ""
    parts = [f"{mark} {found.script}: {found.verdict}{changed}: {first}"]
    parts += [f"  {found.range}"] if found.range else []
    within = {True: "in the range", False: "NOT in the range", None: ""}[found.within]
    parts += [f"  measured {found.gain} {within}"] if found.gain else []
    return "\n".join(parts)


def is_right(found: Found, device: str) -> bool:
    """Whether the verdict is a limit of the script on this device."""
    limits = truths(device)[found.script].limits
    return found.verdict in (VERDICTS.get(limit) for limit in limits)


def table(found: list[Found]) -> str:
    """Return verdict against cause, in Markdown."""
    verdicts = sorted({one.verdict for one in found})
    counts = Counter((one.cause, one.verdict) for one in found)
    rows = [("cause", *verdicts), ("---",) * (len(verdicts) + 1)]
    rows += [
        (cause, *(str(counts[cause, verdict] or "") for verdict in verdicts))
        for cause in dict.fromkeys(one.cause for one in found)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def score(found: list[Found], device: str) -> str:
    """Return how many verdicts were right, and how many gains were in their range."""
    right = sum(is_right(one, device) for one in found)
    said = f"{right} of {len(found)} verdicts are the cause"
    proven = [one.within for one in found if one.within is not None]
    return f"{said}; {sum(proven)} of {len(proven)} gains are in the range" if proven else said


if __name__ == "__main__":
    main()
