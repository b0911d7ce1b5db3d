"""`gpudash info`."""

from gpudash.cli.options import add_json, add_screen_options, add_training_options
from gpudash.cli.parser import Parser, Verb


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `info`: the options whose effect it shows."""
    add_training_options(parser)
    add_screen_options(parser)
    parser.add_profile_option()
    add_json(parser)


VERB = Verb(
    name="info",
    summary="Versions, folders, and every setting with what has set it.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash info", "what the next run would be set to, and why"),
        ("gpudash info encdec --profile quick --json", "the same with a profile, for a program"),
    ),
    configuration="reported",
    module="gpudash.cli.info_settings",
)
