"""Finds the lines of a script at which its process waits for the GPU, for a few steps.

In its sync debug mode torch warns of most such calls, from inside the call, after the wait. A
warning filter of ours catches the warning, so the script sees none. torch does not warn of waits
for the whole device or for an event, nor of copies from memory that is not pinned, `non_blocking`
or not. Those functions are replaced meanwhile.
"""

import ctypes
import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, NamedTuple

import torch

from ..protocol.inspections import SyncCall
from .callsite import CallSite, call_site
from .patching import uncompiled

SYNC = "called a synchronizing CUDA operation"
PROTOTYPE = "Synchronization debug mode is a prototype feature"
"""torch's notice when the mode is turned on."""
WAITING: tuple[tuple[Any, str], ...] = (
    (torch._C, "_cuda_synchronize"),  # noqa: SLF001  # the lowest that Python can reach
    (torch._C, "_accelerator_synchronizeDevice"),  # noqa: SLF001  # what the public one calls
    (torch.cuda.Stream, "synchronize"),
    (torch.cuda.Event, "synchronize"),
    (torch.Event, "synchronize"),
    (torch.Stream, "synchronize"),
    (torch._C, "_cuda_emptyCache"),  # noqa: SLF001  # what `torch.cuda.empty_cache` calls
    (torch._C, "_accelerator_emptyCache"),  # noqa: SLF001  # … and `torch.accelerator`'s
)
COPYING: tuple[tuple[Any, str], ...] = tuple(
    (torch.Tensor.__base__, name) for name in ("to", "cuda", "copy_")
)
MOST_CALLS = 10_000
"""Recorded calls at most; later ones are left out."""
OFF, WARN = 0, 1


class _Seen(NamedTuple):
    began_ns: int
    at_ns: int
    thread: int
    site: CallSite


class SyncWindow:
    """Records waits from `start` to `stop`. It never raises into the script."""

    def __init__(self) -> None:
        self._is_on = False
        self._warns = False
        self._seen: list[_Seen] = []
        self._exchanged: list[tuple[Any, str, Any, Any]] = []
        self._filter = ("ignore", self, Warning, None, 0)

    def start(self) -> None:
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # in torch
            return
        self._is_on = True
        # keeps our filter before those that the script adds, above all before "error"
        add: Any = warnings._add_filter  # type: ignore[attr-defined]  # noqa: SLF001  # all filters go through it
        self._exchange(warnings, "_add_filter", self._ours_stay_first(add))
        add(*self._filter, append=False)
        for owner, name in WAITING:
            if not hasattr(owner, name):  # an older torch
                continue
            self._exchange(owner, name, self._noting(getattr(owner, name)))
        for owner, name in COPYING:
            self._exchange(owner, name, self._noting_copy(getattr(owner, name)))
        if torch.cuda.get_sync_debug_mode() == OFF:  # else the script's own
            self._warns = True
            torch.cuda.set_sync_debug_mode(WARN)

    def stop(self) -> tuple[SyncCall, ...]:
        if not self._is_on:
            return ()
        if self._warns and torch.cuda.get_sync_debug_mode() == WARN:
            torch.cuda.set_sync_debug_mode(OFF)
        self._is_on = False
        for owner, name, ours, before in reversed(self._exchanged):
            if getattr(owner, name) is ours:  # else somebody has replaced ours, and calls it
                _set(owner, name, before)
        with suppress(ValueError):
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]
        return tuple(sorted(map(_call, self._seen), key=lambda call: call.at_ns))

    @uncompiled
    def match(self, text: str) -> bool:
        """Record and hide torch's warning. Python calls this as the pattern of a filter."""
        if not self._is_on:
            return False
        if text.startswith(SYNC):
            # frames of our hooks pass on calls of the script's; our own code causes no such warning
            self._note(sys._getframe(1), through_ours=True)  # noqa: SLF001  # the fast way to the caller
            return self._warns
        return text.startswith(PROTOTYPE)

    def _note(self, frame: Any, began_ns: int = 0, *, through_ours: bool = False) -> None:
        at_ns = time.time_ns()
        with suppress(Exception):
            site = call_site(frame, through_ours=through_ours)
            if site is not None and len(self._seen) < MOST_CALLS:
                self._seen.append(_Seen(began_ns, at_ns, threading.get_native_id(), site))

    def _exchange(self, owner: Any, name: str, ours: Callable[..., Any]) -> None:
        self._exchanged.append((owner, name, ours, getattr(owner, name)))
        _set(owner, name, ours)

    def _noting(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(wait)
        def noting(*args: Any, **kwargs: Any) -> Any:
            before, began_ns = len(self._seen), time.time_ns()
            try:
                return wait(*args, **kwargs)
            finally:
                if self._is_on and not self._noted_since(before):
                    self._note(sys._getframe(1), began_ns)  # noqa: SLF001  # the fast way to the caller

        return uncompiled(noting, deeply=False)

    def _noting_copy(self, copy: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(copy)
        def noting(*args: Any, **kwargs: Any) -> Any:
            before = len(self._seen)
            target = copy(*args, **kwargs)
            if self._is_on and waits_for_memory(target, args) and not self._noted_since(before):
                self._note(sys._getframe(1))  # noqa: SLF001  # the fast way to the caller
            return target

        return uncompiled(noting, deeply=False)

    def _noted_since(self, before: int) -> bool:
        thread = threading.get_native_id()  # torch has warned, or one of these calls another
        return any(seen.thread == thread for seen in self._seen[before:])

    def _ours_stay_first(self, add: Callable[..., None]) -> Callable[..., None]:
        def add_after_ours(*item: Any, append: bool) -> None:
            add(*item, append=append)
            if self._is_on:
                add(*self._filter, append=False)

        return add_after_ours


def waits_for_memory(target: Any, tensors: tuple[Any, ...]) -> bool:
    if not getattr(target, "is_cuda", False):
        return False
    source = next((one for one in reversed(tensors) if isinstance(one, torch.Tensor)), target)
    return not (source.is_cuda or source.is_pinned())


def _set(owner: Any, name: str, value: Any) -> None:
    """Set it behind a C type that refuses it."""
    try:
        setattr(owner, name, value)
    except TypeError:
        gc.get_referents(vars(owner))[0][name] = value  # the dict behind a read-only view
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))


def _call(seen: _Seen) -> SyncCall:
    code = seen.site.code
    return SyncCall(
        at_ns=seen.at_ns,
        thread=seen.thread,
        file=code.co_filename,
        line=seen.site.line,
        function=code.co_name,
        what=seen.site.what,
        began_ns=seen.began_ns,
    )
