"""`gpudash list`."""

from gpudash.cli.options import add_json
from gpudash.cli.parser import Parser, Verb


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `list`."""
    parser.add_argument(
        "workload",
        nargs="?",
        metavar="WORKLOAD",
        help="one workload, or FILE.py; none: all of ours",
    )
    add_json(parser)


VERB = Verb(
    name="list",
    summary="The workloads and their levers: values, defaults, when a change takes effect.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash list", "every workload with its levers"),
        ("gpudash list mine.py", "the levers of a workload of your own"),
        ("gpudash list --json", "the same for a program"),
    ),
)
