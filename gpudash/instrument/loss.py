"""Reads the newest loss without making the training wait: the loss of a step that is finished."""

from typing import Any, Protocol

import torch
from torch import Tensor


def readable(value: Any) -> Tensor | None:
    """None if the value is no real scalar that can be copied."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        return None
    if not value.is_floating_point() or value.layout != torch.strided or value.is_meta:
        return None
    return value.detach().reshape(())


class LossReader(Protocol):
    """Reads one loss at a time."""

    def request(self, step: int, loss: Tensor) -> None:
        """Ignored while another loss is being read."""

    def newest(self) -> tuple[int, float] | None:
        """None if no loss has arrived since the last call."""

    @property
    def is_reading(self) -> bool: ...


class HostLoss:
    """Reads losses on a CPU, where the value is available at once."""

    def __init__(self) -> None:
        self._newest: tuple[int, float] | None = None

    def request(self, step: int, loss: Tensor) -> None:
        self._newest = step, float(loss)

    def newest(self) -> tuple[int, float] | None:
        newest, self._newest = self._newest, None
        return newest

    @property
    def is_reading(self) -> bool:
        return False


class DeviceLoss:
    """Reads losses on a GPU: copies them to pinned memory on an idle stream."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # in torch
        # explicit, as a script may have changed the defaults of new tensors
        self._host = torch.empty((), dtype=torch.float32, device="cpu", pin_memory=True)
        self._done: torch.cuda.Event | None = None
        self._asked: tuple[int, Tensor] | None = None  # keeps the tensor alive during the copy

    def request(self, step: int, loss: Tensor) -> None:
        if self._asked is not None:
            return
        self._asked = step, loss
        with self._stream:
            self._host.copy_(loss, non_blocking=True)
            self._done = self._stream.record_event()

    def newest(self) -> tuple[int, float] | None:
        if self._asked is None or self.is_reading:
            return None
        step, _ = self._asked
        self._asked = None
        return step, float(self._host)  # on the host: no sync

    @property
    def is_reading(self) -> bool:
        return self._done is not None and not self._done.query()  # type: ignore[no-untyped-call]  # in torch
