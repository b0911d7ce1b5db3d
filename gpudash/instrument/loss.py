"""Reads losses without making the training wait: each of the first steps, later the newest."""

from collections import deque
from typing import Any, Protocol

import torch
from torch import Tensor

FIRST_STEPS = 64
"""Each of these steps has its loss read: whether two trainings are the same shows in them."""


def readable(value: Any) -> Tensor | None:
    """None if the value is no real scalar that can be copied."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        return None
    if not value.is_floating_point() or value.layout != torch.strided or value.is_meta:
        return None
    return value.detach().reshape(())


class LossReader(Protocol):
    """Reads losses in the order in which they are requested."""

    def request(self, step: int, loss: Tensor) -> None:
        """Ignored while `FIRST_STEPS` losses are being read."""

    def arrived(self) -> list[tuple[int, float]]:
        """Return steps and losses that have arrived since the last call."""

    @property
    def is_reading(self) -> bool: ...


class HostLoss:
    """Reads losses on a CPU, where the value is available at once."""

    def __init__(self) -> None:
        self._arrived: list[tuple[int, float]] = []

    def request(self, step: int, loss: Tensor) -> None:
        self._arrived.append((step, float(loss)))

    def arrived(self) -> list[tuple[int, float]]:
        arrived, self._arrived = self._arrived, []
        return arrived

    @property
    def is_reading(self) -> bool:
        return False


class DeviceLoss:
    """Reads losses on a GPU: copies them to pinned memory on an idle stream."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # in torch
        # explicit, as a script may have changed the defaults of new tensors
        self._host = torch.empty(FIRST_STEPS, dtype=torch.float32, device="cpu", pin_memory=True)
        self._requested = 0
        # each keeps its tensor alive during the copy
        self._asked: deque[tuple[int, int, Tensor, torch.cuda.Event]] = deque()

    def request(self, step: int, loss: Tensor) -> None:
        if len(self._asked) == FIRST_STEPS:
            return
        place, self._requested = self._requested % FIRST_STEPS, self._requested + 1
        with self._stream:
            self._host[place].copy_(loss, non_blocking=True)
            self._asked.append((step, place, loss, self._stream.record_event()))

    def arrived(self) -> list[tuple[int, float]]:
        arrived = []
        while self._asked and _is_done(self._asked[0][3]):
            step, place, _, _ = self._asked.popleft()
            arrived.append((step, float(self._host[place])))  # on the host: no sync
        return arrived

    @property
    def is_reading(self) -> bool:
        return len(self._asked) > 0 and not _is_done(self._asked[-1][3])


def _is_done(copied: torch.cuda.Event) -> bool:
    return bool(copied.query())  # type: ignore[no-untyped-call]  # in torch
