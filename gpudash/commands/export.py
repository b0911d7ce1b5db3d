"""`gpudash export`: a recording as the files that other programs read."""

from collections.abc import Sequence
from pathlib import Path

from gpudash.commands.options import Parser
from gpudash.commands.stdout import complain
from gpudash.recording.export import export
from gpudash.recording.files import shown


def main(argv: Sequence[str]) -> int:
    """Write the recording in the format that is asked for. Returns 0.

    Raises UsageError and RecordingError where it cannot be read or written.
    """
    parser = Parser(prog="gpudash export", description="Write a recording in another format.")
    parser.add_argument("recording", metavar="LOG", help="FILE.jsonl, or the CSV beside it")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="ends in .csv (FILE.json is written too), .jsonl or .parquet",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    arguments = parser.parse_args(argv)
    recording, output = Path(arguments.recording), Path(arguments.output)
    refused = export(recording, output, force=arguments.force)
    if refused:
        lines = "1 line" if refused == 1 else f"{refused} lines"
        complain(f"left out {lines} of {shown(recording)} that made no sense")
    return 0
