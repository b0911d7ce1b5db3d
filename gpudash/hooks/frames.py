"""Keeps our frames out of the script's tracebacks."""

import os
from pathlib import Path

OURS = f"{Path(__file__).parent}{os.sep}"


def without_ours(error: BaseException) -> None:
    """Take our frames off the begin of an exception's traceback; a bare `raise` adds none again."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OURS):
        trace = trace.tb_next
    error.__traceback__ = trace
