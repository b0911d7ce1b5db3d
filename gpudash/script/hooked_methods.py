"""Hooks what has a begin and an end: functions, and methods of what the script has imported.

These are waits for other processes, besides those in DDP's backward pass, and updates by optimizers
that are not PyTorch's. The methods of torch are private: a test fails if one goes. A library that
is not listed, or that has renamed its method, leaves each backward pass a step by itself.
"""

import sys
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Any, TypeAlias

from ..instrument import patching
from ..instrument.guard import unseen
from ..instrument.patching import uncompiled

Place: TypeAlias = tuple[str, str, tuple[str, ...]]
"""Module, class and methods."""
FULLY_SHARD = "torch.distributed.fsdp._fully_shard"
WAITS: tuple[Place, ...] = (
    ("torch.nn.parallel.distributed", "DistributedDataParallel", ("_sync_buffers",)),
    (
        f"{FULLY_SHARD}._fsdp_param_group",
        "FSDPParamGroup",
        ("unshard", "wait_for_unshard", "post_backward"),
    ),
    (f"{FULLY_SHARD}._fsdp_state", "FSDPState", ("_root_post_backward_final_callback",)),
)
UPDATES: tuple[Place, ...] = (
    ("fastai.optimizer", "Optimizer", ("step",)),
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer", ("apply",)),
)
Tell: TypeAlias = Callable[..., bool | None]
"""Gets an event's name and what it is about. A begin's returns whether to report its end."""


def hook_methods(
    places: Iterable[Place], tell: Tell, begins: str, ends: str, *, takes: int = 0
) -> None:
    for module, owner, names in places:
        if module not in sys.modules:  # as in nearly every step
            continue
        kind = getattr(sys.modules[module], owner, None)
        for name in names:
            if callable(getattr(kind, name, None)):
                _patch(kind, name, tell, begins, ends, takes)


def imported_optimizers() -> list[type]:
    kinds = (getattr(sys.modules.get(module), owner, None) for module, owner, _ in UPDATES)
    return [kind for kind in kinds if isinstance(kind, type)]


@cache
def _patch(kind: Any, name: str, tell: Tell, begins: str, ends: str, takes: int) -> None:
    hooked = surrounded(getattr(kind, name), tell, begins, ends, takes=takes)
    patching.replace(kind, name, hooked)
    patching.at_undo(_patch.cache_clear)


def surrounded(
    function: Callable[..., Any], tell: Tell, begins: str = "", ends: str = "", *, takes: int = 0
) -> Callable[..., Any]:
    """Tell of the begin, with the first `takes` arguments, and of the end if that returns true."""

    @wraps(function)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        noted: bool | None = False
        with unseen:
            try:
                noted = not begins or tell(begins, *args[:takes])
                return function(*args, **kwargs)
            finally:
                if noted:
                    tell(ends, *args[:takes])

    return uncompiled(hooked, deeply=False)
