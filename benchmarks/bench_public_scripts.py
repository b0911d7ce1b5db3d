"""Compare what gpudash says of public training scripts with a profile of the same run.

    python benchmarks/bench_public_scripts.py --at REPOSITORIES --python ENV/bin/python [--only A,B]

The scripts are no part of this repository. public_scripts.toml names the folder of each below that
of the repositories, its command, and the steps and samples a step that it makes by its own
settings. Each runs under `gpudash run --record --every-step`, started by annotated_script.py:
torch.profiler traces some of its seconds. Of each traced step whose phases gpudash has measured,
the time of each phase is computed from the profile's annotations alone, between the moments at
which gpudash says that the step began and ended.

A script has its steps right if gpudash counts exactly as many, its phases if none differs by more
than 5 % of the time, its samples if they are those of a step, or unknown, and its rate if as many
steps end in the traced seconds as the script's updates say, within 2 % or a step.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

ROOT = Path(__file__).parents[1]
SCRIPTS = Path(__file__).with_name("public_scripts.toml")
MOST_PCT, RATE_PCT = 5.0, 2.0
TIMEOUT_S = 240.0
LOADS, UPDATES, LEARNS, BACKWARD = (
    "enumerate(DataLoader)#",
    "Optimizer.step#",
    "call to learn ",
    "backward",
)
"""Prefixes of the profile's annotations."""
PHASES = {"data": "data_ms", "forward": "forward_ms", "backward": "backward_ms"} | {
    "optimizer": "optimizer_ms"
}
"""By phase: gpudash's value."""
Span: TypeAlias = tuple[str, float, float]


class Step(NamedTuple):
    """A step, or several together, as gpudash reports it."""

    began_s: float
    ended_s: float
    values: dict[str, float]
    steps: int
    samples: int | None


class Found(NamedTuple):
    """What was found of one script."""

    name: str
    steps: tuple[int | None, int]
    """By gpudash, and in truth; likewise below."""
    samples: tuple[float | None, float]
    in_window: tuple[int, float]
    """Steps that ended in the traced seconds."""
    off_pct: dict[str, float]
    """By phase: gpudash's part of the time less the profile's."""
    compared: int
    """Steps that both have measured."""

    @property
    def row(self) -> str:
        """As a row of the table."""
        worst = max(self.off_pct, key=lambda one: abs(self.off_pct[one]), default="")
        phases = f"{worst} {self.off_pct[worst]:+.1f} %" if worst else "–"
        said, true = self.samples
        samples = "–" if said is None else f"{said:.1f}"
        steps = f"{self.steps[0]} of {self.steps[1]}"
        window = f"{self.in_window[0]} of {self.in_window[1]:.0f}"
        wrong = ", ".join(name for name, holds in self.is_right.items() if not holds)
        return (
            f"| {self.name} | {steps} | {phases} ({self.compared}) | {samples} of {true:g} "
            f"| {window} | {wrong} |"
        )

    @property
    def is_right(self) -> dict[str, bool]:
        """Which of the four are right."""
        said, true = self.samples
        ended, meant = self.in_window
        return {
            "steps": self.steps[0] == self.steps[1],
            "phases": bool(self.off_pct) and max(map(abs, self.off_pct.values())) <= MOST_PCT,
            "samples": said is None or abs(said / true - 1) <= RATE_PCT / 100,
            "rate": abs(ended - meant) <= max(1.5, meant * RATE_PCT / 100),
        }


# ── the profile ─────────────────────────────────────────────────────────────────────────


def phases_of(spans: Sequence[Span]) -> list[Span]:
    """Return the phases' spans by the profile's annotations, those inside of others first."""
    passes = list(_passes(spans))
    loads = [("data", *span[1:]) for span in spans if span[0].startswith(LOADS)]
    updates = [("optimizer", *span[1:]) for span in spans if span[0].startswith(UPDATES)]
    return [*loads, *passes, *updates]


def _passes(spans: Sequence[Span]) -> Iterator[Span]:
    """Yield forward and backward passes.

    A forward pass lasts from a call to learn until the backward pass that follows, without what
    lies between two calls of the same module: that is the script's own code.
    """
    calls = list[Span]()
    for name, begin_s, end_s in spans:
        if name.startswith(LEARNS):
            calls.append((name, begin_s, end_s))
        elif name == BACKWARD:
            yield "backward", begin_s, end_s
            seen = set[str]()
            for (called, call_s, over_s), after in zip_longest(calls, calls[1:]):
                seen.add(called)
                again = after is not None and after[0] in seen
                yield "forward", call_s, begin_s if after is None else over_s if again else after[1]
                seen = set() if again else seen
            calls = []
        elif name.startswith((UPDATES, LOADS)) and calls and begin_s > calls[-1][2]:
            yield from (("forward", *one[1:]) for one in calls)
            calls = []


