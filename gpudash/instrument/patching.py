"""What gpudash has replaced in torch, so that all of it can be put back.

A process has one torch, so there is one list. Whoever replaces something adds how it is undone.
"""

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_undone_by: list[Callable[[], object]] = []
_MISSING = object()


def replace(owner: Any, name: str, ours: Any) -> None:
    """Set an attribute until `undo`. What another tool has put in its place stays there."""
    before = vars(owner).get(name, _MISSING)
    setattr(owner, name, ours)

    def put_back() -> None:
        if vars(owner).get(name) is not ours:
            return
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    at_undo(put_back)


def at_undo(action: Callable[[], object]) -> None:
    """Call this at the next `undo`, before what was added earlier."""
    _undone_by.append(action)


def undo() -> None:
    """Put everything back, the newest first. An action that fails keeps no other from its turn."""
    while _undone_by:
        with suppress(Exception):
            _undone_by.pop()()


def after_fork(method: Callable[[], object]) -> None:
    """Call a method in each forked child, for as long as its object lives."""
    weak = weakref.WeakMethod(method)

    def call() -> None:
        living = weak()
        if living is not None:
            living()

    os.register_at_fork(after_in_child=call)
