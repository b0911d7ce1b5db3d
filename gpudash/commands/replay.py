"""gpudash replay: the dashboard over a recording, also one that is still being written."""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from gpudash.commands.options import Parser, add_screen_options, number
from gpudash.errors import UsageError
from gpudash.recording.provenance import path_beside
from gpudash.run.replay import NOTHING, SPEEDS, Player, Replay
from gpudash.run.session import Session


def main(argv: Sequence[str]) -> int:
    """Show a recording. Raises UsageError."""
    parser = Parser(
        prog="gpudash replay",
        description="Show a recording on the dashboard, also one that is still being written.",
    )
    parser.add_argument("file", metavar="FILE", help="a recording's CSV, or the log beside it")
    parser.add_argument("--speed", metavar="N", help="seconds of it in one second (default 1)")
    add_screen_options(parser)
    arguments = parser.parse_args(argv)
    speed = number("--speed", arguments.speed, default=1, minimum=SPEEDS[0], maximum=SPEEDS[-1])
    rate_hz = number("--rate", arguments.rate, default=4.0, minimum=0.2, maximum=30)
    replay = open_replay(Path(arguments.file), Player(speed))
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("a replay needs a terminal; gpudash export makes other files of it")
    from gpudash.tui.app import run_dashboard  # noqa: PLC0415  # what is wrong is said without it

    session = Session(
        NOTHING,
        rate_hz=rate_hz,
        start_source=lambda _plan: replay,
        beside=(),
        clock=replay.now,
    )
    with closing(session):
        return run_dashboard(
            lambda: session,
            NOTHING,
            rate_hz=rate_hz,
            player=replay.player,
            ascii_only=arguments.ascii,
        )


def open_replay(path: Path, player: Player) -> Replay:
    """Open a recording: the log beside a CSV, or the CSV where there is none. Raises UsageError."""
    log = path_beside(path, ".jsonl")
    return Replay(log if path.suffix == ".csv" and log.is_file() else path, player, path.name)
