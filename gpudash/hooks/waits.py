"""Where torch has the computation wait for other processes, besides DDP's backward pass.

fully_shard gathers parameters before it uses them and scatters gradients after; DDP broadcasts
buffers, such as BatchNorm's, before the forward pass. All of these places are private: a test says
if one goes.
"""

import sys
from collections.abc import Callable, Hashable
from functools import cache, wraps
from typing import Any, Protocol

from gpudash.hooks.frames import unseen
from gpudash.instrument.uncompiled import uncompiled

FULLY_SHARD = "torch.distributed.fsdp._fully_shard"
PLACES = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel", ("_sync_buffers",)),
    (
        f"{FULLY_SHARD}._fsdp_param_group",
        "FSDPParamGroup",
        ("unshard", "wait_for_unshard", "post_backward"),
    ),
    (f"{FULLY_SHARD}._fsdp_state", "FSDPState", ("_root_post_backward_final_callback",)),
)
"""Module, class and methods."""


class Waits(Hashable, Protocol):
    """Who is told."""

    def wait_begins(self) -> bool:
        """Take that the computation is about to wait; return whether the end is to be told."""

    def wait_ends(self) -> bool:
        """Take that it goes on."""


def listen(waits: Waits) -> None:
    """Have torch tell of those places that the script has imported."""
    for module, owner, names in PLACES:
        if module in sys.modules:
            _patch(getattr(sys.modules[module], owner, None), names, waits)


@cache
def _patch(kind: type | None, names: tuple[str, ...], waits: Waits) -> None:
    for name in names:
        if hasattr(kind, name):
            setattr(kind, name, _telling(getattr(kind, name), waits))


def _telling(function: Callable[..., Any], waits: Waits) -> Callable[..., Any]:
    @wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        noted = False
        with unseen:
            try:
                noted = waits.wait_begins()
                return function(*args, **kwargs)
            finally:
                if noted:
                    waits.wait_ends()

    return uncompiled(told, deeply=False)
