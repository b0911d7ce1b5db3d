"""What the screen needs from a run.

`gpudash.run.session.Session` is the engine, also of a replay; tests bring their own.
"""

from pathlib import Path
from typing import Protocol

from gpudash.compare.ab import Question
from gpudash.errors import RecordingError
from gpudash.protocol import Plan, Settings
from gpudash.snapshot import Listener


class Player(Protocol):
    """The hand on a replay. Every method returns at once."""

    @property
    def position_s(self) -> float:
        """Seconds since the recording began."""

    def play_or_hold(self) -> None:
        """Go on, or stand still."""

    def seek(self, position_s: float) -> None:
        """Go there."""

    def seek_end(self) -> None:
        """Go to the end and follow it."""

    def faster(self, direction: int) -> None:
        """Take the next speed (+1) or the one before (-1)."""


class Engine(Protocol):
    """A run that can be watched and changed. Every method but `close` returns at once.

    What asks something of the training returns the request's id: see `Snapshot.last_command`.
    """

    recording_failure: RecordingError | None
    """Why the last recording to fail ended early; None while none has."""

    def start(self, listener: Listener) -> None:
        """Start the worker. Call from the main thread: the worker dies with its caller's.

        Raises WorkerError; it may be called again then.
        """

    def change(self, settings: Settings) -> int:
        """Set levers at the next step boundary."""

    def compare(self, question: Question) -> int:
        """Run an A/B comparison in blocks, and go back to the levers as they are."""

    def end_comparison(self) -> int:
        """End the comparison that is run, without a verdict."""

    def stop(self) -> int:
        """Have the training end; a user's script by what Ctrl-C sends, and in its own time."""

    def leave(self) -> None:
        """Let a user's script train on without a dashboard, also after `close`."""

    def type(self, text: str) -> None:
        """Hand what was typed to a user's script."""

    def pause(self) -> int:
        """Stop between two steps."""

    def resume(self) -> int:
        """Go on after `pause`."""

    def memory_owners(self) -> int:
        """Have it told who owns device memory."""

    def restart(self, plan: Plan) -> int:
        """Kill the worker, if one lives, and start another. Call from the main thread.

        Raises WorkerError.
        """

    def profile(self, steps: int, path: Path) -> int:
        """Trace the next steps, to this file. Raises UsageError for a name that is no text."""

    def new_row(self) -> None:
        """Begin a new row of the results table with the active settings."""

    def record(self, path: Path, *, force: bool = False) -> None:
        """Write a CSV from now on. Raises RecordingError where the file cannot be made."""

    def stop_recording(self) -> None:
        """Complete the CSV and close it."""

    def close(self) -> None:
        """End the run and complete the recording; waits for it. From any thread, and again."""
