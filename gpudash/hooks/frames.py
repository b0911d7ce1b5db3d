"""Keeps our frames out of the script's tracebacks."""

import os
from pathlib import Path

from gpudash.instrument.uncompiled import uncompiled

OURS = f"{Path(__file__).parent}{os.sep}"


def without_ours(error: BaseException) -> None:
    """Take our frames off the begin of an exception's traceback; a bare `raise` adds none again."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OURS):
        trace = trace.tb_next
    error.__traceback__ = trace


class _Unseen:
    """Does so for what is raised in the block."""

    @uncompiled
    def __enter__(self) -> None:
        pass

    @uncompiled
    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            without_ours(error)


unseen = _Unseen()
"""For `with`: our frames are in no traceback of what is raised in the block."""
