"""`gpudash export`: convert a recording to files for other programs."""

import argparse

from gpudash.cli.options import once_each
from gpudash.cli.stdout import complain_of_left_out
from gpudash.sinks.export import export, export_to


def main(arguments: argparse.Namespace) -> None:
    recording, force = arguments.recording, arguments.force
    if arguments.to:
        once_each(arguments.to)
        refused = export_to(recording, arguments.to, force=force)
    else:
        refused = export(recording, arguments.output, force=force)
    complain_of_left_out(refused, recording)
