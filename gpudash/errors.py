"""What can go wrong, each with the line a user reads.

The command line prints the message alone and exits 2, if nothing else is said here; the
dashboard shows it as a notice.
"""


class GpudashError(Exception):
    """Base of every error a user can cause or mend. `str(error)` is one complete line."""


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
    """What was printed could not be written: the command line exits 1."""


class SourceError(GpudashError):
    """What a source says cannot be understood."""


class WorkerError(GpudashError):
    """The training process could not start or died."""
