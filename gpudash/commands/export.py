"""`gpudash export`: a recording as the files that other programs read."""

import argparse

from gpudash.commands.stdout import complain_of_left_out
from gpudash.errors import Exit
from gpudash.recording.export import export


def main(arguments: argparse.Namespace) -> int:
    """Write the recording in the format that is asked for.

    Raises UsageError and RecordingError where it cannot be read or written.
    """
    recording = arguments.recording
    refused = export(recording, arguments.output, force=arguments.force)
    complain_of_left_out(refused, recording)
    return Exit.DONE
