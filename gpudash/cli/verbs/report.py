"""`gpudash report`."""

from gpudash.cli.options import add_file, add_output
from gpudash.cli.parser import Parser, Verb


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `report`."""
    add_file(parser, "recording", "RUN", "a recording's CSV, or the log beside it")
    add_output(parser, "FILE.html", "the page to write; it needs nothing beside it")


VERB = Verb(
    name="report",
    summary="A recording as one HTML page: charts, settings, results, verdicts.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash report run.csv -o run.html", "a page to read in any browser"),
        ("gpudash report run.csv -o run.html --force", "… once more"),
    ),
)
