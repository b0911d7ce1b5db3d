"""`gpudash export`: convert a recording to files for other programs."""

import argparse

from gpudash.commands.stdout import complain_of_left_out
from gpudash.errors import Exit
from gpudash.sinks.export import export


def main(arguments: argparse.Namespace) -> int:
    """Write the recording in the requested format; return the exit code.

    Raises UsageError if it cannot be read, and RecordingError if it cannot be written.
    """
    recording = arguments.recording
    refused = export(recording, arguments.output, force=arguments.force)
    complain_of_left_out(refused, recording)
    return Exit.DONE
