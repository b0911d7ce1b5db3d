"""`gpudash train FILE.py`: the dashboard's verb for a user's own workload."""

from gpudash.cli import dashboard
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    dashboard.add_arguments(parser)
    workload = parser.options["workload"]
    workload.nargs, workload.default = None, None
    workload.required = True
    workload.metavar = "FILE.py[:NAME]"
    workload.help = "a file with a workload of your own, or any workload's name"


VERB = Verb(
    name="train",
    details=lambda: "docs/guide/own-workload.md shows how to write one in twenty lines.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash train mine.py", "the dashboard over the one workload in mine.py"),
        ("gpudash train mine.py:resnet --set width=128", "… over one of several, a lever set"),
        ("gpudash train mine.py --record run.csv --steps 200", "… without a screen"),
    ),
    exits=(Exit.DONE, Exit.FAILED, Exit.REFUSED),
    module="gpudash.cli.dashboard",
    configuration="obeyed",
)
