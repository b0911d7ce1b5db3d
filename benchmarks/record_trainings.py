"""Record trainings that nobody tuned for, and what is gained without their planted cause.

    python benchmarks/record_trainings.py --device cuda --out recorded

benchmarks/trainings has the scripts; its index.toml says of each what is planted. Each gets a
folder. `run.jsonl` tells of each step and reading of some seconds. `truth.json` has what is right
to say, the answers of that day before and after a profile, the profile's summary, and the mean step
of the script alone, by its own clock, with the cause and without it.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from record_causes import bare, write
from watched_cause import WatchedCause, last_core, neighbours, watched

from gpudash.protocol.answer import Answer
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Device, Lever
from gpudash.run.user_command import understand
from gpudash.trace.summary import Summary
from workloads.standard_levers import usable_cores

FOLDER = Path(__file__).parent / "trainings"
START_S = 60.0
"""Patience until a script's first measured steps."""
ANSWER_S = 1.0
"""Until an answer rests on a profile."""
LIMIT_S = 90.0
"""For a recording, or for a script alone, at most."""
ROUNDED = 4
HELD_OUT = "held out"


class Planted(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What index.toml says of a script."""

    devices: tuple[str, ...]
    plant: str
    owner: str
    """Of the time that is planted."""
    limits: tuple[str, ...]
    """Each of them is right to say."""
    lines: tuple[tuple[str, str], ...]
    """First and last line, as they stand in the script; the cause first."""
    helps: str
    best: tuple[str, ...] = ()
    """Levers of which each is right to propose first; none: no lever helps."""
    held_out: bool
    """Is judged once, after all changes."""
    cpu: dict[str, tuple[str, ...]] = {}
    """What differs where there is no GPU."""

    def on(self, device: str) -> "Planted":
        return msgspec.structs.replace(self, **self.cpu) if device == "cpu" else self


class Truth(msgspec.Struct, kw_only=True):
    """What is known of a recorded training beside its steps."""

    schema_version: int = 1
    script: str
    held_out: bool
    owner: str
    limits: tuple[str, ...]
    best: tuple[str, ...]
    plant: str
    helps: str
    lines: tuple[tuple[int, int], ...]
    """Of each place in the script that is right to name: first and last."""
    device: Device | None = None
    cores: int = msgspec.field(default_factory=usable_cores)
    load: dict[str, float] = {}
    """Of the machine in the minute before each part."""
    found: str = ""
    settings: Settings = {}
    levers: tuple[Lever, ...] = ()
    answer: Answer | None = None
    """Before the profile."""
    profiled_answer: Answer | None = None
    summary: Summary | None = None
    profile_refusal: str = ""
    trials: tuple[()] = ()
    """No lever is tried: the plant is taken away instead."""
    planted: dict[str, float] | None = None
    """Mean step of the script alone, in ms, and of how many steps …"""
    unplanted: dict[str, float] | None = None
    """… and without the cause."""
    gain_pct: float | None = None
    """Steps a second without the cause over those with it, less 100 %."""
    seconds: dict[str, float] = {}
    failure: str | None = None


class Recorder:
    """Records one script."""

    def __init__(self, name: str, planted: Planted, arguments: argparse.Namespace) -> None:
        self._script, self._arguments = FOLDER / f"{name}.py", arguments
        self._is_crowded = "others" in planted.limits
        self._folder = arguments.out / name
        facts = msgspec.structs.asdict(planted.on(arguments.device))
        fields = Truth.__struct_fields__
        known: dict[str, Any] = {one: facts[one] for one in fields if one in facts}
        known["lines"] = lines_of(self._script, planted)
        self.truth = Truth(script=name, **known)
        self._began_s = time.monotonic()

    def record(self) -> None:
        """Record, then run the script alone; whatever fails is written down."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._record()
            self._run_alone()
        except Exception as error:  # noqa: BLE001  # the next script is to be recorded too
            traceback.print_exc()
            self.truth.failure = f"{type(error).__name__}: {error}"
        self._pack()
        self._done("end")

    def _record(self) -> None:
        os.environ |= {"PLANT": "1", "SECONDS": "600"}
        self._note_load("recording")
        command = understand(self._words, None if self._is_crowded else sys.executable)
        with self._crowd(), watched(command, LIMIT_S, lambda _side: None) as one:
            self._watch(one)

    def _watch(self, one: WatchedCause) -> None:
        truth, session = self.truth, one.session
        session.begin_sink("recording", self._folder / "run.csv", force=True, every_step=True)
        one.wait(lambda now: bool(now.results) and now.results[-1].steps > 0, START_S)
        self._done("start")
        until_s = time.monotonic() + self._arguments.seconds
        one.wait(lambda _: time.monotonic() > until_s)
        now = one.snapshot
        truth.device, truth.found, truth.settings = now.device, now.found, now.settings
        truth.levers, truth.cores = now.levers, now.usable_cores or truth.cores
        truth.answer = now.answer
        self._done("steps")
        truth.summary = one.profiled()
        truth.profile_refusal = one.snapshot.profile_refusal
        deepened_s = time.monotonic() + ANSWER_S
        one.wait(lambda _: time.monotonic() > deepened_s)
        truth.profiled_answer = one.snapshot.answer
        session.stop_recording()
        if not one.goes_on():
            failure = session.failure
            truth.failure = failure.sentence if failure is not None else "it ended, or took long"
        self._done("profile")

    def _run_alone(self) -> None:
        self._note_load("alone")
        os.environ["SECONDS"] = str(self._arguments.alone)
        found = []
        for plant in ("1", "0"):
            os.environ["PLANT"] = plant
            with self._crowd():
                found.append(self._alone())
        self.truth.planted, self.truth.unplanted = found
        self.truth.gain_pct = round(100 * (found[0]["step_ms"] / found[1]["step_ms"] - 1), 1)
        self._done("alone")

    def _alone(self) -> dict[str, float]:
        words = self._words[1:] if self._is_crowded else (sys.executable, *self._words)
        ended = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        figures = [line for line in ended.stdout.splitlines() if line.startswith("{")]
        if not figures:
            raise RuntimeError(f"no figure; {ended.stderr.strip()[-400:]}")
        found: dict[str, float] = json.loads(figures[0])
        return {name: round(value, ROUNDED) for name, value in found.items()}

    @property
    def _words(self) -> tuple[str, ...]:
        if self._is_crowded:
            return ("--", "taskset", "-c", last_core(), sys.executable, str(self._script))
        return (str(self._script),)

    @contextmanager
    def _crowd(self) -> Iterator[None]:
        """Keep other jobs on the script's core, where they are what is planted."""
        if self._is_crowded and os.environ["PLANT"] == "1":
            with neighbours(last_core()):
                yield
        else:
            yield

    def _note_load(self, part: str) -> None:
        self.truth.load[part] = round(os.getloadavg()[0], 2)

    def _pack(self) -> None:
        log = self._folder / "run.jsonl"
        if log.exists():
            packed = gzip.compress(bare(log.read_text()).encode(), mtime=0)
            log.with_suffix(".jsonl.gz").write_bytes(packed)
        for path in (log, *self._folder.glob("run.csv"), *self._folder.glob("run.json")):
            path.unlink(missing_ok=True)

    def _done(self, part: str) -> None:
        now_s = time.monotonic()
        self.truth.seconds[part] = round(now_s - self._began_s, 2)
        self._began_s = now_s
        write(self._folder / "truth.json", self.truth)


def main() -> None:
    """Record the scripts; print a line of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    index = trainings()
    parser.add_argument("--only", nargs="+", choices=index, default=list(index), metavar="NAME")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="each N-th, from the I-th on")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path("recorded"), metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=12.0, help="of steps before the profile")
    parser.add_argument("--alone", type=float, default=4.0, help="seconds of each run alone")
    parser.add_argument("--stop-after", type=float, default=1e9, help="begin no script then (s)")
    parser.add_argument("--table", action="store_true", help="print the README's table alone")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(index))
        return
    until_s = time.monotonic() + arguments.stop_after
    names = [one for one in arguments.only if arguments.device in index[one].devices]
    first, every = map(int, arguments.part.split("/"))
    for name in names[first - 1 :: every]:
        if time.monotonic() > until_s:
            print(f"{name}: no time was left", flush=True)
            continue
        recorder = Recorder(name, index[name], arguments)
        recorder.record()
        print(line(recorder.truth), flush=True)


def trainings() -> dict[str, Planted]:
    """Return what is planted in each script."""
    text = (FOLDER / "index.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Planted])


def lines_of(script: Path, planted: Planted) -> tuple[tuple[int, int], ...]:
    """Return the numbers of the lines that are right to name."""
    found = [one.strip() for one in script.read_text(encoding="utf-8").splitlines()]
    for text in (text for place in planted.lines for text in place):
        if found.count(text) != 1:
            raise ValueError(f"{script.name} has {found.count(text)} times: {text}")
    return tuple((1 + found.index(first), 1 + found.index(last)) for first, last in planted.lines)


def table(index: dict[str, Planted]) -> str:
    """Return what is planted, in Markdown."""
    rows: list[tuple[str, ...]] = [
        ("script", "on", "planted", "owner", "right to say", "line", "what helps", "")
    ]
    rows += [
        (
            name,
            ", ".join(one.devices),
            one.plant,
            one.owner,
            " or ".join(one.limits)
            + (f"; CPU: {' or '.join(cpu)}" if (cpu := one.cpu.get("limits")) else ""),
            ", ".join(shown(*place) for place in lines_of(FOLDER / f"{name}.py", one)),
            one.helps + (f" (`{'`, `'.join(one.best)}`)" if one.best else ""),
            HELD_OUT if one.held_out else "",
        )
        for name, one in index.items()
    ]
    rows.insert(1, ("---",) * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)


def shown(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}–{last}"


def line(truth: Truth) -> str:
    """Return what was recorded of a script, in a line."""
    answer = truth.profiled_answer or truth.answer
    said = f"{answer.title} ({answer.step_ms or 0:.1f} ms)" if answer else "no answer"
    parts = [
        f"{truth.script}: {sum(truth.seconds.values()):.0f} s",
        HELD_OUT if truth.held_out else said,
        "profile" if truth.summary else f"no profile {truth.profile_refusal}".strip(),
    ]
    if truth.planted and truth.unplanted:
        alone = (truth.planted["step_ms"], truth.unplanted["step_ms"])
        parts.append(f"alone {alone[0]:.2f} ms, without {alone[1]:.2f} ({truth.gain_pct:+.0f} %)")
    return ", ".join(parts) + (f"; FAILED: {truth.failure}" if truth.failure else "")


if __name__ == "__main__":
    main()
