"""Define what a session can run in blocks: a comparison or a sweep."""

from typing import Protocol

from gpudash.protocol.commands import Block
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.session import ComparisonShown
from gpudash.protocol.training import State


class Experiment(Protocol):
    """Chooses the blocks that the worker runs, and folds their results.

    Only the session's thread calls it; `done` may be read from any thread.
    """

    done: bool
    """Whether no block of it is running or left."""
    verdict: str | None
    """The verdict; None until there is one."""

    def begin(self, state: State, run: int, /) -> tuple[Block, ...]:
        """Return the blocks that the worker in this state runs under this run number, if any."""

    def fold(self, item: Event | Reading, /) -> tuple[Block, ...] | None:
        """Fold one record that came after `begin`; after another worker has started, none counts.

        Returns blocks to run instead of the present ones, where none at all ends the run; else
        None.
        """

    def shown(self) -> ComparisonShown | None:
        """Return the experiment's state for the screen; None if it shows none."""
