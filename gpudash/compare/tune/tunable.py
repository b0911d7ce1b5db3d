"""Which levers a tune tries, in which order, which values of them, and why it leaves others out."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from gpudash import format as fmt
from gpudash.diagnosis.effects import EFFECTS, helps_of
from gpudash.errors import UsageError
from gpudash.levers.known import OF_FROZEN
from gpudash.offers import refusal
from gpudash.process_levers import OF_PROCESS
from gpudash.protocol.answer import Try
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Lever
from gpudash.snapshot import Snapshot
from workloads.levers import AUTO, NUMERICS, Effect, find

PROCESS = frozenset(lever.name for lever in OF_PROCESS)
COSTS: dict[Effect, int] = {"next step": 0, "new loader": 1, "rebuilt model": 2}
"""The effects of a lever, the cheapest change first."""


class Tunable(NamedTuple):
    """A lever, and what of it may be tried."""

    lever: Lever
    proposed: tuple[str, ...] = ()
    """Values that the model of a step proposes."""
    most: int | None = None
    """The highest number to try; None: the lever's own bound."""

    @property
    def name(self) -> str:
        return self.lever.name

    @property
    def compiles(self) -> bool:
        return any(EFFECTS[word].compiles for word in helps_of(self.lever).values())

    def others(self, active: str) -> tuple[str, ...]:
        """Return the values around the active one, if it is a number."""
        values = self._around(active) if self.lever.kind == "count" else self.lever.values
        left_out = {active, AUTO, *dict(self.lever.impossible)}
        return tuple(dict.fromkeys(value for value in values if value not in left_out))

    def _around(self, active: str) -> Iterable[str]:
        if not active.isdecimal():
            return ()
        above = self.lever.step(active, +1)
        around = (self.lever.step(active, -1), above, self.lever.step(above, +1), *self.proposed)
        return (one for one in around if self.most is None or int(one) <= self.most)


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A lever that is not tried."""

    lever: str
    why: str
    """The reason, as a clause."""


class Chosen(NamedTuple):
    """What is tried, in order, and what is not."""

    tunables: tuple[Tunable, ...]
    left_out: tuple[LeftOut, ...]

    def require(self, workload: str) -> None:
        """Raise UsageError if nothing can be tried."""
        if not self.tunables:
            why = "; ".join(reasons(self.left_out)) or "it has no lever"
            raise UsageError(f"nothing to tune in {fmt.plain(workload)}: {why}")


def reasons(levers: Sequence[LeftOut]) -> Iterator[str]:
    ordered = sorted(levers, key=lambda one: one.why)
    for why, of_why in groupby(ordered, key=lambda one: one.why):
        yield f"{', '.join(one.lever for one in of_why)} ({why})"


def choose(snapshot: Snapshot, *, named: Sequence[str] = (), numerics: bool = False) -> Chosen:
    """Put the answer's proposals first. `named` are the only levers to try, if any.

    Raises LeverError for an unknown name.
    """
    levers, settings, answer = snapshot.levers, snapshot.settings, snapshot.answer
    tries = answer.tries if answer is not None else ()
    on_gpu = snapshot.device is not None and snapshot.device.kind == "cuda"
    names = {lever.name for lever in levers}
    tried: list[Tunable] = []
    left_out: list[LeftOut] = []
    for name in named:
        if names and name in OF_FROZEN and name not in names:
            left_out.append(LeftOut(lever=name, why=refusal(name, levers) or ""))
        else:
            find(levers, name)
    for lever in levers:
        if named and lever.name not in named:
            continue
        tunable = Tunable(lever, tuple(one.value for one in tries if one.lever == lever.name))
        if lever.name == "num_workers":
            tunable = tunable._replace(most=_most_workers(tunable, snapshot))
        why = _why_not(tunable, settings, named, numerics=numerics, on_gpu=on_gpu)
        active = settings.get(lever.name, lever.default)
        if why is None and not tunable.others(active):
            why = f"it has no other value here{lever.bound and f': {lever.bound}'}"
        if why is None:
            tried.append(tunable)
        else:
            left_out.append(LeftOut(lever=lever.name, why=why))
    return Chosen(tuple(sorted(tried, key=lambda one: _order(one, tries))), tuple(left_out))


def _why_not(
    tunable: Tunable,
    settings: Settings,
    named: Sequence[str],
    *,
    numerics: bool,
    on_gpu: bool,
) -> str | None:
    lever = tunable.lever
    if lever.refusal or (lever.needs_gpu and not on_gpu):
        return lever.refusal or "it needs a GPU"
    if lever.name in named:
        return None
    feeds = any(EFFECTS[word].loads for word in helps_of(lever).values())
    reasons = (
        (
            NUMERICS.get(lever.name) == "training",
            "it changes the training itself: --levers tries it",
        ),
        (lever.numerics and not numerics, "it computes other numbers: --numerics tries it"),
        (
            lever.name in PROCESS and not tunable.proposed,
            "nothing says that it helps here: --levers tries it",
        ),
        (feeds and settings.get("data", "loader") != "loader", "no loader makes the batches"),
    )
    return next((why for holds, why in reasons if holds), None)


def _most_workers(tunable: Tunable, snapshot: Snapshot) -> int | None:
    """Return two for a core, as some mostly wait for files."""
    cores, active = snapshot.usable_cores, snapshot.settings.get("num_workers", "0")
    return None if cores is None else max(2 * cores, *map(int, (*tunable.proposed, active)))


def _order(tunable: Tunable, tries: Sequence[Try]) -> tuple[bool, int, int, int]:
    """Put last what compiles: each change of another lever would compile again."""
    at = next((at for at, one in enumerate(tries) if one.lever == tunable.name), len(tries))
    if at < len(tries) and tries[at].gain is not None:
        return tunable.compiles, 0, 0, at
    return tunable.compiles, 1, COSTS[tunable.lever.effect], at
