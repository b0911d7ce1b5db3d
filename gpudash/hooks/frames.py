"""Keeps gpudash's frames out of the script's tracebacks."""

import os
from pathlib import Path

from gpudash.instrument.uncompiled import uncompiled

OURS = f"{Path(__file__).parents[1]}{os.sep}"


def without_ours(error: BaseException) -> None:
    """Remove our outermost frames from an exception's traceback; a bare `raise` adds none again."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OURS):
        trace = trace.tb_next
    error.__traceback__ = trace


class _Unseen:
    """Removes our frames from the traceback of an exception that leaves the block."""

    @uncompiled
    def __enter__(self) -> None:
        pass

    @uncompiled
    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            without_ours(error)


unseen = _Unseen()
"""A context manager: an exception that leaves its block shows no frame of ours."""
