"""Which thread trains, and inside of what it is: calls nest, and exceptions leave them unseen."""

import sys
from threading import get_ident

import torch

NOBODY = -1
"""An identity that no thread has."""
NO_TASK = -1
"""Autograd's id of the current backward pass on a thread that runs none."""


class Follower:
    """Follows one thread into optimizers, backward passes, declared steps and waits."""

    def __init__(self) -> None:
        self.thread: int | None = None
        """The one that trains; None: not known."""
        self.failed_thread: int | None = None
        """The one that trained when a hook failed."""
        self.newest_optimizer: int | None = None
        """Its id."""
        self.closed_by: int | None = None
        """The newest one when the newest step ended; None: a backward pass has ended it."""
        self.has_learned: bool | None = None
        """A backward pass may have come since the newest update; None: there was never one."""
        self._others = 0, 0  # steps of another thread's optimizers, after which of ours
        self.leave()

    def leave(self) -> None:
        """Forget where the script is: an interrupt may have come anywhere."""
        self.optimizers = self.backwards = self.declared = self.waits = 0  # how deep in them
        self.has_closure = False
        self.has_updated = False  # an optimizer has stepped in this backward pass
        self.captured: bool | None = None  # it has in this capture of a graph; None: no capture

    @property
    def is_here(self) -> bool:
        return get_ident() == self.thread

    @property
    def may_be_here(self) -> bool:
        return self.thread in (None, get_ident())

    @property
    def lives(self) -> bool:
        return self.thread in sys._current_frames()  # noqa: SLF001  # `threading` knows only its own

    @property
    def runs_backward_here(self) -> bool:
        """An optimizer that steps within a backward pass does so, on a GPU on autograd's thread."""
        return self.backwards > 0 and torch._C._current_graph_task_id() != NO_TASK  # noqa: SLF001  # no public name

    def others_have_stepped(self, after: int) -> int:
        """Count a step of another thread's; return how many have come since our step `after`."""
        number, since = self._others
        self._others = number + 1 if since == after else 1, after
        return self._others[0]

    def move_here(self) -> None:
        self.thread = get_ident()
        self.optimizers = self.backwards = 0  # left by the former thread
