"""The user's training, in what outlasts a dashboard: settings, segment, steps."""

import os
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from gpudash.hooks.found import Found, Redirects, modules_of
from gpudash.hooks.levers.offers import UNKNOWN
from gpudash.instrument.agreement import PATIENCE_S, Agreement, Decision
from gpudash.instrument.clock import Clock
from gpudash.instrument.collectives import Collectives
from gpudash.instrument.loss import LossReader
from gpudash.protocol import Flops, LeverOffer, Settings

PATIENCE_SHARE = 0.25
"""Patience as a share of the process group's timeout, where that is short."""
SHORT = {torch.bfloat16: "bf16", torch.float16: "fp16"}


class Tracks(Protocol):
    """What the driver needs of the tracker."""

    clock: Clock[torch.Event] | Clock[float] | None
    losses: LossReader | None
    samples: int | None
    active: bool
    closely_until: float
    border_at: int
    redirects: Redirects
    failed: Callable[[str, BaseException], None]

    @property
    def steps(self) -> int:
        """Steps since the process began, measured or not."""

    def interrupt(self) -> None:
        """Start the next step's time at its begin, not at the end of the step before."""

    def collectives(self) -> Collectives:
        """Return the collectives of a step, as far as known."""

    def finish(self) -> None:
        """Time the steps that were only counted: the process ends."""


class Levers(Protocol):
    """What the driver needs of `gpudash.hooks.levers.ScriptLevers`."""

    @property
    def offers(self) -> tuple[LeverOffer, ...]:
        """The levers that this training offers."""

    @property
    def settings(self) -> Settings:
        """The active values."""

    @property
    def warmup_steps(self) -> int:
        """Warm-up steps after the newest `enter`."""

    @property
    def burst_steps(self) -> int:
        """Batches that arrive at a time after the newest `enter`."""

    def update(self, found: Found) -> None:
        """Act on these objects from now on."""

    def resolve(self, changes: Settings) -> Settings:
        """Return all settings after these changes. Raises Refusal."""

    def needs_call(self, wanted: Settings) -> bool:
        """Return whether the settings must be rehearsed on a training call of the roots."""

    def enter(self, wanted: Settings) -> None:
        """Make the settings active. Raises Refusal, and then changes nothing."""

    def restore(self) -> None:
        """Put back what the script had."""


class Training:
    """The state that stays while dashboards come and go."""

    def __init__(self, tracker: Tracks, found: Found, levers: Levers) -> None:
        self.tracker = tracker
        self.found = found
        self.levers = levers
        self.requested: Settings = {}
        """The levers that were asked for, with the values asked for."""
        self.segment = 0
        self.flops: Flops | None = None
        """Flops of a step, once a profile has counted them."""
        self._agreement: Agreement | None = None
        self._store: Any = None
        """The process group's store, over which the ranks agree."""

    @property
    def step(self) -> int:
        """The newest step that the script has finished."""
        return self.tracker.steps

    @property
    def settings(self) -> Settings:
        """The levers' values, without those that are not known."""
        return {name: value for name, value in self.levers.settings.items() if value != UNKNOWN}

    @property
    def precision(self) -> str:
        """The precision of matrix products, as `Peak` names it; empty if not known."""
        chosen = self.levers.settings.get("precision")
        if chosen in ("tf32", "bf16"):
            return chosen
        dtypes = [
            torch.get_autocast_dtype(self.found.device.type) if root.autocast else one.dtype
            for root in self.found.roots
            if root.module is not None
            and (one := next(nn.Module.parameters(root.module), None)) is not None
        ]
        if not dtypes or dtypes[0] != torch.float32:
            return SHORT.get(dtypes[0], "") if dtypes else ""
        matmul: Any = torch.backends.cuda.matmul
        on_gpu = self.found.device.type == "cuda"
        return "tf32" if on_gpu and matmul.fp32_precision == "tf32" else "fp32"

    @property
    def is_shared(self) -> bool:
        """Whether other processes train with this one."""
        return self.found.world_size > 1

    def decide(
        self, topic: str, refusal: str | None = None, payload: str = "", *, is_late: bool = False
    ) -> Decision:
        """Return the decision of all ranks, or this process's own if it trains alone."""
        if not self.is_shared:
            return Decision(refusal, payload)
        store = process_store()
        if store is None:
            return Decision(refusal or "the process group has no store")
        if self._agreement is None or store is not self._store:
            # meanwhile other ranks may wait in a collective, which must not time out
            patience_s = min(PATIENCE_S, store.timeout.total_seconds() * PATIENCE_SHARE)
            self._store = store
            self._agreement = Agreement(store, rank(), self.found.world_size, patience_s)
        return self._agreement.decide(topic, refusal, payload, is_late=is_late)

    def watch(self) -> None:
        """Have the tracker measure from the next step on."""
        self.tracker.active = True
        self.tracker.interrupt()

    def unwatch(self) -> None:
        """Have the tracker only count steps."""
        self.tracker.active = False

    def begin_segment(self) -> None:
        """Note that other settings apply from the next step on."""
        self.segment += 1
        self.tracker.interrupt()
        if self.tracker.clock is not None:
            self.tracker.clock.segment = self.segment

    def look_closely(self, steps: float) -> None:
        """Measure each of the next steps in full, however short."""
        self.tracker.closely_until = self.step + steps

    def keep_calls(self, *, keep: bool) -> None:
        """Have the roots keep their newest training calls for a rehearsal, or release them."""
        for root in self.found.roots:
            root.keeps_calls = keep
            if not keep:
                root.newest = None

    def owned(self) -> tuple[list[nn.Module], tuple[Optimizer, ...]]:
        """Return the modules and the optimizers that still exist."""
        return modules_of(self.found.roots), self.found.optimizers

    @property
    def is_captured(self) -> bool:
        """Whether a CUDA graph is being captured, during which most CUDA calls fail."""
        return self.found.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def synchronize(self) -> None:
        """Wait until the device has finished everything enqueued."""
        if self.found.device.type == "cuda":
            torch.cuda.synchronize(self.found.device)  # sync: around a block under the wall clock


def process_store() -> Any:
    """Return the store that the process group was made with; None: no process group."""
    if not torch.distributed.is_initialized():
        return None
    return torch.distributed.distributed_c10d._get_default_store()  # noqa: SLF001  # no public name


def rank() -> int:
    """Return the rank of this process; 0 if it trains alone."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    said = os.environ.get("RANK", "")
    return int(said) if said.isdecimal() else 0


def job() -> str:
    """Return a name of this job, the same in all its processes.

    Jobs on one machine differ in their port. The address is left out, as each node may write it in
    its own way. A job that torchrun restarts keeps its run id, and may get another port.
    """
    return ":".join(filter(None, map(os.environ.get, ("TORCHELASTIC_RUN_ID", "MASTER_PORT"))))
