"""`gpudash compare`."""

from gpudash.cli.options import add_file, add_json, number
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `compare`."""
    for name in ("base", "new"):
        add_file(parser, name, name.upper(), "a recording or a sweep's CSV")
    parser.add_argument(
        "--fail-below",
        type=number("--fail-below", 0.001, 1000),
        metavar="RATIO",
        help=f"exit {Exit.SLOWER:d} if a throughput is shown to lie below RATIO times that of BASE",
    )
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument("--markdown", action="store_true", help="print a table in Markdown")


VERB = Verb(
    name="compare",
    summary="Is one recorded run or sweep faster than another, setting by setting.",
    add_arguments=add_arguments,
    examples=(
        ("gpudash compare base.csv new.csv", "the ratio of each setting, with an interval"),
        ("gpudash compare base.csv new.csv --fail-below 0.97", "a check for CI"),
    ),
    exits=(Exit.DONE, Exit.REFUSED, Exit.SLOWER),
    meanings={Exit.SLOWER: "a throughput is shown to lie below what --fail-below says"},
)
