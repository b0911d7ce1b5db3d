"""When the two halves of a step run: one after the other, or side by side on two streams.

    Serial       prepare(0) train(0) prepare(1) train(1) …            one stream
    DualStream   prepare(0) prepare(1)  prepare(2) …                      a side stream
                          train(0) train(1) …                     the current one

Training runs at a higher priority than the side stream: if both have thread blocks waiting, the
device takes those of the training, and preparation fills the gaps. At equal priority preparation
delays the training, and half of the gain is lost.

The side stream is at most one batch ahead: prepare(n+1) waits for train(n-1). Without that bound
prepared batches would pile up, as the host runs ahead.

The host enqueues "train on n, then prepare n+1", so both schedules see the same batches in the
same order. After `drain` both have trained on all of them, with equal losses and weights. The idea
is the source's (C. Rand, Pipelining AI/ML Training Workloads with CUDA Streams, 2025). Unlike
there, nothing races:

- a stream that reads another stream's tensors first waits for an event after the write;
- prepared tensors are held until the side stream waits for the training that reads them: only then
  may the caching allocator reuse their memory for a later batch.

So a step needs only two events. `Tensor.record_stream` would do for the second point too, but makes
the allocator record and query an event for every tensor that crosses.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from workloads.workload import Batch, Mark, Prepared, Workload


class Schedule(Protocol):
    """Decides when the halves of a step run."""

    @property
    def pending(self) -> int:
        """Number of batches that are prepared and not trained on."""

    @property
    def note(self) -> str | None:
        """A remark for the user about this schedule on this device."""

    @property
    def newest_loss(self) -> Tensor | None:
        """Loss () of the step that the newest call trained, even if the call failed afterwards."""

    def step(self, batch: Batch, mark: Mark) -> Tensor | None:
        """Take one batch; return the loss () of the step trained meanwhile, if one was."""

    def drain(self, mark: Mark) -> Tensor | None:
        """Train on the pending batch, and let the current stream wait for it; return its loss."""


@cache
def training_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of high priority for training halves, and for all of a serial step.

    A process has one for all its trainings, so that they run in order.
    """
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]  # in torch


def side_stream(device: torch.device) -> torch.cuda.Stream | None:
    """Return the stream for preparing halves, or None on a device without streams.

    A training keeps the same one, as the caching allocator holds memory per stream.
    """
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # in torch


class Serial:
    """Both halves on the current stream, one after the other."""

    pending = 0
    note = None
    newest_loss = None  # a serial step that fails has trained nothing

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def step(self, batch: Batch, mark: Mark) -> Tensor:
        """Prepare the batch and train on it."""
        prepared = self._workload.prepare(batch, mark)
        loss = self._workload.train(prepared, mark)
        mark("idle")
        return loss

    def drain(self, mark: Mark) -> None:
        """Do nothing: no batch is ever pending."""


class DualStream:
    """Train on batch n on the current stream while batch n+1 is prepared on the side stream."""

    def __init__(self, workload: Workload, side: torch.cuda.Stream | None) -> None:
        self._workload = workload
        self.newest_loss: Tensor | None = None
        self._prepared: Prepared | None = None
        self._side = side
        # in this context kernels go to the side stream
        self._on_side: AbstractContextManager[object] = nullcontext() if side is None else side
        self._main = torch.cuda.current_stream(side.device) if side is not None else None
        self._ready: torch.cuda.Event | None = None  # after the newest first half
        self._trained: torch.cuda.Event | None = None  # after the newest second half
        if self._side is not None and self._main is not None:
            self._side.wait_stream(self._main)  # which wrote weights and resident batches

    @property
    def pending(self) -> int:
        """1, but 0 before the first step and after a drain."""
        return 0 if self._prepared is None else 1

    @property
    def note(self) -> str | None:
        """A remark if this device has no streams to overlap on."""
        if self._side is not None:
            return None
        return "pipelined=on: this device has no streams; same order of work, no overlap"

    def step(self, batch: Batch, mark: Mark) -> Tensor | None:
        """Enqueue the training on the previous batch, then the preparation of this one."""
        in_training = self._prepared
        self._train(mark)
        with self._on_side:
            self._prepared = self._workload.prepare(batch, mark)
            mark("idle")
        if self._side is not None:
            self._ready = self._side.record_event(self._ready)
        self._order_after_training()
        del in_training  # not earlier: see the module's docstring
        return self.newest_loss

    def drain(self, mark: Mark) -> Tensor | None:
        """Train on the pending batch; the caller's next work runs after both streams."""
        in_training = self._prepared
        self._train(mark)
        self._order_after_training()
        del in_training
        return self.newest_loss

    def _train(self, mark: Mark) -> None:
        self.newest_loss = None
        if self._prepared is None:
            return
        prepared, self._prepared = self._prepared, None
        if self._main is not None and self._ready is not None:
            self._main.wait_event(self._ready)
        loss = self._workload.train(prepared, mark)
        mark("idle")
        if self._main is not None:
            self._trained = self._main.record_event(self._trained)
        self.newest_loss = loss

    def _order_after_training(self) -> None:
        """Let the next preparation wait for the training enqueued so far."""
        if self._side is not None and self._trained is not None:
            self._side.wait_event(self._trained)
