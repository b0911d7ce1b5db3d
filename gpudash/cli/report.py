"""`gpudash report`: a recording as one self-contained HTML page, or as text."""

import argparse
import shutil
from typing import TYPE_CHECKING

from gpudash.cli.options import add_file, add_output, add_price, add_switch
from gpudash.cli.parser import Parser, Verb
from gpudash.cli.stdout import complain_of_left_out, passing, say
from gpudash.errors import Exit, UsageError

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".html", ".htm")
USAGE = "usage: gpudash report RUN --output FILE.html [options]"


def add_arguments(parser: Parser) -> None:
    add_file(parser, "recording", "RUN", "a recording's CSV, or the log beside it")
    form = parser.add_mutually_exclusive_group()
    add_output(parser, "FILE.html", "the page to write; it needs nothing beside it", form)
    add_switch(form, "--text", "print what ran, its throughput and its settings instead")
    add_price(parser)


VERB = Verb(
    name="report",
    add_arguments=add_arguments,
    configuration="obeyed",
    examples=(
        ("gpudash report run.csv -o run.html", "a page to read in any browser"),
        ("gpudash report run.csv -o run.html --force", "… once more"),
        ("gpudash report run.csv --text", "in the terminal"),
    ),
)


def main(arguments: argparse.Namespace) -> int:
    from gpudash.recording.files import created, shown
    from gpudash.report.page import page
    from gpudash.report.text import text
    from gpudash.run.replayed import replayed

    output: Path | None = arguments.output
    if output is None and not arguments.text:
        raise UsageError(f"the following arguments are required: -o/--output; {USAGE}")
    if output is not None and output.suffix not in SUFFIXES:
        raise UsageError(f"cannot write a report to {shown(output)}: its name has to end in .html")
    with passing(f"reading {shown(arguments.recording)}") as tell:
        run = replayed(arguments.recording, lambda share: tell(f": {100 * share:.0f} %"))
    if output is None:
        say(text(run.snapshot, shutil.get_terminal_size().columns))
    else:
        with created(output, force=arguments.force) as file:
            file.append(page(run, arguments.command, arguments.price).encode())
    complain_of_left_out(run.refused, arguments.recording)
    return Exit.DONE