def seconds_in(phases: Iterable[Span], began_s: float, ended_s: float) -> dict[str, float]:
    """Return the seconds of each phase between two moments; of nested ones the first counts."""
    found = defaultdict[str, float](float)
    taken = list[tuple[float, float]]()
    for phase, begin_s, end_s in phases:
        begin, end = max(begin_s, began_s), min(end_s, ended_s)
        if end > begin:
            shared = sum(max(0.0, min(end, b) - max(begin, a)) for a, b in taken)
            found[phase] += max(0.0, end - begin - shared)
            taken.append((begin, end))
    return found


# ── gpudash ─────────────────────────────────────────────────────────────────────────────


def steps_of(log: Path) -> Iterator[Step]:
    """Yield the steps that gpudash recorded."""
    for line in log.read_text().splitlines():
        message = json.loads(line)
        body = message[4] if isinstance(message, list) else None
        if isinstance(body, dict) and body["type"] == "Progress":
            for one in body["steps"]:
                values, count, samples = [*one[4:7], *({}, 1, None)[len(one) - 4 :]][:3]
                yield Step(one[2] - one[3] * max(count, 1) / 1e3, one[2], values, count, samples)


def watched(name: str, script: dict[str, Any], options: argparse.Namespace) -> Found | str:
    """Run the script; return what was found, or how it failed."""
    with tempfile.TemporaryDirectory() as folder:
        record, out = Path(folder) / "run.csv", Path(folder) / "profile.json"
        words = [sys.executable, "-m", "gpudash", "run", "--python", options.python]
        words += ["--record", str(record), "--every-step"]
        words += [str(ROOT / "benchmarks" / "annotated_script.py"), str(out), *script["command"]]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
        with subprocess.Popen(
            words,
            cwd=options.at / script["folder"],
            env=environment | script.get("environment", {}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as run:
            try:
                _, errors = run.communicate(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                return f"took longer than {TIMEOUT_S:.0f} s"
        last = errors.strip().splitlines()[-3:]
        if run.returncode or not out.exists():
            return "; ".join(last)
        profile, steps = json.loads(out.read_text()), [*steps_of(record.with_suffix(".jsonl"))]
        return judged(name, script, last[-1], profile, steps)


def judged(
    name: str, script: dict[str, Any], line: str, profile: dict[str, Any], steps: Sequence[Step]
) -> Found:
    """Compare what both say."""
    said = re.search(r"([\d,]+) steps?", line)
    began_s, ended_s = profile["began_s"], profile["ended_s"]
    traced = [one for one in steps if began_s < one.ended_s <= ended_s]
    phases = phases_of(profile["spans"])
    off_s = defaultdict[str, float](float)
    both = [one for one in traced if one.began_s >= began_s and "backward_ms" in one.values]
    for step in both:
        true = seconds_in(phases, step.began_s, step.ended_s)
        for phase, value in PHASES.items():
            off_s[phase] += step.values.get(value, 0.0) / 1e3 - true[phase]
    whole_s = sum(one.ended_s - one.began_s for one in both)
    known = [one for one in steps if one.samples is not None]
    samples = sum(one.samples or 0 for one in known) / sum(one.steps for one in known or steps)
    updates = sum(began_s < at <= ended_s for at in profile["updates_s"])
    each = script["steps"] / max(len(profile["updates_s"]), 1)
    return Found(
        name,
        (int(said[1].replace(",", "")) if said else None, script["steps"]),
        (samples if known else None, script["samples"]),
        (sum(one.steps for one in traced), updates * each),
        {phase: 100 * off / whole_s for phase, off in off_s.items()},
        len(both),
    )


def main() -> None:
    """Print a row for each script, then how many are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", type=Path, required=True, help="the folder of the repositories")
    parser.add_argument("--python", default=sys.executable, help="of the scripts' environment")
    parser.add_argument("--only", default="", help="names, with commas")
    options = parser.parse_args()
    scripts = tomllib.loads(SCRIPTS.read_text())
    right: Counter[str] = Counter()
    names = options.only.split(",") if options.only else list(scripts)
    print("| script | steps | phases (steps compared) | samples a step | steps traced | wrong |")
    for name in names:
        found = watched(name, scripts[name], options)
        if isinstance(found, str):
            print(f"| {name} | {found} |", flush=True)
            continue
        print(found.row, flush=True)
        right.update(one for one, holds in found.is_right.items() if holds)
    print(", ".join(f"{one} {count} of {len(names)}" for one, count in right.items()))


if __name__ == "__main__":
    main()
