"""Records which lines allocate device memory, for a few steps on request: a stack takes some µs."""

import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..protocol.commands import Memory
from ..protocol.envelope import Event
from ..protocol.inspections import MemoryOwners, MemoryUse
from ..protocol.records import replace
from ..protocol.training import Refused
from .guard import OURS
from .owners import MIB, Allocation, at_the_peak, owners
from .weights import kept_by, updated_by

STEPS = 2
"""The second step begins with gradients and the optimizer's state in place."""
SHORTAGE_EVERY_S = 1.0
"""Seconds between two failures that are looked at: a script may catch them and retry."""
END_S = 10.0
"""If training ends within so many seconds after memory ran out, that may be the cause."""
MOST_EVENTS = 200_000
"""Newest allocator events that are kept."""
INSIDE = f"{Path(torch.__file__).parent}/", OURS
"""Folders whose lines are never owners: torch's and gpudash's own."""

TRACED = "a profile began, which this would slow down: ask again after it"
"""The reason for refusing while a profile runs."""
Owned = tuple[Iterable[nn.Module], Iterable[Optimizer]]


class MemoryHistory:
    """Answers `Memory` commands; the loop reports its steps."""

    def __init__(
        self, device: torch.device, owned: Callable[[], Owned], send: Callable[[Event], None]
    ) -> None:
        self._device = device
        self._owned = owned
        self._send = send
        self._asked: tuple[int, ...] = ()
        self._last_step: int | None = None  # the last one to record; None: off
        self._shortage: MemoryOwners | None = None  # held when memory last ran out

    @property
    def is_on(self) -> bool:
        return self._last_step is not None

    def ask(self, command: Memory, step: int) -> None:
        """Record from `step` on, and answer two steps later; or refuse."""
        why_not = self._why_not()
        if why_not:
            self._refuse((command.id,), why_not)
            return
        self._begin(step + STEPS)
        self._asked += (command.id,)

    def watch(self, last_step: int) -> None:
        """Record until after this step, if possible, in case memory runs out."""
        if not self._why_not():
            self._begin(last_step)

    def turn(self, step: int) -> bool:
        if self._last_step is None or step < self._last_step:
            return False
        if self._asked:
            self.report()
        else:
            self.stop("")
        return True

    def report(self) -> MemoryOwners | None:
        """Send what was recorded, and stop recording; None if it is off or fails."""
        if not self.is_on:
            return None
        try:
            owners = self._look()
        except Exception as error:  # noqa: BLE001  # torch's interface is private
            self.stop(f"torch could not tell: {error}")
            return None
        self._send(owners)
        self._end()
        return owners

    def ran_out(self, asked_bytes: int) -> None:
        """Note what is held; the script may survive, as cuDNN tries workspaces that do not fit."""
        if self._shortage is not None and time.monotonic() < self._shortage.at_s + SHORTAGE_EVERY_S:
            return
        with suppress(Exception):  # torch's private interface, inside a call of the script's
            line = Allocation(0, asked_bytes, _stack())
            held = self._look(() if self.is_on else (line,))
            self._shortage = replace(held, answers=())

    def report_shortage(self) -> None:
        if self._shortage is not None and time.monotonic() < self._shortage.at_s + END_S:
            self._send(self._shortage)

    def stop(self, why: str) -> None:
        asked = self._end()
        if asked:
            self._refuse(asked, why)

    def _why_not(self) -> str:
        if self._device.type != "cuda":
            return "this needs a GPU: it lists what holds GPU memory"
        if not self.is_on and torch._C._cuda_isHistoryEnabled():  # noqa: SLF001  # no public name
            return "the script records its memory history itself"
        return ""

    def _begin(self, last_step: int) -> None:
        if not self.is_on:
            torch.cuda.memory._record_memory_history(  # noqa: SLF001  # its documented name
                enabled="all", context="alloc", stacks="python", max_entries=MOST_EVENTS
            )
        self._last_step = last_step

    def _end(self) -> tuple[int, ...]:
        asked, self._asked = self._asked, ()
        if self.is_on:
            self._last_step = None
            torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001  # drops all events
        return asked

    def _look(self, asked: tuple[Allocation, ...] = ()) -> MemoryOwners:
        index = torch.cuda.current_device() if self._device.index is None else self._device.index
        snapshot = torch.cuda.memory._snapshot()  # noqa: SLF001  # its documented name
        held = [*at_the_peak(snapshot, index), *asked]
        return MemoryOwners(
            at_s=time.monotonic(),
            answers=self._asked,
            peak_mib=sum(one.bytes for one in held) / MIB,
            owners=owners(held, uses(*self._owned()), INSIDE),
        )

    def _refuse(self, answers: tuple[int, ...], why: str) -> None:
        self._send(Refused(answers=answers, kind="no_memory_owners", changes={}, reason=why))


def observe(device: torch.device, ran_out: Callable[[int], None]) -> None:
    if device.type == "cuda":
        with suppress(Exception):  # an older torch
            attach = torch._C._cuda_attach_out_of_memory_observer  # type: ignore[attr-defined]  # noqa: SLF001  # no public name
            attach(lambda _device, asked_bytes, *_: ran_out(asked_bytes))


def _stack() -> list[dict[str, Any]]:
    here = sys._getframe()  # noqa: SLF001  # Python versions differ in the frames left out without it
    return [
        {"filename": frame.f_code.co_filename, "line": line, "name": frame.f_code.co_name}
        for frame, line in traceback.walk_stack(here)
    ]


def uses(modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> dict[int, MemoryUse]:
    found: dict[int, MemoryUse] = {}
    for optimizer in optimizers:
        found |= dict.fromkeys(_addresses(kept_by(optimizer)), "optimizer state")
        found |= _of_parameters(updated_by(optimizer))
    for module in modules:
        found |= dict.fromkeys(_addresses(module.buffers()), "weights")
        found |= _of_parameters(nn.Module.parameters(module))
    return found


def _of_parameters(parameters: Iterable[Tensor]) -> dict[int, MemoryUse]:
    parameters = list(parameters)
    weights: dict[int, MemoryUse] = dict.fromkeys(_addresses(parameters), "weights")
    return weights | dict.fromkeys(_addresses(one.grad for one in parameters), "gradients")


def _addresses(things: Iterable[Any]) -> Iterator[int]:
    for one in things:
        if isinstance(one, Tensor):
            with suppress(RuntimeError):  # a subclass without a storage
                yield one.untyped_storage().data_ptr()
