"""`gpudash replay`: show a recording on the dashboard, also one that is still being written."""

import argparse
from typing import Any

from gpudash.cli.dashboard import opening, show
from gpudash.cli.stdout import on_terminal
from gpudash.errors import UsageError
from gpudash.run.replay import NOTHING, Player, Replay


def main(arguments: argparse.Namespace) -> int:
    replay = Replay(arguments.file, Player(arguments.speed))
    if not on_terminal():
        raise UsageError("a replay needs a terminal; gpudash export makes other files of it")
    how: dict[str, Any] = {"start_source": lambda _plan: replay, "beside": (), "clock": replay.now}
    with opening(NOTHING, arguments, None, **how) as open_session:
        return show(open_session, NOTHING, arguments, replay.player).code
