"""`gpudash schema`."""

from gpudash.cli.parser import Parser, Verb


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `schema`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a document; none: their names")


VERB = Verb(
    name="schema",
    summary="The JSON Schema of what --json prints and of the files beside a CSV.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash schema", "the names of the documents"),
        ("gpudash schema ab", "the schema of what gpudash ab --json prints"),
    ),
)
