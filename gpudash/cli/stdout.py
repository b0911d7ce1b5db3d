"""Print to outputs that may be closed, full or limited to ASCII."""

import codecs
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from gpudash.errors import OutputError
from gpudash.format import plain

if TYPE_CHECKING:
    from pathlib import Path


CLEAR_LINE = "\r\x1b[2K"
LOOK_S = 0.1
"""Seconds between looks for a signal while a question waits for its answer."""


def make_do(*, ascii_only: bool = False) -> None:
    """Print ASCII for characters that an output's encoding lacks, or with `ascii_only` for all."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: the next opened file would get its descriptor
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))
    codecs.register_error("gpudash-ascii", _in_ascii)
    encoding = "ascii" if ascii_only else None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors="gpudash-ascii")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    from gpudash.format import as_ascii  # few terminals need it

    assert isinstance(error, UnicodeEncodeError)
    return as_ascii(error.object[error.start : error.end]), error.end


def on_terminal() -> bool:
    """Return whether all standard streams are a terminal."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def ask(question: str) -> str:
    """Return the line that is typed on the terminal; empty at its end. Raises KeyboardInterrupt."""
    print(question, end="", file=sys.stderr, flush=True)
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        pass  # a read would not hear a signal that comes just before it
    return sys.stdin.readline()


def say(text: str, end: str = "\n") -> None:
    """Print to standard output and flush. Raises OutputError; a closed pipe is no error."""
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        _drop(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            from gpudash.recording.files import reason  # not for each --help

            raise OutputError(f"cannot write the output: {reason(error)}") from error


def tell(stream: TextIO, text: str) -> None:
    """Write what may be lost: nobody may read it any more, and a disk may be full."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _drop(stream)
    except OSError:
        return


def _drop(stream: TextIO) -> None:
    """Lose what nobody reads: the interpreter would try again at its end, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say_json(document: object, indent: int = -1) -> None:
    import msgspec  # not for each --help

    say(msgspec.json.format(msgspec.json.encode(document), indent=indent).decode())


def say_found(document: object, text: str, *, as_json: bool, indent: int = -1) -> None:
    """Print what a verb has found, for a program or for people."""
    if as_json:
        say_json(document, indent)
    else:
        say(text)


@contextmanager
def passing(text: str) -> Iterator[Callable[[str], None]]:
    """Show the text on a terminal; yield a function that shows after it how far the wait is."""
    stream = sys.stderr if sys.stderr.isatty() else io.StringIO()

    def show(how_far: str) -> None:
        print(CLEAR_LINE + plain(text + how_far), end="", file=stream, flush=True)

    print(plain(text), end="", file=stream, flush=True)
    try:
        yield show
    finally:
        print(CLEAR_LINE, end="", file=stream, flush=True)


def complain(text: str) -> None:
    """If even this fails, the exit code has to do."""
    tell(sys.stderr, f"{plain(text)}\n")


def complain_of_left_out(lines: int, path: "Path") -> None:
    from gpudash.recording.files import shown  # …

    if lines:
        many = "1 line" if lines == 1 else f"{lines} lines"
        complain(f"left out {many} of {shown(path)} that made no sense")
