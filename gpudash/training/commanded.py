"""A training as the loop sees it, in what outlasts a dashboard: settings, segment, steps, votes.

`Levers` is what the loop needs of its levers. `Replies` tells the dashboard what is refused.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from ..instrument.clock import Mark
from ..instrument.slowing import Slowing
from ..protocol.commands import AnyCommand, Blocks, Change, Profile, Slow
from ..protocol.envelope import Event
from ..protocol.inspections import Flops, Timing
from ..protocol.records import Settings, replace
from ..protocol.training import BlocksEnded, Note, RefusalKind, Refused
from .agreement import PATIENCE_S, Agreement, Decision
from .block_queue import BlockQueue


class Replies:
    """What the dashboard is told in answer; `send` sends any event."""

    def __init__(self, send: Callable[[Event], None], blocks: BlockQueue) -> None:
        self.send = send
        self._blocks = blocks

    def refuse(
        self,
        reason: str,
        command: AnyCommand | None = None,
        kind: RefusalKind = "bad_setting",
        failed: Settings | None = None,
    ) -> None:
        """Refuse what the block in progress or a step asked for, if there is no command."""
        block = self._blocks.current
        if isinstance(command, Blocks):
            now_s, answers = time.monotonic(), (command.id,)
            self.send(BlocksEnded(at_s=now_s, answers=answers, run=command.run, why=reason))
            return
        if isinstance(command, Profile):
            kind = "no_profile"
        asked = command.settings if isinstance(command, Change) else {}
        if command is None and block is not None:
            asked = block.changes
        refused = Refused(kind=kind, changes=asked if failed is None else failed, reason=reason)
        if command is not None:
            refused = replace(refused, answers=(command.id,))
        elif block is not None:
            refused = replace(refused, run=self._blocks.run, block=block.number)
        self.send(refused)

    def end_blocks(self, why: str) -> None:
        """End the run of blocks, which answers its commands."""
        self.send(self._blocks.end(time.monotonic(), why))


class Refusal(Exception):  # noqa: N818  # nothing went wrong
    """A lever is not moved; the message says why, as a clause."""

    kind: ClassVar[RefusalKind] = "bad_setting"


class OutOfMemory(Refusal):
    """Memory ran out with these settings."""

    kind = "out_of_memory"


class Levers(Protocol):
    """The levers of a training. They are moved on the thread that trains, between two steps."""

    @property
    def settings(self) -> Settings: ...

    @property
    def warmup_steps(self) -> int:
        """They follow the newest `begins`, or the start."""

    @property
    def burst_steps(self) -> int:
        """So many batches arrive at a time after the newest `enter`."""

    def resolve(self, changes: Settings) -> Settings:
        """Return all settings after these changes. Raises Refusal."""

    def needs_call(self, wanted: Settings) -> bool:
        """Return whether they must be rehearsed on a training call of the roots."""

    def enter(self, wanted: Settings) -> None:
        """Make the settings active. Raises Refusal; then call `CommandedTraining.put_back`."""

    def begins(self, *, in_blocks: bool, anew: bool) -> None:
        """Count no batches that are there already, or, if `anew`, that are being made.

        What is kept for a later block is freed unless blocks go on.
        """

    def restore(self) -> None:
        """Put back what the training had before any change."""


def phrase(settings: Settings) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


PATIENCE_SHARE = 0.25
"""Patience as a share of the process group's timeout, where that is short."""


class Return(NamedTuple):
    """The training went back to settings that worked, because others failed half-way."""

    kind: RefusalKind
    reason: str
    failed: Settings
    """The changes that did not work."""
    restored: Settings
    """The changes that lead back."""


