"""`gpudash info`."""

from gpudash.cli.options import add_profile_option, add_screen_options, add_training_options
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    """Add what `info` takes: the options whose effect it can tell."""
    add_training_options(parser)
    add_screen_options(parser)
    add_profile_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


VERB = Verb(
    name="info",
    summary="Versions, folders, and every setting with what has set it.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash info", "what the next run would be set to, and why"),
        ("gpudash info encdec --profile quick --json", "the same with a profile, for a program"),
    ),
    exits=(Exit.DONE, Exit.REFUSED),
    module="gpudash.commands.info",
    configuration="reported",
)
