"""`gpudash compare`."""

from gpudash.cli.options import add_file, add_json, add_number, add_switch
from gpudash.cli.parser import Parser, Verb
from gpudash.errors import Exit


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `compare`."""
    for name in ("base", "new"):
        add_file(parser, name, name.upper(), "a recording or a sweep's CSV")
    what = f"exit {Exit.SLOWER:d} if a throughput is shown to lie below RATIO times that of BASE"
    add_number(parser, "--fail-below", 0.001, 1000, "RATIO", what)
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    add_switch(form, "--markdown", "print a table in Markdown")


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