class CommandedTraining(ABC):
    """One training with its levers. Methods without a body are for trainings that need them."""

    levers: Levers
    slowing: Slowing
    """Delays a part of each step while a block asks for it."""

    def __init__(self) -> None:
        self.requested: Settings = {}
        """The levers that were asked for, with the values asked for."""
        self.segment = 0
        self.flops: Flops | None = None
        """Flops of a step, once a profile has counted them."""
        self._agreement: Agreement | None = None
        self._store: Any = None
        """The process group's store, over which the ranks agree."""

    # ── what it is ──────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @property
    @abstractmethod
    def world_size(self) -> int: ...

    @property
    def is_shared(self) -> bool:
        return self.world_size > 1

    @property
    def speaks(self) -> bool:
        return not self.is_shared or rank() == 0

    @property
    @abstractmethod
    def precision(self) -> str:
        """That of matrix products, as `Peak` names it; empty if not known."""

    @property
    def is_compiled(self) -> bool | None:
        """A step's operators cannot be counted then; None: if anything was ever compiled."""
        return None

    @property
    def notes(self) -> tuple[Note, ...]:
        return ()

    @abstractmethod
    def owned(self) -> tuple[Iterable[nn.Module], Iterable[Optimizer]]: ...

    def why_not(self, command: AnyCommand) -> str | None:  # noqa: ARG002  # for those that refuse
        """Return why a command of this kind is never obeyed here; None: it is."""
        return None

    def why_not_slow(self, slow: Slow) -> str | None:
        return self.slowing.why_not(slow)

    def check_slow(self, slow: Slow | None) -> None:
        """Raise Refusal if this part of a step cannot be slowed."""
        why_not = None if slow is None else self.why_not_slow(slow)
        if why_not is not None:
            raise Refusal(why_not)

    def slow(self, slow: Slow | None) -> None:
        """Delay this part of each step of rank 0 from now on; None: nothing."""
        self.slowing.begin(slow if self.speaks else None)
        self.at_marks(self.slowing.at_mark if self.slowing.is_on else None)

    @abstractmethod
    def at_marks(self, call: Mark | None, renames: Mark | None = None) -> None:
        """Have `call` get each phase that begins, `renames` what the present one was all along."""

    # ── its steps ───────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def step(self) -> int: ...

    @property
    def taken(self) -> int:
        """The newest step that is begun: its batch may be prepared alone."""
        return self.step

    @property
    def is_filled(self) -> bool:
        """The next step does all that a step does."""
        return True

    @abstractmethod
    def interrupt(self) -> None:
        """Start the next step's time at its begin, not at the end of the step before."""

    def anew(self, *, in_blocks: bool = False) -> dict[str, Any]:
        """Return which steps do not count after a standstill: loaders went on meanwhile."""
        self.levers.begins(in_blocks=in_blocks, anew=True)
        return {"after_step": self.step, "warmup_steps": self.levers.warmup_steps}

    @abstractmethod
    def watch(self) -> None: ...

    @abstractmethod
    def unwatch(self) -> None:
        """Only count steps from the next one on."""

    def look_closely(self, steps: float) -> None:  # noqa: B027  # most do nothing then
        """Measure each of the next steps in full, however short."""

    def keep_calls(self, *, keep: bool) -> None:  # noqa: B027  # most do nothing then
        ...

    def why_no_rehearsal(self) -> str | None:
        return "its levers are rehearsed by training with them"

    def timings(self) -> tuple[Timing, ...]:
        return ()

    def come_to(self, step: int) -> None:  # noqa: B027  # most do nothing then
        """Have a border after this step, ready for a decision there; 0: no such step."""

    @abstractmethod
    def synchronize(self) -> None: ...

    def settle(self) -> None:
        """Finish everything begun: nothing is prepared ahead, and the device is idle."""
        self.synchronize()

    def samples_of(self, steps: int) -> int | None:  # noqa: ARG002  # for those that know
        return None

    def profiled(self) -> None:  # noqa: B027  # most do nothing then
        ...

    # ── its settings ────────────────────────────────────────────────────────────────────

    @property
    def settings(self) -> Settings:
        return dict(self.levers.settings)

    def begin_segment(self) -> None:
        self.segment += 1
        self.interrupt()

    def enter(self, wanted: Settings, *, stays: bool) -> None:  # noqa: ARG002  # for those that care
        """Make the settings active. Raises Refusal; then call `put_back`."""
        self.levers.enter(wanted)

    def put_back(self, before: Settings, refusal: Refusal, *, entered: bool) -> Return | None:  # noqa: ARG002  # for a Return
        """Return None if all is as it was. `entered`: another rank refused, not this one."""
        if entered:
            try:
                self.levers.enter(before)
            except Refusal:
                self.levers.restore()
                self.requested = {}
        return None

    def votes_on_way_back(self, changes: Settings) -> bool:  # noqa: ARG002  # for those that do
        """Return whether ranks vote on the way back from blocks too: it must not be one's alone."""
        return False

    # ── votes ───────────────────────────────────────────────────────────────────────────

    def decide(
        self, topic: str, refusal: str | None = None, payload: str = "", *, is_late: bool = False
    ) -> Decision:
        """Decide alone if this process trains alone."""
        if not self.is_shared:
            return Decision(refusal, payload)
        store = process_store()
        if store is None:
            return Decision(refusal or "the process group has no store")
        if self._agreement is None or store is not self._store:
            # meanwhile other ranks may wait in a collective, which must not time out
            patience_s = min(PATIENCE_S, store.timeout.total_seconds() * PATIENCE_SHARE)
            self._store = store
            self._agreement = Agreement(store, rank(), self.world_size, patience_s)
        return self._agreement.decide(topic, refusal, payload, is_late=is_late)


def process_store() -> Any:
    if not torch.distributed.is_initialized():
        return None
    return torch.distributed.distributed_c10d._get_default_store()  # noqa: SLF001  # no public name


def rank() -> int:
    """Return 0 if this process trains alone."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    said = os.environ.get("RANK", "")
    return int(said) if said.isdecimal() else 0
