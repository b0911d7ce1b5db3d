"""`gpudash export`: a recording as the files that other programs read."""

import argparse

from gpudash.commands.stdout import complain
from gpudash.errors import Exit
from gpudash.recording.export import export
from gpudash.recording.files import shown


def main(arguments: argparse.Namespace) -> int:
    """Write the recording in the format that is asked for.

    Raises UsageError and RecordingError where it cannot be read or written.
    """
    recording = arguments.recording
    refused = export(recording, arguments.output, force=arguments.force)
    if refused:
        lines = "1 line" if refused == 1 else f"{refused} lines"
        complain(f"left out {lines} of {shown(recording)} that made no sense")
    return Exit.DONE
