"""Record trainings whose cause is known, with a profile and a sweep of their levers.

    python benchmarks/record_causes.py --device cuda --out recorded
    python benchmarks/record_causes.py --device cpu --only input_in_process compute_gan --seconds 4

What a model of the step can be judged by without the training. Each script of causes gets a folder
with the recording of some seconds and `found.json`. `run.jsonl` tells of each step and reading.
`found.json` has the levers, the answer before and after a profile, the profile's summary, and what
each value of each lever changes. The sweep runs all values in turns, in short blocks. A lever that
is refused or fails has its reason. `found.json` is written again after each part.

Levers that change the training itself are left out, and so is `compile`, which takes up to a minute
(`--compile`).
"""

import argparse
import re
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from truth import truths
from watched_cause import WatchedCause, cause_of, watching

from gpudash.compare.paired_t import estimate
from gpudash.compare.sweep.grid import BlockRow, Grid, Sweep
from gpudash.protocol.answer import Answer
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Device, Lever
from gpudash.snapshot import Snapshot
from gpudash.trace.summary import Summary
from workloads.standard_levers import usable_cores

ROOT = Path(__file__).resolve().parents[1]
START_S = 60.0
"""Patience until a script's first measured steps."""
ANSWER_S = 1.5
"""Until an answer rests on a profile."""
END_S = 5.0
"""Patience until the blocks of a sweep that is cut short have ended."""
LONGEST = 3.0
"""A sweep takes up to so many times its seconds, until its first round is complete."""
CHANGES_TRAINING = frozenset({"batch_size", "model_scale", "data", "seed"})


class Part(NamedTuple):
    """Levers that are swept together, because their blocks are equally long."""

    min_steps: int
    min_s: float
    share: float
    """Of the seconds for all parts."""


SOON = Part(min_steps=5, min_s=0.15, share=0.35)
"""Levers that take effect at the next step."""
REBUILT = Part(min_steps=10, min_s=0.5, share=0.65)
"""Those that need a new loader or a rebuilt model."""
ROUNDS = 4


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What one value of a lever changes."""

    lever: str
    before: str
    value: str
    effect: str
    change: float | None = None
    """Steps a second with the value over those without, less 1; None if not measured."""
    low: float | None = None
    high: float | None = None
    """The change's 95 % interval; None with fewer than two rounds."""
    pairs: int = 0
    failure: str | None = None


class Found(msgspec.Struct, kw_only=True):
    """All that was found of one script."""

    schema_version: int = 1
    script: str
    limits: tuple[str, ...]
    """What is right, as causes/truth.toml says …"""
    best: tuple[str, ...]
    """… and the levers that are right to propose first."""
    device: Device | None = None
    cores: int = msgspec.field(default_factory=usable_cores)
    found: str = ""
    """What gpudash has found in the script, as one line."""
    settings: Settings = {}
    levers: tuple[Lever, ...] = ()
    answer: Answer | None = None
    """Before the profile."""
    profiled_answer: Answer | None = None
    summary: Summary | None = None
    profile_refusal: str = ""
    trials: list[Trial] = []
    blocks: list[list[BlockRow]] = []
    """Of each part of the sweep. Cell 0 has the script's settings, the others one trial each."""
    total_steps: int = 0
    seconds: dict[str, float] = {}
    """What each part of the recording took."""
    failure: str | None = None
    """Why there is no more."""


