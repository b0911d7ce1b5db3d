"""`gpudash doctor`."""

from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    """Add what `doctor` takes."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


VERB = Verb(
    name="doctor",
    summary="What this machine can measure, and what it cannot and why.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash doctor", "look at this machine; takes a few seconds"),
        ("gpudash doctor --json", "the same for a program"),
    ),
    exits=(Exit.DONE, Exit.REFUSED),
    module="gpudash.commands.doctor",
    configuration="reported",
)
