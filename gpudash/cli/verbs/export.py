"""`gpudash export`."""

from gpudash.cli.options import FileName
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    """Add what `export` takes."""
    parser.add_argument(
        "recording", type=FileName("LOG"), metavar="LOG", help="FILE.jsonl, or the CSV beside it"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=FileName("--output"),
        required=True,
        metavar="FILE",
        help="ends in .csv (FILE.json is written too), .jsonl or .parquet",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


VERB = Verb(
    name="export",
    summary="Write a recording in another format.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash export run.jsonl -o again.csv", "the CSV and its JSON, from the log"),
        ("gpudash export run.jsonl -o rows.parquet", "the rows as Parquet"),
    ),
    exits=(Exit.DONE, Exit.REFUSED),
    module="gpudash.commands.export",
)