class Recorder:
    """Records one script."""

    def __init__(self, script: str, folder: Path, arguments: argparse.Namespace) -> None:
        self._script, self._arguments = script, arguments
        self._device = device_of(script, arguments.device)
        self._folder = folder / script
        truth = truths(self._device)[script]
        self.found = Found(script=script, limits=truth.limits, best=truth.best)
        self._began_s = time.monotonic()

    def record(self) -> None:
        """Record; whatever fails is written down."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            with watching(self._script, self._device, self._arguments.limit) as watched:
                self._watch(watched)
        except Exception as error:  # noqa: BLE001  # the next script is to be recorded too
            traceback.print_exc()
            self.found.failure = f"{type(error).__name__}: {error}"
        log = self._folder / "run.jsonl"
        if log.exists():
            log.write_text(bare(log.read_text()))
        self._done("end")

    def _watch(self, watched: WatchedCause) -> None:
        found, session = self.found, watched.session
        session.begin_sink("recording", self._folder / "run.csv", force=True, every_step=True)
        watched.wait(lambda now: bool(now.results) and now.results[-1].steps > 0, START_S)
        self._done("start")
        until_s = time.monotonic() + self._arguments.seconds
        watched.wait(lambda _: time.monotonic() > until_s)
        self._note(watched.snapshot)
        found.answer = watched.snapshot.answer
        self._done("steps")
        found.summary = watched.profiled()
        found.profile_refusal = watched.snapshot.profile_refusal
        deepened_s = time.monotonic() + ANSWER_S
        watched.wait(lambda _: time.monotonic() > deepened_s)
        found.profiled_answer = watched.snapshot.answer
        session.stop_recording()
        self._done("profile")
        self._sweep(watched)
        found.total_steps = watched.snapshot.total_steps
        if not watched.goes_on():
            failure, ended = session.failure, session.wait(0)
            late = "it ended" if ended else f"it took longer than {self._arguments.limit:g} s"
            found.failure = failure.sentence if failure is not None else late

    def _note(self, snapshot: Snapshot) -> None:
        found = self.found
        found.device, found.found = snapshot.device, snapshot.found
        found.settings, found.levers = snapshot.settings, snapshot.levers
        found.cores = snapshot.usable_cores or found.cores
        found.total_steps = snapshot.total_steps

    def _sweep(self, watched: WatchedCause) -> None:
        trials = list(trials_of(watched.snapshot, self.found.profiled_answer))
        self.found.trials += [one for one in trials if one.failure is not None]
        left = [one for one in trials if one.failure is None]
        compiling = [one for one in left if one.lever == "compile"]
        soon = [one for one in left if one.effect == "next step" and one not in compiling]
        rebuilt = [one for one in left if one.effect != "next step"]
        parts = [(part, those) for part, those in ((SOON, soon), (REBUILT, rebuilt)) if those]
        whole_s = self._arguments.sweep / sum(part.share for part, _ in parts) if parts else 0.0
        for part, those in parts:
            self._sweep_part(watched, part, those, whole_s * part.share)
        if self._arguments.compile and compiling:
            self._sweep_part(watched, SOON, compiling, self._arguments.compile_limit)

    def _sweep_part(
        self, watched: WatchedCause, part: Part, trials: Sequence[Trial], seconds: float
    ) -> None:
        rows = swept(watched, part, trials, seconds)
        self.found.blocks.append(rows)
        self.found.trials += [judged(one, cell, rows) for cell, one in enumerate(trials, 1)]
        self._done(f"sweep {len(self.found.blocks)}")

    def _done(self, part: str) -> None:
        now_s = time.monotonic()
        self.found.seconds[part] = round(now_s - self._began_s, 2)
        self._began_s = now_s
        write(self._folder / "found.json", self.found)


def main() -> None:
    """Record the scripts; print a line of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    scripts = sorted(truths("cpu"))
    parser.add_argument("--only", nargs="+", choices=scripts, default=scripts, metavar="NAME")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path("recorded"), metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=5.0, help="of steps before the profile")
    parser.add_argument("--sweep", type=float, default=12.0, help="seconds for all levers, at most")
    parser.add_argument("--compile", action="store_true", help="sweep compile, too")
    parser.add_argument("--compile-limit", type=float, default=60.0, help="seconds for it, at most")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for a script, at most")
    arguments = parser.parse_args()
    for script in arguments.only:
        recorder = Recorder(script, arguments.out, arguments)
        recorder.record()
        print(line(recorder.found), flush=True)


def write(path: Path, record: msgspec.Struct) -> None:
    """Write a record as JSON that a person can read, without what tells of the machine."""
    text = msgspec.json.format(msgspec.json.encode(record), indent=1)
    path.write_text(bare(text.decode()))


def bare(text: str) -> str:
    """Return the text without the machine's folders and the GPU's identity."""
    folders = (f"{ROOT}/", f"{tempfile.gettempdir()}/")
    for folder in folders:
        text = text.replace(folder, "")
    return re.sub(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}", "GPU-0", text)


def device_of(script: str, device: str) -> str:
    """Return the device of a script: ranks without a GPU each share the CPU."""
    if device == "cpu" or cause_of(script) != "communication":
        return device
    return "cuda" if _gpus() > 1 else "cpu"


