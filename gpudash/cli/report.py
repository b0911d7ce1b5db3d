"""`gpudash report`: a recording as one self-contained HTML page, or as text."""

import argparse
import shutil
from pathlib import Path

from gpudash.cli.stdout import complain_of_left_out, passing, say
from gpudash.errors import UsageError
from gpudash.recording.files import created, shown
from gpudash.report.page import page
from gpudash.report.text import text
from gpudash.run.replayed import replayed

SUFFIXES = (".html", ".htm")


def main(arguments: argparse.Namespace) -> None:
    output: Path | None = arguments.output
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
