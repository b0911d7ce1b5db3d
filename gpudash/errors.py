"""What can go wrong, each with the line a user reads, and how a command can end.

The command line prints the message alone and exits with the error's code; the dashboard shows it
as a notice.
"""

from enum import IntEnum
from typing import ClassVar, Self


class Exit(IntEnum):
    """How a command ended: its exit code, and what that means."""

    meaning: str

    DONE = 0, "done"
    FAILED = (
        1,
        "the training, the recording or the output failed; what was recorded until then is kept",
    )
    REFUSED = 2, "what was asked for does not exist or cannot be; one line says why"
    NOT_SHOWN = 3, "no difference is shown"
    SLOWER = 4, "it is slower"
    INTERRUPTED = 130, "interrupted before there was a result"

    def __new__(cls, code: int, meaning: str) -> Self:
        """Make a member of its code and what it means."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


OF_SCRIPT = {
    Exit.DONE: "done, or left running; where the script ends otherwise, its own exit code, "
    "128 and the signal's number for one that was killed",
}
"""What a command that shows a script's training means by its codes."""
UNDECODABLE = (ValueError, RecursionError)
"""What msgspec raises for bytes that are no message: its own errors are ValueErrors, as that for
text that is no UTF-8 is; what is nested too deep is neither."""


class GpudashError(Exception):
    """Base of every error a user can cause or mend. `str(error)` is one complete line."""

    exit: ClassVar = Exit.REFUSED


class UsageError(GpudashError):
    """The command line or a panel asked for something that does not exist or cannot be."""


class RecordingError(GpudashError):
    """The record file cannot be created or written."""


class ExistsError(RecordingError):
    """What would be overwritten is there; `fact` says so without the command line's way out."""

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact}; --force overwrites it")
        self.fact = fact


class OutputError(GpudashError):
    """What was printed could not be written."""

    exit = Exit.FAILED


class SourceError(GpudashError):
    """What a source says cannot be understood."""


class WorkerError(GpudashError):
    """The training process could not start or died."""
