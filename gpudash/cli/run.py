"""`gpudash run`."""

from gpudash.cli.options import (
    OF_A_SCRIPT,
    add_listening,
    add_quiet,
    add_record,
    add_recording_options,
    add_screen_options,
    add_switch,
)
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import OF_SCRIPT, Exit


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="runs the script (the activated environment's, else gpudash's own if it has torch, "
        "else python)",
    )
    output = parser.add_argument_group("without the screen")
    where = output.add_mutually_exclusive_group()
    add_record(where)
    add_switch(where, "--watch", "record nothing, move no lever")
    where.add_argument(
        "--connect",
        metavar="HOST:PORT",
        help="show its ranks on the gpudash that listens there",
    )
    add_quiet(output)
    add_listening(parser)
    add_recording_options(parser, OF_A_SCRIPT)
    add_screen_options(parser)


VERB = Verb(
    name="run",
    usage="[options] [python] SCRIPT.py ARGS …",
    also="gpudash run [options] -m MODULE ARGS … | -- COMMAND …",
    details=lambda: (
        "All that follows the script's name is its own. It runs as without gpudash.\n"
        "Without the screen its input and output are untouched; a line at the end, on standard "
        "error, says what was measured.\n"
        "The dashboard may be left, or die: the training goes on, and gpudash attach shows it "
        "again."
    ),
    add_arguments=add_arguments,
    examples=(
        ("gpudash run train.py --epochs 10", "the dashboard over a script of yours"),
        ("gpudash run --record run.csv -m pkg.train", "a module, recorded without a screen"),
        ("gpudash run -- torchrun --nproc-per-node=2 train.py", "any command"),
        ("gpudash run --listen 7070 -- torchrun …", "with the ranks of other nodes"),
        ("gpudash run --connect localhost:7070 -- torchrun …", "on each of those"),
    ),
    exits=(Exit.DONE, Exit.FAILED, Exit.REFUSED),
    meanings=OF_SCRIPT,
    configuration="obeyed",
    user_command="alone",
    module="gpudash.cli.run_command",
)
