"""Undo and redo of the lever changes that the user has made.

An edit is taken as made once it is asked for, so that two quick keys undo two of them. What the
training then refuses was never made, and is dropped.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from gpudash.protocol import Settings

MOST_EDITS = 200
Way: TypeAlias = Literal["undo", "redo"]


class Edit(msgspec.Struct, frozen=True):
    """Levers that were set together, and what they had been set to."""

    before: Settings
    after: Settings

    @property
    def reversed(self) -> "Edit":
        """The change that takes it back."""
        return Edit(self.after, self.before)

    @property
    def label(self) -> str:
        """The change in a few words: `pipelined off→on`, or `3 levers`."""
        if len(self.after) > 1:
            return f"{len(self.after)} levers"
        return "".join(f"{name} {self.before[name]}→{to}" for name, to in self.after.items())


class UndoStack:
    """The edits in the order they were made, and how many of them stand."""

    def __init__(self) -> None:
        self._edits: list[Edit] = []
        self._standing = 0

    def made(self, edit: Edit) -> None:
        """Take a new edit; what was undone before it cannot be redone any more."""
        self._edits = [*self._edits[: self._standing], edit][-MOST_EDITS:]
        self._standing = len(self._edits)

    def next(self, way: Way) -> Edit | None:
        """Return the change that undo, or redo, would make."""
        if way == "undo":
            return self._edits[self._standing - 1].reversed if self._standing else None
        return self._edits[self._standing] if self._standing < len(self._edits) else None

    def went(self, way: Way) -> None:
        """Count that change as made."""
        self._standing += 1 if way == "redo" else -1

    def settle(self, holds: Callable[[Settings], bool]) -> None:
        """Drop what was refused: everything asked for is answered, `holds` tells what is set."""
        while self._standing and not holds(self._edits[self._standing - 1].after):
            self._drop(self._standing - 1)
        undone = self.next("redo")
        if undone is not None and holds(undone.after):  # taking it back was refused
            self._standing += 1

    def _drop(self, index: int) -> None:
        """Remove an edit that was never made: the one after it began where this one did."""
        dropped = self._edits.pop(index)
        self._standing -= 1
        for following in self._edits[index : index + 1]:
            came_from = {k: v for k, v in dropped.before.items() if k in following.before}
            joined = Edit(following.before | came_from, following.after)
            self._edits[index : index + 1] = [joined] if joined.before != joined.after else []
