"""Undo and redo of the user's lever changes.

An edit counts as made once it is requested, so that two quick keys undo two edits. An edit that
the training then refuses is dropped.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from gpudash.protocol.records import Settings
from workloads.levers import phrase

MOST_EDITS = 200
Way: TypeAlias = Literal["undo", "redo"]


class Edit(msgspec.Struct, frozen=True):
    """Levers that were set together: their values before and after."""

    before: Settings
    after: Settings

    @property
    def reversed(self) -> "Edit":
        """The edit that reverts this one."""
        return Edit(self.after, self.before)

    @property
    def label(self) -> str:
        """What it sets in a few words: `pipelined=on`, or `3 levers`."""
        return f"{len(self.after)} levers" if len(self.after) > 1 else phrase(self.after)


class UndoStack:
    """The edits in the order they were made; those after `_applied` are undone."""

    def __init__(self) -> None:
        self._edits: list[Edit] = []
        self._applied = 0

    def made(self, edit: Edit) -> None:
        """Add a new edit; edits undone before it cannot be redone any more."""
        self._edits = [*self._edits[: self._applied], edit][-MOST_EDITS:]
        self._applied = len(self._edits)

    def next(self, way: Way) -> Edit | None:
        """Return the edit that undo or redo would make; None if there is none."""
        if way == "undo":
            return self._edits[self._applied - 1].reversed if self._applied else None
        return self._edits[self._applied] if self._applied < len(self._edits) else None

    def went(self, way: Way) -> None:
        """Record that this undo or redo was requested."""
        self._applied += 1 if way == "redo" else -1

    def settle(self, holds: Callable[[Settings], bool]) -> None:
        """Drop refused edits once all requests are answered; `holds` checks present settings."""
        while self._applied and not holds(self._edits[self._applied - 1].after):
            self._drop(self._applied - 1)
        undone = self.next("redo")
        if undone is not None and holds(undone.after):  # the undo was refused
            self._applied += 1

    def _drop(self, index: int) -> None:
        """Remove a refused edit; the next edit then begins with the values before it."""
        dropped = self._edits.pop(index)
        self._applied -= 1
        for following in self._edits[index : index + 1]:
            came_from = {k: v for k, v in dropped.before.items() if k in following.before}
            joined = Edit(following.before | came_from, following.after)
            self._edits[index : index + 1] = [joined] if joined.before != joined.after else []
