"""`gpudash export`."""

from gpudash.cli.options import add_file, add_output
from gpudash.cli.parser import Parser, Verb


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `export`."""
    add_file(parser, "recording", "LOG", "FILE.jsonl, or the CSV beside it")
    add_output(parser, "FILE", "ends in .csv (FILE.json is written too), .jsonl or .parquet")


VERB = Verb(
    name="export",
    summary="Write a recording in another format.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash export run.jsonl -o again.csv", "the CSV and its JSON, from the log"),
        ("gpudash export run.jsonl -o rows.parquet", "the rows as Parquet"),
    ),
)
