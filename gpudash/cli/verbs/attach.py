"""`gpudash attach`."""

from gpudash.cli.options import add_listening, add_screen_options
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import OF_SCRIPT


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `attach`."""
    parser.add_argument(
        "run", nargs="?", metavar="PID|NAME", help="which one, where several commands run"
    )
    add_listening(parser)
    add_screen_options(parser)


VERB = Verb(
    name="attach",
    summary="The dashboard over a command of gpudash run that was left running.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash attach", "the only one that runs"),
        ("gpudash attach train.py", "one of several"),
    ),
    meanings=OF_SCRIPT,
    configuration="obeyed",
)
