"""`gpudash help`."""

from gpudash.cli.parser import Parser, Verb


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `help`."""
    parser.add_argument("verb", nargs="?", default="", metavar="VERB", help="a verb; none: all")


VERB = Verb(
    name="help",
    summary="What a verb does and takes.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash help", "all verbs, and the dashboard's options"),
        ("gpudash help sweep", "the options, examples and exit codes of sweep"),
    ),
    module="gpudash.cli.help",
)
