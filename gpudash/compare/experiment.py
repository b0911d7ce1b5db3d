"""What drives blocks: it asks for them, matches outcomes, is stopped, breaks off, and ends."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from gpudash.compare import meter
from gpudash.compare.blocks import BlockLog, Outcome
from gpudash.compare.meter import EnergyMeter
from gpudash.protocol.commands import Block
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import HostReading, Reading
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown, SlowingShown
from gpudash.protocol.training import Progress, State

MIN_STEPS = 5
BLOCK_S = 0.15
"""Seconds of a block under a lever that takes effect at the next step …"""
RUN_S = 0.5
"""… and of a short run under one that needs a new loader or a rebuilt model."""


class Experiment(ABC):
    """Ends with a verdict or a failure, or with what it can show.

    Only the session's thread calls it; any thread may read `done`.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self.verdict: str | None = None
        """The verdict sentence; None until there is one."""
        self.failure: str | None = None
        """Why there will be no verdict; None otherwise."""
        self.done = False
        """Whether no block of it is running or left."""
        self.cut_short = False
        """Whether it was concluded before it knew all that was asked."""
        self._log = BlockLog()
        self._now_s = 0.0  # of the newest record …
        self._began_s: float | None = None  # … and of the first since it began: a state may be old
        self._stopping = False  # the worker was told

    @property
    def is_over(self) -> bool:
        return self.verdict is not None or self.failure is not None

    @property
    def is_whole(self) -> bool:
        """Whether it has its verdict, and no end of the training cut it short."""
        return self.verdict is not None and not self.cut_short

    @property
    def lasted_s(self) -> float:
        return 0.0 if self._began_s is None else self._now_s - self._began_s

    def begin(self, state: State, run: int, /) -> tuple[Block, ...]:
        """Return the blocks that the worker in this state runs under this run number, if any."""
        self._log = BlockLog(run, (), state, self._meter(state))
        blocks = self._first(state, run)
        self._log.expect(blocks)
        return blocks

    def fold(self, item: Event | Reading, /) -> tuple[Block, ...] | None:
        """Return blocks to run instead, none at all to end it, else None."""
        if self.done:
            return None
        self._note_time(item)
        self._note(item)
        for outcome in self._log.fold(item):
            if not self.is_over:
                self._take(outcome)
        if self._log.over is not None:
            if not self.is_over:
                self._end_early(self._log.over)
            self.done = True
        if self.done or self._stopping:
            return None
        blocks = None if self.is_over else self._next()
        if self.is_over:
            self._stopping = True
            return ()
        self._log.expect(blocks or ())
        return blocks

    def cancel(self, reason: str) -> None:
        """Show what was measured so far if that is enough."""
        if not self.is_over:
            self._end_early(reason)

    @abstractmethod
    def shown(self) -> ComparisonShown | SlowingShown | None:
        """Return what the screen shows of it, if anything."""

    def news(self) -> Sequence[str]:
        """Return what is to be told since it was asked last."""
        return ()

    def ended(self, reason: str) -> str:
        """Say what it has found, once it was cancelled for this reason."""
        return f"{self.name}: {self.verdict or self.failure or reason}"

    @abstractmethod
    def _first(self, state: State, run: int) -> tuple[Block, ...]: ...

    def _meter(self, state: State) -> EnergyMeter | None:  # noqa: ARG002  # one may need it
        return None

    def _note_time(self, item: Event | Reading) -> None:
        match item:
            case State() | HostReading():
                self._now_s = max(self._now_s, item.at_s)
            case Progress():
                self._now_s = max(self._now_s, item.until_s)
            case _:
                return
        self._began_s = self._now_s if self._began_s is None else self._began_s

    def _note(self, item: Event | Reading) -> None:  # noqa: B027  # one needs no more
        """Note what else a record says, also after the end."""

    @abstractmethod
    def _take(self, outcome: Outcome) -> None: ...

    def _next(self) -> tuple[Block, ...] | None:
        return None

    @abstractmethod
    def _end_early(self, reason: str) -> None: ...


def block_of(
    number: int,
    changes: Settings,
    *,
    short_runs: bool,
    min_steps: int = MIN_STEPS,
    energy: bool = False,
    waits: bool = False,
) -> Block:
    """`short_runs`: its changes need a rebuild. `energy`: it is long enough for joules."""
    return Block(
        number=number,
        changes=changes,
        min_steps=min_steps,
        min_s=max(RUN_S if short_runs else BLOCK_S, meter.BLOCK_S * energy),
        waits=waits,
    )
