"""Judge the answers to trainings that benchmarks/record_trainings.py has recorded.

    python -m benchmarks.judge_trainings recorded
    python -m benchmarks.judge_trainings recorded --held-out

A limit is right if index.toml has it. A proposal is right if it names a lever that helps; where
none helps, if there is none with a figure. A training counts where its cause costs enough.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudash.diagnosis.answer import find
from gpudash.protocol.answer import Answer
from gpudash.protocol.training import Lever
from gpudash.trace.summary import Summary
from tests.diagnosis.recorded import at_end

LEAST_GAIN_PCT = 20.0
WORDS = {"data": "input", "cores": "others", "asides": "paused", "none": "unclear"}
"""A limit's word in an answer → in index.toml."""
CROWDED = "short of cores"
"""The title of `others` where the training's own processes have the cores."""
OF_INPUT = {"epoch_start", "unpacking"}
"""Owners whose answer is that the input limits, with the owner in its evidence."""


class Truth(msgspec.Struct):
    """What is known of a training."""

    script: str
    held_out: bool
    limits: tuple[str, ...]
    best: tuple[str, ...]
    cores: int
    levers: tuple[Lever, ...] = ()
    summary: Summary | None = None
    gain_pct: float | None = None

    @property
    def counts(self) -> bool:
        return (self.gain_pct or 0.0) >= LEAST_GAIN_PCT

    def is_limit(self, answer: Answer | None) -> bool:
        right = {*self.limits, *(["input"] if OF_INPUT & {*self.limits} else ())}
        if answer is None or answer.title == CROWDED:
            return answer is not None and answer.limit in right
        return WORDS.get(answer.limit, answer.limit) in right

    def is_proposal(self, answer: Answer | None) -> bool:
        tries = answer.tries if answer is not None else ()
        first = next((one for one in tries if one.gain is not None), None)
        return not self.best if first is None else first.lever in self.best


class Judged(NamedTuple):
    """An answer, with or without a profile."""

    truth: Truth
    is_profiled: bool
    answer: Answer | None


def judged(folder: Path) -> Iterator[Judged]:
    """Answer as the tree of today does, at the end of the recording."""
    truth = msgspec.json.decode((folder / "truth.json").read_bytes(), type=Truth)
    live = at_end(folder / "run.jsonl.gz", truth.levers)
    for profile in (None, truth.summary):
        yield Judged(truth, profile is not None, find(live, truth.cores, profile))


def main() -> None:
    """Print each answer, and how many are right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--held-out", action="store_true", help="those alone, else the others")
    arguments = parser.parse_args()
    right: Counter[tuple[bool, str]] = Counter()
    for log in sorted(arguments.folder.rglob("run.jsonl.gz")):
        for truth, is_profiled, answer in judged(log.parent):
            if truth.held_out is not arguments.held_out:
                continue
            is_limit, is_proposal = truth.is_limit(answer), truth.is_proposal(answer)
            marks = "".join("✓" if one else "✗" for one in (is_limit, is_proposal))
            said = answer.title if answer is not None else "no answer"
            print(f"{marks if truth.counts else '–':3}{truth.script:22}{said}")
            if truth.counts:
                right[is_profiled, "of"] += 1
                right[is_profiled, "limits"] += is_limit
                right[is_profiled, "proposals"] += is_proposal
    for is_profiled in (False, True):
        limits, proposals, of = (right[is_profiled, name] for name in ("limits", "proposals", "of"))
        with_ = "with a profile" if is_profiled else "without one"
        print(f"{with_}: {limits} limits and {proposals} first proposals are right, of {of}")


if __name__ == "__main__":
    main()
