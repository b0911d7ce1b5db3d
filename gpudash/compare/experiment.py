"""What a session can run in blocks: a comparison, or a sweep."""

from typing import Protocol

from gpudash.protocol import Block, ComparisonShown, Event, Reading, Started


class Experiment(Protocol):
    """Says which blocks the worker is to run and folds what comes of them.

    Called from the session's thread alone; `done` may be read from any.
    """

    done: bool
    """Nothing more of it is being run."""
    verdict: str | None
    """What was found, once it is."""

    def begin(self, started: Started, run: int, /) -> tuple[Block, ...]:
        """Return what the worker is to run, under this number; none where there is nothing."""

    def fold(self, item: Event | Reading, /) -> tuple[Block, ...] | None:
        """Take one record that came after `begin`; another `Started` means another worker.

        Returns other blocks where the worker is to run those instead; none of them end the run.
        """

    def shown(self) -> ComparisonShown | None:
        """Return what a screen shows of it, if anything."""
