"""The interface of a run that the screen uses.

`gpudash.run.session.Session` implements it, also for a replay. Tests have their own.
"""

from pathlib import Path
from typing import Protocol

from gpudash.compare.ab import Question
from gpudash.errors import RecordingError
from gpudash.protocol import Plan, Settings
from gpudash.snapshot import Listener


class Player(Protocol):
    """Controls of a replay. Every method returns at once."""

    @property
    def position_s(self) -> float:
        """Seconds since the recording began."""

    def play_or_hold(self) -> None:
        """Toggle between playing and holding."""

    def seek(self, position_s: float) -> None:
        """Go to this position."""

    def seek_end(self) -> None:
        """Go to the end and follow it."""

    def faster(self, direction: int) -> None:
        """Choose the next higher speed (+1) or the next lower one (-1)."""


class Engine(Protocol):
    """A run that can be watched and changed. Every method but `close` returns at once.

    A method that sends a request to the training returns its id: see `Snapshot.last_command`.
    """

    recording_failure: RecordingError | None
    """The newest failure of a recording; None if none has failed."""

    def start(self, listener: Listener) -> None:
        """Start the worker. Call from the main thread: the worker dies with the calling thread.

        Raises WorkerError, after which it may be called again.
        """

    def change(self, settings: Settings) -> int:
        """Set levers at the next step boundary."""

    def compare(self, question: Question) -> int:
        """Run an A/B comparison in blocks, then go back to the present levers."""

    def end_comparison(self) -> int:
        """End the running comparison; it has a verdict if it has enough pairs."""

    def stop(self) -> int:
        """Request the end of the training; a user's script gets SIGINT and may take its time."""

    def leave(self) -> None:
        """Let a user's script train on without a dashboard, also after `close`."""

    def type(self, text: str) -> None:
        """Send typed text to a user's script."""

    def pause(self) -> int:
        """Stop between two steps."""

    def resume(self) -> int:
        """Go on after `pause`."""

    def memory_owners(self) -> int:
        """Request a report of who owns device memory."""

    def restart(self, plan: Plan) -> int:
        """Kill the worker, if one runs, and start another. Call from the main thread.

        Raises WorkerError.
        """

    def profile(self, steps: int, path: Path) -> int:
        """Trace the next steps into this file. Raises UsageError for a name that is not text."""

    def new_row(self) -> None:
        """Begin a new row of the results table with the active settings."""

    def record(self, path: Path, *, force: bool = False) -> None:
        """Write a CSV from now on. Raises RecordingError if the file cannot be made."""

    def stop_recording(self) -> None:
        """Complete the CSV and close it."""

    def close(self) -> None:
        """End the run and complete the recording; waits for both.

        May be called on any thread, and more than once.
        """
