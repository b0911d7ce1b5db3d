"""What the commands print, on outputs that may be closed, full or poor in characters."""

import codecs
import io
import os
import sys
from contextlib import suppress

from gpudash.errors import OutputError
from gpudash.format import plain


def make_do(*, ascii_only: bool = False) -> None:
    """Have both streams print ASCII for what their encoding lacks, or for all that is none."""
    codecs.register_error("gpudash-ascii", _in_ascii)
    encoding = "ascii" if ascii_only else None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors="gpudash-ascii")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    from gpudash.ascii import as_ascii  # noqa: PLC0415  # few terminals need it

    assert isinstance(error, UnicodeEncodeError)
    return as_ascii(error.object[error.start : error.end]), error.end


def say(text: str, end: str = "\n") -> None:
    """Print to standard output, at once. Raises OutputError; nobody reading is no error."""
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        # what is left of it would be tried again, and complained of, at the interpreter's end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            from gpudash.recording.files import reason  # noqa: PLC0415  # not for each --help

            raise OutputError(f"cannot write the output: {reason(error)}") from error


def complain(text: str) -> None:
    """Print a line to standard error; where that cannot be, the exit code alone tells."""
    with suppress(OSError):
        print(plain(text), file=sys.stderr, flush=True)
