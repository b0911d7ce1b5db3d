"""Start two commands, A and B, once each, and measure them: at the same time, or one by one.

At the same time they run in turns, block by block. Where that is not possible, because both do not
fit into memory or one works on while it is paused, one is started after the other.
"""

import argparse
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psutil

from gpudash.cli.headless import News, session_of
from gpudash.cli.user_training import UserTraining
from gpudash.compare.alternation import (
    FEWEST_BLOCKS,
    TOLD,
    SideBlocks,
    alone,
    alternating,
    undisturbed,
)
from gpudash.compare.blocks import MeasuredBlock
from gpudash.compare.counted import Each
from gpudash.errors import Exit, UsageError
from gpudash.protocol.training import TRAINING_ENDED
from gpudash.run.guarded import Guarded
from gpudash.run.user_command import UserCommand
from gpudash.snapshot import Snapshot
from gpudash.trace.counts import count
from gpudash.trace.read import read
from workloads.standard_levers import usable_cores

POLL_S = 0.05
PATIENCE_S = 60.0
"""Seconds without a step after which a side is said to hang."""
BUSY = 0.05
"""Share of the usable cores that a paused side may take: more would slow the other one."""
CONTEXT_MIB = 1024
"""What a process takes on a GPU beside what PyTorch's allocator holds, at most."""
PROFILED_STEPS = 10
"""Of each side, for its counts."""
FEWEST_TOLD = 4
"""Times that a training has told a count, for that to be its usual one: it may compile once."""
SHOWN_LINES = 20
"""Of what a side printed, if it fails."""


class Asked(NamedTuple):
    """One of both sides: what it is called, and what is started."""

    name: str
    command: UserCommand


class MeasuredRound(NamedTuple):
    """What one start of both has shown; A's come first."""

    seconds: float
    blocks: tuple[Sequence[MeasuredBlock], Sequence[MeasuredBlock]]
    losses: tuple[dict[int, float], dict[int, float]]
    snapshots: tuple[Snapshot, Snapshot]
    counts: tuple[Each | str, Each | str] = ("", "")
    """What the steps of each had in the first start, or why that is not known."""
    disturbed: int = 0
    """Blocks beside others' work, of both, that are left out."""
    measured_s: float = 0.0
    """Of its seconds, of one side or both at once."""
    why_apart: str = ""
    """Why both were not measured at the same time, as a clause."""


class NoResultError(Exception):
    """A start has none, as its training failed or was interrupted."""

    def __init__(self, code: Exit, why: str = "", printed: Sequence[str] = ()) -> None:
        super().__init__(code)
        self.code = code
        self.why, self.printed = why, printed
        """Of a side that failed, why, and what it printed last."""


class _SideError(Exception):
    """A side cannot be measured."""

    def __init__(self, started: "Started", why: str) -> None:
        super().__init__(why)
        self.started, self.why = started, why


class Started:
    """A side that trains; what it prints is kept for a failure."""

    def __init__(
        self,
        which: int,
        asked: Asked,
        side: SideBlocks,
        folder: Path,
        arguments: argparse.Namespace,
        began_s: float,
    ) -> None:
        """`which` is 0 for A; `began_s` is when the first start began.

        Raise WorkerError if it cannot start.
        """
        self.which, self.asked, self.side, self.began_s = which, asked, side, began_s
        self._output = folder / f"{which}.txt"
        with self._output.open("wb") as file:
            hold = partial(Guarded, stdout=file.fileno(), stderr=file.fileno())
            self.training = UserTraining(asked.command, hold)
            training = self.training
            self.session = session_of(training.plan, arguments, **training.source)
            side.go = self.session.resume
            self.session.start(training.news, began_s)
        self.session.conduct(side)

    @property
    def news(self) -> News:
        return self.training.news

    @property
    def snapshot(self) -> Snapshot:
        return self.news.snapshot

    @property
    def has_ended(self) -> bool:
        return self.session.wait(0)

    @property
    def why_too_short(self) -> str:
        job, (why, code) = self.training.job, self.training.outcome(self.session.failure)
        if code is not None or job is None or not job.started:
            return why
        return "it ended before it was measured; valid: a command that trains for a minute or more"

    @property
    def hangs(self) -> bool:
        return (self.snapshot.quiet_s or 0.0) > PATIENCE_S

    def close(self) -> None:
        self.session.close()
        self.training.wait()
        self.training.close()

    def failed(self, why: str) -> NoResultError:
        printed = self._output.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        return NoResultError(Exit.FAILED, f"{self.asked.name}: {why}", printed)


