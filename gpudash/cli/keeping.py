"""Keep what a verb has judged with the project's attempts, and tell whether it holds among them."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gpudash import __version__
from gpudash.cli.stdout import complain
from gpudash.compare.error_rate import level, which_hold
from gpudash.compare.paired_t import Estimate, holds_zero, is_within
from gpudash.compare.sequential import LEAST
from gpudash.errors import Exit, GpudashError
from gpudash.recording.files import reason, shown
from gpudash.run.attempts import Attempt, keep, project_file, read
from workloads.levers import LeverError

WITHOUT: dict[int, str] = {Exit.REFUSED: "refused", Exit.INTERRUPTED: "interrupted"}


class Judged(NamedTuple):
    """An interval, and what it is made of."""

    found: Estimate
    told: str
    counted: str
    replicates: int
    effects: tuple[float, ...] | None
    """None: Student's interval; else those for which it was made."""


class Keeping:
    """An attempt at a change that is under way."""

    def __init__(self, arguments: argparse.Namespace, lever: str, a: str, b: str) -> None:
        self._path = project_file()
        self._command = shlex.join(arguments.command)
        self._lever, self._a, self._b = lever, a, b
        self._kept: Sequence[Attempt] | None = None

    def judged(self, one: Judged) -> bool | None:
        """Return whether it holds among all attempts; None if it claims nothing, or is not kept."""
        found = one.found
        self._keep(
            replace(
                self._made(word(found), one.told),
                change=found.change,
                low=found.low,
                high=found.high,
                confidence=found.confidence,
                counted=one.counted,
                count=one.replicates,
                level=level(found, one.replicates, one.effects),
            )
        )
        return None if self._kept is None else holding(self._kept)[-1]

    def without(self, code: int, why: str = "") -> None:
        self._keep(self._made(WITHOUT.get(code, "failed"), why))

    def _made(self, verdict: str, told: str) -> Attempt:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return Attempt(
            when=now,
            gpudash=__version__,
            command=self._command,
            verdict=verdict,
            told=told,
            lever=self._lever,
            a=self._a,
            b=self._b,
        )

    def _keep(self, attempt: Attempt) -> None:
        """Say in a line why it is not kept: the verdict is not lost."""
        if self._path is None:
            return
        try:
            keep(self._path, attempt)
            self._kept = (*before(self._path, attempt), attempt)
        except OSError as error:
            complain(f"gpudash: this attempt is not kept in {shown(self._path)}: {reason(error)}")


def before(path: Path, attempt: Attempt) -> tuple[Attempt, ...]:
    """Return the attempts before one that was kept: others may have been appended since."""
    known = read(path).known
    at = len(known) - 1 - known[::-1].index(attempt) if attempt in known else len(known)
    return known[:at]


def attempts_of(user_command: Sequence[str]) -> list[Attempt]:
    """Return what was tried of a training."""
    path, known = project_file(), tuple[Attempt, ...]()
    with suppress(OSError):
        known = read(path).known if path is not None and user_command else ()
    told = f" {shlex.join(user_command)}"
    return [one for one in known if one.command.endswith(told)]


@contextmanager
def keeping(arguments: argparse.Namespace, lever: str, a: str, b: str) -> Iterator[Keeping]:
    """Keep an attempt that ends by an error too."""
    attempt = Keeping(arguments, lever, a, b)
    try:
        yield attempt
    except (GpudashError, LeverError) as error:
        attempt.without(error.exit if isinstance(error, GpudashError) else Exit.REFUSED, str(error))
        raise


def word(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return "inconclusive"
    if holds_zero(found):
        return "no difference" if is_within(found, LEAST) else "inconclusive"
    return "faster" if found.change > 0 else "slower"


def holding(attempts: Sequence[Attempt]) -> list[bool | None]:
    """Tell of each whether it holds; None: it claims nothing. One never measured spends nothing."""
    tried = [one for one in attempts if one.is_tried]
    held = iter(which_hold([one.claimed for one in tried]))
    known = [next(held) if one.is_tried else False for one in attempts]
    return [
        holds if one.claimed is not None else None
        for one, holds in zip(attempts, known, strict=True)
    ]
