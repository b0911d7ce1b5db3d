"""gpudash replay: the dashboard over a recording, also one that is still being written."""

import argparse
from contextlib import closing
from pathlib import Path

from gpudash.commands.dashboard import show
from gpudash.commands.stdout import on_terminal
from gpudash.errors import UsageError
from gpudash.recording.csv_reader import log_or_csv
from gpudash.run.replay import NOTHING, Player, Replay
from gpudash.run.session import Session


def main(arguments: argparse.Namespace) -> int:
    """Show a recording. Raises UsageError."""
    replay = open_replay(arguments.file, Player(arguments.speed))
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


def open_replay(path: Path, player: Player) -> Replay:
    """Open a recording: the log beside a CSV, or the CSV where there is none. Raises UsageError."""
    return Replay(log_or_csv(path), player, path.name)