def _gpus() -> int:
    from gpudash.telemetry.gpu import list_gpus
    from gpudash.telemetry.nvml import GpuUnavailable

    try:
        return len(list_gpus()[1])
    except GpuUnavailable:
        return 0


def trials_of(snapshot: Snapshot, answer: Answer | None) -> Iterator[Trial]:
    """Yield the changes that can be tried, and those that are refused, with the reason."""
    for offer in snapshot.levers:
        if offer.name in CHANGES_TRAINING:
            continue
        before = snapshot.settings.get(offer.name, offer.default)
        about: dict[str, Any] = {"lever": offer.name, "before": before, "effect": offer.effect}
        if offer.refusal is not None:
            yield Trial(value="", failure=offer.refusal, **about)
            continue
        for value, why in offer.impossible:
            yield Trial(value=value, failure=why, **about)
        proposed = [one.value for one in answer.tries if one.lever == offer.name] if answer else []
        for value in dict.fromkeys((*values_of(offer, before), *proposed)):
            if value != before:
                yield Trial(value=value, **about)


def values_of(offer: Lever, before: str) -> list[str]:
    """Return the values of a lever that are tried; of a count, those above the active one."""
    if offer.kind == "switch":
        return ["off", "on"]
    if offer.kind == "choice":
        return list(offer.choices)
    more = [max(2 * int(before), 1)]
    more += [usable_cores()] if offer.name == "num_workers" else []
    return [str(one) for one in sorted(set(more)) if int(before) < one <= offer.maximum]


def swept(
    watched: WatchedCause, part: Part, trials: Sequence[Trial], seconds: float
) -> list[BlockRow]:
    """Run all changes in turns, round after round, at least once; return the blocks."""
    grid = Grid(
        rows=({},),
        columns=({}, *({one.lever: one.value} for one in trials)),
        rounds=ROUNDS,
        min_steps=part.min_steps,
        min_s=part.min_s,
    )
    sweep, until_s = Sweep(grid), time.monotonic() + seconds

    def is_over(_snapshot: Snapshot) -> bool:
        is_late = time.monotonic() > until_s and len(sweep.rows) >= grid.cells
        return sweep.done or is_late

    watched.session.conduct(sweep)
    watched.wait(is_over, LONGEST * seconds)
    if not sweep.done:
        watched.session.end_comparison()
        watched.wait(lambda _: sweep.done, END_S)
    return sweep.rows


def judged(trial: Trial, cell: int, rows: Sequence[BlockRow]) -> Trial:
    """Return the trial with what its blocks say against those of the script's settings."""
    failure = next((row.failure for row in rows if row.cell == cell and row.failure), None)
    own, script = (
        {row.round: _step_ms(row) for row in rows if row.cell == one} for one in (cell, 0)
    )
    pairs = [
        (script_ms, own_ms)
        for turn, own_ms in own.items()
        if own_ms is not None and (script_ms := script.get(turn)) is not None
    ]
    if failure is not None or not pairs:
        return msgspec.structs.replace(trial, failure=failure or "no time was left for it")
    of = estimate(pairs)
    return msgspec.structs.replace(
        trial, change=of.change, low=of.low, high=of.high, pairs=of.pairs
    )


def _step_ms(row: BlockRow) -> float | None:
    return 1e3 * row.busy_s / row.steps if row.busy_s and row.steps else None


def line(found: Found) -> str:
    """Return what was recorded of a script, in a line."""
    answer = found.profiled_answer or found.answer
    measured = sorted(
        (one for one in found.trials if one.change is not None), key=lambda one: -(one.change or 0)
    )
    parts = [
        f"{found.script}: {sum(found.seconds.values()):.0f} s",
        f"{found.total_steps} steps",
        f"{answer.title} ({answer.step_ms:.1f} ms)" if answer and answer.step_ms else "no answer",
        "profile" if found.summary else f"no profile {found.profile_refusal}".strip(),
        f"{len(measured)} of {len(found.trials)} levers",
    ]
    parts += [f"{one.lever}={one.value} {100 * (one.change or 0):+.0f} %" for one in measured[:1]]
    return ", ".join(parts) + (f"; FAILED: {found.failure}" if found.failure else "")


if __name__ == "__main__":
    main()
