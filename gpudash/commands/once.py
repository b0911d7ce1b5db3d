"""`gpudash --once`: print the dashboard as text."""

import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpudash.commands.headless import complain_of_failure
from gpudash.commands.stdout import complain, say
from gpudash.errors import Exit
from gpudash.protocol import Plan

if TYPE_CHECKING:
    from gpudash.run.session import Session

IN_A_PIPE = (120, 40)


def print_once(
    open_session: Callable[[], "Session"], plan: Plan, *, ascii_only: bool, color: str
) -> int:
    """Train, and print one frame; return the exit code of the run."""
    from gpudash.tui.single_frame import one_frame  # noqa: PLC0415  # Textual is slow

    in_color = color == "always" or (sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    width, height = shutil.get_terminal_size(IN_A_PIPE) if sys.stdout.isatty() else IN_A_PIPE
    frame, snapshot = one_frame(
        open_session, plan, size=(width, height), in_color=in_color, ascii_only=ascii_only
    )
    if snapshot.state != "failed":
        say(frame)
        return Exit.DONE
    failure = open_session().failure
    if failure is not None:
        return complain_of_failure(failure)
    complain(f"gpudash: {snapshot.status}")
    return Exit.FAILED
