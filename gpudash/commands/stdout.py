"""What the commands print, on outputs that may be closed, full or poor in characters."""

import io
import os
import sys
from contextlib import suppress

from gpudash.errors import OutputError
from gpudash.recording.files import reason


def make_do() -> None:
    """Have both streams replace what their encoding lacks, as in the locale C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(text: str, end: str = "\n") -> None:
    """Print to standard output, at once. Raises OutputError; nobody reading is no error."""
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        # what is left of it would be tried again, and complained of, at the interpreter's end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"cannot write the output: {reason(error)}") from error


def complain(text: str) -> None:
    """Print to standard error; where that cannot be, the exit code alone tells."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)
