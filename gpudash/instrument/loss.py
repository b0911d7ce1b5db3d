"""The newest loss, read back without making the training wait.

The step that produced it is finished, so a copy on a stream of its own has nothing to wait
for; the value is picked up at the next look.
"""

from typing import Protocol

import torch
from torch import Tensor


class LossReader(Protocol):
    """Holds one request and one answer."""

    def request(self, step: int, loss: Tensor) -> None:
        """Ask for the loss () of a finished step; ignored while another is on its way."""

    def newest(self) -> tuple[int, float] | None:
        """Return step and value if one has arrived since the last call."""


class HostLoss:
    """On a CPU the value is there."""

    def __init__(self) -> None:
        self._newest: tuple[int, float] | None = None

    def request(self, step: int, loss: Tensor) -> None:
        """Read it."""
        self._newest = step, float(loss)

    def newest(self) -> tuple[int, float] | None:
        """Return it once."""
        newest, self._newest = self._newest, None
        return newest


class DeviceLoss:
    """On a GPU the value is copied to pinned memory on an idle stream."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # in torch
        # whatever a script has made the default of new tensors
        self._host = torch.empty((), dtype=torch.float32, device="cpu", pin_memory=True)
        self._done: torch.cuda.Event | None = None
        self._asked: tuple[int, Tensor] | None = None  # keeps the tensor alive while it is read

    def request(self, step: int, loss: Tensor) -> None:
        """Start the copy."""
        if self._asked is not None:
            return
        self._asked = step, loss
        with self._stream:
            self._host.copy_(loss, non_blocking=True)
            self._done = self._stream.record_event()

    def newest(self) -> tuple[int, float] | None:
        """Return the value once its copy is done."""
        if self._asked is None or self._done is None or not self._done.query():  # type: ignore[no-untyped-call]  # in torch
            return None
        step, _ = self._asked
        self._asked = None
        return step, float(self._host)  # a host tensor: no sync
