"""Counts the bytes that fully_shard's collectives move, from the tensors at the calls.

So prefetching, resharding, mixed precision, padding and passes without communication are all
included. Both hooked functions are private. If one goes, a test fails and the bytes are unknown.
"""

import sys
from collections.abc import Callable, Hashable
from functools import cache, wraps
from inspect import signature
from types import ModuleType
from typing import Any, Protocol

from gpudash.hooks.frames import unseen
from gpudash.hooks.signals import is_from_handler
from gpudash.instrument.collectives import (
    Moved,
    all_gathered,
    all_reduced,
    reduce_scattered,
    together,
)
from gpudash.instrument.uncompiled import uncompiled

FSDP = "torch.distributed.fsdp."
PARAM_GROUP = f"{FSDP}_fully_shard._fsdp_param_group"


class Listener(Hashable, Protocol):
    """What receives the collectives."""

    def collective_called(self) -> bool:
        """Note that a collective was called; return whether to report what it moves."""

    def collective_moves(self, moved: Moved | None) -> bool:
        """Note what the collective moves; None: not known."""


def hook_collectives(listener: Listener) -> bool:
    """Install the hooks once torch has imported fully_shard; return whether all are in place."""
    place = sys.modules.get(PARAM_GROUP)
    ours = None if place is None else _patch(place, listener)
    return ours is not None and all(getattr(place, name) is ours[name] for name in ours)


def _gathers(called: dict[str, Any], result: Any) -> Moved | None:
    ranks = called["group"].size()
    if not _is_torchs(called["all_gather_comm"]):
        return None
    return all_gathered(result.all_gather_output.nbytes / ranks, ranks)


def _reduces(called: dict[str, Any], result: Any) -> Moved | None:
    across, copies = called["reduce_scatter_group"], called["all_reduce_group"]
    if called["all_reduce_hook"] is not None or not _is_torchs(called["reduce_scatter_comm"]):
        return None
    ranks, whole_bytes = 1 if across is None else across.size(), result[0].nbytes
    moved = [reduce_scattered(whole_bytes, ranks)] if ranks > 1 else []
    if copies is not None and called["all_reduce_grads"]:
        moved.append(all_reduced(whole_bytes / ranks, copies.size()))
    return together(moved)


HOOKED: dict[str, tuple[Callable[[dict[str, Any], Any], Moved | None], set[str]]] = {
    "foreach_all_gather": (_gathers, {"group", "all_gather_comm"}),
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
    """Return whether torch itself communicates; an implementation of the script's may compress."""
    return type(comm).__module__.startswith(FSDP)


@cache
def _patch(place: ModuleType, listener: Listener) -> dict[str, Callable[..., Any]] | None:
    """Return the hooks now in place of the functions; None if torch's signatures differ."""
    ours = {}
    for name, (measure, needed) in HOOKED.items():
        function = getattr(place, name, None)
        names = list(signature(function).parameters) if callable(function) else []
        if function is None or not needed <= {*names}:
            return None
        ours[name] = _hooked(function, names, measure, listener)
    for name, function in ours.items():
        setattr(place, name, function)
    return ours


def _hooked(
    function: Callable[..., Any],
    names: list[str],
    measure: Callable[[dict[str, Any], Any], Moved | None],
    listener: Listener,
) -> Callable[..., Any]:
    @wraps(function)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        with unseen:
            result = function(*args, **kwargs)
            if listener.collective_called():
                try:
                    moved = measure(dict(zip(names, args, strict=False), **kwargs), result)
                except Exception as error:  # a private function may have changed
                    if is_from_handler(error):
                        raise
                    moved = None
                listener.collective_moves(moved)
            return result

    return uncompiled(hooked, deeply=False)
