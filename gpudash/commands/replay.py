"""`gpudash replay`: the dashboard over a recording, also one that is still being written."""

import argparse
from contextlib import closing

from gpudash.commands.dashboard import show
from gpudash.commands.stdout import on_terminal
from gpudash.errors import UsageError
from gpudash.run.replay import NOTHING, Player, Replay
from gpudash.run.session import Session


def main(arguments: argparse.Namespace) -> int:
    """Show a recording. Raises UsageError."""
    replay = Replay(arguments.file, Player(arguments.speed))
    if not on_terminal():
        raise UsageError("a replay needs a terminal; gpudash export makes other files of it")
    session = Session(
        NOTHING,
        rate_hz=arguments.rate,
        start_source=lambda _plan: replay,
        beside=(),
        clock=replay.now,
    )
    with closing(session):
        return show(lambda: session, NOTHING, arguments, replay.player)
