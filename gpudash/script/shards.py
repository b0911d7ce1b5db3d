"""Counts the bytes that fully_shard's collectives move, and times them where torch calls them.

The bytes are those of the tensors at the calls, so prefetching, resharding, padding and passes
without communication are included. Both hooked functions are private: if one goes, a test fails,
and bytes and time are unknown.
"""

import sys
from collections.abc import Callable
from functools import cache, partial, wraps
from inspect import signature
from types import ModuleType
from typing import Any, TypeAlias

from ..instrument import patching
from ..instrument.collectives import (
    BytesMoved,
    all_gathered,
    all_reduced,
    reduce_scattered,
)
from ..instrument.guard import is_from_handler, unseen
from ..instrument.patching import uncompiled
from .hooked_methods import Tell

FSDP = "torch.distributed.fsdp."
PARAM_GROUP = f"{FSDP}_fully_shard._fsdp_param_group"
COMMS = {"all_gather_comm", "reduce_scatter_comm"}
"""Arguments that are torch's implementation of a collective, or the script's."""


def hook_collectives(tell: Tell) -> bool:
    """Do nothing until torch has imported fully_shard. Return whether all hooks are in place."""
    place = sys.modules.get(PARAM_GROUP)
    ours = None if place is None else _patch(place, tell)
    return ours is not None and all(getattr(place, name) is ours[name] for name in ours)


def _gathers(called: dict[str, Any], result: Any) -> list[BytesMoved] | None:
    ranks = called["group"].size()
    if not _is_torchs(called["all_gather_comm"]):
        return None
    return [all_gathered(result.all_gather_output.nbytes / ranks, ranks)]


def _reduces(called: dict[str, Any], result: Any) -> list[BytesMoved] | None:
    across, copies = called["reduce_scatter_group"], called["all_reduce_group"]
    if called["all_reduce_hook"] is not None or not _is_torchs(called["reduce_scatter_comm"]):
        return None
    ranks, whole_bytes = 1 if across is None else across.size(), result[0].nbytes
    moved = [reduce_scattered(whole_bytes, ranks)] if ranks > 1 else []
    if copies is not None and called["all_reduce_grads"]:
        moved.append(all_reduced(whole_bytes / ranks, copies.size()))
    return moved


Measure: TypeAlias = Callable[[dict[str, Any], Any], list[BytesMoved] | None]
HOOKED: dict[str, tuple[Measure, set[str]]] = {
    "foreach_all_gather": (_gathers, {"group", "all_gather_comm", "async_op"}),
    "foreach_reduce": (
        _reduces,
        {
            "reduce_scatter_group",
            "reduce_scatter_comm",
            "all_reduce_group",
            "all_reduce_grads",
            "all_reduce_hook",
        },
    ),
}
"""By function: what measures its bytes, and the arguments that this needs."""


def _is_torchs(comm: object) -> bool:
    """Return False for an implementation of the script's: it may compress."""
    return type(comm).__module__.startswith(FSDP)


class _Bordered:
    """Torch's implementation of a collective, with a border before its call and one after."""

    def __init__(self, comm: Callable[..., Any], border: Callable[[], object]) -> None:
        self._comm = comm
        self._border = border

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        with unseen:
            self._border()
            result = self._comm(*args, **kwargs)
            self._border()
            return result

    __call__ = uncompiled(_call, deeply=False)


def _bordered(called: dict[str, Any], border: Callable[[], object]) -> dict[str, Any]:
    """Report no border of an asynchronous collective: it runs on another stream than this one."""
    theirs = {name: called[name] for name in COMMS & called.keys()}
    if called.get("async_op") or not all(map(_is_torchs, theirs.values())):
        return called
    ours: dict[str, Any] = {name: _Bordered(comm, border) for name, comm in theirs.items()}
    if called.get("all_reduce_group") is not None and called.get("all_reduce_hook") is None:

        def has_ended(_gradients: Any) -> None:
            """Report the end: torch calls this right behind the all-reduce, on its stream."""
            border()

        ours["all_reduce_hook"] = uncompiled(has_ended)
    return called | ours


@cache
def _patch(place: ModuleType, tell: Tell) -> dict[str, Callable[..., Any]] | None:
    ours = {}
    for name, (measure, needed) in HOOKED.items():
        function = getattr(place, name, None)
        names = list(signature(function).parameters) if callable(function) else []
        if function is None or not needed <= {*names}:
            return None
        ours[name] = _hooked(function, names, measure, tell)
    for name, function in ours.items():
        patching.replace(place, name, function)
    patching.at_undo(_patch.cache_clear)
    return ours


def _hooked(
    function: Callable[..., Any],
    names: list[str],
    measure: Measure,
    tell: Tell,
) -> Callable[..., Any]:
    @wraps(function)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        with unseen:
            if not tell("communication: collectives begin"):
                return function(*args, **kwargs)
            called = dict(zip(names, args, strict=False), **kwargs)
            if tell("communication: are timed"):
                result = function(**_bordered(called, partial(tell, "communication: border")))
            else:
                result = function(*args, **kwargs)
            try:
                moved = measure(called, result)
            except Exception as error:  # a private function may have changed
                if is_from_handler(error):
                    raise
                moved = None
            tell("communication: collectives end", moved)
            return result

    return uncompiled(hooked, deeply=False)
