"""The errors that a user can mend, and the exit codes. `str(error)` is all that is shown of one."""

from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """An exit code and its meaning."""

    meaning: str

    DONE = 0, "done"
    FAILED = (
        1,
        "the training, the recording or the output failed; what was recorded until then is kept",
    )
    REFUSED = 2, "what was asked for does not exist or cannot be; one line says why"
    NOT_SHOWN = 3, "no difference is shown"
    SLOWER = 4, "it is slower"
    NOT_COMPARABLE = 5, "both cannot be compared; one line says why"
    TRAINING_CHANGED = 6, "the losses moved: it is another training"
    INTERRUPTED = 130, "interrupted before there was a result"

    def __new__(cls, code: int, meaning: str) -> "Exit":  # noqa: PYI034  # Python 3.10 has no Self
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


OF_SCRIPT = {
    Exit.DONE: "done, or left running; where the script ends otherwise, its own exit code, "
    "128 and the signal's number for one that was killed",
    Exit.FAILED: "whoever held the script's terminal was killed: how the script ended is not known",
}
"""Other meanings of exit codes, for commands that watch a script's training."""
UNDECODABLE = (ValueError, RecursionError)
"""Errors of msgspec for bytes that are no message. Its own errors and a UnicodeDecodeError are
ValueErrors; data nested too deep raises RecursionError."""


class GpudashError(Exception):
    """Base of the errors that a user can mend. `str(error)` is one complete line."""

    exit: ClassVar = Exit.REFUSED


class UsageError(GpudashError):
    """The command line or a panel asked for something that does not exist or cannot be."""


class RecordingError(GpudashError):
    """The record file cannot be created or written."""


class ExistsError(RecordingError):
    """A file exists and would be overwritten; `fact` is the message without the hint at --force."""

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact}; --force overwrites it")
        self.fact = fact


class ReaderGoneError(RecordingError):
    """Whoever read the rows on standard output has closed it."""


class OutputError(GpudashError):
    """Standard output could not be written to."""

    exit = Exit.FAILED


class SourceError(GpudashError):
    """A message of a source cannot be decoded."""


class WorkerError(GpudashError):
    """The training process could not start or died."""


def first_line(error: BaseException) -> str:
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