class Rounds:
    """Starts both again and again."""

    def __init__(
        self,
        asked: tuple[Asked, Asked],
        arguments: argparse.Namespace,
        until_s: float,
        show: Callable[[Sequence[Started]], None],
        say: Callable[[str], None],
        lasts_s: Callable[[float], float] = float,
    ) -> None:
        """No start goes on after `until_s`. `show` is called many times a second.

        After a start that took so long, blocks are measured for `lasts_s` of that.
        """
        self._asked, self._arguments, self._until_s = asked, arguments, until_s
        self._show, self._say, self._lasts_s = show, say, lasts_s
        self._began_s = time.monotonic()
        self._signals: list[int] = []
        self._running: list[Started] = []
        self._counts: dict[int, Each | str] = {}  # by side
        self._is_tried = False  # whether both can be measured at the same time
        self._why_apart = ""

    def next(self, seed: int) -> MeasuredRound:
        """Raise NoResultError, or WorkerError if a command cannot start."""
        if self._signals:
            raise NoResultError(Exit.INTERRUPTED)
        with TemporaryDirectory(prefix="gpudash-") as folder:
            try:
                if not self._why_apart:
                    if (found := self._at_once(seed, Path(folder))) is not None:
                        return found
                    self._say(f"{self._why_apart}: A and B are started one after the other")
                return self._in_turns(seed, Path(folder))
            except _SideError as error:
                raise error.started.failed(error.why) from error

    def _at_once(self, seed: int, folder: Path) -> MeasuredRound | None:
        """Return None if that is not possible; then `_why_apart` says why."""
        sides, turns = alternating(seed)
        began_s = start_s = time.monotonic()
        with self._started() as start:
            start(0, sides[0], folder)
            if not self._is_tried:
                self._until(lambda: sides[0].waits and "worker_rss_mib" in sides[0].held_mib)
                if not _fits_twice(sides[0]):
                    self._why_apart = f"{self._asked[0].name} needs most of the memory"
                    return None
                start_s = time.monotonic()
            start(1, sides[1], folder)
            try:
                self._until(lambda: all(one.waits for one in sides))
            except _SideError as error:
                if self._is_tried:
                    raise
                self._why_apart = f"{error.started.asked.name} failed beside the other: {error.why}"
                return None
            ready_s = time.monotonic()
            if not self._is_tried:
                self._until(lambda: None not in [one.paused_cpu_pct for one in sides])
                self._why_apart = self._why_loud(sides)
                if self._why_apart:
                    return None
                self._is_tried = True
            turns.begin()
            measured_s = self._measure(ready_s - start_s)
            found = self._found(sides, began_s, measured_s)
            return found._replace(counts=self._count(folder))

    def _why_loud(self, sides: tuple[SideBlocks, SideBlocks]) -> str:
        most_pct = 100 * BUSY * usable_cores()
        for asked, side in zip(self._asked, sides, strict=True):
            if (side.paused_cpu_pct or 0.0) > most_pct:
                return f"{asked.name} works on while it is paused"
        return ""

    def _in_turns(self, seed: int, folder: Path) -> MeasuredRound:
        began_s, sides, measured_s = time.monotonic(), alone(), 0.0
        snapshots = [Snapshot(), Snapshot()]
        for which in (0, 1) if seed % 2 == 0 else (1, 0):
            start_s, side = time.monotonic(), sides[which]
            with self._started() as start:
                start(which, side, folder)
                self._until(lambda side=side: len(side.blocks) > 0)  # type: ignore[misc]
                measured_s += self._measure(time.monotonic() - start_s) / 2
                snapshots[which] = self._running[0].snapshot
                counting_s = time.monotonic()
                counts = self._count(folder)
                began_s += time.monotonic() - counting_s
        return self._found(sides, began_s, measured_s)._replace(
            snapshots=(snapshots[0], snapshots[1]), counts=counts
        )

    def _found(
        self, sides: tuple[SideBlocks, SideBlocks], began_s: float, measured_s: float
    ) -> MeasuredRound:
        (a, b), running = sides, self._running
        pairs = [*zip(a.blocks, b.blocks, strict=False)]
        kept = undisturbed(pairs)
        of_a, of_b = zip(*kept, strict=True)
        return MeasuredRound(
            seconds=time.monotonic() - began_s,
            blocks=(of_a, of_b),
            measured_s=measured_s,
            disturbed=2 * (len(pairs) - len(kept)),
            losses=(a.losses, b.losses),
            why_apart=self._why_apart,
            snapshots=(running[0].snapshot, running[-1].snapshot) if running else (Snapshot(),) * 2,
        )

    def _count(self, folder: Path) -> tuple[Each | str, Each | str]:
        """Profile what runs, whose blocks are measured, unless an earlier start has done so."""
        for one in self._running:
            if one.which not in self._counts:
                self._counts[one.which] = self._counted(one, folder / f"{one.which}.trace.json")
        return self._counts.get(0, ""), self._counts.get(1, "")

    def _counted(self, one: Started, trace: Path) -> Each | str:
        often = {name: each for name, each in one.side.told.items() if len(each) >= FEWEST_TOLD}
        told = {TOLD[name]: {"": tuple(values)} for name, values in often.items()}
        until_s = min(self._until_s, time.monotonic() + PATIENCE_S)

        def comes(is_there: Callable[[], bool]) -> bool:
            while not is_there():
                one.session.wait(POLL_S)
                self._show(self._running)
                if self._signals:
                    raise NoResultError(Exit.INTERRUPTED)
                if one.has_ended or time.monotonic() > until_s:
                    return False
            return True

        one.session.end_comparison()
        one.session.resume()
        if comes(lambda: one.side.done):
            asked = one.session.profile(PROFILED_STEPS, trace)
            if comes(lambda: one.snapshot.last_command >= asked and not one.snapshot.profiling):
                try:
                    return one.snapshot.profile_refusal or {**count(read(trace)), **told}
                except UsageError as error:
                    return str(error)
        return (
            "it ended before its profile" if one.has_ended else "its profile was not over in time"
        )

    # ── what trains ─────────────────────────────────────────────────────────────────────

    @contextmanager
    def _started(self) -> Iterator[Callable[[int, SideBlocks, Path], None]]:
        """Have all that is started within end, and wait for that."""

        def start(which: int, side: SideBlocks, folder: Path) -> None:
            asked, how = self._asked[which], self._arguments
            self._running.append(Started(which, asked, side, folder, how, self._began_s))

        try:
            yield start
        finally:
            for one in self._running:
                if not one.has_ended:
                    one.training.ask_to_end(one.session)
            for one in self._running:
                while not one.session.wait(POLL_S):
                    self._show(self._running)
                one.close()
            self._running = []

    def _until(self, is_known: Callable[[], bool]) -> None:
        while not is_known():
            self._wait()

    def _measure(self, start_s: float) -> float:
        """Measure for as long as is best after such a start, and longer for the first losses.

        Return how long that was.
        """
        began_s, least_s = time.monotonic(), self._lasts_s(start_s)
        pairs: int | None = self._arguments.pairs

        def is_known() -> bool:
            fewest, running = self._fewest_blocks(), self._running
            if fewest < FEWEST_BLOCKS:
                return False
            are_over = any(one.has_ended for one in running) or all(
                one.side.done for one in running
            )
            if self._is_late or are_over:
                return True
            if pairs is not None:
                return fewest >= pairs
            has_losses = all(one.side.has_losses for one in running)
            return time.monotonic() - began_s >= (least_s if has_losses else start_s)

        self._until(is_known)
        return time.monotonic() - began_s

    @property
    def _is_late(self) -> bool:
        """Whether the budget is spent."""
        return time.monotonic() > self._until_s

    def _fewest_blocks(self) -> int:
        return min(len(one.side.blocks) for one in self._running)

    def _wait(self) -> None:
        """Raise NoResultError or _SideError if that is in vain."""
        self._running[0].session.wait(POLL_S)
        self._show(self._running)
        if self._signals:
            raise NoResultError(Exit.INTERRUPTED)
        if self._is_late:
            raise NoResultError(Exit.DONE)
        fewest = self._fewest_blocks()
        for one in self._running:
            if one.side.failure is not None and not one.has_ended:
                ends = one.side.failure == TRAINING_ENDED  # which its session knows a moment later
                raise _SideError(one, one.why_too_short if ends else one.side.failure)
            if one.hangs:
                raise _SideError(one, f"no step has ended for {PATIENCE_S:.0f} s")
            if one.has_ended and fewest < FEWEST_BLOCKS:
                raise _SideError(one, one.why_too_short)

    def take(self, number: int, frame: object) -> None:
        """Pass a signal on, and end."""
        self._signals.append(number)
        for one in self._running:
            one.training.take(number, frame)

    def stop(self) -> None:
        """End; any thread may call it."""
        self._signals.append(signal.SIGINT)


def _fits_twice(side: SideBlocks) -> bool:
    """Tell whether a second one would find room; where that is not known, it is tried."""
    held = side.held_mib
    free, reserved = held.get("mem_free_mib"), held.get("mem_reserved_mib")
    if free is not None and reserved is not None and free < reserved + CONTEXT_MIB:
        return False
    return psutil.virtual_memory().available / 2**20 > held.get("worker_rss_mib", 0.0)
