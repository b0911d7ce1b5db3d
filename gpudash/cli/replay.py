"""`gpudash replay`: show a recording on the dashboard, also one that is still being written."""

import argparse
from typing import Any

from gpudash.cli.options import add_file, add_number, add_price, add_screen_options
from gpudash.cli.parser import Parser, Verb
from gpudash.cli.stdout import on_terminal
from gpudash.errors import UsageError
from gpudash.run.speeds import SPEEDS


def add_arguments(parser: Parser) -> None:
    add_file(parser, "file", "FILE", "a recording's CSV, or the log beside it")
    what = "seconds of it in one second (default 1)"
    add_number(parser, "--speed", SPEEDS[0], SPEEDS[-1], "N", what, 1.0)
    add_price(parser)
    add_screen_options(parser)


VERB = Verb(
    name="replay",
    add_arguments=add_arguments,
    examples=(
        ("gpudash replay run.csv", "the recording, from its beginning"),
        ("gpudash replay run.csv --speed 8", "… eight times as fast"),
    ),
    configuration="obeyed",
)


def main(arguments: argparse.Namespace) -> int:
    from gpudash.cli.dashboard import opening, show
    from gpudash.run.replay import NOTHING, Player, Replay

    replay = Replay(arguments.file, Player(arguments.speed))
    if not on_terminal():
        raise UsageError("a replay needs a terminal; gpudash export makes other files of it")
    how: dict[str, Any] = {"start_source": lambda _plan: replay, "beside": (), "clock": replay.now}
    with opening(NOTHING, arguments, None, **how) as open_session:
        return show(open_session, NOTHING, arguments, replay.player).code
