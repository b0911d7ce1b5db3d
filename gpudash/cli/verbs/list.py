"""`gpudash list`."""

from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    """Add what `list` takes."""
    parser.add_argument(
        "workload",
        nargs="?",
        metavar="WORKLOAD",
        help="one workload, or FILE.py; none: all of ours",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


VERB = Verb(
    name="list",
    summary="The workloads and their levers: values, defaults, when a change takes effect.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash list", "every workload with its levers"),
        ("gpudash list mine.py", "the levers of a workload of your own"),
        ("gpudash list --json", "the same for a program"),
    ),
    exits=(Exit.DONE, Exit.REFUSED),
    module="gpudash.commands.list",
)
