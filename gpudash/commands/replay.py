"""gpudash replay: the dashboard over a recording, also one that is still being written."""

import argparse
from contextlib import closing
from pathlib import Path

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
    from gpudash.tui.app import run_dashboard  # noqa: PLC0415  # what is wrong is said without it
    from gpudash.tui.look import Look  # noqa: PLC0415  # … too

    session = Session(
        NOTHING,
        rate_hz=arguments.rate,
        start_source=lambda _plan: replay,
        beside=(),
        clock=replay.now,
    )
    with closing(session):
        return run_dashboard(
            lambda: session,
            NOTHING,
            rate_hz=arguments.rate,
            player=replay.player,
            ascii_only=arguments.ascii,
            look=Look(theme=arguments.theme, pane=arguments.pane, keys=arguments.keys),
        )


def open_replay(path: Path, player: Player) -> Replay:
    """Open a recording: the log beside a CSV, or the CSV where there is none. Raises UsageError."""
    return Replay(log_or_csv(path), player, path.name)
