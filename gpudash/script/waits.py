"""Hooks the places where torch waits for other processes, besides DDP's backward pass.

fully_shard gathers parameters before it uses them, and scatters gradients afterwards. DDP
broadcasts buffers, such as BatchNorm's, before the forward pass. All these places are private, and
a test fails if one goes.
"""

import sys
from collections.abc import Callable, Hashable
from functools import cache, wraps
from typing import Any, Protocol

from ..instrument import patching
from ..instrument.guard import unseen
from ..instrument.uncompiled import uncompiled

FULLY_SHARD = "torch.distributed.fsdp._fully_shard"
HOOKED = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel", ("_sync_buffers",)),
    (
        f"{FULLY_SHARD}._fsdp_param_group",
        "FSDPParamGroup",
        ("unshard", "wait_for_unshard", "post_backward"),
    ),
    (f"{FULLY_SHARD}._fsdp_state", "FSDPState", ("_root_post_backward_final_callback",)),
)
"""Module, class and methods."""


class WaitListener(Hashable, Protocol):
    """What receives the waits."""

    def wait_begins(self) -> bool:
        """Note that a wait is about to begin; return whether to report its end."""

    def wait_ends(self) -> bool:
        """Note that the wait is over."""


def hook_waits(waits: WaitListener) -> None:
    """Install hooks in the places whose modules the script has imported."""
    for module, owner, names in HOOKED:
        if module in sys.modules:
            _patch(getattr(sys.modules[module], owner, None), names, waits)


@cache
def _patch(kind: type | None, names: tuple[str, ...], waits: WaitListener) -> None:
    for name in names:
        if hasattr(kind, name):
            patching.replace(kind, name, _hooked(getattr(kind, name), waits))
    patching.at_undo(_patch.cache_clear)


def _hooked(function: Callable[..., Any], waits: WaitListener) -> Callable[..., Any]:
    @wraps(function)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        noted = False
        with unseen:
            try:
                noted = waits.wait_begins()
                return function(*args, **kwargs)
            finally:
                if noted:
                    waits.wait_ends()

    return uncompiled(hooked, deeply=False)
